"""The run of a case: what it waits for, what it measures, and how it reads a rehearsal that goes on."""

import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cdk_rehearsal.embedded_aws.base.stack_record import StackEvent, StackOutcome, StackResource
from cdk_rehearsal.embedded_aws.server.call_log import CallCounts
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import CLUSTER_TAG, EMR_CLUSTER_TAG, ROLE_TAG
from deeplearning_rehearsal.cases import situation
from deeplearning_rehearsal.cases.case import Digits, Elastic
from deeplearning_rehearsal.cases.case_parts import Injected
from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cases.recovery import ElasticJob, Step
from deeplearning_rehearsal.cases.run import synthesis
from deeplearning_rehearsal.cases.run.case_run import CaseRun
from deeplearning_rehearsal.cases.run.synthesis import prepare_machines
from deeplearning_rehearsal.cases.situation import LiveSituation, is_at_rest, is_settled
from deeplearning_rehearsal.checks.contract_check import Membership
from deeplearning_rehearsal.report.assessment import Evidence
from tests.unit.deeplearning_rehearsal.trial import make_trial

OUTCOME = StackOutcome("CREATE_COMPLETE", "", (), {}, ())


@dataclass
class FakeFleet:
    """Machines, and what is remembered of them."""

    ids: tuple[str, ...] = ("i-0", "i-1")
    running: tuple[str, ...] = ("i-0", "i-1")
    spoke_at: float = 0.0
    refused_at: float | None = None
    booted_at: dict[str, float] = field(default_factory=dict)
    folder: Path = Path("/nonexistent")
    lab: Any = field(default_factory=lambda: SimpleNamespace(file_system_roots=lambda _: []))
    tags: dict[str, str] = field(default_factory=dict)

    def launched(self):
        return tuple(self._machine(name) for name in self.ids)

    def machines(self):
        return tuple(self._machine(name) for name in self.running)

    def _machine(self, name):
        role = "master" if name.startswith("i-0") else "worker"
        tags = {ROLE_TAG: role, CLUSTER_TAG: "c"} | self.tags
        return SimpleNamespace(instance_id=name, tags=tags, mount_targets={"fs-1": "10.0.0.9"})

    def disk(self, _instance_id):
        return self.folder


def _state(phase, *ids):
    members = tuple(SimpleNamespace(instance_id=name) for name in ids)
    return ClusterState("c", 3, 2, phase, 2, ids, members=members)


@pytest.fixture
def run(tmp_path):
    nothing = None
    aws = SimpleNamespace(calls=lambda: CallCounts(0, {}, {}, {}))
    fleet = FakeFleet(folder=tmp_path)
    lab = SimpleNamespace(disk=lambda _: tmp_path, file_system=lambda _: Path("/nonexistent"))
    return CaseRun(
        options=nothing,
        stack=nothing,
        timeline=Timeline(),
        lab=lab,
        fleet=fleet,
        aws=aws,
        key_pairs={},
        kept=nothing,
        give_up=0.0,
        case=make_trial(job=Elastic(epochs=9)),
    )


def _settled(run, state, installed=2):
    disk = run.lab.disk("i-0")
    (disk / "opt/deeplearning").mkdir(parents=True, exist_ok=True)
    (disk / "opt/deeplearning/membership.json").write_text(f'{{"generation": {installed}}}')
    return is_settled(state, run.fleet, 2, lambda: False)


def test_a_cluster_has_settled_when_all_members_run_and_no_node_reports_anything(run):
    assert _settled(run, _state(Phase.FORMED, "i-0", "i-1"))


def test_a_cluster_in_which_a_member_has_an_older_generation_has_not_settled(run):
    assert not _settled(run, _state(Phase.FORMED, "i-0", "i-1"), installed=1)
    (run.lab.disk("i-0") / "opt/deeplearning/membership.json").unlink()
    assert not is_settled(_state(Phase.FORMED, "i-0", "i-1"), run.fleet, 2, lambda: False)


