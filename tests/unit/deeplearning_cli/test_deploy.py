"""
`deeplearning-cdk deploy` asks one region after the other, and deletes only stacks whose creation it began.

The CDK CLI is `cdk_stand_in.py`, in this process but where it outlives the command. CloudFormation is moto, whose
stacks end as a test says; the words around a signalled reason are those of `WaitCondition received failed message`, as
in the AWS CloudFormation user guide, "Wait conditions".
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
from types import SimpleNamespace

import boto3
import pytest
from moto.cloudformation.models import CloudFormationBackend, Event

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.candidate_search import CandidateSearch, Stage, explain_search
from capacity_adjuster.policy.failure_reason import Shortfall, explain_failure
from deeplearning_cli.deploy import cdk_program, command, journal, region_search
from deeplearning_cli.main import main
from deeplearning_contract.cluster_state import CapacityAttempt
from deeplearning_contract.launch_failures import Scope, classify_failure
from deeplearning_contract.names import CANDIDATE_TAG, ROLE_TAG, NodeRole
from deeplearning_view.view import Problem
from tests.real_time import wait_until
from tests.unit.capacity_adjuster.policy.test_failure_reason import MESSAGES
from tests.unit.deeplearning_cli import cdk_stand_in
from tests.unit.deeplearning_view.cluster_responses import make_signalled_event

EAST, WEST = "us-east-1", "us-west-2"
REGIONS = f"{EAST},{WEST}"
NO_CAPACITY = make_signalled_event(
    "launched workers must be at least 2, got 0 of 3: InsufficientInstanceCapacity in us-east-1a: We currently do not "
    "have sufficient p4d.24xlarge capacity in the Availability Zone you requested (us-east-1a); try again later"
)["ResourceStatusReason"]
NO_KEY = make_signalled_event(
    "master did not launch: InvalidKeyPair in us-east-1a: The key pair 'mine' does not exist; choose a key_pair that "
    "exists in this region, or none"
)["ResourceStatusReason"]
TEMPLATE = {
    "Resources": {
        "Template": {
            "Type": "AWS::EC2::LaunchTemplate",
            "Properties": {"LaunchTemplateData": {"InstanceType": "p4d.24xlarge", "ImageId": "ami-1"}},
        },
        "Masters": {
            "Type": "AWS::AutoScaling::AutoScalingGroup",
            "Properties": {
                "LaunchTemplate": {"LaunchTemplateId": {"Ref": "Template"}},
                "MinSize": "1",
                "Tags": [{"Key": ROLE_TAG, "Value": "master"}, {"Key": CANDIDATE_TAG, "Value": "0"}],
            },
        },
    }
}


class KilledError(BaseException):
    """The process ends here."""


class Cloud:
    """CloudFormation of the regions, and the CDK CLI that deploys to them."""

    def __init__(self, folder):
        self.folder = folder
        self.reasons = {}
        self.crowds = []
        self.deleted = []
        self.leave_open("unknown-region")
        (folder / "t.template.json").write_text(json.dumps(TEMPLATE))

    def leave_open(self, region):
        properties = {"templateFile": "t.template.json", "stackName": "training"}
        artifact = {"type": "aws:cloudformation:stack", "environment": f"aws://unknown-account/{region}"}
        document = {"artifacts": {"training": {**artifact, "properties": properties}}}
        (self.folder / "manifest.json").write_text(json.dumps(document))

    def end(self, stack, reason, *statuses):
        for status in statuses:
            stack.status = status
            if status.endswith("_FAILED"):
                event = ("Formation", "Formation", "AWS::CloudFormation::WaitCondition", "CREATE_FAILED", reason)
                stack.events.append(Event(stack.stack_id, stack.name, *event, None))
            stack._add_stack_event(status)

    def read(self):
        """Return region -> status of the stack there."""
        found = {}
        for region in (EAST, WEST):
            for stack in boto3.client("cloudformation", region_name=region).describe_stacks()["Stacks"]:
                found[region] = stack["StackStatus"]
        return found

    def find(self, region):
        return next(iter(boto3.client("cloudformation", region_name=region).describe_stacks()["Stacks"]))["StackId"]

    def calls(self, what="deploy"):
        """Return the regions of the calls of `cdk`."""
        return [words[0] for words in self.words() if words[1] == what]

    def words(self):
        file = self.folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def stages(self):
        return {each["region"]: each["stage"] for each in json.loads(self.journal.read_text())}

    @property
    def journal(self):
        return self.folder / "project" / "cdk.out.regions" / "journal.json"


@pytest.fixture
def cloud(tmp_path, monkeypatch, aws_server):
    """Two regions that launch whatever is asked, and this process in the folder of an app."""
    for name in ("project", "bin"):
        (tmp_path / name).mkdir()
    cloud = Cloud(tmp_path)
    script = tmp_path / "bin" / "cdk"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "{cdk_stand_in.__file__}" "{tmp_path}" "$@"\n')
    script.chmod(0o755)

    def run(command, *, env, stdout, pass_fds, check):
        assert (command[0], len(pass_fds), check) == ("cdk", 1, False)
        assert (stdout is not None) is (command[1] == "synth"), "standard output is that of the command"
        return SimpleNamespace(returncode=cdk_stand_in.act(tmp_path, command[1:], env))

    monkeypatch.setattr(cdk_program, "subprocess", SimpleNamespace(run=run))
    monkeypatch.chdir(tmp_path / "project")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=lambda _: pytest.fail("it waits for nothing")))
    create, update, delete = map(CloudFormationBackend.__dict__.get, ("create_stack", "update_stack", "delete_stack"))

    def create_stack(backend, *args, **values):
        stack = create(backend, *args, **values)
        cloud.crowds.append(cloud.count(backend))
        if reason := cloud.reasons.get(backend.region_name):
            cloud.end(stack, reason, "CREATE_FAILED", "ROLLBACK_IN_PROGRESS", "ROLLBACK_COMPLETE")
        return stack

    def update_stack(backend, *args, **values):
        stack = update(backend, *args, **values)
        if reason := cloud.reasons.get(backend.region_name):
            cloud.end(stack, reason, "UPDATE_FAILED", "UPDATE_ROLLBACK_COMPLETE")
        return stack

    cloud.count = lambda backend: sum(
        len(CloudFormationBackend.list_stacks(other, None)) - len(other.deleted_stacks)
        for other in map(region_backend, (EAST, WEST))
        if other is not backend
    )

    def delete_stack(backend, name):
        cloud.deleted.append(name)
        delete(backend, name)

    monkeypatch.setattr(CloudFormationBackend, "create_stack", create_stack)
    monkeypatch.setattr(CloudFormationBackend, "delete_stack", delete_stack)
    monkeypatch.setattr(CloudFormationBackend, "update_stack", update_stack)
    return cloud


def region_backend(region):
    from moto.cloudformation.models import cloudformation_backends  # noqa: PLC0415 - after moto has started

    return cloudformation_backends["123456789012"][region]


def deploy(*words):
    return main(["deploy", "--regions", REGIONS, *words])


# --- The regions --------------------------------------------------------------------------------------


def test_the_first_region_that_launches_ends_the_search_and_is_updated_later(cloud, capfd):
    assert deploy() == 0
    assert (cloud.calls(), cloud.read(), cloud.stages()) == ([EAST], {EAST: "CREATE_COMPLETE"}, {EAST: "launched"})
    assert f"{EAST}: launched training" in capfd.readouterr().err
    made = cloud.find(EAST)
    cloud.journal.unlink()
    cloud.reasons = {EAST: NO_CAPACITY}
    assert deploy() == 1, "an update that lacks capacity deletes nothing and asks no other region"
    assert (cloud.calls(), cloud.read()) == ([EAST, EAST], {EAST: "UPDATE_ROLLBACK_COMPLETE"})
    assert cloud.find(EAST) == made


def test_a_region_without_capacity_is_left_empty_before_the_next_one_is_asked_and_updated_later(cloud, capfd):
    cloud.reasons = {EAST: NO_CAPACITY}
    assert deploy() == 0
    assert (cloud.calls(), cloud.read()) == ([EAST, WEST], {WEST: "CREATE_COMPLETE"})
    assert cloud.crowds == [0, 0]
    assert [name.rpartition("/")[0] for name in cloud.deleted] == [
        f"arn:aws:cloudformation:{EAST}:123456789012:stack/training"
    ]
    assert cloud.stages() == {EAST: "refused", WEST: "launched"}
    assert "InsufficientInstanceCapacity in us-east-1a" in capfd.readouterr().err
    made = cloud.find(WEST)
    assert deploy("--again") == 0
    cloud.journal.unlink()
    assert deploy() == 0
    assert cloud.calls() == [EAST, WEST, WEST, WEST]
    assert (cloud.read(), cloud.find(WEST)) == ({WEST: "UPDATE_COMPLETE"}, made)


def test_any_other_failure_ends_the_search_and_leaves_the_stack(cloud, capfd):
    cloud.reasons = {EAST: NO_KEY}
    assert deploy() == 1
    assert (cloud.calls(), cloud.read()) == ([EAST], {EAST: "ROLLBACK_COMPLETE"})
    assert "The key pair 'mine' does not exist" in capfd.readouterr().err
    cloud.reasons = {}
    assert deploy() == 0
    assert (cloud.calls(), cloud.read()) == ([EAST, EAST], {EAST: "CREATE_COMPLETE"})


def test_a_cdk_that_deploys_nothing_has_launched_nothing(cloud, capfd):
    (cloud.folder / "ends").write_text("0")
    assert deploy("--", "--no-execute") == 1
    assert (cloud.calls(), cloud.read(), cloud.stages()) == ([EAST], {}, {EAST: "failed"})
    assert "ended with 0" in capfd.readouterr().err


def test_a_search_without_success_names_each_reason_and_asks_again_only_with_again(cloud, capfd):
    cloud.reasons = {EAST: NO_CAPACITY, WEST: NO_CAPACITY.replace("us-east-1a", "us-west-2b")}
    assert deploy() == 1
    assert cloud.read() == {}
    message = capfd.readouterr().err.partition("no region launched the cluster")[2]
    assert "  us-east-1: refused at " in message
    assert "InsufficientInstanceCapacity in us-west-2b" in message
    cloud.reasons = {}
    assert deploy() == 1
    assert cloud.calls() == [EAST, WEST]
    assert "--again asks it again" in capfd.readouterr().err
    assert deploy("--again") == 0
    assert cloud.calls() == [EAST, WEST, EAST]


# --- Stacks that were there before --------------------------------------------------------------------


@pytest.mark.parametrize("status", ["CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"])
def test_a_failed_creation_that_was_there_before_is_not_deleted(status, cloud, capfd):
    cloud.reasons = {EAST: NO_CAPACITY}
    boto3.client("cloudformation").create_stack(
        StackName="training", TemplateBody='{"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}'
    )
    stack = next(iter(region_backend(EAST).stacks.values()))
    stack.status = status
    (cloud.folder / "ends").write_text("1")
    assert deploy() == 1
    assert (cloud.calls(), cloud.read(), cloud.find(EAST)) == ([EAST], {EAST: status}, stack.stack_id)
    assert "nothing of it was created or updated" in capfd.readouterr().err


def test_a_stack_that_was_made_whole_while_it_was_to_be_deleted_is_kept_and_updated(cloud, capfd):
    cloud.reasons = {EAST: NO_CAPACITY}
    kill_after(cloud, "put", 2)
    assert cloud.stages() == {EAST: "leaving"}
    next(iter(region_backend(EAST).stacks.values())).status = "UPDATE_COMPLETE"
    assert deploy() == 1
    assert (cloud.calls(), cloud.read(), cloud.stages()) == ([EAST], {EAST: "UPDATE_COMPLETE"}, {EAST: "failed"})
    assert "must be a failed creation to be deleted, got UPDATE_COMPLETE" in capfd.readouterr().err
    cloud.reasons = {}
    assert deploy() == 0
    assert (cloud.calls(), cloud.read()) == ([EAST, EAST], {EAST: "UPDATE_COMPLETE"})


# --- Interruptions ------------------------------------------------------------------------------------

EFFECTS = {
    "put": (journal.Journal, "put"),
    "cdk": (cdk_program.CdkProgram, "_run"),
    "aws": (region_search, "call_aws"),
}
POINTS = 19
"""Writes of the journal, runs of `cdk` and calls of AWS of a search in two regions whose first one refuses."""


def kill_after(cloud, only=None, number=None):
    """Run the command until an effect has happened so many times; return the number of effects."""
    count = 0

    def wrap(real):
        def act(*args, **values):
            nonlocal count
            result = real(*args, **values)
            count += 1
            if count == number:
                raise KilledError
            return result

        return act

    with pytest.MonkeyPatch.context() as patch:
        for name, (place, attribute) in EFFECTS.items():
            if only in (None, name):
                patch.setattr(place, attribute, wrap(getattr(place, attribute)))
        if number is None:
            assert deploy() == 0
        else:
            with pytest.raises(KilledError):
                deploy()
    return count


def test_the_crash_points_are_all_of_a_search(cloud):
    cloud.reasons = {EAST: NO_CAPACITY}
    assert kill_after(cloud) == POINTS


@pytest.mark.parametrize("point", range(1, POINTS + 1))
def test_a_search_goes_on_after_a_crash_at_any_point(point, cloud):
    cloud.reasons = {EAST: NO_CAPACITY}
    kill_after(cloud, number=point)
    before = cloud.calls()
    stages = cloud.stages() if cloud.journal.exists() else {}
    assert deploy() == 0
    assert (cloud.read() | {WEST: "COMPLETE"}, cloud.crowds) == ({WEST: "COMPLETE"}, [0] * len(cloud.crowds))
    assert cloud.stages() == {EAST: "refused", WEST: "launched"}
    after = cloud.calls()[len(before) :]
    assert EAST not in after or stages.get(EAST) not in ("leaving", "refused")
    assert cloud.calls().count(EAST) <= 1 + (stages.get(EAST) is None)


def test_a_search_that_was_interrupted_elsewhere_is_gone_on_with_there(cloud, capfd):
    kill_after(cloud, "put", 1)
    assert cloud.stages() == {EAST: "asking"}
    assert main(["deploy", "--regions", WEST]) == 2
    assert "--regions must have us-east-1" in capfd.readouterr().err
    assert main(["deploy", "--regions", f"{WEST},{EAST}"]) == 0
    assert cloud.calls() == [EAST]


def test_a_creation_that_goes_on_without_its_command_is_waited_for(cloud, monkeypatch, capfd):
    cloud.reasons = {EAST: NO_CAPACITY}
    kill_after(cloud, "cdk", 3)
    stack = next(iter(region_backend(EAST).stacks.values()))
    stack.status = "ROLLBACK_IN_PROGRESS"
    naps = []

    def sleep(seconds):
        naps.append(seconds)
        if len(naps) == 3:
            stack.status = "ROLLBACK_COMPLETE"

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))
    assert deploy() == 0
    assert (len(naps), cloud.calls(), cloud.read()) == (3, [EAST, WEST], {WEST: "CREATE_COMPLETE"})
    assert f"{EAST}: ROLLBACK_IN_PROGRESS" in capfd.readouterr().err


def test_a_deletion_that_fails_keeps_other_regions_from_being_asked(cloud, monkeypatch, capfd):
    cloud.reasons = {EAST: NO_CAPACITY}

    def fail(backend, name):
        cloud.end(backend.stacks[name], "subnet 'subnet-1' has dependencies and cannot be deleted", "DELETE_FAILED")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CloudFormationBackend, "delete_stack", fail)
        assert deploy() == 1
    assert (cloud.calls(), cloud.read(), cloud.stages()) == ([EAST], {EAST: "DELETE_FAILED"}, {EAST: "leaving"})
    assert "must be gone before another region is asked" in capfd.readouterr().err
    assert deploy() == 0
    assert (cloud.calls(), cloud.read()) == ([EAST, WEST], {WEST: "CREATE_COMPLETE"})


def test_a_cdk_that_outlives_the_command_keeps_a_second_one_waiting(cloud):
    os.mkfifo(cloud.folder / "gate")
    code = f"import sys\nfrom deeplearning_cli.main import main\nsys.exit(main(['deploy', '--regions', {REGIONS!r}]))"
    with subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL) as running:
        wait_until(lambda: running.poll() is not None or cloud.calls())
        running.send_signal(signal.SIGKILL)
    with (cloud.journal.parent / ".lock").open("w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        opener = threading.Thread(target=(cloud.folder / "gate").write_text, args=("",))
        opener.start()
        fcntl.flock(lock, fcntl.LOCK_EX)
        opener.join()
    assert cloud.read() == {EAST: "CREATE_COMPLETE"}


# --- The app and the arguments ------------------------------------------------------------------------


def leave_journal(cloud):
    cloud.journal.parent.mkdir(parents=True)
    cloud.journal.write_text('[{"region": "us-east-1"}]')


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda cloud: cloud.leave_open("us-east-1"),
            "stack training must be of us-west-2 or leave its region open, got us-east-1",
        ),
        (lambda cloud: (cloud.folder / "t.template.json").write_text('{"Resources": {}}'), "stack must have a cluster"),
        (leave_journal, "journal must be as this command wrote it"),
    ],
    ids=["another region", "no cluster", "no journal"],
)
def test_what_cannot_be_deployed_is_refused_by_name_before_anything_is(cloud, capfd, spoil, said):
    spoil(cloud)
    assert deploy() == 2
    assert cloud.calls() == []
    assert said in capfd.readouterr().err


def test_an_app_that_follows_the_region_is_deployed_from_an_assembly_of_each(cloud):
    cloud.leave_open("REGION")
    cloud.reasons = {EAST: NO_CAPACITY}
    assert deploy("training", "--app", "python app.py", "--", "-c", "a=b", "--context=c=d", "--verbose") == 0
    synth, again, first, second = cloud.words()
    expected = ["synth", "--quiet", "--app", "python app.py", "--output", "cdk.out"]
    expected += ["--context", "a=b", "--context=c=d"]
    assert (synth, again) == ([EAST, *expected], [WEST, *expected])
    for region, words in ((EAST, first), (WEST, second)):
        folder = cloud.journal.parent / region
        further = ["-c", "a=b", "--context=c=d", "--verbose"]
        assert words == [region, "deploy", "--app", str(folder), "training", *further]
        assert f"unknown-account/{region}" in (folder / "manifest.json").read_text()


def test_an_assembly_is_deployed_as_it_is(cloud):
    assembly = cloud.folder / "made"
    assembly.mkdir()
    for name in ("manifest.json", "t.template.json"):
        (assembly / name).write_text((cloud.folder / name).read_text())
    assert deploy("--app", str(assembly)) == 0
    assert cloud.words() == [[EAST, "deploy", "--app", str(assembly), "training"]]
    assert (cloud.folder / "made.regions" / "journal.json").exists()


@pytest.mark.parametrize("regions", ["", "us-east-1,us-east-1", "us-east-1,", "east", "US-EAST-1", "us-east-1a"])
def test_regions_are_named_each_once(regions, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["deploy", "--regions", regions])
    assert ended.value.code == 2
    assert "must be regions, as us-east-1,us-west-2, each once" in capsys.readouterr().err


def test_the_cdk_that_the_project_pins_comes_before_that_of_the_path(cloud, monkeypatch):
    assert cdk_program.find_program() == ("cdk",)
    pinned = cloud.folder / "project" / "node_modules" / ".bin" / "cdk"
    pinned.parent.mkdir(parents=True)
    pinned.touch()
    assert cdk_program.find_program() == (str(pinned),)
    pinned.unlink()
    monkeypatch.setenv("PATH", "/nonexistent")
    assert deploy() == 2


# --- The adjuster's words -----------------------------------------------------------------------------


@pytest.mark.parametrize("role", list(NodeRole), ids=lambda role: role.value)
@pytest.mark.parametrize("message", [texts[0] for texts in MESSAGES.values()], ids=list(MESSAGES))
def test_only_a_refusal_of_a_candidate_or_a_quota_moves_the_cluster_to_another_region(message, role):
    shortfall = Shortfall(role, launched=0, requested=3, minimum=2)
    activity = Activity("a", "launch", "Failed", 0.0, 1.0, message, "us-east-1a")
    reason = explain_failure(shortfall, activity)
    moves = classify_failure(message).scope in (Scope.CANDIDATE, Scope.QUOTA)
    signalled = make_signalled_event(str(reason))["ResourceStatusReason"]
    assert region_search.is_refusal(Problem("stack", reason.cause, reason.remedy)) is moves
    assert region_search.is_refusal(Problem("stack", signalled, "")) is moves
    assert not region_search.is_refusal(Problem("node i-0", reason.cause, ""))


def test_a_search_that_every_candidate_refused_moves_the_cluster_to_another_region():
    attempt = CapacityAttempt("b", 0, 3, "nothing within 180 s", "p4d.24xlarge in us-east-1b", 0, 1)
    reason = explain_search(CandidateSearch(1, "b", Stage.LEAVING, began=0, attempts=(attempt,)), 2, 600)
    assert region_search.is_refusal(Problem("stack", reason.cause, reason.remedy))


@pytest.mark.parametrize(
    "cause",
    [
        "WaitCondition timed out. Received 0 conditions when expecting 1",
        f"worker i-0a failed: {NO_CAPACITY}",
        "master i-0a failed: launched workers must be at least 2, got 0 of 3: InsufficientInstanceCapacity: none",
        "",
    ],
)
def test_what_is_no_refused_launch_moves_nothing(cause):
    assert not region_search.is_refusal(Problem("stack", cause, ""))
