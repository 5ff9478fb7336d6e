"""
The policy, rule by rule, on values; the predecessor's defects by their numbers.

D04 (a verdict that hangs on the last event) and D20 (success at launch) are promises I5 and I11 of the model. D10 to
D13, D15 and D17 are tried in `test_events.py` and `test_aws_edges.py`. D18, D19 and D21 are the template's, tried with
the constructs.
"""

from dataclasses import replace

import pytest
from test_failure_reason import MESSAGES

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.decision import (
    Outcome,
    Resume,
    Shrink,
    Wait,
    decide,
    judge_denial,
)
from capacity_adjuster.policy.observation import ClusterObservation, GroupObservation, Instance, needs_activities
from capacity_adjuster.policy.shrink_record import Adjustment
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason

NOW = 1_700_000_600.0
LACK = "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested (eu-west-1a)."
DIED = "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
KEY_REFUSED = f"{DIED}Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"
NO_VOLUMES = f"{DIED}Client.VolumeLimitExceeded: Volume limit exceeded"
HOOK_REFUSED = (
    "Instance failed to complete user's Lifecycle Action: Lifecycle Action with token 1 was abandoned: Lifecycle "
    "Action Completed with ABANDON Result"
)


def nodes(count, lifecycle="InService", first=1, **options):
    return tuple(Instance(f"i-{first + i:08x}", lifecycle, **options) for i in range(count))


def launch(start, status="Successful", message="", *, end=None, kind="launch"):
    end = start + 1 if end is None and status != "InProgress" else end
    return Activity(
        f"a-{start}-{status}-{kind}", kind, status, NOW - 500 + start, None if end is None else NOW - 500 + end, message
    )


FAILED = launch(0, "Failed", LACK)
MASTER = GroupObservation("m", NodeRole.MASTER, 0, 1, 1, nodes(1, first=100), (launch(0),))
WORKERS = GroupObservation("w", NodeRole.WORKER, 0, 3, 4, nodes(3), (launch(0),), created=NOW - 600)
SHORT = replace(WORKERS, instances=nodes(2), activities=(launch(0), FAILED))
EMPTY = replace(WORKERS, instances=(), activities=(FAILED,))
NO_MASTER = replace(MASTER, instances=(), activities=(FAILED,))


@pytest.fixture
def judge(settings):
    """Decide on groups; one that is None is not there."""

    def judge(workers=WORKERS, master=MASTER, *, now=NOW, minimum=2, **records):
        groups = tuple(group for group in (master, workers) if group)
        chosen = replace(settings, worker_min_capacity=minimum)
        records = {"state": None, "adjustment": None, "breaker": None} | records
        return decide(ClusterObservation(groups), settings=chosen, now=now, **records)

    return judge


def assert_launched(decision, *, requested, count, reason=NO_REASON):
    assert isinstance(decision, Outcome), decision
    assert decision.state.phase is Phase.LAUNCHED
    assert (decision.state.requested, len(decision.state.expected)) == (requested, count)
    assert decision.state.reason == reason


def assert_failed(decision, *words):
    assert isinstance(decision, Outcome), decision
    assert decision.state.phase is Phase.FAILED
    assert all(word in str(decision.state.reason) for word in words), decision.state.reason


def test_launches_when_all_that_were_asked_for_are_in_service(judge):
    decision = judge()
    assert_launched(decision, requested=4, count=4)
    assert decision.state == ClusterState(
        "training",
        1,
        1,
        Phase.LAUNCHED,
        4,
        ("i-00000064", "i-00000001", "i-00000002", "i-00000003"),
        worker_minimum=2,
    )


@pytest.mark.fault(12)
def test_zero_workers_asked_for_make_a_cluster_of_the_master(judge):
    assert_launched(judge(replace(WORKERS, desired=0, instances=(), activities=())), requested=1, count=1)


