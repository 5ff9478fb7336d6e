"""The deployed dashboard as one self-contained HTML page, filled with what the rehearsal wrote."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.report.dashboard_panels import HEIGHT, WIDTH, Curve, Panel, draw_panels
from cdk_rehearsal.report.written_metrics import WrittenMetrics, read_written_metrics

_MOST_LOG_ROWS = 12
_HALF = 2
_ROUNDING = 1 - 1e-9


@dataclass(frozen=True)
class Frame:
    """
    The axes of all charts of a page.

    Attributes:
        begin: When the first point was written, in seconds since the epoch.
        end: When the last was.
    """

    begin: float
    end: float

    def x(self, at: float) -> float:
        """Return where a moment lies."""
        return round((at - self.begin) / max(self.end - self.begin, 1.0) * WIDTH, 1)

    def path(self, curve: Curve, highest: float) -> str:
        """Return a curve's corners in the form of SVG."""
        return " ".join(f"{self.x(at)},{_y(value, highest)}" for at, value in curve.points)

    def dots(self, curve: Curve, highest: float) -> list[tuple[float, float, str]]:
        """Return where each point of a curve lies, and what it says."""
        return [
            (self.x(at), _y(value, highest), f"{curve.label}: {value:g} after {at - self.begin:.0f} s")
            for at, value in curve.points
        ]

    def ticks(self) -> list[tuple[float, str]]:
        """Return the moments that the time axis names."""
        moments = (self.begin, (self.begin + self.end) / _HALF, self.end)
        return [(self.x(at), f"{at - self.begin:.0f} s") for at in moments]


def read_dashboard(aws: EmbeddedAws, unreal: Mapping[str, str]) -> str:
    """
    Render the account's dashboard as it is now, the first where there are several; empty without one.

    Args:
        aws: The account.
        unreal: Name of a metric that means nothing in a rehearsal -> the reason.
    """
    client = aws.place.client("cloudwatch")
    alarms = {
        alarm["AlarmArn"]: alarm.get("AlarmDescription", "") for alarm in client.describe_alarms()["MetricAlarms"]
    }
    for entry in client.list_dashboards()["DashboardEntries"]:
        name = entry["DashboardName"]
        body = json.loads(client.get_dashboard(DashboardName=name)["DashboardBody"])
        return render_dashboard(name, body, read_written_metrics(aws), alarms, unreal)
    return ""


def render_dashboard(
    name: str,
    body: Mapping[str, Any],
    written: WrittenMetrics,
    alarms: Mapping[str, str],
    unreal: Mapping[str, str],
) -> str:
    """
    Render a dashboard; the page needs no network and no other file, and names the charts that have nothing to show.

    Args:
        name: Its name.
        body: Its body.
        written: What was written.
        alarms: ARN -> what the alarm says.
        unreal: Name of a metric that means nothing in a rehearsal -> the reason.
    """
    panels = draw_panels(body, written, alarms, unreal)
    rows: dict[int, list[Panel]] = {}
    for panel in panels:
        if not panel.is_empty:
            rows.setdefault(panel.place[1], []).append(panel)
    environment = Environment(
        loader=PackageLoader("cdk_rehearsal.report", "templates"), autoescape=True, undefined=StrictUndefined
    )
    return environment.get_template("dashboard.html.j2").render(
        name=name,
        rows=[sorted(row, key=lambda panel: panel.place) for _, row in sorted(rows.items())],
        left_out=[panel for panel in panels if panel.is_empty],
        frame=Frame(*written.span()),
        width=WIDTH,
        height=HEIGHT,
        most_rows=_MOST_LOG_ROWS,
        highest=_highest,
    )


def _highest(panel: Panel) -> float:
    """Return the value at the top of a chart: round, not below the highest, never 0."""
    highest = max(curve.highest for curve in panel.curves)
    if highest <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(highest))
    return step * next(factor for factor in (1, 1.5, 2, 3, 4, 5, 6, 8, 10) if step * factor >= highest * _ROUNDING)


def _y(value: float, highest: float) -> float:
    return round(HEIGHT * (1 - value / highest), 1)