@pytest.mark.parametrize(
    ("state", "fleet"),
    [
        (None, {}),
        (_state(Phase.PUBLISHED, "i-0", "i-1"), {}),
        (_state(Phase.FORMED, "i-0"), {}),
        (_state(Phase.FORMED, "i-0", "i-2"), {}),
        (_state(Phase.FORMED, "i-0", "i-1"), {"running": ("i-0",)}),
        (_state(Phase.FORMED, "i-0", "i-1"), {"spoke_at": time.monotonic() + 3600}),
    ],
)
def test_a_cluster_in_which_something_goes_on_has_not_settled(run, state, fleet):
    changed = replace(run.fleet, **fleet)
    assert not _settled(replace(run, fleet=changed), state)


NOW = 1000.0


@pytest.fixture
def stopped_clock(monkeypatch):
    monkeypatch.setattr(situation, "time", SimpleNamespace(monotonic=lambda: NOW))


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize(
    ("quiet", "running", "is_done", "is_settled"),
    [
        (2.0, ("i-0", "i-1"), True, False),
        (3.0, ("i-0", "i-1"), True, True),
        (3.0, ("i-0", "i-1"), False, False),
        (3.0, ("i-0", "i-1", "i-2"), True, False),
        (7.0, ("i-0", "i-1", "i-2"), False, True),
    ],
)
def test_a_short_quiet_is_enough_where_nothing_is_to_come(run, quiet, running, is_done, is_settled):
    _settled(run, None)  # which writes the nodes' generation
    fleet = replace(run.fleet, spoke_at=NOW - quiet, running=running)
    found = situation.is_settled(_state(Phase.FORMED, "i-0", "i-1"), fleet, 2, lambda: bool(is_done))
    assert found is is_settled


def _place(instances=2, health="Healthy", state="InService", **messages):
    """An account with a group of two, a queue and its dead-letter queue."""
    held = {"ApproximateNumberOfMessages": 0, "ApproximateNumberOfMessagesNotVisible": 0}
    queues = {
        "work": {"QueueArn": "arn:work", "RedrivePolicy": '{"deadLetterTargetArn": "arn:dead"}'} | held | messages,
        "dead": {"QueueArn": "arn:dead"} | held | {"ApproximateNumberOfMessages": 1},
    }
    entries = [{"LifecycleState": "InService", "HealthStatus": "Healthy"}] * (instances - 1)
    entries += [{"LifecycleState": state, "HealthStatus": health}]
    groups = [{"DesiredCapacity": 2, "Instances": entries}]
    clients = {
        "autoscaling": SimpleNamespace(describe_auto_scaling_groups=lambda: {"AutoScalingGroups": groups}),
        "sqs": SimpleNamespace(
            list_queues=lambda: {"QueueUrls": list(queues)},
            get_queue_attributes=lambda QueueUrl, AttributeNames: {"Attributes": queues[QueueUrl]},  # noqa: N803
        ),
    }
    return SimpleNamespace(client=clients.__getitem__)


def test_aws_is_at_rest_when_groups_are_complete_and_queues_empty_but_for_dead_letters():
    assert is_at_rest(_place())
    assert not is_at_rest(_place(instances=1))
    assert not is_at_rest(_place(instances=3))
    assert not is_at_rest(_place(state="Pending"))
    assert not is_at_rest(_place(health="Unhealthy"))
    assert not is_at_rest(_place(ApproximateNumberOfMessages=1))
    assert not is_at_rest(_place(ApproximateNumberOfMessagesNotVisible=1))


def _injected(at, epoch=0.0, *, stops_ranks=True):
    return Injected("power_off worker 1", "formed", "i-1", stops_ranks, at, epoch)


def _evidence(**changes):
    return Evidence("trial", {}, 2, changes.pop("outcome", OUTCOME), CallCounts(40, {}, {"lambda": 10}, {}), **changes)


