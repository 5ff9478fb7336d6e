"""
Planted defects: each defect of the predecessor that could be ours, and each rule of ours that could be wrong.

A mutant is a patch of the adjuster's code, the check that must catch it, and what that check must say. The checks are
those that hold for the unpatched code: histories of the model, told and recorded, the sweep of crashes, the adapters.
"""

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace

import edge_checks
import model_invocation
import recorded_histories as recorded
import test_crashes
import test_histories
import test_scaling_model

from capacity_adjuster import handler
from capacity_adjuster.aws import auto_scaling_groups as groups
from capacity_adjuster.aws import state_table as records
from capacity_adjuster.events import capacity_block
from capacity_adjuster.events import notifications as events
from capacity_adjuster.policy import breaker, decision, failure_reason
from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.decision import (
    Outcome,
    Shrink,
    Wait,
)
from capacity_adjuster.policy.observation import GroupObservation, Instance
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.reconcile import observer
from capacity_adjuster.reconcile.reconciliation import Reconciliation
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.launch_failures import classify_failure
from deeplearning_contract.messages import ClusterNotification
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON

NOT_APPLICABLE = {
    "D13": "nothing is dispatched by name: an event is described for the log, and no decision rests on it",
    "D18": "the adjuster has no policy of its own: its role is in the template, tested exactly with the constructs",
    "D19": "the runtime and the zip are the template's: packed from this code at synth, tested with the constructs",
    "D21": "the template keeps a later deploy from resetting desired, tested with the constructs",
}
"""Defect of the predecessor -> why the adjuster's code cannot have it."""


@dataclass(frozen=True)
class Mutant:
    """
    A planted defect.

    Attributes:
        row: The predecessor's defect, or `policy`.
        plant: Patches the code; its docstring-like name says what is planted.
        check: Must fail of it.
        promise: Matches what the check says.
    """

    row: str
    plant: Callable
    check: Callable
    promise: str

    @property
    def what(self):
        return self.plant.__name__.replace("_", " ")


MUTANTS = []


def plant(row, check, promise):
    """Return what enters the defect that the decorated function plants, for the rows of `Mutant`."""

    def enter(function):
        MUTANTS.append(Mutant(row, function, check, promise))
        return function

    return enter


def name_check(mutant):
    """Name the check of a mutant, as its report does."""
    return getattr(mutant.check, "func", mutant.check).__name__.removeprefix("test_")


def change_decision(patch, change):
    """Let a function change the arguments of every decision."""
    real = decision.decide

    def decide(observed, **options):
        return real(*change(observed, options)[:1], **options)

    patch.setattr(observer, "decide", decide)


def judge_instead(patch, judge):
    """Let a function have the last word on every decision."""
    real = decision.decide
    patch.setattr(observer, "decide", lambda observed, **options: judge(real(observed, **options), observed, options))


# The predecessor's.


histories = test_histories
sweep = test_crashes.test_a_crash_around_any_call_of_a_shrink_changes_nothing_in_the_end
hear = functools.partial(
    histories.test_the_stack_hears_the_reason_within_a_minute_of_its_cause,
    "the master may not launch",
    is_event_lost=False,
)
order = functools.partial(test_scaling_model.test_the_verdict_does_not_depend_on_the_order_of_what_happened, 1)
replacement = functools.partial(
    histories.test_a_node_that_dies_before_the_roster_is_replaced_and_expected_anew, NodeRole.WORKER
)
publication = functools.partial(
    histories.test_a_master_that_publishes_between_any_two_calls_keeps_what_it_published, "capacity"
)
after_the_roster = functools.partial(
    histories.test_nothing_that_happens_after_the_roster_changes_the_capacity, is_formed=True
)
before_the_form = functools.partial(
    histories.test_nothing_that_happens_after_the_roster_changes_the_capacity, is_formed=False
)
hooked = functools.partial(histories.test_nodes_that_a_lifecycle_hook_holds_are_on_their_way, ":Wait")
throttled = functools.partial(
    histories.test_launches_that_are_throttled_at_first_cost_the_cluster_no_node, NodeRole.WORKER
)


