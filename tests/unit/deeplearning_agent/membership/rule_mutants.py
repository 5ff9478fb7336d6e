"""Defects planted in the rules of formation and membership: each function patches one in, and its name says which."""

import errno
import statistics
from dataclasses import replace
from pathlib import Path

from deeplearning_agent.master import MasterEpoch
from deeplearning_agent.membership import (
    controller,
    formation,
    liveness,
    replacements,
    report_collector,
    transitions,
    worker_reports,
)
from deeplearning_agent.membership.controller import MembershipController
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.replacements import Replacements
from deeplearning_agent.membership.worker_reports import AddressCheck, Proof, WorkerReport, WorkerReports
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.messages import ReportStage
from deeplearning_contract.reason import Reason
from deeplearning_node import atomic_file

MUTANTS = []


def mutant(function):
    MUTANTS.append(function)
    return function


def change_reports(patch, change):
    """Let the roster hear reports that were changed."""
    record = WorkerReports.record
    patch.setattr(WorkerReports, "record", lambda self, report: record(self, change(self, report)))


# --- WorkerReports -----------------------------------------------------------------------------------------


@mutant
def the_same_sequence_is_accepted_again(patch):
    entry = WorkerReports._entry

    def record(self, report):
        known = entry(self, report.instance_id)
        is_same = 0 < report.sequence == known.sequence
        return replace(report, sequence=0) if is_same else report

    change_reports(patch, record)


@mutant
def an_older_report_is_accepted(patch):
    def record(self, report):
        is_older = report.sequence < self._entry(report.instance_id).sequence
        return replace(report, sequence=0) if is_older else report

    change_reports(patch, record)


@mutant
def every_sequence_is_accepted(patch):
    change_reports(patch, lambda _self, report: replace(report, sequence=0))


@mutant
def a_report_without_a_number_is_dropped(patch):
    record = WorkerReports.record
    patch.setattr(WorkerReports, "record", lambda self, report: report.sequence and record(self, report))


@mutant
def the_last_acknowledgement_counts_and_not_the_highest(patch):
    def keep(self, report):
        if report.stage is ReportStage.READY:
            self._keep(report.instance_id, replace(self._entry(report.instance_id), ready=0))
        return report

    change_reports(patch, keep)


@mutant
def any_acknowledgement_is_one_of_every_generation(patch):
    patch.setattr(WorkerReports, "is_ready", lambda self, name, _generation: self._entry(name).ready > 0)


@mutant
def who_joins_again_keeps_its_cause(patch):
    record = WorkerReports.record

    def keep_cause(self, report):
        reason = self.reason(report.instance_id)
        record(self, report)
        if reason:
            self._keep(report.instance_id, replace(self._entry(report.instance_id), reason=reason))

    patch.setattr(WorkerReports, "record", keep_cause)


@mutant
def a_report_is_kept_in_memory_only(patch):
    patch.setattr(worker_reports, "write_file", lambda *_: None)


@mutant
def the_number_of_the_last_report_is_forgotten_with_the_member(patch):
    patch.setattr(WorkerReports, "forget", lambda self, name: self._keep(name, WorkerReport()))


@mutant
def the_acknowledgement_is_kept_when_the_member_is_forgotten(patch):
    forget = WorkerReports.forget

    def forget_less(self, name):
        ready = self._entry(name).ready
        forget(self, name)
        self._keep(name, replace(self._entry(name), ready=ready))

    patch.setattr(WorkerReports, "forget", forget_less)


@mutant
def who_leaves_counts_as_failed(patch):
    patch.setattr(WorkerReports, "failed", lambda self: tuple(n for n, entry in self._entries.items() if entry.reason))


@mutant
def who_failed_is_a_candidate(patch):
    patch.setattr(WorkerReports, "joined", lambda self: tuple(e.member for e in self._entries.values() if e.member))


@mutant
def candidates_stand_in_the_order_of_their_names(patch):
    joined = WorkerReports.joined
    patch.setattr(
        WorkerReports, "joined", lambda self: tuple(sorted(joined(self), key=lambda member: member.instance_id))
    )


