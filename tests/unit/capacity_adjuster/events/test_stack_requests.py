"""CloudFormation's requests as it sends them in its worse moments: cancelled, repeated, without a change, denied."""

import json
from dataclasses import replace

import pytest
from botocore.exceptions import ClientError
from model_invocation import ask, invoke
from test_crashes import tick
from test_requested_capacity import LEASE_SECONDS, create, launch_all, make_world, sizes

from capacity_adjuster.policy.requested_capacity import find_due
from capacity_adjuster.policy.stop_policy import StopRecord
from deeplearning_contract.document import ContractError

pytestmark = pytest.mark.usefixtures("silence")
MADE_UP = "training-RequestedCapacity-1ABCDEF2GHIJ"
"""
The kind of id that CloudFormation makes up for a creation that never gave one.

It cancels a creation when another resource of the stack fails, and deletes at once what it has not heard of yet
(cloudformation-coverage-roadmap#1814; aws-cdk#36951: "CloudFormation will send you a fake physical identifier").
"""
LONGEST_ANSWER = 4096
"""CloudFormation's user guide, "Response objects": the response body may have 4,096 bytes."""


def cancel(world):
    """Return the request by which CloudFormation deletes a creation that it has cancelled."""
    ids = {"PhysicalResourceId": MADE_UP, "RequestId": f"cancel-{len(world.answers)}"}
    return world.requests[-1] | ids | {"RequestType": "Delete"}


def find_call(name, kind="Create"):
    """Return the number of the first such call of an undisturbed request."""
    world = make_world() if kind == "Create" else create()
    return ask(world, world.stack_request(kind, 3)).log.index(name)


def deny(_):
    raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not yet"}}, "SetDesiredCapacity")


def test_a_creation_that_was_cancelled_asks_for_nothing_more():
    for crash_at in range(2 * find_call("find")):
        world = make_world()
        ask(world, world.stack_request("Create", 3), crash_at=crash_at)
        ask(world, cancel(world))
        world.pass_time(LEASE_SECONDS)
        ask(world, world.requests[0])
        tick(world, 2)
        assert sizes(world) == (0, 0)
        assert world.answers[-1]["Status"] == "SUCCESS"


def test_a_creation_that_is_cancelled_while_it_asks_ends_at_what_it_has_done():
    world = make_world()
    ask(world, world.stack_request("Create", 3), crash_at=2 * find_call("set_desired") + 1)
    assert sizes(world) == (0, 3)
    assert ask(world, cancel(world)).outcome == "crashed", "Lambda tries again"
    world.pass_time(LEASE_SECONDS)
    ask(world, cancel(world))
    tick(world, 2)
    assert sizes(world) == (0, 3)


@pytest.mark.parametrize("is_cancelled", [True, False])
def test_a_creation_after_another_has_ended_is_requested(is_cancelled):
    world = make_world() if is_cancelled else create()
    if is_cancelled:
        world.stack_request("Create", 3)
    ask(world, cancel(world) if is_cancelled else world.stack_request("Delete", 0))
    ask(world, world.requests[0])
    world.wait_for_the_stack()
    world.is_deleted = False
    ask(world, world.stack_request("Create", 2))
    assert sizes(world) == (1, 2)


def test_the_resource_is_ended_by_the_id_that_it_was_given():
    world = create()
    ask(world, world.stack_request("Update", 4))
    given = {answer["PhysicalResourceId"] for answer in world.answers}
    assert len(given) == 1, "another id would make CloudFormation delete the resource of before"
    ask(world, cancel(world))
    assert not world.requested.is_over, "the resource was updated since its creation"
    ask(world, world.stack_request("Delete", 0) | {"PhysicalResourceId": given.pop()})
    assert world.requested.is_over
    world = make_world()
    ask(world, world.stack_request("Create", 3), crash_at=2 * find_call("read_state"))
    ask(world, cancel(world) | {"PhysicalResourceId": "capacity-of-before"})
    assert not world.requested.is_over
    assert world.requested.request.resource.startswith("capacity-")


def test_an_update_without_another_count_leaves_a_users_own_scaling():
    """CloudFormation updates the resource when any property differs, such as one that a later version adds."""
    world = create()
    world.user_sets_desired(5)
    event = world.stack_request("Update", 3)
    old = event["ResourceProperties"]
    ask(world, event | {"ResourceProperties": old | {"ServiceTimeout": "700"}, "OldResourceProperties": old})
    tick(world)
    assert sizes(world) == (1, 5)
    assert world.answers[-1]["Status"] == "SUCCESS"


