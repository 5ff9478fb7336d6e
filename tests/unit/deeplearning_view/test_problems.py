"""Every failure is told once, with its cause and with what to do."""

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.launch_failures import classify_failure, find_remedy
from deeplearning_provision.steps import ProvisionFailure, describe_failure
from deeplearning_view.remedies import advise_on_resource, split_reason
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


@pytest.mark.parametrize("message", [text for texts in MESSAGES.values() for text in texts])
def test_what_aws_says_of_a_launch_is_parted_from_the_adjusters_remedy(message):
    remedy = find_remedy(message)
    reason = f"master did not launch: {classify_failure(message).name} in us-east-1a: {message.rstrip('.')}; {remedy}"
    assert split_reason(reason) == (reason.removesuffix(f"; {remedy}"), remedy)


def test_the_last_lines_of_a_program_stay_with_the_cause():
    reason = "worker i-1 failed to install: apt-get ended with 100; see the log; last lines: E: a | E: b; c"
    assert split_reason(reason) == (
        "worker i-1 failed to install: apt-get ended with 100; last lines: E: a | E: b; c",
        "see the log",
    )


def test_the_stacks_reason_comes_first_and_the_launches_that_it_names_are_not_told_again():
    reason = f"launched workers must be at least 1, got 0 of 3: InsufficientInstanceCapacity: {NO_CAPACITY[:-1]}; "
    reason += find_remedy(NO_CAPACITY)
    (problem,) = find(make_rolled_back(reason, activities={"workers": [make_failed_launch(NO_CAPACITY)] * 3}))
    assert problem.what == "stack"
    assert NO_CAPACITY[:-1] in problem.cause
    assert (
        problem.remedy
        == "try again later, choose another network.availability_zone, region or instance type, or reserve capacity"
    )


def test_a_launch_that_failed_otherwise_than_the_stacks_reason_is_told_too_with_how_often():
    responses = make_rolled_back("no", activities={"workers": [make_failed_launch(NO_CAPACITY)] * 3})
    stack, launch = find(responses)
    assert stack.what == "stack"
    assert (launch.what, launch.cause) == ("launch of worker, 3 times", NO_CAPACITY)
    assert "reserve capacity" in launch.remedy


@pytest.mark.parametrize(
    ("reason", "remedy"),
    [
        ("Received 0 conditions when expecting 1: WaitCondition timed out.", "get-console-output"),
        ("User: arn:aws:iam::1:user/me is not authorized to perform: ec2:CreateVpc", "let the principal that"),
        (
            "Received response status [FAILED] from custom resource. Message returned: no image; pass another image",
            "pass another image",
        ),
        ("The maximum number of VPCs has been reached.", "Service Quotas"),
        ("training-key already exists", "delete or rename"),
        ("The subnet ID 'subnet-1' does not exist", "correct the id"),
        ("Something else", "correct what the message names"),
    ],
)
def test_a_resource_that_could_not_be_made_is_told_with_what_to_do(reason, remedy):
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
def test_a_network_that_somebody_elses_endpoint_keeps_is_told_with_what_guardduty_leaves(logical_id, kind, what):
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
        make_line(MASTER_ID, "master", "failed", level="ERROR", seconds=9, reason=reason, remedy="open port 2049")
    )
    lines.append(make_line(WORKER_ID, "worker", "another", seconds=10))
    (problem,) = find(make_rolled_back(reason, node_lines=lines))
    assert (problem.cause, problem.remedy) == (reason, "open port 2049")
    assert [line.message for line in problem.lines] == ["step 5", "step 6", "step 7", "step 8", "failed"]


def test_a_remedy_of_two_clauses_is_parted_from_the_cause_where_the_node_logged_it():
    remedy = "give an image with a driver; a node never joins without"
    reason = f"worker failed to count GPUs: nvidia-smi ended with 6; {remedy}; last lines: No devices"
    lines = [make_line(LOST_ID, "worker", "failed", level="ERROR", reason=reason, remedy=remedy)]
    (problem,) = find(make_responses(item=make_item(), node_lines=lines))
    assert problem.cause == "worker failed to count GPUs: nvidia-smi ended with 6; last lines: No devices"
    assert problem.remedy == remedy


def test_what_the_adjuster_found_out_is_shown_with_the_adjusters_lines():
    lines = [make_line("adjuster", "adjuster", "nothing launched")]
    (problem,) = find(make_rolled_back("launched workers must be at least 1, got 0 of 3", adjuster_lines=lines))
    assert [line.message for line in problem.lines] == ["nothing launched"]


def test_a_worker_that_failed_is_told_by_its_own_reason_and_not_twice():
    reason = "worker failed to install packages: No space left on device"
    lines = [make_line(LOST_ID, "worker", "failed", level="ERROR", reason=reason)]
    (problem,) = find(make_responses("CREATE_IN_PROGRESS", item=make_item(Phase.LAUNCHED, ()), node_lines=lines))
    assert (problem.what, problem.cause, problem.is_past) == (f"node {LOST_ID}", reason, False)
    assert "volume_size" in problem.remedy


def test_an_instance_that_ec2_took_is_told_and_one_that_was_scaled_in_is_not():
    health = "an instance was taken out of service in response to an EC2 health check indicating it has been terminated"
    wanted = "an instance was taken out of service in response to a difference between desired and actual capacity"
    activities = {"workers": [make_termination(LOST_ID, health), make_termination("i-0000000000000000d", wanted)]}
    (problem,) = find(make_responses(activities=activities))
    assert (problem.what, problem.is_past) == (f"node {LOST_ID}", True)
    assert problem.cause == f"{health}."
    assert problem.remedy.startswith("nothing: its group replaces it")


def test_why_a_cluster_is_smaller_is_told_with_what_to_do():
    reason = f"1 of 3 workers launched, at least 1 were wanted: InsufficientInstanceCapacity: {NO_CAPACITY}; "
    reason += find_remedy(NO_CAPACITY)
    (problem,) = find(make_responses(item=make_item(reason=reason)))
    assert problem.what == "cluster"
    assert "reserve capacity" in problem.remedy


def test_control_characters_of_a_node_reach_no_terminal():
    events = [make_signalled_event("bad \x1b[2J\r\nnews; do this")]
    (problem,) = find(make_responses("ROLLBACK_COMPLETE", events=events, groups=[], instances=[], item=None))
    assert (problem.cause, problem.remedy) == ("bad [2J news", "do this")


def test_a_remedy_of_provisioning_with_several_clauses_is_told_whole() -> None:
    error = ProvisionFailure("not compiled", "use torchrun; all of it is in /log", output="a.cc:3:7: error: no")
    cause, remedy = split_reason(describe_failure(error))
    assert (cause, remedy) == ("not compiled; last lines: a.cc:3:7: error: no", "use torchrun, all of it is in /log")