@pytest.mark.parametrize(
    ("refused_at", "injected_at", "seconds"),
    [(100.0, None, 30.0), (None, 110.0, 20.0), (100.0, 110.0, 30.0), (120.0, 110.0, 20.0), (None, None, math.inf)],
)
def test_a_failure_is_measured_from_its_first_cause(run, refused_at, injected_at, seconds):
    fleet = FakeFleet(refused_at=refused_at)
    events = tuple(
        StackEvent("W", "w", "T", status, "", at=at)
        for status, at in (("CREATE_IN_PROGRESS", 90.0), ("CREATE_FAILED", 130.0), ("CREATE_FAILED", 140.0))
    )
    run = replace(run, fleet=fleet)
    run.live.injected.extend([] if injected_at is None else [_injected(injected_at)])
    assert run._measure_failure(_evidence(outcome=replace(OUTCOME, events=events))) == seconds


def test_a_stack_that_did_not_fail_has_no_time_of_failure(run):
    run.live.injected.append(_injected(1.0))
    assert run._measure_failure(_evidence()) == math.inf


@pytest.mark.parametrize(
    ("injected_at", "replacements"),
    [(20.0, ("i-9",)), (35.0, ()), (5.0, ("i-9",)), (None, ())],
)
def test_members_launched_after_the_first_injection_beyond_those_asked_for_are_replacements(
    run, injected_at, replacements
):
    booted = {"i-0": 10.0, "i-1": 11.0, "i-9": 30.0}
    fleet = FakeFleet(ids=tuple(booted), booted_at=booted)
    hosts = (("deeplearning-worker1", "i-0", "10.0.0.5"), ("deeplearning-worker2", "i-9", "10.0.0.6"))
    run = replace(run, fleet=fleet)
    run.live.injected.extend([] if injected_at is None else [_injected(injected_at)])
    seen = run._look(_evidence(membership=Membership(2, hosts)))
    assert (seen.replacements, seen.formed, seen.generation) == (replacements, 2, 2)
    assert (seen.launches, seen.calls, seen.call_bound) == (3, 30, 0)


def test_recovery_is_measured_for_faults_that_training_feels(run, monkeypatch):
    steps = (Step(10.0, "commit", 5, 2), Step(21.0, "reset", 5, 1), Step(24.0, "commit", 10, 1))
    monkeypatch.setattr(run.job, "steps", lambda: steps)
    felt, early = _injected(0.0, epoch=20.0), _injected(0.0, epoch=5.0)
    (recovery,) = run._measure_recoveries([felt, early, replace(felt, stops_ranks=False)])
    assert (recovery.seconds, recovery.size_before, recovery.sizes_after) == (4.0, 2, (1,))


def test_the_report_tells_what_does_not_hold_and_what_ended_the_case(run, monkeypatch):
    monkeypatch.setattr(run.job, "steps", lambda: ())
    run = replace(run, case=replace(run.case, formed=2, denied=["s3:GetObject"]))
    report = run._report(Outcome(denials={"s3:GetObject": "explicitly denied"}), ["no such machine"])
    assert report.problems == (
        "2 nodes form is expected, found: 0",
        "the held-out accuracy is at least 0.9 is expected, found: 0.0",
        "no such machine",
    )
    assert report.findings[-1] == {
        "expectation": "s3:GetObject is denied",
        "held": True,
        "found": "'explicitly denied'",
    }
    assert (report.failure_seconds, report.recovery_seconds, report.lost_commits) == (None, None, None)


@pytest.mark.parametrize(("ranks", "problems"), [(0, ("a job counts its ranks is expected, found: 0",)), (2, ())])
def test_a_case_without_training_expects_a_job_that_counts(run, ranks, problems):
    counting = replace(run, case=make_trial(formed=2))
    assert counting._report(Outcome(formed=2, ranks=ranks), []).problems == problems


def test_a_stack_that_must_fail_and_did_not_is_a_problem(run):
    run = replace(run, case=make_trial(expect="failed"))
    assert run._report(Outcome(stack="CREATE_COMPLETE"), []).problems == (
        "the stack is ROLLBACK_COMPLETE is expected, found: 'CREATE_COMPLETE'",
    )


