"""Draws the widgets of a dashboard's body: what CloudWatch would show of what was written."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.report.written_metrics import Point, WrittenMetrics

WIDTH, HEIGHT = 400, 120
_SEARCH = re.compile(r"SEARCH\('\{(?P<space>[^,}]+),(?P<names>[\w,]+)\} MetricName=\"(?P<name>\w+)\"(?P<rest>.*?)', ")
_FIXED = re.compile(r"(\w+)=\"([^\"]*)\"")
_RUNNING_SUM = re.compile(r"RUNNING_SUM\(FILL\((?P<id>\w+), 0\)\)")
_LEVELS = re.compile(r"filter level in \[(?P<levels>[^\]]*)\]")
_HOUR = 3600


@dataclass(frozen=True)
class Curve:
    """
    A curve of a chart.

    Attributes:
        label: Its name.
        points: What was written.
    """

    label: str
    points: Sequence[Point]

    @property
    def highest(self) -> float:
        """The highest value."""
        return max(value for _, value in self.points)


@dataclass(frozen=True)
class Panel:
    """
    A widget with what it shows.

    Attributes:
        kind: `text`, `alarm`, `log`, `bar` or `timeSeries`.
        title: Its title; empty for a text.
        place: Left, top, width and height in the dashboard's grid.
        curves: What a chart shows; none without data.
        unit: Of a chart's values.
        rows: Blocks of a text, descriptions of alarms, or lines of a log.
        note: Why something is not shown; empty when all is.
    """

    kind: str
    title: str
    place: tuple[int, int, int, int]
    curves: Sequence[Curve] = ()
    unit: str = ""
    rows: Sequence[Any] = ()
    note: str = ""

    @property
    def is_empty(self) -> bool:
        """True for a chart with nothing to show, whose note gives the reason."""
        return self.kind not in {"text", "alarm", "log"} and not self.curves


def draw_panels(
    body: Mapping[str, Any], written: WrittenMetrics, alarms: Mapping[str, str], unreal: Mapping[str, str]
) -> list[Panel]:
    """
    Return the panels of a dashboard.

    Args:
        body: The dashboard's body.
        written: What was written.
        alarms: ARN -> what the alarm says.
        unreal: Name of a metric that means nothing in a rehearsal -> the reason; a chart of only such ones is empty.
    """
    return [_draw(widget, written, alarms, unreal) for widget in body["widgets"]]


def _draw(
    widget: Mapping[str, Any], written: WrittenMetrics, alarms: Mapping[str, str], unreal: Mapping[str, str]
) -> Panel:
    properties = widget["properties"]
    title, place = properties.get("title", ""), (widget["x"], widget["y"], widget["width"], widget["height"])
    if widget["type"] == "text":
        return Panel("text", title, place, rows=_split_text(properties["markdown"]))
    if widget["type"] == "alarm":
        rows = [alarms.get(arn, arn) for arn in properties["alarms"]]
        return Panel("alarm", title, place, rows=rows, note="A rehearsal does not evaluate alarms.")
    if widget["type"] == "log":
        rows = _select_lines(properties["query"], written)
        return Panel("log", title, place, rows=rows, note="" if rows else "Nothing was logged that the query selects.")
    kind, metrics = properties.get("view", "timeSeries"), properties["metrics"]
    names = _name_metrics(metrics)
    if names and names <= unreal.keys():
        return Panel(kind, title, place, note=unreal[min(names)])
    curves = [curve for curve in _find_curves(metrics, written) if curve.points]
    unit = properties.get("yAxis", {}).get("left", {}).get("label", "")
    return Panel(kind, title, place, curves=curves, unit=unit, note="" if curves else _explain_silence(metrics))


def _name_metrics(rows: Sequence[Sequence[Any]]) -> set[str]:
    found = (_SEARCH.match(_options(row).get("expression", "")) for row in rows)
    return {row[1] for row in rows if isinstance(row[0], str)} | {search["name"] for search in found if search}


def _find_curves(rows: Sequence[Sequence[Any]], written: WrittenMetrics) -> Iterator[Curve]:
    known = {options["id"]: _find_points(row, written) for row in rows if "id" in (options := _options(row))}
    for row in rows:
        options = _options(row)
        if "expression" in options:
            yield from _evaluate(options["expression"], options.get("label", ""), known, written)
        elif options.get("visible", True):
            yield Curve(options.get("label", row[1]), _find_points(row, written))


def _options(row: Sequence[Any]) -> Mapping[str, Any]:
    return row[-1] if isinstance(row[-1], dict) else {}


def _find_points(row: Sequence[Any], written: WrittenMetrics) -> list[Point]:
    if not isinstance(row[0], str):
        return []
    texts = [part for part in row if isinstance(part, str)]
    return written.find(texts[0], texts[1], dict(zip(texts[2::2], texts[3::2], strict=True)))


def _evaluate(
    expression: str, label: str, known: Mapping[str, list[Point]], written: WrittenMetrics
) -> Iterator[Curve]:
    if found := _SEARCH.match(expression):
        fixed = dict(_FIXED.findall(found["rest"]))
        names = found["names"].split(",")
        for name, points in written.search(found["space"], found["name"], names, fixed).items():
            yield Curve(label or name, points)
    elif found := _RUNNING_SUM.fullmatch(expression):
        yield Curve(label, _sum_hours(known[found["id"]]))
    elif any(points for name, points in known.items() if re.search(rf"\b{name}\b", expression)):
        raise ValueError(
            f"expression must be one that a rehearsal can draw, got {expression}; teach it dashboard_panels"
        )


def _sum_hours(points: Sequence[Point]) -> list[Point]:
    """Return value times hours, added up: what RUNNING_SUM comes to for the averages of hours."""
    total, summed = 0.0, []
    for number, (at, _) in enumerate(points):
        if number:
            before, value = points[number - 1]
            total += value * (at - before) / _HOUR
        summed.append((at, total))
    return summed


def _explain_silence(rows: Sequence[Sequence[Any]]) -> str:
    spaces = {row[0] for row in rows if isinstance(row[0], str)}
    if theirs := sorted(space for space in spaces if space.startswith("AWS/")):
        return f"AWS itself writes {' and '.join(theirs)}, which the lab does not have"
    return "nothing was written in this time"


def _select_lines(query: str, written: WrittenMetrics) -> list[Mapping[str, Any]]:
    found = _LEVELS.search(query)
    if found is None:
        raise ValueError(f"query must filter by level, got {query}; teach it dashboard_panels")
    levels = {level.strip(' "') for level in found["levels"].split(",")}
    return [line for line in reversed(written.lines) if line.get("level") in levels]


def _split_text(markdown: str) -> list[tuple[str, str]]:
    """Return the blocks of a text: `h`, `pre` or `p`, and what it says."""
    blocks = []
    for number, part in enumerate(markdown.split("```")):
        if number % 2:
            blocks.append(("pre", part.strip()))
            continue
        for paragraph in filter(None, (piece.strip() for piece in part.split("\n\n"))):
            kind = "h" if paragraph.startswith("# ") else "p"
            blocks.append((kind, paragraph.removeprefix("# ")))
    return blocks
