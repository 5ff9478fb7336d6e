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
from capacity_adjuster.policy.breaker import Breaker, Rearm, RecordMembers, Trip
from capacity_adjuster.policy.decision import Outcome, Resume, Shrink, Wait, decide, describe_decision, judge_denial
from capacity_adjuster.policy.observation import ClusterObservation, GroupObservation, Instance, needs_activities
from capacity_adjuster.policy.shrink_record import Adjustment
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason

NOW = 1_700_000_600.0
LACK = "We currently do not have sufficient p3dn.24xlarge capacity in the Availability Zone you requested (eu-west-1a)."
NO_IMAGE = "The image id '[ami-1]' does not exist."
DIED = "Instance became unhealthy while waiting for instance to be in InService state. Termination Reason: "
KEY_REFUSED = f"{DIED}Client.InvalidKMSKey.InvalidState: The KMS key provided is in an incorrect state"
NO_VOLUMES = f"{DIED}Client.VolumeLimitExceeded: Volume limit exceeded"
HOOK_REFUSED = (
    "Instance failed to complete user's Lifecycle Action: Lifecycle Action with token 1 was abandoned: Lifecycle "
    "Action Completed with ABANDON Result"
)
KEY = "arn:aws:kms:eu-west-1:111122223333:key/1234"


def nodes(count, lifecycle="InService", first=1, **options):
    return tuple(Instance(f"i-{first + i:08x}", lifecycle, **options) for i in range(count))


def launch(start, status="Successful", message="", *, end=None, kind="launch"):
    end = start + 1 if end is None and status != "InProgress" else end
    return Activity(
        f"a-{start}-{status}-{kind}", kind, status, NOW - 500 + start, None if end is None else NOW - 500 + end, message
    )


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


FAILED = launch(0, "Failed", LACK)
MASTER = GroupObservation("m", NodeRole.MASTER, 0, 1, 1, nodes(1, first=100), (launch(0),))
WORKERS = GroupObservation("w", NodeRole.WORKER, 0, 3, 4, nodes(3), (launch(0),), created=NOW - 600)
SHORT = replace(WORKERS, instances=nodes(2), activities=(launch(0), FAILED))
EMPTY = replace(WORKERS, instances=(), activities=(FAILED,))
NO_MASTER = replace(MASTER, instances=(), activities=(FAILED,))
NO_RECORDS = {"state": None, "adjustment": None, "breaker": None}


@pytest.fixture
def judge(settings):
    """Decide on groups; one that is None is not there."""

    def judge(workers=WORKERS, master=MASTER, *others, now=NOW, minimum=2, key="", **records):
        groups = tuple(group for group in (master, workers, *others) if group)
        chosen = replace(settings, worker_min_capacity=minimum, encryption_key=key)
        return decide(ClusterObservation(groups), settings=chosen, now=now, **NO_RECORDS | records)

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


def change_master(**changes):
    """Return the groups of a cluster whose master's group differs."""
    return WORKERS, replace(MASTER, **changes)


def change_workers(**changes):
    """Return the groups of a cluster whose workers' group differs."""
    return (replace(WORKERS, **changes),)


def shorten(*activities):
    """Return the groups of a cluster that lacks one of three workers, with these activities."""
    return (replace(SHORT, activities=activities),)


def test_launches_when_all_that_were_asked_for_are_in_service(judge):
    decision = judge()
    assert_launched(decision, requested=4, count=4)
    names = ("i-00000064", "i-00000001", "i-00000002", "i-00000003")
    assert decision.state == ClusterState("training", 1, 1, Phase.LAUNCHED, 4, names, worker_minimum=2)


@pytest.mark.fault(12)
def test_zero_workers_asked_for_make_a_cluster_of_the_master(judge):
    assert_launched(judge(replace(WORKERS, desired=0, instances=(), activities=())), requested=1, count=1)


@pytest.mark.fault(14)
def test_a_user_who_asks_for_fewer_than_the_minimum_gets_them(judge):
    decision = judge(replace(WORKERS, desired=1, instances=nodes(1)))
    assert_launched(decision, requested=2, count=2)
    assert decision.state.worker_minimum == 1


@pytest.mark.fault(25)
@pytest.mark.defect("D14")
def test_the_role_is_the_tags_and_not_the_names(judge):
    names = replace(WORKERS, name="MasterAutoScalingGroup-1"), replace(MASTER, name="WorkerAutoScalingGroup-master")
    assert_launched(judge(*names), requested=4, count=4)


