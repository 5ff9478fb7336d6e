"""
The report as one self-contained HTML page.

Its picture shows what happened when: a lane for the stack, each function and each machine, with faults across all.
"""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplearning_contract.names import NodeRole
from deeplearning_rehearsal.report.report import Document, describe_run, list_details, list_sections

_NARROWEST, _WIDEST, _SECOND = 1000, 3000, 3
_LANE, _BAR, _CURVE, _BRACKET = 46, 10, 64, 22
_CHARACTER = 6.3
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
_FAULTS, _TRAINING = "injected", "training"
_LANES = {
    _FAULTS: "fault",
    "stack": "stack",
    "adjuster": "adjuster (Lambda)",
    _TRAINING: "training job",
}
_MAKES, _MADE = "make", "made"
"""States of a node that makes or copies software, and of one that no longer does: it is then as it was before."""
_MEMBERS = re.compile(r"(?:published )?generation \d+ (?:with|has) (\d+) members")
# What a line of the timeline means: a label, and the state that a lane's bar has from there on; "" keeps the state.
_MEANINGS = (
    (r"boots ", "launched", "busy"),
    (r"in service$", "in service", ""),
    (r"reported joined", "joined", ""),
    (r"reported ready", "member", "good"),
    (r"(?:published )?generation (\d+) (?:with|has) (\d+)", r"generation \1: \2 members", "good"),
    (r"loses its power", "lost", "gone"),
    (r"powers itself off", "powers off", "gone"),
    (r"reboots by itself", "reboots", "busy"),
    (r"is powered off|terminated", "ended", "gone"),
    (r"training starts", "training", "train"),
    (r"the run script ended", "job ended", ""),
    (r"training ends, held-out (.*)", r"\1", "good"),
    (r"start at batch (\d+) with (\d+)", r"starts, \2 ranks", "train"),
    (r"reset at batch (\d+) with (\d+)", r"goes on, \2 ranks", "train"),
    (r"done at batch (\d+)", "ends", "done"),
    (r"(\S+ \((?:run|seed|look)\)) starts", r"\1", "train"),
    (r"\S+ \((?:run|seed|look)\) trained as promised", "trained", "done"),
    (r"\S+ \((?:run|seed|look)\) ", "failed", "bad"),
    (r"environment: ", "software", _MAKES),
    (r"environment is done", "software ready", _MADE),
    (r"environment is failed", "software failed", _MADE),
    (r"CREATE_IN_PROGRESS: User Initiated", "begins", "busy"),
    (r"SUCCESS from", "success signal", ""),
    (r"CREATE_COMPLETE", "complete", "good"),
    (r"(\S+) CREATE_FAILED", r"\1 failed", "bad"),
    (r"ROLLBACK_COMPLETE", "rolled back", "gone"),
    (r"\S+ → \S+ in ", "invoked", ""),
    (r"event EC2_INSTANCE_LAUNCH$", "launch event", ""),
    (r"event EC2_INSTANCE_TERMINATE$", "termination event", ""),
    (r"event Deep Learning Cluster (\w+)", r"event: \1", ""),
    (r"(launch failed.*?)[:.]", r"\1", ""),
    (r"(EC2 finds \S+ \S+).* dead", r"\1 dead", ""),
)


@dataclass(frozen=True)
class Moment:
    """Something that is drawn in a lane: when, its label, the state that the lane has from there on, and all of it."""

    at: float
    label: str
    state: str
    text: str


@dataclass
class Picture:
    """
    Parts of the picture, in pixels; each entry ends with its class.

    Attributes:
        end: Seconds at the right edge.
        names: y and name of each lane.
        bars: x, y, width, height, what it says.
        dots: x, y, what it says.
        lines: x and y of both ends.
        texts: x, y, anchor, text.
        height: How far it is drawn.
    """

    end: float
    names: list[tuple[float, str]] = field(default_factory=list)
    bars: list[tuple[float, float, float, float, str, str]] = field(default_factory=list)
    dots: list[tuple[float, float, str, str]] = field(default_factory=list)
    lines: list[tuple[float, float, float, float, str]] = field(default_factory=list)
    texts: list[tuple[float, float, str, str, str]] = field(default_factory=list)
    height: float = 0.0
    _written: list[tuple[float, float, float]] = field(default_factory=list)

    @property
    def width(self) -> float:
        """The width; a long rehearsal is wider, so that labels have room."""
        return min(max(self.end * _SECOND, _NARROWEST), _WIDEST)

    def x(self, seconds: float) -> float:
        """Return where a moment lies."""
        return round(seconds / self.end * self.width, 1)

    def write(self, x: float, y: float, text: str, kind: str) -> bool:
        """Write behind a point, or before it at the right edge; return whether other texts left room for it."""
        length = len(text) * _CHARACTER
        left = x if x + length <= self.width else x - length
        if any(row == y and left < end and begin < left + length for row, begin, end in self._written):
            return False
        self._written.append((y, left, left + length + _CHARACTER))
        self.texts.append((x, y, "start" if left == x else "end", text, kind))
        return True