def test_the_rollback_of_an_update_asks_for_the_former_count():
    world = create()
    former = world.requests[-1]["ResourceProperties"]
    wanted = former | {"Workers": "5"}
    ask(world, world.stack_request("Update", 5) | {"OldResourceProperties": former})
    assert sizes(world) == (1, 5)
    ask(world, world.stack_request("Update", 3) | {"OldResourceProperties": wanted})
    assert sizes(world) == (1, 3)


@pytest.mark.parametrize("old", [None, {}, {"Workers": "3"}, "3"])
def test_an_update_whose_former_counts_are_not_known_asks(old):
    world = create()
    ask(world, world.stack_request("Update", 5) | {"OldResourceProperties": old})
    assert sizes(world) == (1, 5)


def test_a_call_that_is_denied_at_first_is_made_again_in_the_same_invocation():
    position = find_call("set_desired")
    world = make_world()
    invocation = ask(world, world.stack_request("Create", 3), meanwhile=[(position, deny)])
    assert sizes(world) == (1, 3)
    assert invocation.log.count("sleep") == 1
    assert not world.requested.is_open


def test_a_call_that_is_denied_for_ever_is_left_to_the_timer():
    position = find_call("set_desired")
    world = make_world()
    denials = [(number, deny) for number in range(position, 400) if (number - position) % 8 == 0]
    ask(world, world.stack_request("Create", 3), meanwhile=denials[:1], crash_at=2 * position + 4)
    world.pass_time(LEASE_SECONDS)
    tick(world, 2)
    assert sizes(world) == (1, 3)


def test_a_state_item_that_cannot_be_read_does_not_keep_the_stack_waiting():
    def refuse(_):
        raise ContractError("state.phase must be known, got 'resting'")

    world = make_world()
    ask(world, world.stack_request("Create", 3), meanwhile=[(find_call("read_state"), refuse)])
    assert world.answers[-1]["Status"] == "SUCCESS"
    tick(world, 2)
    assert sizes(world) == (1, 3)


@pytest.mark.parametrize("text", ["\u0663" * 9000, "\U0001f600" * 9000, '"' * 9000, "9" * 9000])
def test_an_answer_is_never_longer_than_cloudformation_takes(text):
    world = make_world()
    event = world.stack_request("Create", 3) | {"ResourceProperties": {"Master": "1", "Workers": text}}
    ask(world, event)
    answer = world.answers[-1]
    assert answer["Status"] == "FAILED"
    assert "must be counts" in answer["Reason"]
    assert len(json.dumps(answer | {"StackId": "s" * 200}).encode()) <= LONGEST_ANSWER


def test_a_request_after_a_crash_is_carried_out_though_the_groups_were_read_too_early():
    """A rollback follows within seconds, and Auto Scaling may still show what was before the update."""
    for lag in (0.0, 9.0):
        for crash_at in range(40):
            world = make_world()
            world.pass_time(60)
            ask(world, world.stack_request("Create", 3))
            world.pass_time(3)
            event = world.stack_request("Update", 5)
            ask(world, event, lag=lag, crash_at=crash_at)
            world.pass_time(60)
            ask(world, event)
            world.pass_time(LEASE_SECONDS)
            tick(world, 2)
            assert sizes(world) == (1, 5), (lag, crash_at)


def test_a_group_that_has_gone_is_not_due():
    world = create()
    assert find_due(world.requested.asks, (replace(world.master.observe(), desired=0),)) == world.requested.asks[1:]


def test_a_budgets_message_stops_the_cluster_though_capacity_is_just_asked_for():
    """The message comes once; only its record lets a later invocation stop the cluster."""
    for crash_at in range(1, 30):
        world = make_world(budget="arn:aws:sns:us-east-1:123456789012:budget")
        ask(world, world.stack_request("Create", 3), crash_at=crash_at)
        world.is_budget_spent = True
        invoke(world, message_id="message-1")
        world.pass_time(LEASE_SECONDS)
        tick(world, 4)
        assert sizes(world) == (0, 0), crash_at


# The state of the groups may have been read before the stop. Without a deadline in the props, no timer records that the
# cluster is up again.
@pytest.mark.parametrize(("age", "workers"), [(20, 3), (300, 5)], ids=["just stopped", "up again"])
def test_a_stopped_cluster_is_requested_once_its_user_has_started_it_again(age, workers):
    world = create()
    world.stop = StopRecord(revision=1, stopped_at=int(world.now) - age)
    launch_all(world)
    ask(world, world.stack_request("Update", 5))
    assert sizes(world) == (1, workers)
    assert not world.requested.is_open


def test_a_lease_far_ahead_keeps_no_request_waiting():
    world = make_world()
    event = world.stack_request("Create", 3)
    ask(world, event, crash_at=2 * find_call("set_desired"))
    world.requested = replace(world.requested, lease_until=int(world.now) + 10_000_000)
    tick(world)
    assert sizes(world) == (1, 3)
