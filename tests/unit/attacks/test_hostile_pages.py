"""The pages of a rehearsal show what nodes, containers and templates say, and never obey it."""

from collections.abc import Mapping
from html.parser import HTMLParser

import pytest

from cdk_rehearsal.report.dashboard_page import render_dashboard
from cdk_rehearsal.report.written_metrics import WrittenMetrics
from deeplearning_contract.log_record import LogLine, Speaker
from deeplearning_contract.metrics import CLUSTER, NAMESPACE, NODE, NODES_FORMED, embed_metrics
from deeplearning_rehearsal.report.report_page import render_page
from tests.unit.deeplearning_rehearsal.report.conftest import report  # noqa: F401 - a fixture

HOSTILE = "\"'></title></svg><script>alert(1)</script><img src=x onerror=alert(1)><a href=javascript:alert(1)>"
START = 1_790_000_000.0


class Parts(HTMLParser):
    """Elements and attributes of a page, as a browser finds them."""

    def __init__(self, page):
        super().__init__()
        self.names = set()
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.names |= {tag, *(f"{tag} {name}" for name, _ in attributes)}
        self.names |= {f"{tag} links {value}" for name, value in attributes if name in ("href", "src")}


def plant(value, paths=(), path=()):
    """Return a document with hostile text in every text of it, and in every key that is data."""
    if isinstance(value, Mapping):
        return {
            (f"{key}{HOSTILE}" if path[-1:] in paths else key): plant(each, paths, (*path, key))
            for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return type(value)(plant(each, paths, path) for each in value)
    return f"{value}{HOSTILE}" if isinstance(value, str) else value


def test_no_text_of_a_report_becomes_an_element_or_an_attribute(report):  # noqa: F811
    report["stack"]["status"] = "ROLLBACK_COMPLETE"
    report["stack"]["reason"] = report["cluster"]["reason"] = "because"
    report["reasons"] = ("one reason",)
    keys = (("resources",), ("outputs",), ("overrides",), ("contract",), ("checks",), ("metrics",))
    hostile = plant(report, keys) | {"run": report["run"]}  # Versions and times, which the rehearsal itself reads.
    clean, page = render_page(report), render_page(hostile)
    assert Parts(page).names <= Parts(clean).names
    assert page.count("&lt;script&gt;alert(1)") > 10


def write_metrics(suffix):
    values = embed_metrics({NODES_FORMED: 2}, {CLUSTER: f"mine{suffix}", NODE: f"i-1{suffix}"}, START)
    speaker = Speaker(f"mine{suffix}", f"i-1{suffix}", f"worker{suffix}")
    lines = [
        LogLine(START, "ERROR", speaker, 1, f"agent{suffix}", f"message{suffix}", {}),
        LogLine(START, "INFO", speaker, 1, "agent", "formed", values),
    ]
    return WrittenMetrics.from_messages([line.to_text() for line in lines])


def make_dashboard(suffix):
    def widget(kind, y, **properties):
        return {"type": kind, "x": 0, "y": y, "width": 12, "height": 6, "properties": properties}

    metric = [NAMESPACE, "NodesFormed", CLUSTER, f"mine{suffix}", NODE, f"i-1{suffix}", {"label": f"formed{suffix}"}]
    query = 'fields @timestamp | filter level in ["ERROR", "WARNING"]'
    return {
        "widgets": [
            widget("text", 0, markdown=f"# head{suffix}\n\ntext `code{suffix}`"),
            widget("metric", 6, title=f"Nodes{suffix}", metrics=[metric]),
            widget("metric", 12, title=f"Bars{suffix}", metrics=[metric], view="bar"),
            widget("alarm", 18, title=f"Alarms{suffix}", alarms=["arn:1"]),
            widget("log", 24, title=f"Lines{suffix}", query=query),
            widget("metric", 30, title=f"Silent{suffix}", metrics=[[NAMESPACE, "None", {"label": "x"}]]),
        ]
    }


@pytest.fixture
def pages():
    return [
        render_dashboard(
            f"name{suffix}", make_dashboard(suffix), write_metrics(suffix), {"arn:1": f"Nodes are lost{suffix}"}, {}
        )
        for suffix in ("", HOSTILE)
    ]


def test_no_text_of_a_dashboard_becomes_an_element_or_an_attribute(pages):
    clean, page = pages
    assert Parts(page).names <= Parts(clean).names
    assert "message&#34;" in page
    assert page.count("&lt;script&gt;alert(1)") > 5
