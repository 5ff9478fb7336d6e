"""Every failure is told once, with its cause and with what to do."""

import json
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import pytest

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.launch_failures import find_remedy
from deeplearning_contract.reason import Reason
from deeplearning_view.remedies import advise_on_resource
from deeplearning_view.rendering import render_text
from deeplearning_view.view_builder import make_view
from tests.unit.deeplearning_view.cluster_responses import (
    LOST_ID,
    MASTER_ID,
    NAME,
    RESOURCES,
    WORKER_ID,
    make_event,
    make_failed_launch,
    make_item,
    make_line,
    make_resource,
    make_responses,
    make_rolled_back,
    make_signalled_event,
    make_termination,
)

NOW = datetime(2026, 11, 22, 10, 2, tzinfo=timezone.utc)
MESSAGES = json.loads((Path(__file__).parents[2] / "events" / "launch_failures.json").read_text())
NO_CAPACITY = (
    "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested (us-east-1a)."
)


def find(responses):
    return make_view(responses, NOW).problems


SIGNALLED = "WaitCondition received failed message: '{}' for uniqueId: training-1"
WHERE = "worker i-1 failed to install: apt-get ended with 100"
REASON = Reason(WHERE, "see the log; then try; again", "E: a\nE: b; c")


def test_the_parts_of_a_reason_come_from_the_state_item_whatever_semicolons_they_have():
    state = replace(ClusterState.from_item(make_item()), reason=REASON)
    (problem,) = find(make_responses(item=state.to_item()))
    assert (problem.what, problem.remedy) == ("cluster", REASON.remedy)
    assert problem.cause == f"{WHERE}; last lines: E: a | E: b; c"


def test_the_stacks_reason_comes_from_the_record_of_a_failed_cluster():
    item = replace(ClusterState.from_item(make_item(Phase.FAILED, ())), reason=REASON).to_item()
    other = make_line(MASTER_ID, "master", "another", level="ERROR", reason=Reason("another"))
    (stack,) = find(make_rolled_back(str(REASON), item=item, node_lines=[other]))[:1]
    assert (stack.what, stack.remedy) == ("stack", REASON.remedy)
    assert stack.cause == f"{WHERE}; last lines: E: a | E: b; c"


def test_the_reason_of_a_cluster_that_has_not_failed_is_not_the_stacks():
    """A bootstrap failure is signalled before any program could log or record it."""
    small = replace(ClusterState.from_item(make_item(Phase.LAUNCHED, ())), reason=Reason("1 of 3 workers launched"))
    stack = find(make_rolled_back("bootstrap failed", item=small.to_item(), node_lines=[]))[0]
    assert (stack.what, stack.cause) == ("stack", SIGNALLED.format("bootstrap failed"))


def test_the_stacks_reason_comes_from_the_first_failure_that_the_master_or_the_adjuster_logged():
    """CloudFormation uses the first signal (`WaitCondition`, "Using wait conditions": signals have a unique id)."""
    lines = [
        make_line(WORKER_ID, "worker", "a worker's", level="ERROR", seconds=1, reason=Reason("a worker's")),
        make_line(MASTER_ID, "master", "a warning", level="WARNING", seconds=2, reason=Reason("a warning")),
        make_line(MASTER_ID, "master", str(REASON), level="ERROR", seconds=3, reason=REASON),
        make_line(MASTER_ID, "master", "later", level="ERROR", seconds=4, reason=Reason("later")),
    ]
    stack = find(make_rolled_back(str(REASON), node_lines=lines))[0]
    assert (stack.what, stack.remedy) == ("stack", REASON.remedy)
    assert stack.cause == f"{WHERE}; last lines: E: a | E: b; c"


def test_a_signal_that_nobody_recorded_or_logged_is_shown_in_cloudformations_words():
    (problem,) = find(make_rolled_back("a; b; c", node_lines=[]))
    assert (problem.cause, problem.remedy) == (SIGNALLED.format("a; b; c"), advise_on_resource("a; b; c"))