@pytest.mark.parametrize(
    "change", [{"suspended": frozenset({"Terminate"})}, {"instances": nodes(3, is_protected=True)}]
)
@pytest.mark.defect("D03")
def test_more_than_asked_for_is_launched_when_no_scale_in_can_come(judge, change):
    assert_launched(judge(replace(WORKERS, desired=2, **change)), requested=4, count=4)


def test_the_verdict_has_the_fewest_workers_that_props_and_group_allow(judge):
    assert judge(minimum=0).state.worker_minimum == 0
    assert judge(minimum=2).state.worker_minimum == 2
    assert judge(replace(WORKERS, min_size=3), minimum=2).state.worker_minimum == 3


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


@pytest.mark.fault(11)
def test_all_workers_fail_and_none_is_needed(judge):
    """FAULTS 11: a cluster of the master alone, flagged as smaller."""
    decision = judge(EMPTY, minimum=0)
    assert isinstance(decision, Shrink)
    assert decision.launched == ()


@pytest.mark.parametrize("message", [KEY_REFUSED, NO_VOLUMES, HOOK_REFUSED])
def test_a_launch_that_died_before_it_was_in_service_is_a_failed_launch(judge, message):
    decision = judge(*shorten(launch(0), *die(0, message)))
    assert isinstance(decision, Shrink)
    assert decision.reason.cause.startswith("2 of 3 workers launched")


@pytest.mark.parametrize(
    ("groups", "options"),
    [
        ((SHORT,), {"now": FAILED.last_moment - 1}),
        ((replace(EMPTY, activities=(FAILED, *die(20, KEY_REFUSED))),), {"minimum": 0}),
        (shorten(launch(0), FAILED, launch(20), launch(40, kind="terminate"), launch(60, "Failed", LACK)), {}),
        # Auto Scaling tells starts in milliseconds and ends in seconds, cut off.
        (shorten(launch(0.2, "Failed", LACK, end=0), launch(0.7, end=60)), {}),
    ],
    ids=[
        "a failure that does not pass by itself gets no time",
        "a lack of capacity beside a mistake may pass",
        "the replacement of a lost worker failed",
        "launches of the same second as a failure are no retries",
    ],
)
def test_shrinks_after_a_failure_that_stands(judge, groups, options):
    assert isinstance(judge(*groups, **options), Shrink)


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


LAUNCHING = (FAILED, launch(0, "InProgress"), launch(0, "InProgress"))
LOST = (launch(0), FAILED, launch(20), launch(40, kind="terminate"))
OTHER_LOST = replace(launch(20, kind="terminate"), instance_id="i-000000ee")
WAITS = {
    "the first failure, two launches under way": change_workers(instances=nodes(2, "Pending"), activities=LAUNCHING),
    "launches under way that list no instance": change_workers(instances=(), activities=LAUNCHING),
    "a surplus that a scale-in is about to terminate": change_workers(desired=2),
    "an unhealthy worker": change_workers(instances=(*nodes(2), *nodes(1, first=9, health="Unhealthy"))),
    "a worker that is being replaced": shorten(*LOST),
    "a worker without any failure": shorten(),
    "a launch after an early death and another termination": shorten(launch(0), *die(0, KEY_REFUSED), OTHER_LOST),
    "the first retry of what a mistake ended": (cycle(1, KEY_REFUSED, workers=2),),
    "the next of many attempts that may succeed": (cycle(9, NO_VOLUMES, workers=1),),
    "a retry that began after the failure": shorten(launch(0.2, "Failed", LACK, end=0), launch(20, end=60)),
    "a master that launches again": change_master(instances=(), activities=(FAILED, launch(20, "InProgress"))),
    "no workers' group": (None, MASTER),
    "no master's group": (WORKERS, None),
    "no group": (None, None),
    "unread activities of the workers": change_workers(activities=None),
    "unread activities of the master": change_master(activities=None),
    "more than one master": change_master(desired=2, instances=nodes(2)),
}


@pytest.mark.fault(3)
@pytest.mark.defect("D01", "D03", "D07")
@pytest.mark.parametrize("case", WAITS)
def test_waits_while_a_launch_or_termination_is_to_come(judge, case):
    assert isinstance(judge(*WAITS[case]), Wait)
    assert isinstance(judge(*WAITS[case], minimum=0), Wait)


