"""The report: its public schema, its text and its page."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_rehearsal.report import (
    ClusterReport,
    NodeReport,
    Report,
    StackReport,
    TrainingReport,
    render_text,
    write_report,
)
from deeplearning_rehearsal.report_page import render_page
from deeplearning_rehearsal.timeline import Timeline

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


def test_text_names_what_failed(report: Report) -> None:
    broken = NodeReport("deeplearning-worker2", "worker", "i-1", "10.0.0.6", {}, {"login shell": False})
    text = render_text(replace(report, verdict="fail", reasons=("a node breaks the contract",), nodes=(broken,)))
    assert "FAIL" in text
    assert "a node breaks the contract" in text
    assert "login shell FAILED" in text


def test_page_escapes_what_nodes_and_users_wrote(report: Report) -> None:
    page = render_page(report)
    assert "<b>created</b>" not in page
    assert "&lt;b&gt;created&lt;/b&gt;" in page


def test_page_of_a_stack_that_never_formed_renders(report: Report) -> None:
    cluster = replace(report.cluster, formed=0, generation=0, formation_seconds=None, aws_call_bound=None)
    page = render_page(replace(report, cluster=cluster, training=None, nodes=(), timeline=(), phases=()))
    assert "0 of 2" in page


def test_timeline_measures_a_phase_that_ends_with_an_error() -> None:
    ticks = iter([0.0, 1.0, 4.0, 9.0])
    timeline = Timeline(clock=lambda: next(ticks))
    with pytest.raises(RuntimeError), timeline.phase("train"):
        raise RuntimeError
    assert [(span.name, span.start, span.seconds) for span in timeline.spans] == [("train", 1.0, 3.0)]