@pytest.mark.fault(14)
def test_a_user_who_asks_for_fewer_than_the_minimum_gets_them(judge):
    decision = judge(replace(WORKERS, desired=1, instances=nodes(1)))
    assert_launched(decision, requested=2, count=2)
    assert decision.state.worker_minimum == 1


@pytest.mark.fault(1, 10)
def test_shrinks_to_what_launched_when_the_minimum_is_met(judge):
    decision = judge(SHORT)
    assert isinstance(decision, Shrink)
    assert (decision.group, decision.launched, decision.requested) == ("w", ("i-00000001", "i-00000002"), 3)
    assert decision.processes == ("Launch", "AZRebalance", "ReplaceUnhealthy")
    assert decision.reason.cause.startswith(
        "2 of 3 workers launched, at least 2 were required: InsufficientInstanceCapacity"
    )


def test_suspends_only_what_nobody_has_suspended(judge):
    decision = judge(replace(SHORT, suspended=frozenset({"AZRebalance", "Terminate"})))
    assert decision.processes == ("Launch", "ReplaceUnhealthy")
    assert decision == judge(SHORT), "what is suspended is no part of what is decided"


@pytest.mark.fault(2)
def test_fails_with_the_reason_below_the_minimum(judge):
    decision = judge(SHORT, minimum=3)
    assert_failed(decision, "launched workers must be at least 3, got 2 of 3", "lower workers.min_capacity", LACK[:-1])
    assert decision.state.expected == ()
    assert decision.state.requested == 4


@pytest.mark.fault(11)
def test_all_workers_fail_and_none_is_needed(judge):
    """FAULTS 11: a cluster of the master alone, flagged as smaller."""
    decision = judge(EMPTY, minimum=0)
    assert isinstance(decision, Shrink)
    assert decision.launched == ()


@pytest.mark.fault(6)
def test_all_workers_fail_for_a_mistake_that_no_retry_mends(judge):
    """FAULTS 6: never shrink and go on if all fail alike."""
    broken = replace(EMPTY, activities=(launch(0, "Failed", "The image id '[ami-1]' does not exist."),))
    assert_failed(judge(broken, minimum=0), "InvalidAMIID", "choose an image that exists in this region")


@pytest.mark.fault(7)
def test_a_failure_that_a_new_role_explains_gets_some_time(judge):
    """FAULTS 7."""
    denied = replace(EMPTY, activities=(launch(0, "Failed", "You are not authorized to perform this operation."),))
    ended = denied.failed_launches[0].last_moment
    early = judge(denied, now=ended + 44)
    assert (isinstance(early, Wait), early.seconds) == (True, 1)
    assert isinstance(judge(denied, now=ended - 1), Wait)
    assert_failed(judge(denied, now=ended + 45), "UnauthorizedOperation")


VALIDATED = MESSAGES["PendingVerification"][0]
THROTTLED = MESSAGES["RequestLimitExceeded"][0]
PASSING = pytest.mark.parametrize(
    ("message", "seconds", "kind"),
    [(VALIDATED, 600, "PendingVerification"), (THROTTLED, 180, "RequestLimitExceeded")],
    ids=["validated", "throttled"],
)


@pytest.mark.fault(7)
@PASSING
@pytest.mark.parametrize("role", list(NodeRole))
def test_the_adjuster_waits_if_the_next_launch_may_succeed_and_logs_it(judge, message, seconds, kind, role):
    failed = launch(0, "Failed", message)
    groups = {
        NodeRole.MASTER: (WORKERS, replace(NO_MASTER, activities=(failed,))),
        NodeRole.WORKER: (replace(SHORT, activities=(launch(0), failed)), MASTER),
    }[role]
    early = judge(*groups, minimum=3, now=failed.last_moment + seconds - 1)
    assert (isinstance(early, Wait), early.seconds) == (True, 1)
    assert (role.value in early.why, kind in early.why, message[:80] in early.why) == (True, True, True)
    assert_failed(judge(*groups, minimum=3, now=failed.last_moment + seconds), kind)