def render_page(report: Document, *, dashboard: str = "") -> str:
    """
    Render the page; it needs no network and no other file.

    Args:
        report: The report.
        dashboard: The file beside it that shows the stack's dashboard. Default: there is none.
    """
    environment = Environment(
        loader=PackageLoader("deeplearning_rehearsal.report", "templates"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        run=describe_run(report),
        dashboard=dashboard,
        picture=draw_timeline(report),
        narrowest=_NARROWEST,
        sections=list_sections(report),
        details=list_details(report),
    )


def draw_timeline(report: Document) -> Picture:
    """Draw the timeline of a report."""
    phases, case = report["phases"], report["case"] or {"injections": (), "progress": ()}
    ends = [entry["at"] for entry in report["timeline"]] + [span["start"] + span["seconds"] for span in phases]
    picture = Picture(max([*ends, 1.0]))
    _draw_phases(picture, phases)
    for start, seconds, text in _measure(report):
        _draw_bracket(picture, start, seconds, text)
    top = picture.height
    lanes = read_lanes(report["timeline"], report["stack"]["name"])
    for name in sorted(lanes, key=_rank):
        _draw_lane(picture, name, lanes[name])
        if name == _TRAINING:
            _draw_progress(picture, case["progress"])
    for entry in case["injections"]:
        x = picture.x(entry["at"])
        picture.lines.append((x, top, x, picture.height, "fault"))
    _draw_axis(picture)
    return picture


def read_lanes(timeline: Sequence[Mapping[str, Any]], stack: str) -> dict[str, list[Moment]]:
    """Return what is drawn of a timeline, by lane; lines that are of interest to readers of logs alone are not."""
    lanes: dict[str, list[Moment]] = {}
    for entry in sorted(timeline, key=lambda entry: float(entry["at"])):
        label, state = _find_meaning(entry["lane"], entry["text"].removeprefix(f"{stack} "))
        if label:
            text = f"{entry['at']:.1f} s: {entry['text']}"
            lanes.setdefault(entry["lane"], []).append(Moment(entry["at"], label, state, text))
    return {name: list(_show_making(moments)) for name, moments in lanes.items()}


def _show_making(moments: Sequence[Moment]) -> Iterator[Moment]:
    """Let a lane show that software is made until it is there, whatever starts meanwhile: training waits for it."""
    makes, state = False, "busy"
    for moment in moments:
        if moment.state == _MAKES:
            if not makes:
                yield moment
            makes = True
        elif moment.state == _MADE:
            yield replace(moment, state=state if makes else "")
            makes = False
        else:
            state = moment.state or state
            makes = makes and state not in {"gone", "bad"}
            yield replace(moment, state="") if makes else moment


def _find_meaning(lane: str, text: str) -> tuple[str, str]:
    if lane == _FAULTS and (injected := re.match(r"(.+) \(.+\)", text)):
        return injected[1], ""
    for pattern, label, state in _MEANINGS:
        if found := re.match(pattern, text):
            return found.expand(label), state
    return "", ""


def _measure(report: Document) -> Iterator[tuple[float, float, str]]:
    """Yield start and length of what was measured, and what it is."""
    case, seconds, timeline = report["case"], report["cluster"]["formation_seconds"], report["timeline"]
    launched = [entry["at"] for entry in timeline if entry["text"].startswith("boots ")]
    if seconds is not None and launched:
        yield launched[0], seconds, f"cluster formed in {seconds:.1f} s"
    if case is None:
        return
    failed = [entry["at"] for entry in timeline if "_FAILED" in entry["text"]]
    if (seconds := case["failure_seconds"]) is not None and failed:
        yield failed[0] - seconds, seconds, f"stack failed {seconds:.1f} s after the cause"
    memberships = [(entry["at"], int(found[1])) for entry in timeline if (found := _MEMBERS.match(entry["text"]))]
    for entry in case["injections"]:
        begin, what = entry["at"], entry["what"]
        if (seconds := entry["recovery_seconds"]) is not None:
            yield begin, seconds, f"{what}: training went on after {seconds:.1f} s"
        size = max((members for at, members in memberships if at < begin), default=sys.maxsize)
        if again := [at - begin for at, members in memberships if at > begin and members >= size]:
            yield begin, again[0], f"{what}: {size} members again after {again[0]:.1f} s"


def _rank(lane: str) -> tuple[int, int, str]:
    """Order lanes as a cluster comes up: fault, stack, adjuster, training, the master, the workers by number."""
    if lane in _LANES:
        return list(_LANES).index(lane), 0, lane
    role, _, number = lane.partition(" ")
    position = len(_LANES) + (role != NodeRole.MASTER.value)
    return position, int(number) if number.isdigit() else sys.maxsize, lane


def _draw_phases(picture: Picture, phases: Sequence[Mapping[str, Any]]) -> None:
    for number, span in enumerate(phases):
        x, width = picture.x(span["start"]), picture.x(span["seconds"])
        says = f"{span['name']} {span['seconds']:.1f} s"
        picture.bars.append((x, 0, width, 22, says, f"phase{number % 2}"))
        if width > len(says) * _CHARACTER:
            picture.write(x + 4, 15, says, "name")
    picture.height = 30


def _draw_bracket(picture: Picture, start: float, seconds: float, text: str) -> None:
    left, right, y = picture.x(start), picture.x(start + seconds), picture.height + _BRACKET / 2
    picture.lines += [(left, y, right, y, "bracket"), *((x, y - 5, x, y + 5, "bracket") for x in (left, right))]
    length = len(text) * _CHARACTER * 1.1  # bold
    behind, before = (right + 6, y + 4, "start"), (max(left - 6, length), y + 4, "end")
    picture.texts.append((*(behind if right + length < picture.width else before), text, "measure"))
    picture.height += _BRACKET


def _draw_lane(picture: Picture, name: str, moments: Sequence[Moment]) -> None:
    top = picture.height + 18
    middle = top + _BAR / 2
    picture.names.append((middle + 4, _LANES.get(name, name)))
    picture.lines.append((0, middle, picture.width, middle, "lane"))
    starts = [moment for moment in moments if moment.state]
    for moment, end in zip(starts, [*(moment.at for moment in starts), picture.end][1:], strict=True):
        if moment.state not in {"gone", "done"}:
            x = picture.x(moment.at)
            picture.bars.append((x, top, picture.x(end) - x, _BAR, moment.text, moment.state))
    kinds = {moment: "fault" if name == _FAULTS or moment.state in {"gone", "bad"} else "" for moment in moments}
    picture.dots += [(picture.x(moment.at), middle, moment.text, kind) for moment, kind in kinds.items()]
    changes = [moments[0], *(after for before, after in pairwise(moments) if after.label != before.label)]
    for moment in sorted(changes, key=lambda moment: not moment.state):  # what changes the bar first
        x = max(picture.x(moment.at) - 3, 0)
        any(picture.write(x, y, moment.label, kinds[moment]) for y in (top - 5, top + _BAR + 13))
    picture.height += _LANE


def _draw_progress(picture: Picture, progress: Sequence[Mapping[str, Any]]) -> None:
    """Draw how fast a job trained from commit to commit."""
    rates = [
        (before["at"], after["at"], (after["batch"] - before["batch"]) / (after["at"] - before["at"]))
        for before, after in pairwise(progress)
        if after["event"] in {"commit", "done"} and after["at"] > before["at"]
    ]
    if not rates:
        return
    highest, bottom = max(rate for _, _, rate in rates), picture.height + _CURVE - 8
    picture.names += [(bottom - _CURVE + 24, f"{highest:.1f} batches/s"), (bottom, "0")]
    picture.lines.append((0, bottom, picture.width, bottom, "lane"))
    for begin, end, rate in rates:
        x, height = picture.x(begin), round(rate / highest * (_CURVE - 20), 1)
        says = f"{begin:.1f} s to {end:.1f} s: {rate:.2f} batches a second"
        picture.bars.append((x, bottom - height, picture.x(end) - x, height, says, "rate"))
    picture.height += _CURVE


def _draw_axis(picture: Picture) -> None:
    fitting = picture.width / 70
    step = next((step for step in _STEPS if picture.end / step <= fitting), _STEPS[-1])
    for seconds in range(0, int(picture.end) + 1, step):
        x = picture.x(seconds)
        picture.lines.append((x, 26, x, picture.height, "tick"))
        picture.write(x, picture.height + 14, f"{seconds} s", "")
    picture.height += 20