@mutant
def who_failed_is_forgotten_with_those_that_are_not_expected(patch):
    def forget(self, expected):
        for name in list(self._entries):
            if name not in expected:
                self.forget(name)

    patch.setattr(WorkerReports, "forget_others", forget)


@mutant
def nobody_is_forgotten(patch):
    patch.setattr(WorkerReports, "forget_others", lambda *_: None)


@mutant
def the_first_claimant_keeps_the_address(patch):
    patch.setattr(WorkerReports, "_refute", lambda *_: None)


@mutant
def a_refuted_claimant_is_forgotten_with_its_failure(patch):
    patch.setattr(WorkerReports, "_refute", lambda self, _holder, names: [self.forget(name) for name in names])


@mutant
def the_last_claimant_gets_the_address_unproved(patch):
    patch.setattr(WorkerReports, "owns_address", lambda *_: True)


@mutant
def a_node_without_a_proof_gets_the_address(patch):
    patch.setattr(WorkerReports, "_claimants", lambda *_: [])


@mutant
def the_masters_address_may_be_claimed(patch):
    patch.setattr(WorkerReports, "owns_address", lambda self, member: self._check.verify(member) is Proof.OWN)


@mutant
def an_address_may_lie_anywhere(patch):
    patch.setattr(WorkerReports, "_find_foreign", lambda *_: "")


@mutant
def every_claim_is_looked_at(patch):
    patch.setattr(AddressCheck, "verify", AddressCheck._scan_host_key)


@mutant
def an_address_is_asked_once_for_ever(patch):
    patch.setattr(worker_reports, "PROOF_SECONDS", 10**9)


# --- Formation --------------------------------------------------------------------------------------


@mutant
def nobody_is_found_short_of_gpus(patch):
    patch.setattr(formation, "find_fewer_gpus", lambda _workers: {})


@mutant
def the_larger_count_wins_a_tie(patch):
    def find(workers):
        counts = sorted((worker.gpu_count for worker in workers), reverse=True)
        usual = statistics.mode(counts) if counts else 0
        return {worker.instance_id: "short" for worker in workers if worker.gpu_count < usual}

    patch.setattr(formation, "find_fewer_gpus", find)


@mutant
def the_minimum_counts_who_is_short_of_gpus(patch):
    judge, find = Formation._judge, formation.find_fewer_gpus

    def leave_out_late(self, workers, *others):
        patch.setattr(formation, "find_fewer_gpus", lambda _workers: {})
        lost = judge(self, workers, *others)
        patch.setattr(formation, "find_fewer_gpus", find)
        return None if lost is None else dict(lost) | find([self._reports.member(n) for n in workers if n not in lost])

    patch.setattr(Formation, "_judge", leave_out_late)


@mutant
def there_is_no_minimum(patch):
    patch.setattr(Formation, "_minimum", lambda *_: 0)


@mutant
def a_minimum_of_zero_counts_as_none(patch):
    patch.setattr(Formation, "_minimum", lambda _self, state: 0 if state.has_formed else state.worker_minimum or 1)


@mutant
def the_minimum_holds_after_the_cluster_has_formed(patch):
    patch.setattr(Formation, "_minimum", lambda _self, state: state.worker_minimum)


@mutant
def missing_workers_are_waited_for_to_the_very_end(patch):
    patch.setattr(formation, "reserve_seconds", lambda _seconds: 0.0)


@mutant
def missing_workers_are_given_up_at_once(patch):
    patch.setattr(formation, "reserve_seconds", lambda seconds: seconds)


@mutant
def a_reboot_is_taken_for_an_end(patch):
    patch.setattr(formation, "REBOOT_SECONDS", 0)


# --- MembershipController -----------------------------------------------------------------------------------------


@mutant
def the_place_is_always_vacant(patch):
    patch.setattr(MembershipController, "is_vacant", lambda *_: True)


@mutant
def the_place_is_never_vacant(patch):
    patch.setattr(MembershipController, "is_vacant", lambda *_: False)