@pytest.mark.fault(7)
@PASSING
def test_no_worker_is_given_up_for_what_may_pass(judge, message, seconds, kind):
    short = replace(SHORT, activities=(launch(0), launch(0, "Failed", message)))
    ended = short.failed_launches[0].last_moment
    assert isinstance(judge(short, now=ended + seconds - 1), Wait)
    decision = judge(short, now=ended + seconds)
    assert isinstance(decision, Shrink)
    assert kind in decision.reason.cause


def test_each_kind_of_failure_has_its_own_time_from_its_own_first(judge):
    def fail(*history):
        return replace(NO_MASTER, activities=tuple(launch(start, "Failed", text) for start, text in history))

    start = NOW - 500
    late = fail((0, VALIDATED), (100, VALIDATED), (300, THROTTLED))
    assert isinstance(judge(WORKERS, late, now=start + 302 + 179), Wait)
    assert_failed(judge(WORKERS, late, now=start + 302 + 180), "RequestLimitExceeded")
    again = fail((0, THROTTLED), (170, VALIDATED), (400, THROTTLED))
    assert_failed(judge(WORKERS, again, now=start + 402), "RequestLimitExceeded")
    assert_failed(judge(WORKERS, fail((0, THROTTLED), (20, LACK)), now=start + 22), "InsufficientInstanceCapacity")


def test_a_mistake_stays_one_when_something_that_passes_came_before_it(judge):
    mistake = launch(200, "Failed", "The image id '[ami-1]' does not exist.")
    broken = replace(EMPTY, activities=(launch(0, "Failed", THROTTLED), mistake))
    assert_failed(judge(broken, minimum=0), "InvalidAMIID")
    dying = cycle(2, KEY_REFUSED, workers=2)
    throttled = launch(-60, "Failed", THROTTLED)
    assert_failed(judge(replace(dying, activities=(throttled, *dying.activities))), "InvalidKmsKey")
    alone = replace(EMPTY, activities=(launch(0, "Failed", VALIDATED),))
    assert isinstance(judge(alone, minimum=0, now=NOW + 600), Shrink)


def test_other_failures_get_no_grace(judge):
    assert isinstance(judge(SHORT, now=FAILED.last_moment - 1), Shrink)


@pytest.mark.fault(3)
@pytest.mark.defect("D01")
def test_the_first_launch_error_waits_for_the_launches_under_way(judge):
    under_way = replace(
        WORKERS, instances=nodes(2, "Pending"), activities=(FAILED, launch(0, "InProgress"), launch(0, "InProgress"))
    )
    assert isinstance(judge(under_way, minimum=0), Wait)
    assert isinstance(judge(replace(under_way, instances=()), minimum=0), Wait)


@pytest.mark.defect("D02", "D16", "D47")
@pytest.mark.parametrize(
    "lifecycle",
    ["Pending", "Pending:Wait", "Pending:Proceed", "Terminating", "Terminating:Wait", "Quarantined", "EnteringStandby",
     "Standby", "Detaching", "Warmed:Running", "ReplacingRootVolume", "Terminated", "Something:New", ""],
)  # fmt: skip
def test_only_in_service_counts_and_everything_else_is_in_progress(judge, lifecycle):
    waiting = replace(WORKERS, instances=(*nodes(2), *nodes(1, lifecycle, first=9)), activities=(launch(0), FAILED))
    assert isinstance(judge(waiting), Wait)
    assert isinstance(judge(WORKERS, replace(MASTER, instances=nodes(1, lifecycle))), Wait)


@pytest.mark.defect("D03")
def test_more_than_asked_for_waits_for_the_scale_in(judge):
    assert isinstance(judge(replace(WORKERS, desired=2)), Wait)


@pytest.mark.parametrize(
    "change",
    [{"suspended": frozenset({"Terminate"})}, {"instances": nodes(3, is_protected=True)}],
)
@pytest.mark.defect("D03")
def test_more_than_asked_for_is_launched_when_no_scale_in_can_come(judge, change):
    assert_launched(judge(replace(WORKERS, desired=2, **change)), requested=4, count=4)