@plant("D01", recorded.a_worker_dies_and_has_no_successor, "I6|I7|I3|without a cause")
def shrink_while_launches_are_outstanding(patch):
    patch.setattr(GroupObservation, "is_busy", property(lambda self: self.activities is None))
    patch.setattr(GroupObservation, "has_unsettled_instances", property(lambda self: False))
    patch.setattr(GroupObservation, "standing_failure", property(lambda self: (self.failed_launches or (None,))[-1]))


@plant("D02", recorded.a_look_before_the_launch_fails, "I6|I3|without a cause")
def count_pending_as_launched(patch):
    patch.setattr(Instance, "is_launched", property(lambda self: self.lifecycle in ("Pending", "InService")))
    patch.setattr(GroupObservation, "is_busy", property(lambda self: False))


@plant("D03", sweep, "I5")
def ask_for_equality_with_what_was_requested(patch):
    def judge(decided, observed, options):
        adjustment = options["adjustment"]
        if isinstance(decided, Outcome) and adjustment and len(decided.state.expected) != 1 + adjustment.requested:
            return Wait("launched is not what was asked for")
        return decided

    judge_instead(patch, judge)


@plant("D04", recorded.a_look_before_the_launch_fails, "I5")
def decide_only_when_the_number_of_launched_changes(patch):
    seen, run = weakref.WeakKeyDictionary(), Reconciliation.run

    def run_on_edge(self):
        world = self._adapters.records.world
        count = sum(len(group.launched) for group in self._adapters.groups.find())
        if seen.get(world) == count:
            return "nothing new"
        seen[world] = count
        return run(self)

    patch.setattr(Reconciliation, "run", run_on_edge)


@plant("D05", edge_checks.check_that_every_write_is_conditional, "unconditional")
def write_unconditionally(patch):
    real = records.put_requests

    def put_requests(table, state):
        return tuple({"TableName": request["TableName"], "Item": request["Item"]} for request in real(table, state))

    patch.setattr(records, "put_requests", put_requests)


@plant("D06", after_the_roster, "D06|I11: a cluster that is the master's")
def live_for_ever(patch):
    real = decision.decide

    def decide(observed, *, state, **options):
        is_formed = state is not None and state.phase in (Phase.PUBLISHED, Phase.FORMED)
        as_launched = replace(state, phase=Phase.LAUNCHED) if is_formed else state
        return real(observed, state=as_launched, **options)

    patch.setattr(observer, "decide", decide)
    patch.setattr(observer.Observer, "is_published", property(lambda self: False))


@plant("D07", histories.test_a_worker_that_is_lost_is_not_taken_for_an_old_failure, "D07")
def take_any_missing_worker_for_a_failed_launch(patch):
    patch.setattr(GroupObservation, "standing_failure", property(lambda self: (self.failed_launches or (None,))[-1]))


@plant("D08", recorded.the_master_dies_and_has_no_successor, "I5|I3")
def say_nothing_of_a_failed_master(patch):
    patch.setattr(decision, "_judge_master", lambda situation: Wait("the master has not launched yet"))


@plant("D08", recorded.a_worker_without_which_it_fails, "D08")
def signal_nothing(patch):
    def give(self, verdict):
        self._adapters.records.write_state(verdict.state)
        return ""

    patch.setattr(Reconciliation, "_write_verdict", give)


@plant("D09", recorded.a_worker_without_which_it_goes_on, "D09")
def keep_the_reason_to_the_log(patch):
    patch.setattr(decision, "explain_shrink", lambda *_: NO_REASON)
    patch.setattr(decision, "explain_failure", lambda *_: NO_REASON)


@plant("D09", histories.test_too_few_workers_after_the_verdict_fail_with_the_reason, "in eu-west")
def leave_out_the_zone(patch):
    real = failure_reason._explain
    patch.setattr(
        failure_reason, "_explain", lambda what, failure, remedy: real(what, replace(failure, zone=""), remedy)
    )


@plant("D10", edge_checks.check_that_any_event_is_described, "terminate_error")
def stumble_over_a_terminate_error(patch):
    real = events._describe_record

    def describe(record):
        if "TERMINATE_ERROR" in str(record):
            raise TypeError("on_instance_terminate_error() takes 0 positional arguments but 1 was given")
        return real(record)

    patch.setattr(events, "_describe_record", describe)


@plant("D11", edge_checks.check_that_activities_may_lack_details, "Zone")
def ask_every_activity_for_its_zone(patch):
    patch.setattr(groups, "_read_zone", lambda details: groups.json.loads(details or "{}")["Availability Zone"])


