"""Planted defects of the stop: each rule of it that could be wrong, and what must catch it."""

from dataclasses import replace

import recorded_histories as recorded
import test_stop_histories as histories
from mutants import Changed, plant

from capacity_adjuster.policy import stop_policy
from capacity_adjuster.policy.stop_policy import StopRecord
from capacity_adjuster.reconcile import shutdown
from capacity_adjuster.reconcile.shutdown import Shutdown


@plant("policy", recorded.the_time_is_over, "S1")
def stop_a_minute_early(patch):
    real = stop_policy.find_deadline
    patch.setattr(stop_policy, "find_deadline", lambda *found: (real(*found) or 10**12) - 61)


@plant("policy", recorded.the_time_is_over, "S3")
def stop_never(patch):
    patch.setattr(stop_policy, "find_deadline", lambda *_: None)


@plant("policy", recorded.the_time_is_over, "S3")
def stop_the_workers_only(patch):
    patch.setattr(shutdown, "sorted", lambda groups, key: [g for g in groups if not key(g)], raising=False)


@plant("policy", recorded.the_time_is_over, "S1|I10")
def forget_that_it_was_stopped(patch):
    patch.setattr(StopRecord, "close", lambda self, now: replace(self, revision=self.revision + 1, lease_until=0))


@plant("policy", recorded.the_time_is_over, "S1")
def count_a_new_allowance_from_the_old_one(patch):
    real = StopRecord.allow
    patch.setattr(StopRecord, "allow", lambda self, now: replace(real(self, now), counted_from=self.counted_from))


@plant("policy", histories.test_a_look_that_is_older_than_the_stop_begins_no_new_allowance, "assert")
def take_an_old_read_for_a_users_request(patch):
    patch.setattr(stop_policy, "SETTLED_SECONDS", 0)


@plant("policy", recorded.the_budget_is_used_up_and_told_twice, "S1")
def obey_the_copies_of_a_message(patch):
    real = StopRecord.begin
    patch.setattr(StopRecord, "begin", lambda self, cause, message_id: real(self, cause, ""))


@plant("policy", recorded.the_budget_is_used_up_while_the_stack_is_deleted, "S1")
def stop_what_is_being_deleted(patch):
    real = stop_policy.judge_stop

    def judge(groups, record, **options):
        return real([replace(group, is_deleting=False) for group in groups], record, **options)

    patch.setattr(shutdown, "judge_stop", judge)


@plant("policy", histories.test_a_shrink_between_any_two_calls_of_a_stop_raises_nothing_again, "S2")
def stop_in_the_middle_of_a_shrink(patch):
    real = Shutdown.__init__

    def init(self, chosen, adapters, observer):
        real(self, chosen, adapters, Changed(observer, has_no_shrink=lambda: True))

    patch.setattr(Shutdown, "__init__", init)


@plant("policy", histories.test_a_shrink_gives_way_to_a_stop_that_has_begun_meanwhile, "after those of")
def shrink_what_is_stopped(patch):
    patch.setattr(Shutdown, "is_under_way", lambda self: False)


@plant("policy", recorded.the_budget_is_used_up_and_told_twice, "D15|D06|only the workers|I")
def stop_before_writing_it_down(patch):
    real = Shutdown._stop

    def stop(self, begun):
        for group in self._observer.cluster.groups:
            self._adapters.groups.set_desired(group.name, 0)
        return real(self, begun)

    patch.setattr(Shutdown, "_stop", stop)


@plant("policy", histories.test_the_nodes_get_the_notice_once_and_it_goes_with_the_stop, "assert")
def leave_the_notice(patch):
    patch.setattr(Shutdown, "_withdraw", lambda self: "")