@pytest.mark.fault(4, 20)
@pytest.mark.parametrize("phase", [Phase.PUBLISHED, Phase.FORMED, Phase.FAILED])
@pytest.mark.defect("D05", "D06")
def test_rests_once_a_roster_is_published(judge, phase):
    verdict = judge().state
    for group in (WORKERS, SHORT, EMPTY, replace(SHORT, desired=8)):
        assert isinstance(judge(group, NO_MASTER, state=verdict.advance(phase)), Wait)
        assert isinstance(judge(group, state=verdict.advance(phase)), Wait)


def test_a_verdict_that_says_what_there_is_stands(judge):
    state = judge().state
    assert judge(state=state) == Wait("the verdict stands")
    assert judge(replace(WORKERS, desired=2), state=state) == Wait(
        "a group is about to terminate its surplus instances"
    )


REPLACED = replace(WORKERS, instances=(*nodes(2), *nodes(1, first=9)))


def test_a_replaced_worker_makes_the_next_generation(judge):
    first = replace(judge().state, notice="the capacity block ends", run_ended=True)
    decision = judge(REPLACED, state=first)
    assert_launched(decision, requested=4, count=4)
    assert decision.state == replace(
        first, revision=2, generation=2, expected=("i-00000064", "i-00000001", "i-00000002", "i-00000009")
    )


def test_a_replaced_master_makes_the_next_generation(judge):
    decision = judge(WORKERS, replace(MASTER, instances=nodes(1, first=200)), state=judge().state)
    assert (decision.state.generation, decision.state.expected[0]) == (2, "i-000000c8")


def test_a_worker_that_is_being_replaced_is_waited_for(judge):
    state = judge().state
    assert isinstance(judge(replace(WORKERS, instances=(*nodes(2), *nodes(1, "Pending", 9))), state=state), Wait)
    died = replace(SHORT, activities=(launch(0), launch(90, kind="terminate")))
    assert isinstance(judge(died, state=state), Wait)


def test_a_worker_whose_replacement_fails_is_given_up(judge):
    state = judge().state
    failed = replace(SHORT, activities=(launch(0), launch(90, kind="terminate"), launch(100, "Failed", LACK)))
    decision = judge(failed, state=state)
    assert isinstance(decision, Shrink)
    shrunk = replace(failed, desired=2)
    reason = decision.reason
    record = Adjustment(2, "w", 3, 3, 2, reason, (), 0)
    assert_launched(judge(shrunk, state=state, adjustment=record), requested=4, count=3, reason=reason)
    assert judge(shrunk, state=state, adjustment=record).state.generation == 2


def test_too_few_workers_fail_a_cluster_that_had_launched(judge):
    state = judge().state
    failed = replace(SHORT, activities=(launch(0), launch(90, kind="terminate"), launch(100, "Failed", LACK)))
    decision = judge(failed, state=state, minimum=3)
    assert_failed(decision, "launched workers must be at least 3, got 2 of 3", "InsufficientInstanceCapacity")
    assert (decision.state.revision, decision.state.generation) == (2, 1)


def test_a_dead_master_whose_replacement_is_to_come_is_waited_for(judge):
    state, dead = judge().state, replace(MASTER, instances=())
    for history in ((launch(0),), (launch(0), launch(90, kind="terminate")), (launch(0), launch(90, "InProgress"))):
        assert isinstance(judge(WORKERS, replace(dead, activities=history), state=state), Wait)


def test_a_master_that_cannot_be_replaced_fails_the_cluster(judge):
    history = (launch(0), launch(90, kind="terminate"), launch(100, "Failed", LACK))
    decision = judge(WORKERS, replace(MASTER, instances=(), activities=history), state=judge().state)
    assert_failed(decision, "master did not launch: InsufficientInstanceCapacity", "try again later")


@pytest.mark.defect("D07")
def test_an_unhealthy_instance_is_not_a_failed_launch(judge):
    sick = replace(WORKERS, instances=(*nodes(2), *nodes(1, first=9, health="Unhealthy")))
    assert isinstance(judge(sick), Wait)


