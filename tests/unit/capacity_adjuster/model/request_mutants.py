"""Planted defects of the dialogue with CloudFormation, and what must catch each."""

from dataclasses import replace
from functools import partial

import test_stack_requests as requests
from mutants import plant

from capacity_adjuster.events import stack_request
from capacity_adjuster.events.stack_request import RequestError
from capacity_adjuster.policy import requested_capacity, stop_policy
from capacity_adjuster.policy.requested_capacity import RequestedCapacity
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS
from capacity_adjuster.reconcile import capacity_change
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.reconciliation import Reconciliation

cancelled = requests.test_a_creation_that_was_cancelled_asks_for_nothing_more
rollback = requests.test_the_rollback_of_an_update_asks_for_the_former_count
denied = requests.test_a_call_that_is_denied_at_first_is_made_again_in_the_same_invocation


@plant("request", cancelled, "assert")
def take_an_id_of_cloudformations_for_another_resource(patch):
    real = requested_capacity.cancel_request
    patch.setattr(
        stack_request,
        "cancel_request",
        lambda found, resource: real(found, resource) if resource.startswith("capacity-") else None,
    )


@plant("request", cancelled, "assert")
def forget_a_cancellation_that_came_first(patch):
    real = requested_capacity.cancel_request
    patch.setattr(stack_request, "cancel_request", lambda found, resource: real(found, resource) if found else None)


@plant("request", requests.test_the_creation_after_a_cancelled_one_asks, "assert")
def take_every_creation_after_a_cancellation_for_the_cancelled_one(patch):
    real = requested_capacity.record_request

    def follow(found, request):
        following = real(found, request)
        return replace(following, is_over=True, is_open=False) if found and found.is_over and following else following

    patch.setattr(stack_request, "record_request", follow)


@plant("request", requests.test_a_cancelled_creation_ends_no_resource_that_was_updated_since, "assert")
def end_what_was_updated_since(patch):
    real = requested_capacity.cancel_request

    def end(found, resource):
        creation = found and replace(found, request=replace(found.request, is_creation=True))
        return real(creation, resource)

    patch.setattr(stack_request, "cancel_request", end)


@plant("request", requests.test_an_update_without_another_count_leaves_a_users_own_scaling, "W2|assert")
def ask_at_every_update(patch):
    patch.setattr(stack_request, "_is_unchanged", lambda event: False)


@plant("request", rollback, "assert")
def ask_at_no_update(patch):
    patch.setattr(stack_request, "_is_unchanged", lambda event: event["RequestType"] == "Update")


@plant("request", rollback, "assert")
def compare_all_but_the_workers(patch):
    patch.setattr(stack_request, "_REQUESTED", ("Master", "Candidate"))


@plant("request", denied, "assert")
def keep_the_lease_after_a_refusal(patch):
    def set_desired(self, found, groups):
        for ask in requested_capacity.find_due(found.asks, groups, found.former):
            self._adapters.groups.set_desired(ask.group, ask.target)

    patch.setattr(CapacityChange, "_set", set_desired)


@plant("request", denied, "assert")
def forget_what_was_intended_at_a_refusal(patch):
    real = RequestedCapacity.release
    patch.setattr(RequestedCapacity, "release", lambda self, asks: replace(real(self, asks), is_open=False))


@plant("request", requests.test_a_request_after_a_crash_is_carried_out_though_the_groups_were_read_too_early, "assert")
def forget_the_request_before(patch):
    real = requested_capacity.find_due
    patch.setattr(capacity_change, "find_due", lambda asks, groups, former: real(asks, groups))


@plant("request", requests.test_a_group_that_has_gone_is_not_due, "assert")
def set_a_group_that_has_gone(patch):
    patch.setattr(requests, "find_due", lambda asks, groups: asks)


@plant("request", partial(requests.test_an_answer_is_never_longer_than_cloudformation_takes, "\u0663" * 9000), "assert")
def answer_at_length(patch):
    patch.setattr(stack_request, "_MOST_REASON", 5000)


@plant("request", requests.test_a_state_item_that_cannot_be_read_does_not_keep_the_stack_waiting, "resting")
def answer_only_what_was_expected(patch):
    patch.setattr(stack_request, "ContractError", RequestError)


@plant("request", requests.test_a_budgets_message_stops_the_cluster_though_capacity_is_just_asked_for, "assert|[0-9]")
def ask_before_a_budget_is_heard(patch):
    real = Reconciliation.run
    patch.setattr(Reconciliation, "run", lambda self: self._capacity_change.run() or real(self))


@plant(
    "request", requests.test_a_cluster_that_its_user_started_again_is_asked_though_nothing_stops_it_any_more, "assert"
)
def believe_a_stop_for_ever(patch):
    patch.setattr(capacity_change, "is_at_rest", lambda groups, record, now: record.is_stopped)


@plant("request", requests.test_a_cluster_that_was_just_stopped_is_not_taken_for_one_that_is_up, "assert")
def believe_what_is_seen_right_after_a_stop(patch):
    patch.setattr(stop_policy, "SETTLED_SECONDS", 0)


@plant("request", requests.test_a_lease_far_ahead_keeps_no_request_waiting, "assert")
def believe_any_lease(patch):
    patch.setattr(requested_capacity, "LONGEST_LEASE_SECONDS", 100 * LONGEST_LEASE_SECONDS * 1000)


@plant("request", requests.test_the_log_does_not_claim_that_a_stopped_or_failed_cluster_was_asked, "assert")
def claim_that_a_stopped_cluster_was_asked(patch):
    patch.setattr(capacity_change, "SETTLED", capacity_change.ASKED)


@plant("request", requests.test_the_resource_is_ended_by_the_id_that_it_was_given, "assert")
def answer_with_another_id(patch):
    patch.setattr(stack_request, "RESOURCE_BEGIN", "resource-")
