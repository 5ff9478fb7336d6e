"""The dashboard of a rehearsal: what was written, drawn as the deployed dashboard says."""

import re

import pytest

from cdk_rehearsal.report.dashboard_page import render_dashboard
from cdk_rehearsal.report.dashboard_panels import draw_panels
from cdk_rehearsal.report.written_metrics import WrittenMetrics
from deeplearning_contract.log_record import LogLine, Speaker
from deeplearning_contract.metrics import (
    CLUSTER,
    FORMATION_SECONDS,
    GPU_UTILIZATION,
    NAMESPACE,
    NODE,
    NODES_FORMED,
    PHASE,
    embed_metrics,
)

START = 1_790_000_000.0
MINE, OTHER = {CLUSTER: "mine"}, {CLUSTER: "other"}


def _say(at, values, *, cluster="mine", node="i-1", level="INFO", **more):
    details = embed_metrics(values, {CLUSTER: cluster, NODE: node, **more}, START + at) if values else {}
    return LogLine(START + at, level, Speaker(cluster, node, "worker"), 1, "agent", f"at {at:g}", details).to_text()


WRITTEN = WrittenMetrics.from_messages(
    [
        "START RequestId: 1 Version: $LATEST",
        _say(70, {NODES_FORMED: 2}),
        _say(10, {NODES_FORMED: 3}),
        _say(3610, {NODES_FORMED: 2}),
        _say(20, {GPU_UTILIZATION: 40}, node="i-2"),
        _say(20, {GPU_UTILIZATION: 60}, node="i-1"),
        _say(20, {GPU_UTILIZATION: 5}, cluster="other", node="i-9"),
        _say(30, {FORMATION_SECONDS: 12.5}, Phase="boot"),
        _say(40, {}, level="WARNING"),
        _say(50, {}, level="ERROR"),
        '["no line"]',
    ]
)


def _widget(kind, **properties):
    return {"type": kind, "x": 0, "y": 0, "width": 12, "height": 6, "properties": properties}


def _draw(widget):
    (panel,) = draw_panels({"widgets": [widget]}, WRITTEN, {"arn:1": "Nodes are lost"}, {})
    return panel


def _metric(name, *dimensions, **options):
    return [NAMESPACE, name, *dimensions, options]


def test_reads_metrics_of_lines_in_any_order_by_their_dimensions():
    formed = WRITTEN.find(NAMESPACE, "NodesFormed", MINE)
    assert formed == [(START + 10, 3), (START + 70, 2), (START + 3610, 2)]
    assert WRITTEN.find(NAMESPACE, "NodesFormed", OTHER) == []
    assert WRITTEN.find(NAMESPACE, "FormationSeconds", MINE | {PHASE: "boot"}) == [(START + 30, 12.5)]
    assert [value for _, value in WRITTEN.find(NAMESPACE, "GpuUtilization", MINE)] == [40, 60]
    assert WRITTEN.span() == (START + 10, START + 3610)
    assert WrittenMetrics().span() == (0, 0)


def test_draws_a_metric_under_its_label_and_none_that_is_hidden():
    shown = _metric("NodesFormed", CLUSTER, "mine", label="formed")
    panel = _draw(_widget("metric", title="Nodes", metrics=[shown, _metric("X", CLUSTER, "mine", visible=False)]))
    assert [(curve.label, len(curve.points), curve.highest) for curve in panel.curves] == [("formed", 3, 3)]
    assert panel.note == ""


def test_search_draws_each_node_of_the_cluster_and_of_no_other():
    text = f"SEARCH('{{{NAMESPACE},Cluster,Node}} MetricName=\"GpuUtilization\" Cluster=\"mine\"', 'Average', 60)"
    panel = _draw(_widget("metric", title="GPUs", metrics=[[{"expression": text, "period": 60}]]))
    assert [(curve.label, curve.points[0][1]) for curve in panel.curves] == [("i-1", 60), ("i-2", 40)]


def test_running_sum_counts_node_hours():
    rows = [
        [{"expression": "RUNNING_SUM(FILL(launched, 0))", "label": "node-hours"}],
        _metric("NodesFormed", CLUSTER, "mine", id="launched", visible=False),
    ]
    (curve,) = _draw(_widget("metric", title="Node-hours", metrics=rows)).curves
    assert [round(value, 3) for _, value in curve.points] == [0, 0.05, 2.017]


def test_expression_that_it_cannot_draw_is_an_error_once_there_is_data():
    rows = [[{"expression": "ANOMALY(formed)"}], _metric("NodesFormed", CLUSTER, "mine", id="formed", visible=False)]
    with pytest.raises(ValueError, match=r"expression must be one that a rehearsal can draw, got ANOMALY\(formed\)"):
        _draw(_widget("metric", title="Odd", metrics=rows))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (_metric("NodesLost", CLUSTER, "mine"), "nothing was written in this time"),
        (
            ["AWS/EFS", "DataReadIOBytes", "FileSystemId", "fs-1", {}],
            "AWS itself writes AWS/EFS, which the lab does not have",
        ),
    ],
)
def test_chart_without_data_says_why(row, why):
    panel = _draw(_widget("metric", title="Empty", metrics=[row]))
    assert panel.is_empty
    assert panel.note == why