def test_the_stacks_reason_comes_first_and_the_launches_that_it_names_are_not_repeated():
    cause = f"launched workers must be at least 1, got 0 of 3: InsufficientInstanceCapacity: {NO_CAPACITY[:-1]}"
    reason = Reason(cause, find_remedy(NO_CAPACITY))
    line = make_line("adjuster", "adjuster", str(reason), level="ERROR", reason=reason)
    refused = {"workers": [make_failed_launch(NO_CAPACITY)] * 3}
    (problem,) = find(make_rolled_back(str(reason), activities=refused, adjuster_lines=[line]))
    assert problem.what == "stack"
    assert NO_CAPACITY[:-1] in problem.cause
    assert (
        problem.remedy
        == "try again later, choose another network.availability_zone, region or instance type, or reserve capacity"
    )


def test_a_launch_that_failed_for_another_reason_than_the_stack_is_shown_with_its_count():
    responses = make_rolled_back("no", activities={"workers": [make_failed_launch(NO_CAPACITY)] * 3})
    stack, launch = find(responses)
    assert stack.what == "stack"
    assert (launch.what, launch.cause) == ("launch of worker, 3 times", NO_CAPACITY)
    assert "reserve capacity" in launch.remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Received 0 conditions when expecting 1: WaitCondition timed out.", "get-console-output"),
        (
            "User: arn:aws:iam::1:user/me is not authorized to perform: ec2:CreateVpc",
            "grant the principal in the",
        ),
        (
            "Received response status [FAILED] from custom resource. Message returned: no image; pass another image",
            "do what the message says",
        ),
        ("The maximum number of VPCs has been reached.", "Service Quotas"),
        ("training-key already exists", "delete or rename"),
        ("The subnet ID 'subnet-1' does not exist", "correct the id"),
        ("Something else", "correct the cause in the message"),
    ],
)
def test_a_resource_that_could_not_be_created_is_shown_with_its_remedy(reason, remedy):
    events = [
        make_event("ClusterB", "CREATE_FAILED", "Resource creation cancelled"),
        make_event("ClusterA", "CREATE_FAILED", reason, "AWS::EC2::VPC"),
    ]
    (problem,) = find(make_responses("ROLLBACK_COMPLETE", events=events, groups=[], instances=[], item=None))
    assert (problem.what, problem.cause) == ("stack: ClusterA", reason)
    assert remedy in problem.remedy
    assert problem.remedy == advise_on_resource(reason)


@pytest.mark.parametrize(
    ("logical_id", "kind", "what"), [("ClusterSubnet", "Subnet", "subnet 'subnet-1'"), ("ClusterVpc", "VPC", "vpc 'v'")]
)
def test_a_network_that_a_foreign_endpoint_blocks_is_shown_with_guarddutys_resources(logical_id, kind, what):
    """
    CloudFormation wraps the words of EC2 (hashicorp/terraform-provider-aws#46747).

    Names and tag are those of the GuardDuty user guide, "How Runtime Monitoring works with Amazon EC2".
    """
    reason = (
        f'Resource handler returned message: "The {what} has dependencies and cannot be deleted. (Service: Ec2, Status '
        'Code: 400, Request ID: 5f1d) (SDK Attempt Count: 1)" (RequestToken: 9a, HandlerErrorCode: InvalidRequest)'
    )
    events = [
        make_event(NAME, "DELETE_FAILED", f"The following resource(s) failed to delete: [{logical_id}]."),
        make_event(logical_id, "DELETE_FAILED", reason, f"AWS::EC2::{kind}"),
    ]
    vpc = make_resource("ClusterVpc", "AWS::EC2::VPC", "vpc-0a1b")
    left = {"groups": [], "instances": [], "item": None, "resources": [*RESOURCES, vpc]}
    (problem,) = find(make_responses("DELETE_FAILED", events=events, **left))
    assert (problem.what, problem.cause) == (f"stack: {logical_id}", reason)
    assert "Name=vpc-id,Values=vpc-0a1b Name=tag:GuardDutyManaged,Values=true" in problem.remedy
    assert "Name=group-name,Values=GuardDutyManagedSecurityGroup-vpc-0a1b" in problem.remedy
    assert "then delete the stack again\n" in problem.remedy


def test_the_commands_of_a_remedy_are_shown_in_one_line_each_to_be_copied():
    events = [make_event("ClusterVpc", "DELETE_FAILED", "The vpc 'v' has dependencies and cannot be deleted.")]
    view = make_view(make_responses("DELETE_FAILED", events=events, groups=[], instances=[], item=None), NOW)
    lines = [line.strip() for line in render_text(view).splitlines()]
    assert set(view.problems[0].remedy.splitlines()[1:]) <= set(lines)