@plant("D12", edge_checks.check_that_an_error_is_raised_as_it_is, "message")
def hide_the_error_behind_another(patch):
    def exception(*_):
        raise AttributeError("'ClientError' object has no attribute 'message'")

    patch.setattr(handler.logger, "exception", exception)


@plant("D14", edge_checks.check_that_the_role_is_the_tags, "role")
def take_the_role_from_the_name(patch):
    real = groups._read_group

    def read(document, cluster):
        found = real(document, cluster)
        role = NodeRole.MASTER if "master" in document["AutoScalingGroupName"].lower() else NodeRole.WORKER
        return found and replace(found, role=role)

    patch.setattr(groups, "_read_group", read)


class Changed:
    """Passes everything on, but for what it is given."""

    def __init__(self, real, **changes):
        self.real = real
        self.__dict__.update(changes)

    def __getattr__(self, name):
        return getattr(self.real, name)


@plant("D15", sweep, "D15")
def resume_nothing(patch):
    real = Reconciliation.__init__

    def init(self, settings, adapters, *message):
        changed = Changed(adapters.groups, resume=lambda name, processes: None)
        real(self, settings, replace(adapters, groups=changed), *message)

    patch.setattr(Reconciliation, "__init__", init)


@plant("D15", sweep, "suspended|resumed|I5|assert")
def leave_a_dead_invocations_suspension(patch):
    def change(observed, options):
        options["adjustment"] = options["adjustment"].close() if options["adjustment"] else None
        return (observed,)

    change_decision(patch, change)


@plant("D15", sweep, "D15")
def suspend_nothing(patch):
    patch.setattr(decision, "SUSPENDED_PROCESSES", ())


@plant("D16", hooked, "I6|I3|I7")
def know_only_two_lifecycle_states(patch):
    def has_unsettled_instances(self):
        return any(i.lifecycle in ("Pending", "Terminating") or i.is_leaving for i in self.instances)

    patch.setattr(GroupObservation, "has_unsettled_instances", property(has_unsettled_instances))
    patch.setattr(Activity, "is_in_progress", property(lambda self: False))


@plant("D17", edge_checks.check_that_every_page_is_read, "page")
def read_the_first_page_only(patch):
    class OnePage:
        def __init__(self, client, name):
            self.call = getattr(client, name)

        def paginate(self, **query):
            return [self.call(**query)]

    real = groups.AutoScalingGroups.__init__

    def init(self, client, cluster):
        real(self, client, cluster)
        patch.setattr(client, "get_paginator", lambda name: OnePage(client, name))

    patch.setattr(groups.AutoScalingGroups, "__init__", init)


@plant("D20", recorded.a_master_alone, "I11")
def tell_the_stack_of_success_at_launch(patch):
    real = Reconciliation._write_verdict

    def give(self, verdict):
        said = real(self, verdict)
        if verdict.state.phase is Phase.LAUNCHED:
            self._adapters.signal_failure("success")
        return said

    patch.setattr(Reconciliation, "_write_verdict", give)


# Rules of ours.


@plant("policy", recorded.a_worker_without_which_it_fails, "I1")
def go_below_the_minimum(patch):
    def change(observed, options):
        options["settings"] = replace(options["settings"], worker_min_capacity=0)
        return (observed,)

    change_decision(patch, change)


@plant("policy", sweep, "I2")
def raise_desired(patch):
    def judge(decided, observed, options):
        return replace(decided, launched=(*decided.launched, "i-1", "i-2")) if isinstance(decided, Shrink) else decided

    judge_instead(patch, judge)


@plant("policy", histories.test_a_look_that_is_ten_seconds_old_destroys_nothing, "I6")
def look_once(patch):
    patch.setattr(observer.Observer, "read_until_stable", lambda self, own=None: self._read_decision(own))


@plant("policy", sweep, "I7")
def shrink_by_one_too_many(patch):
    def judge(decided, observed, options):
        is_big = isinstance(decided, Shrink) and len(decided.launched) > 2
        return replace(decided, launched=decided.launched[1:]) if is_big else decided

    judge_instead(patch, judge)