@pytest.mark.defect("D07")
def test_an_instance_that_is_being_replaced_is_not_a_failed_launch(judge):
    history = (launch(0), FAILED, launch(20), launch(40, kind="terminate"))
    assert isinstance(judge(replace(SHORT, activities=history)), Wait)
    assert isinstance(judge(replace(SHORT, activities=(*history, launch(60, "Failed", LACK)))), Shrink)


@pytest.mark.defect("D07")
def test_missing_workers_without_any_failure_are_still_to_come(judge):
    assert isinstance(judge(replace(SHORT, activities=())), Wait)


@pytest.mark.parametrize("words", ["", "User cancelled this activity", "Instance was terminated by a scale-in"])
def test_a_launch_that_a_user_or_a_scale_in_cancelled_is_no_failed_launch(judge, words):
    assert isinstance(judge(replace(SHORT, activities=(launch(0, "Cancelled", words),))), Wait)
    assert isinstance(judge(WORKERS, replace(NO_MASTER, activities=(launch(0, "Cancelled", words),))), Wait)


def die(start, message, instance_id="i-000000dd"):
    """
    Describe a launch whose instance died before it was in service, and its termination, in Auto Scaling's words.

    aws-samples/eks-workshop-v2, website/docs/troubleshooting/workernodes/one/index.md shows `DescribeScalingActivities`
    of a key that refuses the service-linked role.
    """
    return (
        replace(launch(start, "Cancelled", message, end=start + 5), instance_id=instance_id),
        replace(
            launch(start + 7, kind="terminate"),
            instance_id=instance_id,
            cause="At 2026-11-22T10:00:00Z an instance was taken out of service in response to an EC2 health check "
            "indicating it has been terminated or stopped.",
        ),
    )


@pytest.mark.parametrize("message", [KEY_REFUSED, NO_VOLUMES, HOOK_REFUSED])
def test_a_launch_that_died_before_it_was_in_service_is_a_failed_launch(judge, message):
    decision = judge(replace(SHORT, activities=(launch(0), *die(0, message))))
    assert isinstance(decision, Shrink)
    assert decision.reason.cause.startswith("2 of 3 workers launched")


def test_another_termination_after_an_early_death_shows_that_the_next_launch_is_to_come(judge):
    other = replace(launch(20, kind="terminate"), instance_id="i-000000ee")
    assert isinstance(judge(replace(SHORT, activities=(launch(0), *die(0, KEY_REFUSED), other))), Wait)


@pytest.mark.parametrize("key", ["", "arn:aws:kms:eu-west-1:111122223333:key/1234"])
def test_a_key_that_refuses_names_the_key_the_principal_and_the_remedy(judge, settings, key):
    empty = replace(EMPTY, activities=die(0, KEY_REFUSED))
    decision = decide(
        ClusterObservation((MASTER, empty)),
        state=None,
        adjustment=None,
        breaker=None,
        settings=replace(settings, encryption_key=key),
        now=NOW,
    )
    words = (key or "the KMS key that encrypts the volumes", "AWSServiceRoleForAutoScaling", "kms:CreateGrant")
    assert_failed(decision, "InvalidKmsKey", "incorrect state", *words)


def test_a_master_that_a_key_refuses_fails_the_cluster(judge, settings):
    refused = replace(NO_MASTER, activities=die(0, KEY_REFUSED))
    assert_failed(judge(WORKERS, refused), "master did not launch: Invalid")
    named = replace(settings, encryption_key="arn:aws:kms:eu-west-1:111122223333:key/1234")
    observed = ClusterObservation((WORKERS, refused))
    decision = decide(observed, state=None, adjustment=None, breaker=None, settings=named, now=NOW)
    assert_failed(decision, named.encryption_key)


