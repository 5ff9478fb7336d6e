"""The nodes' log, which a node fills every ten seconds."""

from types import SimpleNamespace
from typing import Any

import boto3

from deeplearning_contract.log_record import LogLine, Speaker
from deeplearning_rehearsal.checks import node_log
from tests.unit.local_aws import empty_aws


class Logs:
    """A log group into which one more node ships at each look."""

    def __init__(self, *nodes: str) -> None:
        self.waiting = list(nodes)
        self.events: list[dict[str, str]] = []

    def get_paginator(self, _operation: str) -> Any:
        return SimpleNamespace(paginate=self.paginate)

    def paginate(self, **_: str) -> list[dict[str, Any]]:
        if self.waiting:
            self.events.append(_write_line(self.waiting.pop(0)))
        return [{"events": list(self.events)}]


def test_a_node_that_has_not_shipped_yet_is_waited_for(monkeypatch: Any) -> None:
    monkeypatch.setattr(node_log.time, "sleep", lambda _: None)
    report = node_log.await_node_log(Logs("i-1", "i-2", "i-3"), "group", ["i-1", "i-3"])
    assert report.lines == {"i-1": 1, "i-2": 1, "i-3": 1}


def test_a_silent_node_is_not_waited_for_for_ever() -> None:
    assert node_log.await_node_log(Logs("i-1"), "group", ["i-1", "i-2"], seconds=0).lines == {"i-1": 1}


class Emr:
    """EMR with a cluster of one instance that runs, one bootstrap action and one step that has ended."""

    log_uri = "s3n://team-logs/emr/"

    def describe_cluster(self, **_: str) -> dict[str, Any]:
        return {"Cluster": {"LogUri": self.log_uri}}

    def list_instances(self, **asked: Any) -> dict[str, Any]:
        assert asked["InstanceStates"] == ["RUNNING"]
        return {"Instances": [{"Ec2InstanceId": "i-1"}]}

    def list_bootstrap_actions(self, **_: str) -> dict[str, Any]:
        return {"BootstrapActions": [{}]}

    def list_steps(self, **asked: Any) -> dict[str, Any]:
        assert asked["StepStates"] == ["COMPLETED", "FAILED"]
        return {"Steps": [{"Id": "s-1"}]}


def test_the_logs_of_emr_are_found_in_the_bucket_or_missed() -> None:
    """EMR management guide, "View log files"."""
    with empty_aws():
        s3 = boto3.client("s3", "us-east-1")
        s3.create_bucket(Bucket="team-logs")
        for name in ("controller", "stdout"):
            s3.put_object(Bucket="team-logs", Key=f"emr/j-1/node/i-1/bootstrap-actions/1/{name}.gz")
        s3.put_object(Bucket="team-logs", Key="emr/j-2/steps/s-1/controller.gz")
        found = node_log.list_emr_logs(Emr(), s3, "j-1")
    action, step = "s3://team-logs/emr/j-1/node/i-1/bootstrap-actions/1", "s3://team-logs/emr/j-1/steps/s-1"
    assert found == {
        f"{action}/controller.gz": True,
        f"{action}/stdout.gz": True,
        f"{action}/stderr.gz": False,
        f"{step}/controller.gz": False,
        f"{step}/stdout.gz": False,
        f"{step}/stderr.gz": False,
    }


def test_no_log_of_emr_is_missed_where_a_cluster_writes_none(monkeypatch: Any) -> None:
    monkeypatch.setattr(Emr, "log_uri", "")
    assert node_log.list_emr_logs(Emr(), None, "j-1") == {}


def _write_line(node: str) -> dict[str, str]:
    speaker = Speaker("digits", node, "worker")
    return {"message": LogLine(0.0, "INFO", speaker, 1, "agent", "hello").to_text(), "logStreamName": speaker.stream}