@pytest.mark.parametrize(("running", "desired", "left"), [((), 0, []), (("i-1",), 0, ["i-1"]), ((), 2, ["workers"])])
def test_a_cluster_has_stopped_when_no_machine_runs_and_none_is_asked_for(run, running, desired, left):
    fleet = run.fleet
    fleet.running = running
    groups = [{"AutoScalingGroupName": "workers", "DesiredCapacity": desired}]
    aws = run.aws
    scaling = SimpleNamespace(describe_auto_scaling_groups=lambda: {"AutoScalingGroups": groups})
    aws.place = SimpleNamespace(client=lambda _: scaling)
    assert run._await_stop(limit=0.0) == [f"the cluster must stop by itself, {name} does not" for name in left]


def test_training_that_does_not_end_is_given_up_with_its_last_words(run, monkeypatch):
    monkeypatch.setattr(run.job, "steps", lambda: (Step(1.0, "start", 0, 1), Step(2.0, "commit", 5, 1)))
    evidence = _evidence()
    run._await_job(evidence, limit=0.0)
    (problem,) = evidence.problems
    assert problem.startswith("training must end within 8 minutes: the last of 2 lines of progress is Step(time=2.0")
    assert [event.text for event in run.timeline.events] == ["start at batch 0 with 1 ranks"]


def test_the_elastic_program_is_on_the_file_system_before_a_machine_boots(run, tmp_path, monkeypatch):
    owners = []
    monkeypatch.setattr(synthesis.os, "chown", lambda *arguments: owners.append(arguments))
    monkeypatch.setattr(synthesis, "example_folder", lambda: tmp_path)
    for name in ("train_elastic.py", "digits.py", "digits.csv.gz"):
        (tmp_path / name).write_text(f"{name}\n")
    (tmp_path / "fs-1").mkdir()
    lab = SimpleNamespace(file_system=lambda name: tmp_path / name)
    prepare = prepare_machines(run.case, lab, lambda: tmp_path / "digits.csv.gz")
    assert prepare is not None
    prepare(FakeFleet()._machine("i-0"))
    folder = tmp_path / "fs-1"
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        name: f"{name}\n" for name in ("train_elastic.py", "digits.py", "digits.csv.gz")
    }
    assert set(owners) == {(path, 1000, 1000) for path in (folder, *folder.iterdir())}
    for case in (None, replace(run.case, job=Digits())):
        assert prepare_machines(case, lab, lambda: Path("/nonexistent")) is None


class FakeDatabase:
    """A table with one state item, or without."""

    def __init__(self, state):
        self.state = state
        self.asked = []

    def client(self, _service):
        return self

    def get_item(self, **request):
        self.asked.append(request)
        return {} if self.state is None else {"Item": self.state.to_item()}


def _situation(state, *resources):
    database = FakeDatabase(state)
    aws = SimpleNamespace(wait=lambda _: replace(OUTCOME, resources=resources), place=database)
    fleet = FakeFleet(ids=("i-0", "i-1", "i-2", "i-0b"))
    return LiveSituation(fleet, aws, ElasticJob(tuple)), database


TABLE = StackResource("T", "table", "AWS::DynamoDB::Table", "", "")


def test_the_situation_reads_the_state_item_of_the_stacks_table():
    situation, database = _situation(ClusterState("c", 1, 1, Phase.LAUNCHED, 2, ("i-0",)), TABLE)
    assert situation.phase() == "launched"
    assert database.asked == [{"TableName": "table", "Key": {"cluster": {"S": "c"}}, "ConsistentRead": True}]


def test_on_emr_the_situation_reads_the_membership_on_the_shared_file_system(tmp_path):
    situation, _ = _situation(None)
    lab = SimpleNamespace(file_system_roots=lambda _: [tmp_path])
    situation = replace(situation, fleet=replace(situation.fleet, lab=lab, tags={EMR_CLUSTER_TAG: "j-1"}))
    assert situation.phase() == ""
    (tmp_path / ".deeplearning/c/j-1").mkdir(parents=True)
    state = ClusterState("c", 1, 1, Phase.FORMED, 2, ("i-0",))
    (tmp_path / ".deeplearning/c/j-1/membership.json").write_text(state.to_text())
    assert situation.state() == state


@pytest.mark.parametrize("resources", [(), (TABLE,)])
def test_without_table_or_item_there_is_no_phase(resources):
    assert _situation(None, *resources)[0].phase() == ""