@pytest.mark.defect("D02", "D16", "D47")
@pytest.mark.parametrize(
    "lifecycle",
    ["Pending", "Pending:Wait", "Pending:Proceed", "Terminating", "Terminating:Wait", "Quarantined", "EnteringStandby",
     "Standby", "Detaching", "Warmed:Running", "ReplacingRootVolume", "Terminated", "Something:New", ""],
)  # fmt: skip
def test_only_in_service_counts_and_everything_else_is_in_progress(judge, lifecycle):
    waiting = replace(WORKERS, instances=(*nodes(2), *nodes(1, lifecycle, first=9)), activities=(launch(0), FAILED))
    assert isinstance(judge(waiting), Wait)
    assert isinstance(judge(*change_master(instances=nodes(1, lifecycle))), Wait)


@pytest.mark.parametrize("status", ["InProgress", "PreInService", "MidLifecycleAction", "WaitingForInstanceId", "New"])
def test_an_activity_of_any_status_but_the_final_ones_is_waited_for(judge, status):
    running = (Activity("a", "other", status, NOW),)
    assert isinstance(judge(*change_workers(activities=running)), Wait)
    assert isinstance(judge(*change_master(activities=running)), Wait)


@pytest.mark.parametrize("words", ["", "User cancelled this activity", "Instance was terminated by a scale-in"])
def test_a_launch_that_a_user_or_a_scale_in_cancelled_is_no_failed_launch(judge, words):
    cancelled = (launch(0, "Cancelled", words),)
    assert isinstance(judge(*shorten(*cancelled)), Wait)
    assert isinstance(judge(*change_master(instances=(), activities=cancelled)), Wait)


@pytest.mark.parametrize("workers", [SHORT, EMPTY, WORKERS])
def test_a_group_that_is_being_deleted_is_left_alone(judge, workers):
    assert isinstance(judge(replace(workers, is_deleting=True)), Wait)
    assert isinstance(judge(workers, replace(NO_MASTER, is_deleting=True)), Wait)


@pytest.mark.fault(2)
def test_fails_with_the_reason_below_the_minimum(judge):
    decision = judge(SHORT, minimum=3)
    assert_failed(decision, "launched workers must be at least 3, got 2 of 3", "lower workers.min_capacity", LACK[:-1])
    assert decision.state.expected == ()
    assert decision.state.requested == 4


@pytest.mark.fault(15)
def test_a_minimum_that_the_user_gave_the_group_counts_too(judge):
    """FAULTS 15: Auto Scaling would refuse a desired capacity below it."""
    assert_failed(judge(replace(SHORT, min_size=3), minimum=0), "must be at least 3, got 2 of 3")


@pytest.mark.fault(6)
def test_all_workers_fail_for_a_mistake_that_no_retry_mends(judge):
    """FAULTS 6: never shrink and go on if all fail alike."""
    broken = replace(EMPTY, activities=(launch(0, "Failed", NO_IMAGE),))
    assert_failed(judge(broken, minimum=0), "InvalidAMIID", "choose an image that exists in this region")


@pytest.mark.fault(13)
@pytest.mark.parametrize("workers", [WORKERS, replace(WORKERS, instances=nodes(1, "Pending"), activities=None)])
@pytest.mark.defect("D08")
def test_a_failed_master_fails_at_once_whatever_the_workers_do(judge, workers):
    assert_failed(judge(workers, NO_MASTER), "master did not launch: InsufficientInstanceCapacity", "try again later")


@pytest.mark.defect("D09")
def test_the_reason_names_the_zone_of_the_last_failure(judge):
    failure = replace(FAILED, zone="eu-west-1a")
    assert_failed(judge(replace(EMPTY, activities=(failure,))), "InsufficientInstanceCapacity in eu-west-1a: ")
    dying = cycle(2, KEY_REFUSED, workers=2)
    last = replace(dying.failed_launches[-1], activity_id="last", zone="eu-west-1c", end=NOW)
    assert_failed(judge(replace(dying, activities=(last, *dying.activities))), "in eu-west-1c")


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
        NodeRole.WORKER: shorten(launch(0), failed),
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
    mistake = launch(200, "Failed", NO_IMAGE)
    broken = replace(EMPTY, activities=(launch(0, "Failed", THROTTLED), mistake))
    assert_failed(judge(broken, minimum=0), "InvalidAMIID")
    dying = cycle(2, KEY_REFUSED, workers=2)
    throttled = launch(-60, "Failed", THROTTLED)
    assert_failed(judge(replace(dying, activities=(throttled, *dying.activities))), "InvalidKmsKey")
    alone = replace(EMPTY, activities=(launch(0, "Failed", VALIDATED),))
    assert isinstance(judge(alone, minimum=0, now=NOW + 600), Shrink)