def test_the_guide_has_the_commands_of_the_remedy():
    commands = advise_on_resource("The vpc 'v' has dependencies and cannot be deleted.").splitlines()[1:]
    guide = (Path(__file__).parents[3] / "docs" / "operating.md").read_text().splitlines()
    assert len(commands) == 2
    assert set(commands) <= set(guide)


def test_the_remedy_that_the_failing_node_logged_is_taken_and_its_last_lines_are_shown():
    reason = "master i-0000000000000000a failed to mount the file system: mount.nfs4: timed out"
    lines = [make_line(MASTER_ID, "master", f"step {number}", seconds=number) for number in range(9)]
    lines.append(
        make_line(MASTER_ID, "master", f"{reason}; open port 2049", "ERROR", 9, reason=Reason(reason, "open port 2049"))
    )
    lines.append(make_line(WORKER_ID, "worker", "another", seconds=10))
    (problem,) = find(make_rolled_back(f"{reason}; open port 2049", node_lines=lines))
    assert (problem.cause, problem.remedy) == (reason, "open port 2049")
    shown = ["step 5", "step 6", "step 7", "step 8", f"{reason}; open port 2049"]
    assert [line.message for line in problem.lines] == shown


def test_a_failure_that_the_adjuster_found_is_shown_with_the_adjusters_lines():
    lines = [make_line("adjuster", "adjuster", "nothing launched")]
    (problem,) = find(make_rolled_back("launched workers must be at least 1, got 0 of 3", adjuster_lines=lines))
    assert [line.message for line in problem.lines] == ["nothing launched"]


def test_a_failed_worker_is_shown_once_with_its_own_reason():
    reason = "worker failed to install packages: No space left on device"
    lines = [make_line(LOST_ID, "worker", "failed", level="ERROR", reason=Reason(reason))]
    (problem,) = find(make_responses("CREATE_IN_PROGRESS", item=make_item(Phase.LAUNCHED, ()), node_lines=lines))
    assert (problem.what, problem.cause, problem.is_past) == (f"node {LOST_ID}", reason, False)
    assert "volume_size" in problem.remedy


def test_an_instance_that_ec2_terminated_is_shown_and_one_that_was_scaled_in_is_not():
    health = "an instance was taken out of service in response to an EC2 health check indicating it has been terminated"
    wanted = "an instance was taken out of service in response to a difference between desired and actual capacity"
    activities = {"workers": [make_termination(LOST_ID, health), make_termination("i-0000000000000000d", wanted)]}
    (problem,) = find(make_responses(activities=activities))
    assert (problem.what, problem.is_past) == (f"node {LOST_ID}", True)
    assert problem.cause == f"{health}."
    assert problem.remedy.startswith("nothing: its group replaces it")


def test_the_cause_of_a_smaller_cluster_is_shown_with_its_remedy():
    cause = f"1 of 3 workers launched, at least 1 were required: InsufficientInstanceCapacity: {NO_CAPACITY}"
    (problem,) = find(make_responses(item=make_item(reason=Reason(cause, find_remedy(NO_CAPACITY)))))
    assert (problem.what, problem.cause) == ("cluster", cause)
    assert "reserve capacity" in problem.remedy


def test_control_characters_of_a_node_reach_no_terminal():
    events = [make_signalled_event("bad \x1b[2J\r\nnews; do this")]
    (problem,) = find(make_responses("ROLLBACK_COMPLETE", events=events, groups=[], instances=[], item=None))
    assert (problem.cause, problem.remedy) == (SIGNALLED.format("bad [2J news; do this"), advise_on_resource(""))


def test_a_failure_of_provisioning_is_shown_with_its_own_remedy():
    details = {"provision": "environment", "state": "failed", "detail": "not compiled; use torchrun; see /log"}
    reason = Reason("not compiled", "use torchrun; see /log")
    lines = [make_line(WORKER_ID, "worker", "provisioning failed", level="WARNING", **details, reason=reason)]
    (problem,) = [each for each in find(make_responses(node_lines=lines)) if each.what.startswith("environment")]
    assert (problem.cause, problem.remedy) == ("not compiled", "use torchrun; see /log")