@pytest.mark.fault(5)
def test_the_remedy_of_a_smaller_cluster_names_the_quota_of_its_types_and_its_key(settings):
    """The message of a quota names no instance type, so the remedy takes those that run."""
    typed = nodes(2, instance_type="p3dn.24xlarge")
    named = replace(settings, encryption_key="arn:aws:kms:eu-west-1:111122223333:key/1234")
    records = {"state": None, "adjustment": None, "breaker": None}
    for past, words in (
        ((launch(0, "Failed", "VcpuLimitExceeded"),), "Running On-Demand P instances"),
        (die(0, KEY_REFUSED), named.encryption_key),
    ):
        workers = replace(SHORT, instances=typed, activities=past)
        decision = decide(ClusterObservation((MASTER, workers)), settings=named, now=NOW, **records)
        assert words in decision.reason.remedy


def cycle(times, message, *, workers):
    """Describe a group that is tried again at once, so that something is always under way."""
    past = [
        activity
        for turn in range(times)
        for worker in range(workers)
        for activity in die(turn * 20, message, f"i-{turn:04x}{worker:04x}")
    ]
    now = launch(20 * times, "InProgress")
    return replace(WORKERS, desired=workers, instances=nodes(1, "Pending"), activities=(*past, now))


def test_a_key_that_refuses_every_attempt_fails_the_cluster_while_the_next_is_under_way(judge):
    assert isinstance(judge(cycle(1, KEY_REFUSED, workers=2)), Wait)
    assert_failed(judge(cycle(2, KEY_REFUSED, workers=2)), "InvalidKmsKey", "got 0 of 2")
    assert_failed(judge(cycle(2, KEY_REFUSED, workers=1)), "InvalidKmsKey", "got 0 of 1")


def test_of_launches_that_keep_dying_the_last_is_the_reason(judge):
    dying = cycle(2, KEY_REFUSED, workers=2)
    last = replace(dying.failed_launches[-1], activity_id="last", zone="eu-west-1c", end=NOW)
    assert_failed(judge(replace(dying, activities=(last, *dying.activities))), "in eu-west-1c")


def test_a_lack_of_capacity_beside_a_mistake_may_pass(judge):
    mixed = replace(EMPTY, activities=(FAILED, *die(20, KEY_REFUSED)))
    assert isinstance(judge(mixed, minimum=0), Shrink)


def test_an_attempt_that_may_succeed_is_waited_for_however_many_died_before(judge):
    assert isinstance(judge(cycle(9, NO_VOLUMES, workers=1)), Wait)


def test_workers_that_died_before_they_were_in_service_do_not_trip_the_breaker(judge):
    state = replace(judge().state, phase=Phase.FORMED)
    deaths = tuple(activity for turn in range(5) for activity in die(turn * 20, KEY_REFUSED, f"i-0000000{turn}"))
    assert isinstance(judge(replace(SHORT, activities=deaths), state=state), Wait)


def test_the_verdict_has_the_fewest_workers_that_props_and_group_allow(judge):
    assert judge(minimum=0).state.worker_minimum == 0
    assert judge(minimum=2).state.worker_minimum == 2
    assert judge(replace(WORKERS, min_size=3), minimum=2).state.worker_minimum == 3


def test_launches_of_the_same_second_as_a_failure_are_no_retries(judge):
    """Auto Scaling tells starts in milliseconds and ends in seconds, cut off."""
    failure = launch(0.2, "Failed", LACK, end=0)
    assert isinstance(judge(replace(SHORT, activities=(failure, launch(0.7, end=60)))), Shrink)
    assert isinstance(judge(replace(SHORT, activities=(failure, launch(20, end=60)))), Wait)


@pytest.mark.fault(13)
@pytest.mark.parametrize("workers", [WORKERS, replace(WORKERS, instances=nodes(1, "Pending"), activities=None)])
@pytest.mark.defect("D08")
def test_a_failed_master_fails_at_once_whatever_the_workers_do(judge, workers):
    assert_failed(judge(workers, NO_MASTER), "master did not launch: InsufficientInstanceCapacity", "try again later")


