"""Page of a view: lines with styles, for a terminal and for a file."""

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from deeplearning_view.view import AttemptView, CapacityView, ClusterView, LogExcerpt, NodeView, Problem

WIDTH = 118
_LABEL = 11
_STYLES = {"formed": "bold green", "failed": "bold red", "forming": "bold yellow", "stopped": "bold", "deleted": "bold"}
_MOST_GONE = 8
_MOST_LOG = 3 * WIDTH
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True)
class PageLine:
    """Line of a page, with its style for a terminal."""

    text: str
    style: str = ""


def render_text(view: ClusterView) -> str:
    """Render the page without styles."""
    return "\n".join(line.text for line in render_page(view))


def render_page(view: ClusterView) -> tuple[PageLine, ...]:
    """Render the page."""
    lines = [
        *_row("stack", f"{view.stack}  {view.stack_status}  {view.region}"),
        *_row("cluster", describe_cluster(view), _STYLES[view.verdict]),
    ]
    for number, text in enumerate(describe_capacity(view.capacity)):
        lines += _row("" if number else "capacity", text, "dim" if number else "", hanging="  ")
    lines += _row("capacity", view.waiting, hanging="  ") if view.waiting else []
    for problem in [entry for entry in view.problems if not entry.is_past]:
        lines += _render_problem(problem, "why", "bold red", with_lines=True)
    lines += _render_nodes(view.nodes)
    for text in view.provisioning:
        lines += _row("progress", text)
    for problem in [entry for entry in view.problems if entry.is_past]:
        lines += _render_problem(problem, "recovered", "yellow", with_lines=False)
    for command in view.log_in:
        lines += _row("log in", command, "cyan")
    for warning in view.warnings:
        lines += _row("warning", warning, "yellow")
    for unread in view.unread:
        lines += _row("not read", unread, "yellow")
    return tuple(lines)


def describe_cluster(view: ClusterView) -> str:
    """Return the state of the cluster as one line."""
    parts = [f"{view.verdict.upper()}"]
    if view.asked:
        parts.append(f"{view.formed} of {view.asked} nodes")
    if view.generation:
        parts.append(f"generation {view.generation}")
    if view.phase and view.phase != view.verdict:
        parts.append(f"phase {view.phase}")
    since = _age(view.since, view.looked_at)
    return ", ".join([*parts, f"for {since}"] if since else parts)


def describe_capacity(capacity: CapacityView | None) -> tuple[str, ...]:
    """Return the candidate that the cluster has or asks as one line, and a line for each that gave too little."""
    if capacity is None:
        return ()
    place = f"{capacity.position} of {capacity.count}: " if capacity.position else ""
    what, share = f"{place}{capacity.words}", f"{capacity.launched} of {capacity.requested}"
    moments = [f"{word} {_clock(at)} UTC" for word, at in (("since", capacity.since), ("until", capacity.until)) if at]
    asked = len({capacity.candidate, *(attempt.candidate for attempt in capacity.attempts)})
    head = {
        "found": f"{what}, {share}",
        "none": f"no candidate has enough; {asked} of {capacity.count or 'them'} were asked, the last {capacity.words}",
        "asking": ", ".join([f"asking {what}", *([share] if capacity.since else ["not yet requested"]), *moments]),
        "leaving": ", ".join([f"leaving {what}", f"{capacity.launched} nodes are not gone yet", *moments]),
        "resting": ", ".join(["every candidate rests", *moments]),
    }[capacity.stage]
    return (head + (f"; then {capacity.then}" if capacity.then else ""), *map(_describe_attempt, capacity.attempts))


def _describe_attempt(attempt: AttemptView) -> str:
    after = _age(attempt.began, attempt.ended)
    share = f"{attempt.launched} of {attempt.requested}"
    return f"{attempt.words}: {attempt.kind}, {share}" + (f" after {after}" if after else "")


def _clock(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%H:%M:%S}"


def format_age(seconds: float) -> str:
    """Return a length of time in at most two units."""
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE} min"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR} h"


def _age(since: str, now: str) -> str:
    if not since or not now:
        return ""
    return format_age((datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds())


def _render_problem(problem: Problem, label: str, style: str, *, with_lines: bool) -> list[PageLine]:
    lines = _row(label, f"{problem.what}: {problem.cause}", style)
    if problem.remedy:
        words, *commands = problem.remedy.split("\n")
        lines += _row("do", words, "green")
        lines += [PageLine(f"{'':<{_LABEL}}{command}", "green") for command in commands]  # to be copied, so unwrapped
    if with_lines:
        lines += [line for entry in problem.lines for line in _render_excerpt(entry)]
    return lines


def _render_excerpt(entry: LogExcerpt) -> list[PageLine]:
    at = datetime.fromisoformat(entry.at)
    text = f"{at:%H:%M:%S} {entry.level:<7} {entry.message}"
    shown = text if len(text) <= _MOST_LOG else f"{text[:_MOST_LOG]} ..."
    return _row("log", shown, "dim", hanging=" " * 17)


def _render_nodes(nodes: Sequence[NodeView]) -> list[PageLine]:
    """Render one line per node, with only the youngest of the terminated nodes."""
    gone = [node for node in nodes if node.is_gone]
    left_out = gone[: max(0, len(gone) - _MOST_GONE)]
    shown = [node for node in nodes if node not in left_out]
    if not shown:
        return []
    cells = [_HEAD, *(_cells(node) for node in shown)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(_HEAD))]
    texts = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    styles = ["dim", *("dim" if node.is_gone else "red" if node.phase == "failed" else "" for node in shown)]
    lines = [PageLine(f"{'':<{_LABEL}}{text}", style) for text, style in zip(texts, styles, strict=True)]
    lines[0] = PageLine(f"{'nodes':<{_LABEL}}{texts[0]}", "dim")
    images = sorted({node.image_id for node in shown if not node.is_gone})
    if images:
        lines += _row("image" if len(images) == 1 else "images", ", ".join(images), "dim")
    return [*lines, *(_row("", f"and {len(left_out)} that are gone", "dim") if left_out else ())]


_HEAD = ("name", "role", "instance", "type", "address", "zone", "EC2 and group", "phase", "GPUs", "age")


def _cells(node: NodeView) -> tuple[str, ...]:
    lifecycle = node.lifecycle if node.purchase == "on-demand" else f"{node.lifecycle}, {node.purchase}"
    gpus = "-" if node.gpu_count is None else str(node.gpu_count)
    age = "" if node.is_gone else format_age(node.age_seconds)
    name = node.name or "-"
    return (
        name,
        node.role,
        node.instance_id,
        node.instance_type,
        node.address,
        node.zone,
        lifecycle,
        node.phase,
        gpus,
        age,
    )


def _row(label: str, text: str, style: str = "", hanging: str = "") -> list[PageLine]:
    """Wrap a text after a label; words are never broken, so that names and commands can be copied."""
    wrapped: Iterable[str] = textwrap.wrap(
        text or "-",
        WIDTH,
        initial_indent=f"{label:<{_LABEL}}",
        subsequent_indent=" " * _LABEL + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [PageLine(line, style) for line in wrapped]