@mutant
def silence_before_an_answer_counts(patch):
    is_vacant = MembershipController.is_vacant

    def remember(self, state, own):
        since = self._silent_since
        found = is_vacant(self, state, own)
        self._silent_since = self._silent_since if since is None else since
        return found

    patch.setattr(MembershipController, "is_vacant", remember)


@mutant
def a_deaf_node_trusts_itself_soon(patch):
    patch.setattr(controller, "DEAF_SECONDS", controller.VACANT_SECONDS)


@mutant
def whoever_answers_at_its_address_is_the_master(patch):
    patch.setattr(WorkerReports, "has_lost_address", lambda *_: False)


@mutant
def who_is_mute_is_admitted(patch):
    newcomers = MembershipController._newcomers
    patch.setattr(MembershipController, "_newcomers", lambda self, state, _mute: newcomers(self, state, ()))


@mutant
def nobody_is_admitted(patch):
    patch.setattr(MembershipController, "_newcomers", lambda *_: ())


@mutant
def a_condemned_newcomer_is_admitted_again(patch):
    patch.setattr(Replacements, "has_ordered", lambda *_: False)


@mutant
def a_newcomer_with_fewer_gpus_is_admitted(patch):
    patch.setattr(MembershipController, "_find_fewer_gpus", lambda *_: {})


@mutant
def a_newcomer_with_fewer_gpus_stays_unused(patch):
    patch.setattr(Replacements, "mark_unhealthy", lambda *_: None)


@mutant
def who_never_acknowledges_stays(patch):
    patch.setattr(controller, "ACKNOWLEDGE_SECONDS", 10**9)


@mutant
def who_has_not_acknowledged_is_dropped_at_once(patch):
    patch.setattr(controller, "ACKNOWLEDGE_SECONDS", 0)


@mutant
def who_failed_stays(patch):
    patch.setattr(
        MembershipController,
        "_find_reason",
        lambda _self, worker, found: Reason(found.silent.get(worker.instance_id, "")),
    )


@mutant
def who_leaves_is_still_ready(patch):
    write = MembershipController.write_ready_hosts
    patch.setattr(MembershipController, "write_ready_hosts", lambda self, state, _left=(): write(self, state))


@mutant
def who_left_is_remembered(patch):
    patch.setattr(MembershipController, "forget_departed", lambda *_: None)


@mutant
def who_fails_before_the_formation_is_forgotten(patch):
    patch.setattr(Replacements, "has_ordered", lambda *_: True)


# --- Replacements -----------------------------------------------------------------------------------


@mutant
def who_is_silent_is_replaced_at_once(patch):
    patch.setattr(replacements, "SILENT_SECONDS", 0)


@mutant
def who_is_silent_is_never_replaced(patch):
    patch.setattr(replacements, "SILENT_SECONDS", 10**9)


@mutant
def workers_are_blamed_when_nobody_answers(patch):
    for method in ("schedule", "submit_due"):
        plain = getattr(Replacements, method)
        patch.setattr(
            Replacements,
            method,
            lambda self, nodes, found, plain=plain: plain(self, nodes, replace(found, has_answer=True)),
        )


@mutant
def whom_ec2_takes_is_replaced_too(patch):
    patch.setattr(WorkerReports, "is_leaving", lambda *_: False)


@mutant
def an_order_that_failed_is_forgotten(patch):
    patch.setattr(replacements, "RETRY_SECONDS", 10**9)


@mutant
def an_order_is_made_again_and_again(patch):
    order = Replacements._replace
    patch.setattr(Replacements, "_replace", lambda self, name: order(self, name) and False)


@mutant
def an_order_that_failed_counts_as_made(patch):
    order = Replacements._replace
    patch.setattr(Replacements, "_replace", lambda self, name: order(self, name) or True)


@mutant
def who_is_to_be_replaced_is_admitted_until_it_is(patch):
    patch.setattr(Replacements, "has_ordered", lambda self, name: name in self._ordered)


