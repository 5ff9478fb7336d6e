"""Effects of actions on machines and on the embedded AWS, and the comparison of a node's files."""

import subprocess
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from cdk_rehearsal.embedded_aws.base.stack_record import StackResource
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.node_faults import MetadataFault
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_rehearsal.cases.format.actions import POISON, Actions
from deeplearning_rehearsal.cases.format.case import Injection
from deeplearning_rehearsal.cases.format.triggers import parse_target, parse_trigger
from deeplearning_rehearsal.cases.node_files import NodeFiles, digest_files
from tests.real_time import GENEROUS_SECONDS


class RecordedNode:
    """Plays a node with its link, its disk and its metadata service."""

    def __init__(self, recorder: "Recorder", instance_id: str) -> None:
        vars(self).update(recorder=recorder, instance_id=instance_id, link=self, disk=self, metadata=self)

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: self.__setattr__(name, *arguments, *options.values())

    def __setattr__(self, name: str, *values: Any) -> None:
        vars(self)["recorder"].asked.append((name, vars(self)["instance_id"], *values))


class Recorder:
    """Plays lab, fleet, embedded AWS and its clients, and keeps what was asked of them."""

    def __init__(self, root: Path) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.root = root
        self.lines = 0
        self.status = 0
        self.dead = threading.Event()
        self.place = self

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments, **options: self.asked.append((name, *arguments, *options.values()))

    def node(self, instance_id: str) -> RecordedNode:
        return RecordedNode(self, instance_id)

    def fail_instance(self, instance_id: str) -> bool:
        self.asked.append(("fail_instance", instance_id))
        self.dead.set()
        return True

    def reboot(self, instance_id: str) -> None:
        self.asked.append(("reboot", instance_id))
        self.lines += 1

    def run(self, instance_id: str, argv: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        self.asked.append(("run", instance_id, argv[-1]))
        self.lines += 1
        return subprocess.CompletedProcess(list(argv), self.status, "", "no such file\n")

    def lane(self, instance_id: str) -> str:
        return f"worker of {instance_id}"

    def count_lines(self, _instance_id: str) -> int:
        return self.lines

    def disk(self, _instance_id: str) -> Path:
        return self.root

    def client(self, _service: str) -> "Recorder":
        return self

    def list_clusters(self) -> dict[str, Any]:
        return {"Clusters": [{"Id": "j-1"}]}

    def describe_auto_scaling_groups(self, **options: Any) -> dict[str, Any]:
        assert options["Filters"] == [{"Name": "tag:deeplearning:role", "Values": ["worker"]}]
        return {"AutoScalingGroups": [{"AutoScalingGroupName": "workers"}]}


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


@pytest.fixture
def actions(recorder: Recorder) -> Actions:
    lab: Any = recorder
    return Actions(lab, lab, lab, Timeline(), NodeFiles(recorder.disk))


def _injection(do: str, **options: Any) -> Injection:
    trigger = parse_trigger("formed")
    assert trigger is not None
    return Injection(trigger, do, parse_target("worker 2"), options)


@pytest.mark.parametrize(
    ("do", "options", "asked"),
    [
        ("power_off", {"found_dead_after": None}, [("cut_power", "i-2")]),
        ("silence", {}, [("set_up", "i-2", False)]),
        ("restore", {}, [("set_up", "i-2", True)]),
        ("reboot", {}, [("reboot", "i-2")]),
        ("fail_instance", {}, [("fail_instance", "i-2")]),
        ("run_user_data_again", {}, [("run", "i-2", "/var/lib/cloud/instance/scripts/part-001")]),
        (
            "set_gpus",
            {"count": 3, "ecc_errors": 1, "answer_seconds": 25.0},
            [("set_gpus", "i-2", 3, 1, 25.0)],
        ),
        ("break_mounts", {"trouble": "hang", "seconds": 9.0}, [("break_mounts", "i-2", "hang", 9.0)]),
        ("fill_disk", {"free_mib": 2}, [("fill", "i-2", 2 << 20)]),
        ("slow_metadata", {"seconds": 2.0}, [("fault", "i-2", MetadataFault(delay_seconds=2.0))]),
        ("stop_sshd", {}, [("control_sshd", "i-2", "stop")]),
        ("start_sshd", {}, [("control_sshd", "i-2", "start")]),
        ("run", {"line": "kill -STOP 1"}, [("run", "i-2", "kill -STOP 1")]),
        ("set_workers", {"count": 3}, [("set_desired_capacity", "workers", 3)]),
        ("age_groups", {"seconds": 900.0}, [("age_groups", 900.0)]),
        ("tag_cluster", {"key": "a", "value": "b"}, [("add_tags", "j-1", [{"Key": "a", "Value": "b"}])]),
        ("tag_cluster", {"key": "a", "value": ""}, [("remove_tags", "j-1", ["a"])]),
        ("protect_cluster", {"is_protected": True}, [("set_termination_protection", ["j-1"], True)]),
        ("spot_notice", {"seconds": 120.0}, [("announce_interruption", "i-2", 120.0)]),
    ],
)
def test_an_action_asks_lab_or_aws_for_what_it_says(
    actions: Actions, recorder: Recorder, do: str, options: dict[str, Any], asked: list[tuple[Any, ...]]
) -> None:
    actions.act(_injection(do, **options), "i-2")
    actions.close()
    assert recorder.asked == asked
    assert actions.timeline.events[0].text.startswith(f"{do} worker 2 (formed)")


@pytest.mark.parametrize(
    ("do", "options", "asked"),
    [
        ("submit_other_job", {"name": "b", "queue": "q", "gpus_per_member": 8}, [("submit_other", "b", "q", 8)]),
        ("delete_pod", {"pod": 0}, [("delete_pod", 0)]),
        ("exhaust_memory", {"pod": 1}, [("exhaust_memory", 1)]),
        ("power_off_node", {"pod": 1, "found_dead_after": None}, [("power_off_node", 1)]),
        ("stop_job", {}, [("stop",)]),
    ],
)
def test_an_action_on_eks_asks_the_submitted_jobs_for_what_it_says(
    recorder: Recorder, do: str, options: dict[str, Any], asked: list[tuple[Any, ...]]
) -> None:
    lab: Any = recorder
    actions = Actions(lab, lab, lab, Timeline(), NodeFiles(recorder.disk), submitted=lab)
    actions.act(_injection(do, **options), "")
    assert recorder.asked == asked


def test_an_action_on_eks_needs_jobs_on_eks(actions: Actions) -> None:
    with pytest.raises(RehearsalError, match="the stack must have jobs on EKS, it has none"):
        actions.act(_injection("delete_pod", pod=0), "")


def test_a_machine_without_power_is_found_dead_later(actions: Actions, recorder: Recorder) -> None:
    actions.act(_injection("power_off", found_dead_after=0.0), "i-2")
    assert recorder.dead.wait(GENEROUS_SECONDS)
    assert recorder.asked == [("cut_power", "i-2"), ("fail_instance", "i-2")]


def test_a_machine_that_ec2_takes_back_loses_power_when_it_was_announced(actions: Actions, recorder: Recorder) -> None:
    actions.act(_injection("spot_notice", seconds=0.0), "i-2")
    assert recorder.dead.wait(GENEROUS_SECONDS)
    assert recorder.asked == [("announce_interruption", "i-2", 0.0), ("cut_power", "i-2"), ("fail_instance", "i-2")]


def test_a_line_that_fails_on_the_node_is_reported(actions: Actions, recorder: Recorder) -> None:
    recorder.status = 127
    with pytest.raises(RehearsalError, match="ls /nowhere ended with status 127: no such file"):
        actions.act(_injection("run", line="ls /nowhere"), "i-2")


def test_a_reboot_after_which_no_agent_runs_is_reported(
    actions: Actions, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("deeplearning_rehearsal.cases.format.actions._AGENT_RETURNS_SECONDS", 0.0)
    monkeypatch.setattr(recorder, "reboot", lambda _instance_id: None)
    with pytest.raises(RehearsalError, match="the agent of i-2 must run again, it has logged nothing"):
        actions.act(_injection("reboot"), "i-2")


def test_poison_comes_to_every_queue_and_topic_of_the_stack() -> None:
    class Aws(Recorder):
        def wait(self, _seconds: float) -> "Aws":
            return self

        resources = (
            StackResource("Q", "https://queue", "AWS::SQS::Queue", "", ""),
            StackResource("T", "arn:topic", "AWS::SNS::Topic", "", ""),
            StackResource("B", "table", "AWS::DynamoDB::Table", "", ""),
        )

    aws: Any = Aws(Path())
    Actions(aws, aws, aws, Timeline(), NodeFiles(aws.disk)).act(_injection("send_poison"), "")
    assert aws.asked == [
        *[("send_message", "https://queue", body) for body in POISON],
        *[("publish", "arn:topic", body) for body in POISON],
    ]


def _write(root: Path, path: str, text: str, mode: int = 0o644) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    file.chmod(mode)
    return file


def test_a_node_that_was_left_alone_has_no_changed_file(tmp_path: Path) -> None:
    _write(tmp_path, "etc/hosts", "127.0.0.1 localhost\n")
    files = NodeFiles(lambda _instance_id: tmp_path)
    files.remember("i-1")
    _write(tmp_path, "var/log/agent.log", "again\n")
    _write(tmp_path, "opt/deeplearning/agent/__pycache__/boot.cpython-311.pyc", "")
    # What jobs need comes in its own time, and is told anew at each boot.
    _write(tmp_path, "opt/deeplearning/provision/status.json", '{"boot": "2"}')
    _write(tmp_path, "opt/deeplearning/environments/k1/bin/python", "")
    files.compare()
    assert files.changes == {"i-1": ()}


@pytest.mark.parametrize(
    ("change", "path"),
    [
        (lambda root: _write(root, "etc/hosts", "127.0.0.1 other\n"), "etc/hosts"),
        (lambda root: (root / "etc/hosts").chmod(0o600), "etc/hosts"),
        (lambda root: (root / "etc/hosts").unlink(), "etc/hosts"),
        (lambda root: _write(root, "home/ubuntu/.ssh/new", ""), "home/ubuntu/.ssh/new"),
        (lambda root: _write(root, "opt/deeplearning/membership.json", "{}"), "opt/deeplearning/membership.json"),
        (lambda root: _write(root, "opt/deeplearning/provision.json", "{}"), "opt/deeplearning/provision.json"),
        (lambda root: ((root / "etc/link").unlink(), (root / "etc/link").symlink_to("/other")), "etc/link"),
    ],
)
def test_a_changed_file_of_a_node_is_found(tmp_path: Path, change: Callable[[Path], object], path: str) -> None:
    _write(tmp_path, "etc/hosts", "127.0.0.1 localhost\n")
    (tmp_path / "etc/link").symlink_to("/somewhere")
    files = NodeFiles(lambda _instance_id: tmp_path)
    files.remember("i-1")
    change(tmp_path)
    files.compare()
    assert files.changes == {"i-1": (path,)}


def test_the_first_state_of_a_nodes_files_is_remembered(tmp_path: Path) -> None:
    file = _write(tmp_path, "etc/hosts", "first")
    files = NodeFiles(lambda _instance_id: tmp_path)
    files.remember("i-1")
    file.write_text("second")
    files.remember("i-1")
    files.compare()
    assert files.changes == {"i-1": ("etc/hosts",)}
    assert list(digest_files(tmp_path)) == ["etc/hosts"]