@plant("policy", sweep, "I8")
def give_the_verdict_without_the_shrink(patch):
    def judge(decided, observed, options):
        if not isinstance(decided, Shrink) or not observed.master.launched:
            return decided
        situation = decision._Situation(
            observed.master, observed.workers, options["state"], options["adjustment"], options["settings"], 0.0
        )
        expected = (*observed.master.launched, *decided.launched)
        return Outcome(
            decision._follow(
                situation.state,
                situation.settings,
                Phase.LAUNCHED,
                requested=1 + decided.requested,
                expected=expected,
                reason=decided.reason,
            )
        )

    judge_instead(patch, judge)


@plant("policy", sweep, "requested")
def forget_what_was_asked_for(patch):
    patch.setattr(decision, "count_requested", lambda workers, adjustment: workers.desired)


@plant("policy", histories.test_a_second_shrink_remembers_what_was_asked_for_at_first, "requested|I3")
def forget_the_first_shrink_at_the_second(patch):
    def explains(self, group, desired):
        return group == self.group and desired == self.target

    patch.setattr(Adjustment, "explains", explains)


@plant("policy", order, "I9")
def believe_a_failure_only_of_the_first_launch(patch):
    real = GroupObservation.standing_failure.fget

    def standing_failure(self):
        return real(self) if self.activities and self.activities[-1].is_failed_launch else None

    patch.setattr(GroupObservation, "standing_failure", property(standing_failure))


@plant("policy", replacement, "I4")
def say_launched_again_in_the_same_generation(patch):
    real = decision._follow

    def follow(state, settings, phase, **said):
        following = real(state, settings, phase, **said)
        return replace(following, generation=state.generation) if state else following

    patch.setattr(decision, "_follow", follow)


@plant("policy", replacement, "I3")
def say_launched_once_and_never_again(patch):
    patch.setattr(observer, "is_standing", lambda observed, state: True)


@plant("policy", before_the_form, "D06|I11")
def say_launched_again_after_the_roster(patch):
    real = decision._judge_capacity

    def judge(situation, broken):
        state = situation.state
        is_published = state is not None and state.phase is Phase.PUBLISHED
        return real(
            replace(situation, state=replace(state, phase=Phase.LAUNCHED)) if is_published else situation, broken
        )

    patch.setattr(decision, "_judge_capacity", judge)
    patch.setattr(observer.Observer, "is_published", property(lambda self: False))


@plant("policy", recorded.a_master_alone, "I4")
def say_the_same_again_and_again(patch):
    real = decision._judge_complete
    patch.setattr(
        decision,
        "_judge_complete",
        lambda situation: real(
            replace(situation, state=replace(situation.state, expected=())) if situation.state else situation
        ),
    )
    patch.setattr(observer, "is_standing", lambda observed, state: False)


@plant("policy", histories.test_a_notice_outlives_the_next_verdict, "not the adjuster's to say")
def forget_the_notice_in_the_next_verdict(patch):
    real = decision._follow

    def follow(state, settings, phase, **said):
        return replace(real(state, settings, phase, **said), notice="", run_ended=False)

    patch.setattr(decision, "_follow", follow)


@plant("policy", publication, "D06")
def shrink_whatever_the_item_says(patch):
    real = Reconciliation._shrink

    def shrink(self, decided):
        adapters, state = self._adapters, self.observer.state
        deaf = replace(adapters, records=Changed(adapters.records, read_state=lambda: state))
        self._adapters = self.observer._adapters = deaf
        try:
            return real(self, decided)
        finally:
            self._adapters = self.observer._adapters = adapters

    patch.setattr(Reconciliation, "_shrink", shrink)


@plant("policy", recorded.a_master_alone, "I11|I4")
def ring_before_writing(patch):
    real = Reconciliation._write_verdict

    def give(self, verdict):
        if verdict.state.phase is Phase.LAUNCHED:
            self._adapters.notify_master(ClusterNotification(verdict.state.cluster, verdict.state.generation))
        return real(self, verdict)

    patch.setattr(Reconciliation, "_write_verdict", give)


@plant("policy", recorded.a_worker_without_which_it_fails, "E1")
def tell_a_failure_before_writing(patch):
    real = Reconciliation._write_verdict

    def give(self, verdict, **options):
        state = verdict.state
        if state.phase is Phase.FAILED:
            self._adapters.send_event(
                ClusterEvent(
                    kind=EventKind.FAILED,
                    cluster=state.cluster,
                    generation=state.generation,
                    nodes=0,
                    reason=state.reason,
                )
            )
        return real(self, verdict, **options)

    patch.setattr(Reconciliation, "_write_verdict", give)