@mutant
def who_is_unfit_is_kept(patch):
    order = Replacements.schedule
    patch.setattr(Replacements, "schedule", lambda self, left, found: order(self, left, replace(found, unfit={})))


# --- Liveness ---------------------------------------------------------------------------------------


@mutant
def one_silent_round_is_enough(patch):
    plain = liveness.Watch.find_silent
    patch.setattr(liveness.Watch, "find_silent", lambda self, addresses: plain(self, addresses) | self.silent)


@mutant
def strikes_are_never_cleared(patch):
    def find_silent(self, addresses):
        self._strikes.update(self._probe(list(addresses)))
        return {address for address, count in self._strikes.items() if count >= self._needed}

    patch.setattr(liveness.Watch, "find_silent", find_silent)


@mutant
def a_refusal_is_silence(patch):
    patch.setattr(liveness, "_ANSWERS", frozenset({0}))


@mutant
def a_lack_of_sockets_is_silence(patch):
    patch.setattr(liveness, "_NO_ROOM", frozenset({errno.ENOBUFS}))


# --- Succession -------------------------------------------------------------------------------------


def change_following(patch, function, change):
    plain = getattr(transitions, function)
    patch.setattr(transitions, function, lambda state, *others: change(state, plain(state, *others)))


@mutant
def newcomers_come_first(patch):
    change_following(
        patch,
        "follow_up",
        lambda _, new: replace(new, members=(new.members[0], *reversed(new.members[1:]))),
    )


@mutant
def the_generation_stays(patch):
    change_following(patch, "follow_up", lambda old, new: replace(new, generation=old.generation))


@mutant
def nothing_says_who_left(patch):
    change_following(patch, "follow_up", lambda old, new: replace(new, departed=old.departed))


@mutant
def a_reason_outlives_its_cause(patch):
    change_following(patch, "follow_up", lambda old, new: replace(new, reason=old.reason))


@mutant
def a_new_master_asks_nobody(patch):
    change_following(patch, "take_over", lambda _, new: replace(new, phase=Phase.FORMED))


@mutant
def the_old_master_becomes_a_worker(patch):
    change_following(patch, "take_over", lambda old, new: replace(new, members=(*new.members, old.members[0])))


@mutant
def the_new_master_shares_its_address(patch):
    change_following(patch, "take_over", lambda old, new: replace(new, members=(new.members[0], *old.members[1:])))


@mutant
def a_taken_over_cluster_has_never_formed(patch):
    change_following(patch, "take_over", lambda _, new: replace(new, has_formed=False))


@mutant
def the_first_generation_is_none(patch):
    change_following(patch, "publish", lambda old, new: replace(new, generation=old.generation))


@mutant
def a_reason_has_no_end(patch):
    patch.setattr("deeplearning_contract.reason.MAX_REASON", 10**6)


@mutant
def a_master_that_was_followed_goes_on(patch):
    patch.setattr(MasterEpoch, "is_superseded", lambda *_: False)


@mutant
def a_master_that_has_just_claimed_gives_up(patch):
    patch.setattr(MasterEpoch, "is_superseded", lambda self, _state: self._file.exists())


# --- Files and reports ------------------------------------------------------------------------------


@mutant
def a_file_is_written_in_place(patch):
    patch.setattr(atomic_file, "_replace", lambda path, data, *_: Path(path).write_bytes(data))


@mutant
def a_temporary_file_stays(patch):
    plain = atomic_file._replace

    def leave(path, data, mode, owner):
        path.with_name(f".{path.name}.tmp").write_bytes(data)
        plain(path, data, mode, owner)

    patch.setattr(atomic_file, "_replace", leave)


@mutant
def the_last_of_many_reports_counts(patch):
    patch.setattr(
        report_collector,
        "newest_of_each",
        lambda told: tuple({(r.instance_id, r.stage is ReportStage.READY): r for r in told}.values()),
    )


@mutant
def an_acknowledgement_hides_every_other_report(patch):
    patch.setattr(report_collector, "newest_of_each", lambda told: tuple({r.instance_id: r for r in told}.values()))