def test_a_master_whose_launch_is_under_way_again_is_waited_for(judge):
    again = replace(NO_MASTER, activities=(FAILED, launch(20, "InProgress")))
    assert isinstance(judge(WORKERS, again), Wait)


@pytest.mark.defect("D09")
def test_the_reason_names_the_zone(judge):
    failure = replace(FAILED, zone="eu-west-1a")
    assert_failed(judge(replace(EMPTY, activities=(failure,))), "InsufficientInstanceCapacity in eu-west-1a: ")


@pytest.mark.fault(25)
@pytest.mark.defect("D14")
def test_the_role_is_the_tags_and_not_the_names(judge):
    names = replace(WORKERS, name="MasterAutoScalingGroup-1"), replace(MASTER, name="WorkerAutoScalingGroup-master")
    assert_launched(judge(*names), requested=4, count=4)


@pytest.mark.parametrize("groups", [(None, MASTER), (WORKERS, None), (None, None)])
def test_a_group_that_is_not_found_is_not_there_yet(judge, groups):
    assert isinstance(judge(*groups), Wait)


SECOND = replace(WORKERS, name="w2", candidate="1", desired=0, instances=(), activities=())


def decide_among(settings, *groups):
    observed = ClusterObservation((MASTER, *groups))
    return decide(observed, state=None, adjustment=None, breaker=None, settings=settings, now=NOW)


def test_a_candidate_that_is_not_asked_changes_nothing(settings):
    for groups in ((WORKERS, SECOND), (SECOND, WORKERS)):
        assert decide_among(settings, *groups) == decide_among(settings, WORKERS)


def test_the_groups_of_a_role_count_together(settings):
    second = replace(SECOND, desired=2, instances=nodes(2, first=50))
    assert_launched(decide_among(settings, WORKERS, second), requested=6, count=6)
    for busy in (nodes(2, "Pending", first=50), nodes(1, first=50)):
        assert isinstance(decide_among(settings, WORKERS, replace(second, instances=busy)), Wait)
    assert isinstance(decide_among(settings, WORKERS, replace(second, activities=None)), Wait)
    assert isinstance(decide_among(settings, WORKERS, replace(second, is_deleting=True)), Wait)


def test_the_candidate_that_is_asked_is_shrunk_and_no_other(settings):
    asked = replace(SHORT, name="w2", candidate="1")
    empty = replace(WORKERS, desired=0, instances=(), activities=())
    assert decide_among(settings, empty, asked).group == "w2"
    both = replace(SHORT, desired=3), replace(SECOND, desired=1, instances=nodes(1, first=50))
    assert isinstance(decide_among(settings, *both), Wait)


def test_candidates_are_ordered_by_number():
    groups = tuple(replace(WORKERS, name=f"w{n}", candidate=str(n), desired=1) for n in (10, 9, 2))
    assert ClusterObservation(groups).workers.name == "w2"


@pytest.mark.parametrize("workers", [SHORT, EMPTY, WORKERS])
def test_a_group_that_is_being_deleted_is_left_alone(judge, workers):
    assert isinstance(judge(replace(workers, is_deleting=True)), Wait)
    assert isinstance(judge(workers, replace(NO_MASTER, is_deleting=True)), Wait)


def test_activities_that_were_not_read_may_be_in_progress(judge):
    assert isinstance(judge(replace(WORKERS, activities=None)), Wait)
    assert isinstance(judge(WORKERS, replace(MASTER, activities=None)), Wait)


@pytest.mark.parametrize("status", ["InProgress", "PreInService", "MidLifecycleAction", "WaitingForInstanceId", "New"])
def test_an_activity_of_any_status_but_the_final_ones_is_waited_for(judge, status):
    running = Activity("a", "other", status, NOW)
    assert isinstance(judge(replace(WORKERS, activities=(running,))), Wait)
    assert isinstance(judge(WORKERS, replace(MASTER, activities=(running,))), Wait)