def test_log_shows_the_levels_of_its_query_newest_first():
    panel = _draw(_widget("log", title="Log", query='SOURCE "x" | filter level in ["WARNING", "ERROR"] | limit 9'))
    assert [line["message"] for line in panel.rows] == ["at 50", "at 40"]
    with pytest.raises(ValueError, match="query must filter by level"):
        _draw(_widget("log", title="Log", query="fields @message"))


def test_alarms_are_shown_by_what_they_say():
    panel = _draw(_widget("alarm", title="Alarms", alarms=["arn:1", "arn:2"]))
    assert list(panel.rows) == ["Nodes are lost", "arn:2"]
    assert panel.note == "A rehearsal does not evaluate alarms."


def test_page_is_whole_and_lets_no_text_become_markup():
    head = "# Cluster mine\n\nA shell:\n\n```\naws ssm <x>\n```\n\nSee `status` & more"
    widgets = [
        _widget("text", markdown=head),
        _widget("alarm", title="Alarms", alarms=["arn:1"]),
        _widget("metric", title="Nodes", metrics=[_metric("NodesFormed", CLUSTER, "mine", label="<formed>")]),
        _widget(
            "metric", title="Phases", view="bar", metrics=[_metric("FormationSeconds", CLUSTER, "mine", PHASE, "boot")]
        ),
        _widget("metric", title="Zero", metrics=[["AWS/SQS", "Visible", "QueueName", "q", {}]]),
        _widget("log", title="Log", query='filter level in ["WARNING"]'),
    ]
    WRITTEN.add("AWS/SQS", "Visible", {"QueueName": "q"}, (START + 20, 0.0))
    page = render_dashboard("mine-here", {"widgets": widgets}, WRITTEN, {"arn:1": "Nodes are lost"}, {})
    assert "<h3>Cluster mine</h3>" in page
    assert "<pre>aws ssm &lt;x&gt;</pre>" in page
    assert "See <code>status</code> &amp; more" in page
    assert "&lt;formed&gt;: 3 after 0 s" in page
    assert "<formed>" not in page
    assert page.count("<section") == len(widgets)
    assert not re.search(r"(src|href)=|<script", page)


def test_page_names_the_charts_that_have_nothing_to_show_in_a_line_and_leaves_them_out():
    """A chart of a metric that means nothing in a rehearsal is one, though a stand-in wrote values."""
    search = f"SEARCH('{{{NAMESPACE},Cluster,Node}} MetricName=\"GpuUtilization\" Cluster=\"mine\"', 'Average', 60)"
    formed, used = (_metric(name, CLUSTER, "mine") for name in ("NodesFormed", "GpuUtilization"))
    widgets = [
        _widget("metric", title="Nodes", metrics=[formed]),
        _widget("metric", title="Lost", metrics=[_metric("NodesLost", CLUSTER, "mine")]),
        _widget("metric", title="GPUs", metrics=[used, [{"expression": search}]]),
        _widget("metric", title="Nodes and GPUs", metrics=[formed, used]),
    ]
    page = render_dashboard("mine", {"widgets": widgets}, WRITTEN, {}, {"GpuUtilization": "there is no GPU"})
    assert re.findall(r"<h2>(.*)</h2>", page) == ["Nodes", "Nodes and GPUs"]
    assert "Not shown: Lost (nothing was written in this time); GPUs (there is no GPU)." in page
    shown = render_dashboard("mine", {"widgets": widgets[2:3]}, WRITTEN, {}, {})
    assert "<h2>GPUs</h2>" in shown
    assert "Not shown" not in shown


def test_page_puts_widgets_in_the_rows_of_the_dashboard_by_their_columns():
    places = {"right": (12, 0), "below": (0, 6), "left": (0, 0)}
    chart = {"metrics": [_metric("NodesFormed", CLUSTER, "mine")]}
    widgets = [_widget("metric", title=title, **chart) | {"x": x, "y": y} for title, (x, y) in places.items()]
    page = render_dashboard("mine", {"widgets": widgets}, WRITTEN, {}, {})
    rows = page.split('<div class="row">')[1:]
    assert [re.findall(r"<h2>(.*)</h2>", row) for row in rows] == [["left", "right"], ["below"]]


def test_page_is_for_a_phone_and_for_the_dark_too():
    page = render_dashboard("mine", {"widgets": []}, WrittenMetrics(), {}, {})
    assert "@media (prefers-color-scheme: dark)" in page
    assert re.search(r"@media \(max-width: \d+px\) \{ \.row \{ flex-direction: column; \}", page)
    assert 'name="viewport" content="width=device-width' in page
