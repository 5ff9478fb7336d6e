"""The report as one self-contained HTML page with a timeline."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from deeplearning_contract.names import NodeRole
from deeplearning_rehearsal.report.report import Document, list_details, list_sections

_WIDTH = 1000.0
_ROW = 26
_NARROW_ROW = 15
_MANY_LANES = 16
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600)
_FIRST_LANES = ("rehearsal", "injected", "training", "stack", "adjuster")
_MASTER_LANE = len(_FIRST_LANES)


@dataclass(frozen=True)
class _Lane:
    """A line of the timeline, in the picture's units: (x, label) of each dot, and a bar from the first to the last."""

    name: str
    dots: tuple[tuple[float, str], ...]

    @property
    def start(self) -> float:
        return self.dots[0][0]

    @property
    def length(self) -> float:
        return round(self.dots[-1][0] - self.start, 1)


def render_page(report: Document, *, dashboard: str = "") -> str:
    """
    Render the page; it needs no network and no other file.

    Args:
        report: What was found out.
        dashboard: The file beside it that shows the stack's dashboard. Default: there is none.
    """
    environment = Environment(
        loader=PackageLoader("deeplearning_rehearsal.report", "templates"), autoescape=True, undefined=StrictUndefined
    )
    end = max(
        [happening["at"] for happening in report["timeline"]]
        + [span["start"] + span["seconds"] for span in report["phases"]]
        + [1.0]
    )
    lanes = _lanes(report["timeline"], end)
    return environment.get_template("report.html.j2").render(
        report=report,
        dashboard=dashboard,
        width=_WIDTH,
        row=_ROW,
        lane_row=_NARROW_ROW if len(lanes) > _MANY_LANES else _ROW,
        lanes=lanes,
        sections=list_sections(report),
        details=list_details(report),
        injections=[
            (_x(entry["at"], end), f"{entry['at']:.1f} s: {entry['what']}")
            for entry in (report["case"]["injections"] if report["case"] else ())
        ],
        ticks=[(seconds, _x(seconds, end)) for seconds in _tick_seconds(end)],
        phases=[
            (span["name"], _x(span["start"], end), _x(span["seconds"], end), span["seconds"])
            for span in report["phases"]
        ],
    )


def _x(seconds: float, end: float) -> float:
    return round(seconds / end * _WIDTH, 1)


def _tick_seconds(end: float) -> list[int]:
    step = next((step for step in _STEPS if end / step <= 12), _STEPS[-1])  # noqa: PLR2004 - a dozen ticks read well
    return list(range(0, int(end) + 1, step))


def _lanes(timeline: Sequence[Any], end: float) -> list[_Lane]:
    dots: dict[str, list[tuple[float, str]]] = {}
    for happening in sorted(timeline, key=lambda happening: float(happening["at"])):
        label = f"{happening['at']:.1f} s: {happening['text']}"
        dots.setdefault(happening["lane"], []).append((_x(happening["at"], end), label))
    return [_Lane(name, tuple(dots[name])) for name in sorted(dots, key=_rank)]


def _rank(lane: str) -> tuple[int, int, str]:
    """Order lanes as a cluster comes up: the stack, the adjuster, the master, the workers by number."""
    if lane in _FIRST_LANES:
        return _FIRST_LANES.index(lane), 0, lane
    role, _, number = lane.partition(" ")
    position = _MASTER_LANE + (role != NodeRole.MASTER.value)
    return position, int(number) if number.isdigit() else sys.maxsize, lane