@pytest.mark.parametrize("key", ["", KEY])
def test_a_key_that_refuses_names_the_key_the_principal_and_the_remedy(judge, key):
    words = (key or "the KMS key that encrypts the volumes", "AWSServiceRoleForAutoScaling", "kms:CreateGrant")
    died = die(0, KEY_REFUSED)
    assert_failed(judge(replace(EMPTY, activities=died), key=key), "InvalidKmsKey", "incorrect state", *words)
    assert_failed(judge(*change_master(instances=(), activities=died), key=key), "master did not launch", *words)


def test_a_key_that_refuses_every_attempt_fails_the_cluster_while_the_next_is_under_way(judge):
    assert_failed(judge(cycle(2, KEY_REFUSED, workers=2)), "InvalidKmsKey", "got 0 of 2")
    assert_failed(judge(cycle(2, KEY_REFUSED, workers=1)), "InvalidKmsKey", "got 0 of 1")


@pytest.mark.fault(5)
def test_the_remedy_of_a_smaller_cluster_names_the_quota_of_its_types_and_its_key(judge):
    """The message of a quota names no instance type, so the remedy takes those that run."""
    typed = replace(SHORT, instances=nodes(2, instance_type="p3dn.24xlarge"))
    limited = replace(typed, activities=(launch(0, "Failed", "VcpuLimitExceeded"),))
    assert "Running On-Demand P instances" in judge(limited).reason.remedy
    assert KEY in judge(replace(typed, activities=die(0, KEY_REFUSED)), key=KEY).reason.remedy


def test_workers_that_died_before_they_were_in_service_do_not_trip_the_breaker(judge):
    state = replace(judge().state, phase=Phase.FORMED)
    deaths = [activity for turn in range(5) for activity in die(turn * 20, KEY_REFUSED, f"i-0000000{turn}")]
    assert isinstance(judge(*shorten(*deaths), state=state), Wait)


# --- After the verdict ------------------------------------------------------------------------------


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


def test_a_replaced_node_makes_the_next_generation(judge):
    first = replace(judge().state, notice="the capacity block ends", run_ended=True)
    decision = judge(replace(WORKERS, instances=(*nodes(2), *nodes(1, first=9))), state=first)
    expected = ("i-00000064", "i-00000001", "i-00000002", "i-00000009")
    assert decision.state == replace(first, revision=2, generation=2, expected=expected)
    decision = judge(*change_master(instances=nodes(1, first=200)), state=first)
    assert (decision.state.generation, decision.state.expected[0]) == (2, "i-000000c8")


ENDED = (launch(0), launch(90, kind="terminate"))
NOT_REPLACED = (*ENDED, launch(100, "Failed", LACK))


@pytest.mark.parametrize(
    "groups",
    [
        change_workers(instances=(*nodes(2), *nodes(1, "Pending", 9))),
        shorten(*ENDED),
        *(
            change_master(instances=(), activities=history)
            for history in (ENDED[:1], ENDED, (launch(0), launch(90, "InProgress")))
        ),
    ],
    ids=["worker launches", "worker ended", "master lost", "master ended", "master launches"],
)
def test_the_replacement_of_a_node_that_had_launched_is_waited_for(judge, groups):
    assert isinstance(judge(*groups, state=judge().state), Wait)


def test_a_worker_whose_replacement_fails_is_given_up(judge):
    state = judge().state
    (failed,) = shorten(*NOT_REPLACED)
    decision = judge(failed, state=state)
    assert isinstance(decision, Shrink)
    record = Adjustment(2, "w", 3, 3, 2, decision.reason, (), 0)
    shrunk = judge(replace(failed, desired=2), state=state, adjustment=record)
    assert_launched(shrunk, requested=4, count=3, reason=decision.reason)
    assert shrunk.state.generation == 2


def test_too_few_nodes_fail_a_cluster_that_had_launched(judge):
    state = judge().state
    decision = judge(*shorten(*NOT_REPLACED), state=state, minimum=3)
    assert_failed(decision, "launched workers must be at least 3, got 2 of 3", "InsufficientInstanceCapacity")
    assert (decision.state.revision, decision.state.generation) == (2, 1)
    decision = judge(*change_master(instances=(), activities=NOT_REPLACED), state=state)
    assert_failed(decision, "master did not launch: InsufficientInstanceCapacity", "try again later")


