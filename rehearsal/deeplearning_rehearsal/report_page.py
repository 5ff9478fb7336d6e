"""The report as one self-contained HTML page with a timeline."""

from collections.abc import Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplearning_rehearsal.report import Report

_WIDTH = 1000.0
_ROW = 26
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)


def render_page(report: Report) -> str:
    """Render the page; it needs no network and no other file."""
    environment = Environment(
        loader=PackageLoader("deeplearning_rehearsal", "templates"), autoescape=True, undefined=StrictUndefined
    )
    end = max(
        [happening["at"] for happening in report.timeline]
        + [span["start"] + span["seconds"] for span in report.phases]
        + [1.0]
    )
    return environment.get_template("report.html.j2").render(
        report=report,
        width=_WIDTH,
        row=_ROW,
        lanes=_lanes(report.timeline, end),
        ticks=[(seconds, _x(seconds, end)) for seconds in _tick_seconds(end)],
        phases=[
            (span["name"], _x(span["start"], end), _x(span["seconds"], end), span["seconds"]) for span in report.phases
        ],
    )


def _x(seconds: float, end: float) -> float:
    return round(seconds / end * _WIDTH, 1)


def _tick_seconds(end: float) -> list[int]:
    step = next((step for step in _STEPS if end / step <= 12), _STEPS[-1])  # noqa: PLR2004 - a dozen ticks read well
    return list(range(0, int(end) + 1, step))


def _lanes(timeline: Sequence[Any], end: float) -> list[tuple[str, list[tuple[float, str]]]]:
    lanes: dict[str, list[tuple[float, str]]] = {}
    for happening in timeline:
        label = f"{happening['at']:.1f} s: {happening['text']}"
        lanes.setdefault(happening["lane"], []).append((_x(happening["at"], end), label))
    return list(lanes.items())
