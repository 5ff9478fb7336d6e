"""Planted defects of the request: each rule of it that could be wrong, and what must catch it."""

from dataclasses import replace
from functools import partial

import recorded_histories as recorded
import test_requested_capacity as histories
from mutants import Changed, plant

from capacity_adjuster.events import stack_request
from capacity_adjuster.policy import requested_capacity
from capacity_adjuster.policy.requested_capacity import RequestedCapacity
from capacity_adjuster.reconcile import capacity_change, shutdown
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import Observer

sweep = partial(
    histories.test_a_crash_around_any_call_of_a_creation_asks_for_everything_in_the_end, is_tried_again=False
)


@plant("request", recorded.a_master_is_asked_for, "W1")
def ask_for_one_more(patch):
    real = requested_capacity._plan_target
    patch.setattr(requested_capacity, "_plan_target", lambda group, wanted: real(group, wanted + 1))


@plant("request", histories.test_a_users_own_scaling_stays_after_a_crash, "W2")
def ask_whatever_was_done_since(patch):
    patch.setattr(capacity_change, "find_due", lambda asks, groups, former: asks)


@plant("request", histories.test_a_users_own_scaling_stays_whatever_is_delivered_again, "assert")
def take_a_copy_for_another_request(patch):
    real = requested_capacity.record_request
    patch.setattr(
        stack_request, "record_request", lambda known, request: real(known and replace(known, known=()), request)
    )


@plant("request", histories.test_a_deletion_in_the_middle_launches_nothing_afterwards, "W3")
def forget_the_end(patch):
    patch.setattr(RequestedCapacity, "end", lambda self: replace(self, revision=self.revision + 1, is_over=True))


@plant("request", recorded.a_master_is_asked_for, "D06|W4|I|assert|only the workers")
def ask_before_writing_it_down(patch):
    real = CapacityChange.run

    def run(self, groups=None):
        found = self._adapters.records.read(RequestedCapacity)
        seen = groups or self._adapters.groups.find()
        if found and found.is_open:
            self._set(replace(found, asks=requested_capacity.plan_targets(found, seen) or ()), seen)
        return real(self, groups)

    patch.setattr(CapacityChange, "run", run)


@plant("request", histories.test_a_stopped_cluster_stays_stopped_whatever_the_stack_asks_for, "W5")
def raise_a_stopped_cluster(patch):
    patch.setattr(CapacityChange, "_is_stopped", lambda *_: False)


@plant("request", histories.test_a_request_waits_for_a_shrink_that_is_under_way_and_ends_one_that_died, "W5")
def ask_during_a_shrink(patch):
    real = CapacityChange.__init__

    def init(self, adapters, observer):
        real(self, adapters, Changed(observer, has_no_shrink=lambda: True))

    patch.setattr(CapacityChange, "__init__", init)


@plant("request", histories.test_creation_asks_for_the_workers_first_and_the_master_last_and_is_answered, "group")
def ask_the_master_first(patch):
    patch.setattr(requested_capacity, "_ORDER", tuple(reversed(requested_capacity._ORDER)))


@plant("request", recorded.a_master_is_asked_for, "W4")
def never_close(patch):
    patch.setattr(RequestedCapacity, "close", lambda self: self.release(self.asks))


@plant("request", histories.test_a_failed_cluster_is_asked_nothing, "W3")
def raise_a_failed_cluster(patch):
    patch.setattr(capacity_change, "is_idle", lambda *_: False)


@plant("request", histories.test_a_cluster_of_an_earlier_version_is_not_rescaled, "assert")
def rescale_the_cluster_of_an_earlier_version(patch):
    real = requested_capacity.is_idle
    patch.setattr(capacity_change, "is_idle", lambda state, found, groups: real(state, found, ()) and not groups)


@plant("request", sweep, "assert")
def leave_the_timer_out(patch):
    patch.setattr(Observer, "may_have_request", property(lambda self: False))


@plant("request", histories.test_a_deletion_waits_for_an_invocation_that_asks, "assert")
def delete_beside_an_invocation_that_asks(patch):
    patch.setattr(stack_request, "is_held", lambda *_: False)


@plant("request", histories.test_the_deletion_of_another_resource_is_no_end, "assert")
def end_for_any_resource(patch):
    patch.setattr(stack_request, "cancel_request", lambda found, resource: found.end() if found else None)


@plant("request", recorded.an_update_dies_and_the_next_one_reads_what_is_old, "W4")
def believe_that_what_is_read_is_new(patch):
    real = requested_capacity.find_due
    patch.setattr(
        capacity_change,
        "find_due",
        lambda asks, *seen: tuple(each for each in real(asks, *seen) if each.before != each.target),
    )


@plant("request", histories.test_a_request_that_a_shrink_kept_waiting_is_not_lost, "assert")
def lose_a_request_to_a_shrink(patch):
    real = RequestedCapacity.release
    patch.setattr(RequestedCapacity, "release", lambda self, asks: real(self, self.asks))


@plant("request", histories.test_a_stop_waits_for_capacity_that_is_being_asked_for, "W5")
def stop_beside_an_invocation_that_asks(patch):
    patch.setattr(shutdown, "is_held", lambda *_: False)


@plant("request", recorded.more_is_asked_for_than_the_group_takes, "W1")
def ask_what_the_group_refuses(patch):
    patch.setattr(
        requested_capacity,
        "_plan_target",
        lambda group, wanted: requested_capacity.GroupTarget(group.name, group.desired, wanted),
    )


@plant("request", histories.test_the_candidate_that_is_requested_is_asked_and_no_other, "NoneType")
def ask_the_first_candidate_only(patch):
    real = requested_capacity.plan_targets
    patch.setattr(
        histories,
        "plan_targets",
        lambda found, groups: real(replace(found, request=replace(found.request, candidate="0")), groups),
    )