@plant("policy", recorded.three_workers_die_before_they_join, "B2")
def trip_never(patch):
    patch.setattr(breaker, "MOST_FAILURES", 10**6)


@plant("policy", recorded.one_worker_dies_before_it_joins, "B1")
def trip_for_one(patch):
    patch.setattr(breaker, "MOST_FAILURES", 1)


@plant("policy", histories.test_members_that_die_trip_nothing, "B1")
def count_members_as_failures(patch):
    real = breaker.find_failures
    patch.setattr(
        breaker,
        "find_failures",
        lambda workers, state, record, now: real(workers, None, record and replace(record, members=()), now),
    )


@plant("policy", histories.test_a_whole_cluster_of_members_that_dies_at_once_trips_nothing, "B1")
def trust_the_last_twenty_departures(patch):
    patch.setattr(breaker, "_keep_recent", lambda members, workers: set())


@plant("policy", histories.test_workers_that_the_user_takes_away_trip_nothing, "B1")
def count_scale_in_as_failures(patch):
    patch.setattr(
        Activity, "is_loss", property(lambda self: self.kind == "terminate" and self.cause != "" != self.instance_id)
    )
    patch.setattr(Activity, "loss_words", property(lambda self: self.cause))


@plant("policy", histories.test_losses_half_an_hour_apart_trip_nothing, "B1")
def count_failures_of_any_age(patch):
    patch.setattr(breaker, "FAILURE_SECONDS", 10**9)


@plant("policy", histories.test_a_user_who_resumes_the_launches_starts_a_new_count, "B1")
def trip_again_against_the_user(patch):
    real = breaker.Breaker.rearm
    patch.setattr(breaker.Breaker, "rearm", lambda self, counted_from: real(self, 0))


@plant("policy", histories.test_a_crash_around_any_call_of_the_breaker_changes_nothing_in_the_end, "Launch|B2")
def take_a_dead_trip_for_a_users_request(patch):
    real = observer.decide

    def decide(observed, *, breaker, **options):
        return real(observed, breaker=breaker and replace(breaker, lease_until=0), **options)

    patch.setattr(observer, "decide", decide)


@plant("policy", recorded.three_workers_die_before_they_join, "whose suspension")
def suspend_before_writing_it_down(patch):
    def trip(self, decided):
        self._adapters.groups.suspend(decided.breaker.group, ("Launch",))
        return self._adapters.records.write(decided.breaker)

    patch.setattr(Reconciliation, "_trip", trip)


@plant("policy", histories.test_the_end_of_a_capacity_block_is_reported_in_any_phase, "not the adjuster's to say")
def tell_a_notice_as_another_generation(patch):
    real = capacity_block.announce_expiry

    def announce(warning, *, reservation_id, records, notify_master):
        state = records.read_state()
        if state is not None:
            records.write_state(state.advance(state.phase, notice=warning.notice, generation=state.generation + 1))
        return real(warning, reservation_id=reservation_id, records=records, notify_master=notify_master)

    patch.setattr(model_invocation, "announce_expiry", announce)


@plant("policy", edge_checks.check_that_another_block_is_ignored, "ignored")
def take_any_block_for_ours(patch):
    real = capacity_block.announce_expiry
    patch.setattr(
        handler,
        "announce_expiry",
        lambda warning, *, reservation_id, **adapters: real(warning, reservation_id=warning.reservation_id, **adapters),
    )


@plant("policy", hear, "I5")
def wait_a_whole_tick_for_a_denial_to_pass(patch):
    patch.setattr(observer.Observer, "_choose_pause", choose_no_pause_for_waits)


@plant("policy", throttled, "RequestLimitExceeded|ClusterState")
def give_up_what_is_throttled(patch):
    real = decision.count_grace
    patch.setattr(
        decision, "count_grace", lambda *of: 0.0 if classify_failure(of[1].message).grace_seconds > 60 else real(*of)
    )


def choose_no_pause_for_waits(self, decided, *, is_held):
    return None if isinstance(decided, Wait) else self._settings.settle_seconds
