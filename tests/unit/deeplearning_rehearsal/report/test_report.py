"""The report: its public schema, its text and its page."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_rehearsal.report.environment_report import EnvironmentReport
from deeplearning_rehearsal.report.report import (
    ClusterReport,
    NodeReport,
    Report,
    StackReport,
    TrainingReport,
    render_text,
    write_report,
)
from deeplearning_rehearsal.report.report_page import render_page

CONTRACT = {
    "DEEPLEARNING_WORKERS_PATH": "/opt/deeplearning/workers",
    "DEEPLEARNING_WORKERS_COUNT": "2",
    "DEEPLEARNING_WORKER_GPU_COUNT": "1",
    "EFS_MOUNT": "/efs",
}


@pytest.fixture
def report() -> Report:
    return Report(
        verdict="pass",
        expected="trained",
        reasons=(),
        stack=StackReport("trial", "CREATE_COMPLETE", "", {"AWS::SQS::Queue": 3}, {"Login": "aws ssm"}, {}),
        cluster=ClusterReport(2, 2, 1, 12.5, 40, {"sqs.ReceiveMessage": 40}, {"node": 40}, 60, ""),
        nodes=(NodeReport("deeplearning-worker1", "master", "i-0", "10.0.0.5", CONTRACT, {"login shell": True}),),
        training=TrainingReport("horovod", "torch 1.13", 2, ("a", "b"), "digits", 0.97, 3.2),
        phases=({"name": "deploy", "start": 0.0, "seconds": 2.0}, {"name": "train", "start": 2.0, "seconds": 5.0}),
        stand_ins=({"name": "nvidia-smi", "replaces": "NVIDIA's tool", "does": "prints GPUs"},),
        peak_memory_mib=900,
        timeline=({"at": 1.0, "lane": "stack", "text": "<b>created</b>"},),
    )


def test_json_has_every_key_of_the_public_schema(report: Report, tmp_path: Path) -> None:
    write_report(report, tmp_path, page="")
    document = json.loads((tmp_path / "report.json").read_text())
    assert document["verdict"] == "pass"
    assert {"name", "status", "resources"} <= document["stack"].keys()
    assert {"requested", "formed", "generation", "formation_seconds", "aws_calls"} <= document["cluster"].keys()
    assert {"host", "role", "address", "contract"} <= document["nodes"][0].keys()
    assert document["nodes"][0]["contract"] == CONTRACT
    assert {"launcher", "framework", "ranks", "dataset", "accuracy", "seconds"} <= document["training"].keys()
    assert all({"name", "seconds"} <= phase.keys() for phase in document["phases"])
    assert isinstance(document["cluster"]["aws_calls"], int)
    assert isinstance(document["training"]["ranks"], int)


def test_the_environment_is_in_the_text_and_on_the_page(report: Report) -> None:
    kept = EnvironmentReport("kept", "k1", "i-0", 251.0, "20 packages")
    for shown in (render_text(replace(report, environment=kept)), render_page(replace(report, environment=kept))):
        assert "k1, of an earlier rehearsal, from the cache" in shown
    assert "software" not in render_text(report)


def test_text_names_what_failed(report: Report) -> None:
    broken = NodeReport("deeplearning-worker2", "worker", "i-1", "10.0.0.6", {}, {"login shell": False})
    text = render_text(replace(report, verdict="fail", reasons=("a node breaks the contract",), nodes=(broken,)))
    assert "FAIL" in text
    assert "a node breaks the contract" in text
    assert "1 of 1 checks FAILED: login shell" in text


def test_text_counts_checks_that_hold_and_keeps_to_its_width(report: Report) -> None:
    rows = tuple({"name": f"part {n}", "replaces": "the thing", "does": "something else " * 9} for n in range(3))
    text = render_text(replace(report, stand_ins=rows))
    assert "10.0.0.5        all 1 checks hold" in text
    assert max(len(line) for line in text.splitlines()) <= 110
    assert text.count(" for the thing: something else") == len(rows)


def test_text_tells_calls_of_nodes_from_those_of_the_function(report: Report) -> None:
    cluster = replace(report.cluster, aws_calls=40, aws_calls_by_kind={"lambda": 12, "master": 8, "worker": 20})
    assert "40 AWS calls (nodes 28, bound 60; logs 0; Lambda 12)" in render_text(replace(report, cluster=cluster))


def test_page_escapes_what_nodes_and_users_wrote(report: Report) -> None:
    page = render_page(report)
    assert "<b>created</b>" not in page
    assert "&lt;b&gt;created&lt;/b&gt;" in page


def test_page_of_a_trained_cluster_shows_its_figures_and_lets_checks_be_folded(report: Report) -> None:
    page = render_page(report)
    assert "97.0 %" in page
    assert "horovod ranks, torch 1.13, 3.2 s" in page
    assert '<details><summary class="yes">all 1 checks hold' in page


def test_page_opens_the_checks_of_a_node_that_fails_one(report: Report) -> None:
    broken = replace(report.nodes[0], checks={"login shell": True, "sudo -E": False})
    page = render_page(replace(report, verdict="fail", reasons=("sudo lost it",), nodes=(broken,)))
    assert '<details open><summary class="no">1 of 2 checks FAILED: sudo -E' in page
    assert '<p class="no">sudo lost it</p>' in page


def test_page_orders_lanes_as_a_cluster_comes_up(report: Report) -> None:
    lanes = ("worker 10", "adjuster", "i-0123", "worker 9", "stack", "master 30")
    timeline = tuple({"at": float(at), "lane": lane, "text": "runs"} for at, lane in enumerate(lanes))
    page = render_page(replace(report, timeline=timeline))
    shown = re.findall(r'text-anchor="end">([^<]+)<', page)
    assert shown == ["stack", "adjuster", "master 30", "worker 9", "worker 10", "i-0123"]


def test_page_draws_a_bar_from_the_first_to_the_last_event_of_a_lane(report: Report) -> None:
    timeline = tuple({"at": at, "lane": "stack", "text": "runs"} for at in (10.0, 2.0, 5.0))
    page = render_page(replace(report, timeline=timeline, phases=()))
    (start, width), *others = re.findall(r'class="bar" x="([0-9.]+)" y="[0-9.]+" width="([0-9.]+)"', page)
    assert others == []
    assert (float(start) + float(width) / 2, float(width) > 800) == (600, True)


def test_page_of_a_stack_that_never_formed_renders(report: Report) -> None:
    cluster = replace(report.cluster, formed=0, generation=0, formation_seconds=None, aws_call_bound=None)
    page = render_page(replace(report, cluster=cluster, training=None, nodes=(), timeline=(), phases=()))
    assert "0 of 2" in page