def test_more_than_one_master_is_waited_for(judge):
    assert isinstance(judge(WORKERS, replace(MASTER, desired=2, instances=nodes(2))), Wait)


@pytest.mark.fault(15)
def test_a_minimum_that_the_user_gave_the_group_counts_too(judge):
    """FAULTS 15: Auto Scaling would refuse a desired capacity below it."""
    assert_failed(judge(replace(SHORT, min_size=3), minimum=0), "must be at least 3, got 2 of 3")


ADJUSTMENT = Adjustment(
    4, "w", requested=5, before=6, target=3, reason=Reason("why"), processes=("Launch",), lease_until=int(NOW) + 30
)


def test_another_invocations_shrink_is_waited_for_until_it_cannot_be_alive(judge):
    assert isinstance(judge(adjustment=ADJUSTMENT), Wait)
    assert judge(adjustment=ADJUSTMENT, now=NOW + 31) == Resume(ADJUSTMENT)


def test_a_lease_that_no_invocation_can_have_is_not_waited_for(judge):
    forged = replace(ADJUSTMENT, lease_until=int(NOW) + 10**8)
    assert judge(adjustment=forged) == Resume(forged)


@pytest.mark.fault(10)
@pytest.mark.defect("D15")
def test_an_orphaned_suspension_is_resumed_after_the_verdict_too(judge):
    assert judge(adjustment=ADJUSTMENT, now=NOW + 31, state=judge().state) == Resume(ADJUSTMENT)


def test_the_requested_capacity_outlives_the_shrink(judge):
    assert_launched(judge(adjustment=ADJUSTMENT.close()), requested=6, count=4, reason=Reason("why"))


@pytest.mark.fault(14)
def test_a_desired_capacity_that_the_user_set_since_is_what_was_asked_for(judge):
    four = replace(WORKERS, desired=4, instances=nodes(4))
    assert_launched(judge(four, adjustment=ADJUSTMENT.close()), requested=5, count=5)


def test_a_second_shrink_remembers_the_first(judge):
    again = replace(WORKERS, instances=nodes(2), activities=(launch(0), FAILED))
    assert judge(again, adjustment=ADJUSTMENT.close()).requested == 5


def test_a_record_of_another_group_says_nothing(judge):
    other = replace(ADJUSTMENT.close(), group="gone")
    assert_launched(judge(adjustment=other), requested=4, count=4)


@pytest.mark.fault(42)
def test_a_denial_fails_the_cluster_once_a_new_policy_has_had_its_time(settings):
    """FAULTS 42."""
    denial = "AccessDenied: User: adjuster is not authorized to perform: autoscaling:SetDesiredCapacity"
    observed = ClusterObservation((MASTER, WORKERS))
    early = judge_denial(observed, denial, settings=settings, now=WORKERS.created + 179, since=0.0)
    assert isinstance(early, Wait)
    late = judge_denial(observed, denial * 20, settings=settings, now=WORKERS.created + 180, since=NOW)
    assert_failed(late, "autoscaling:SetDesiredCapacity")
    assert len(str(late.state.reason)) == 1000
    assert (late.state.requested, late.state.reason.remedy) == (4, "check the policies of its role")
    unseen = {"settings": settings, "now": NOW}
    assert isinstance(judge_denial(ClusterObservation(), denial, since=NOW - 179, **unseen), Wait)
    blind = judge_denial(ClusterObservation(), denial, since=NOW - 180, **unseen)
    assert_failed(blind, "autoscaling:SetDesired")
    assert blind.state.requested == 1


@pytest.mark.parametrize(
    ("group", "other", "is_needed"),
    [
        (WORKERS, MASTER, True),
        (replace(WORKERS, instances=nodes(3, "Pending")), MASTER, False),
        (WORKERS, replace(MASTER, instances=nodes(1, "Pending")), False),
        (EMPTY, replace(MASTER, instances=nodes(1, "Pending")), True),
    ],
)
def test_activities_are_read_only_where_they_can_decide(group, other, is_needed):
    assert needs_activities(group, (group, other)) is is_needed