# --- Candidates -------------------------------------------------------------------------------------

SECOND = replace(WORKERS, name="w2", candidate="1", desired=0, instances=(), activities=())


def test_a_candidate_that_is_not_asked_changes_nothing(judge):
    assert judge(WORKERS, MASTER, SECOND) == judge(SECOND, MASTER, WORKERS) == judge(WORKERS)


def test_the_groups_of_a_role_count_together(judge):
    second = replace(SECOND, desired=2, instances=nodes(2, first=50))
    assert_launched(judge(WORKERS, MASTER, second), requested=6, count=6)
    for changes in (
        {"instances": nodes(2, "Pending", first=50)},
        {"instances": nodes(1, first=50)},
        {"activities": None},
        {"is_deleting": True},
    ):
        assert isinstance(judge(WORKERS, MASTER, replace(second, **changes)), Wait)


def test_the_candidate_that_is_asked_is_shrunk_and_no_other(judge):
    asked = replace(SHORT, name="w2", candidate="1")
    empty = replace(WORKERS, desired=0, instances=(), activities=())
    assert judge(empty, MASTER, asked).group == "w2"
    assert isinstance(judge(SHORT, MASTER, replace(SECOND, desired=1, instances=nodes(1, first=50))), Wait)


def test_candidates_are_ordered_by_number():
    groups = tuple(replace(WORKERS, name=f"w{n}", candidate=str(n), desired=1) for n in (10, 9, 2))
    assert ClusterObservation(groups).workers.name == "w2"


# --- Records of a shrink ----------------------------------------------------------------------------

ADJUSTMENT = Adjustment(
    4, "w", requested=5, before=6, target=3, reason=Reason("why"), processes=("Launch",), lease_until=int(NOW) + 30
)
CLOSED = ADJUSTMENT.close()


@pytest.mark.fault(10)
@pytest.mark.defect("D15")
def test_another_invocations_shrink_is_waited_for_and_resumed_when_it_cannot_be_alive(judge):
    assert isinstance(judge(adjustment=ADJUSTMENT), Wait)
    assert judge(adjustment=ADJUSTMENT, now=NOW + 31) == Resume(ADJUSTMENT)
    assert judge(adjustment=ADJUSTMENT, now=NOW + 31, state=judge().state) == Resume(ADJUSTMENT), "after the verdict"
    forged = replace(ADJUSTMENT, lease_until=int(NOW) + 10**8)
    assert judge(adjustment=forged) == Resume(forged), "no invocation can have such a lease"


@pytest.mark.fault(14)
def test_the_requested_capacity_outlives_the_shrink_unless_the_user_sets_another(judge):
    assert_launched(judge(adjustment=CLOSED), requested=6, count=4, reason=Reason("why"))
    assert judge(SHORT, adjustment=CLOSED).requested == 5, "a second shrink"
    four = replace(WORKERS, desired=4, instances=nodes(4))
    assert_launched(judge(four, adjustment=CLOSED), requested=5, count=5)
    assert_launched(judge(adjustment=replace(CLOSED, group="gone")), requested=4, count=4)


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


BREAKER = Breaker(1, "workers", ("i-1", "i-2"))


def reach(phase, reason=NO_REASON):
    return Outcome(ClusterState("c", 1, 1, phase, 4, ("i-1", "i-2"), reason=reason))


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (Wait("the groups do not exist yet"), "wait: the groups do not exist yet"),
        (reach(Phase.LAUNCHED), "launched, generation 1, 2 of 4 nodes"),
        (reach(Phase.FAILED, Reason("no capacity")), "failed, generation 1, 2 of 4 nodes: no capacity"),
        (Shrink("workers", 1, ("i-2",), 3, Reason("full", "wait"), ()), "shrink from 3 to 1 workers: full; wait"),
        (Resume(None), "resume the processes that an interrupted shrink had suspended"),
        (Trip(replace(BREAKER, reason=Reason("three died")), ("i-1",)), "suspend the launches of workers: three died"),
        (Rearm(BREAKER), "count the losses of workers from zero, since its launches were resumed"),
        (RecordMembers(BREAKER), "record 2 members of workers"),
    ],
)
def test_a_decision_is_described_in_one_sentence_of_the_log(decision, words):
    assert describe_decision(decision) == words
