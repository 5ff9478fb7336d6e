"""Rules of formation and membership, each as a function that raises AssertionError when it does not hold."""

import contextlib
import functools
import os
import tempfile
from pathlib import Path

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from model_settings import CLUSTER, make_settings

from deeplearning_agent.master import MasterEpoch
from deeplearning_agent.membership import liveness
from deeplearning_agent.membership import report_collector as collector
from deeplearning_agent.membership import transitions as succession
from deeplearning_agent.membership.controller import MembershipController
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.replacements import Replacements
from deeplearning_agent.membership.worker_reports import AddressCheck, WorkerReports
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import MAX_REASON, NO_REASON, Reason
from deeplearning_node.atomic_file import write_file
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from tests.unit.node_lab import StillClock

MEMORY = Path("/dev/shm")
"""Fastest place for disks, on a machine that has it."""


class Bench:
    """A master without a machine: a folder, a clock, the keys that answer on the network, and what is found there."""

    def __init__(self, minimum=0, workers=2, gpus=2):
        folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self._folder = folder
        self.clock = StillClock()
        self.minimum = minimum
        settings = make_settings(NodeRole.MASTER, setup_seconds=900, has_script=False)
        identity = Identity(name(0), "10.0.0.10", ("10.0.0.0/16",))
        self.node = Node(settings, identity, Path(folder.name), self, self.clock)
        self.node.path("/opt/deeplearning").mkdir(parents=True)
        self.keys = {}
        self.asked = 0
        self.probed = None
        self.found = MemberHealth()
        self.ordered = []
        self.refusals = 0
        self.is_gone = False
        self.is_complete = None
        self.autoscaling = self
        self.read_again()
        for number in range(1, workers + 1):
            self.join(number, gpus)

    def read_again(self):
        """Let the agent start anew with what is on the disk."""
        self.reports = WorkerReports(self.node)
        self.formation = Formation(self.node, self, self.node.limit(self.node.settings.setup_seconds))
        self.replacements = Replacements(self.node, self, self.reports)
        self.controller = MembershipController(self.node, self.reports, self, self.replacements)

    def run(self, argv, *, timeout_seconds):
        """Stand for ssh-keyscan."""
        assert (argv[:-2], timeout_seconds) == (["ssh-keyscan", "-T", "5", "-t"], 15)
        assert argv[-2] == "ed25519"
        self.asked += 1
        key = self.keys.get(argv[-1])
        banner = f"# {argv[-1]}:22 SSH-2.0-OpenSSH_9.2\n"
        return f"{banner}{argv[-1]} {key} comment\n" if key else banner

    def probe(self, members, others=()):
        self.probed = (members, others)
        return self.found

    def collect(self, is_done, _until):
        self.is_complete = is_done()
        return self.is_complete

    def set_instance_health(self, *, InstanceId, **health):  # noqa: N803 - boto3's name
        assert health == {"HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}
        if self.is_gone:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": f"{InstanceId} not found"}}, "Set")
        if self.refusals:
            self.refusals -= 1
            raise EndpointConnectionError(endpoint_url="autoscaling")
        self.ordered.append(InstanceId)

    def hear(self, number, stage, sequence=1, **changes):
        """Let a worker report."""
        self.reports.record(NodeReport(CLUSTER, name(number), stage, sequence=sequence, **changes))

    def join(self, number, gpus=2, sequence=1, address=""):
        self.hear(number, ReportStage.JOINED, sequence, member=member(number, gpus, address))

    def acknowledge(self, *numbers):
        for number in numbers:
            self.hear(number, ReportStage.READY, generation=1)

    def state(self, workers=2, phase=Phase.FORMED, **changes):
        """Return the item with so many members beside the master."""
        members = tuple(member(number) for number in range(workers + 1))
        has_formed = phase is Phase.FORMED
        values = {"members": members, "has_formed": has_formed, "worker_minimum": self.minimum, **changes}
        return ClusterState(CLUSTER, 3, 1, phase, workers + 1, tuple(m.instance_id for m in members), **values)

    def leave_out(self, *numbers):
        """Return who is left out of those that launched."""
        state = self.state(len(numbers), Phase.LAUNCHED, members=())
        return self.formation.collect_joined(state, [name(n) for n in numbers], self.formation.deadline)


def name(number):
    return f"i-{number:017x}"


def member(number, gpus=2, address=""):
    return Member(name(number), address or f"10.0.0.{10 + number}", gpus, f"ssh-ed25519 {number:020d}host")


def expect(action, error, words):
    """Check that something is refused with some words."""
    try:
        action()
    except error as raised:
        if words not in str(raised):
            raise AssertionError(f"{raised} must say {words}") from raised
    else:
        raise AssertionError(f"nothing was raised: {words}")


CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


# --- WorkerReports -----------------------------------------------------------------------------------------


@check
def a_report_that_comes_twice_counts_once():
    for sequence in (2, 1):
        bench = Bench(workers=0)
        bench.join(1, sequence=sequence)
        bench.reports.forget(name(1))
        bench.join(1, sequence=sequence)
        assert bench.reports.member(name(1)) is None


@check
def an_older_report_does_not_change_the_cause():
    bench = Bench()
    bench.hear(1, ReportStage.FAILED, 5, reason=Reason("the disk is full"))
    bench.hear(1, ReportStage.FAILED, 4, reason=Reason("an older cause"))
    assert bench.reports.reason(name(1)).cause == "the disk is full"


@check
def a_node_that_cannot_count_is_heard():
    bench = Bench()
    bench.hear(1, ReportStage.FAILED, 0, reason=Reason("no space"))
    assert bench.reports.reason(name(1)).cause == "no space"


@check
def an_acknowledgement_never_falls():
    bench = Bench()
    bench.hear(1, ReportStage.READY, generation=5)
    bench.hear(1, ReportStage.READY, generation=4)
    assert bench.reports.is_ready(name(1), 5)
    assert not bench.reports.is_ready(name(1), 6)


@check
def who_joins_again_has_no_cause_any_more():
    bench = Bench()
    bench.hear(1, ReportStage.LEAVING, 2)
    assert bench.reports.reason(name(1)) == Reason("leaving")
    bench.join(1, sequence=3)
    for _ in range(2):
        assert (bench.reports.reason(name(1)), bench.reports.is_leaving(name(1))) == (NO_REASON, False)
        assert name(1) in {candidate.instance_id for candidate in bench.reports.joined()}
        bench.read_again()


@check
def a_restart_forgets_no_report():
    bench = Bench()
    bench.hear(1, ReportStage.FAILED, 2, reason=Reason("broken"))
    bench.read_again()
    assert bench.reports.reason(name(1)).cause == "broken"
    bench.join(1, sequence=2)
    assert bench.reports.reason(name(1)).cause == "broken"


@check
def who_leaves_has_not_failed():
    bench = Bench()
    bench.hear(1, ReportStage.LEAVING, 2, reason=Reason("spot"))
    assert bench.reports.failed() == ()
    assert bench.reports.joined() == (member(2),)


@check
def candidates_stand_in_the_order_in_which_they_joined():
    bench = Bench(workers=0)
    for number in (3, 1, 2):
        bench.join(number)
    bench.join(3, sequence=2)
    assert bench.reports.joined() == (member(3), member(1), member(2))


@check
def who_failed_is_not_forgotten_with_those_that_are_not_expected():
    bench = Bench(workers=3)
    bench.hear(3, ReportStage.FAILED, 2, reason=Reason("broken"))
    bench.reports.forget_others([name(1)])
    assert bench.reports.joined() == (member(1),)
    assert bench.reports.failed() == (name(3),)


@check
def the_first_of_two_claimants_has_no_better_right():
    bench = Bench(workers=1)
    bench.keys["10.0.0.11"] = member(2).host_key
    bench.join(2, address="10.0.0.11")
    assert bench.reports.member(name(2)) == member(2, address="10.0.0.11")
    assert bench.reports.member(name(1)) is None
    assert bench.reports.has_joined_after(name(2), name(1))


@check
def a_refuted_claimant_has_acknowledged_nothing_and_joins_last_when_it_returns():
    bench = Bench(workers=2)
    bench.acknowledge(1)
    bench.keys["10.0.0.11"] = member(3).host_key
    bench.join(3, address="10.0.0.11")
    assert not bench.reports.is_ready(name(1), 1)
    bench.join(1, sequence=2, address="10.0.0.99")
    assert [m.instance_id for m in bench.reports.joined()] == [name(2), name(3), name(1)]


@check
def who_is_unknown_has_joined_after_nobody():
    bench = Bench(workers=2)
    assert not bench.reports.has_joined_after(name(1), name(2))
    assert bench.reports.has_joined_after(name(1), name(8))
    assert not bench.reports.has_joined_after(name(8), name(1))
    assert not bench.reports.has_joined_after(name(8), name(9))


@check
def a_worker_is_described_by_its_last_report():
    bench = Bench()
    bench.acknowledge(1)
    bench.hear(3, ReportStage.FAILED, reason=Reason("broken"))
    assert [bench.reports.describe(name(number)) for number in range(1, 5)] == [
        f"{name(1)} (10.0.0.11) acknowledged generation 1",
        f"{name(2)} (10.0.0.12) joined and acknowledged no generation",
        f"{name(3)} failed: broken",
        f"{name(4)} never reported",
    ]


@check
def an_address_without_a_key_belongs_to_nobody():
    bench = Bench(workers=1)
    assert not bench.reports.has_lost_address(member(1))
    bench.clock.now += 61
    bench.keys["10.0.0.11"] = member(2).host_key
    assert bench.reports.has_lost_address(member(1))
    assert not bench.reports.has_lost_address(member(1, address="10.0.0.99")), "another claim waits for a minute"


@check
def a_refuted_claimant_counts_as_one_that_failed_when_it_did():
    bench = Bench(workers=1)
    bench.hear(1, ReportStage.FAILED, 2, reason=Reason("broken"))
    bench.keys["10.0.0.11"] = member(2).host_key
    bench.join(2, address="10.0.0.11")
    assert bench.reports.failed() == (name(1),)


@check
def the_second_of_two_claimants_has_none_either():
    bench = Bench(workers=1)
    bench.keys["10.0.0.11"] = member(1).host_key
    bench.join(2, address="10.0.0.11")
    assert bench.reports.member(name(1)) == member(1)
    assert "which belongs to another node" in bench.reports.reason(name(2)).cause


@check
def the_masters_address_is_its_own():
    bench = Bench(workers=0)
    bench.keys["10.0.0.10"] = member(1).host_key
    bench.join(1, address="10.0.0.10")
    assert bench.reports.member(name(1)) is None


@check
def an_address_outside_of_the_vpc_is_refused():
    bench = Bench(workers=0)
    bench.join(1, address="10.1.0.1")
    assert "which is not in the VPC (10.0.0.0/16)" in bench.reports.reason(name(1)).cause


@check
def who_claims_a_foreign_address_fails_even_if_it_was_leaving():
    bench = Bench()
    bench.hear(1, ReportStage.LEAVING, 2, reason=Reason("spot"))
    bench.join(1, sequence=3, address="10.1.0.1")
    assert bench.reports.member(name(1)) is None
    for _ in range(2):
        assert bench.reports.failed() == (name(1),)
        bench.read_again()


@check
def all_failures_are_told_one_after_the_other():
    bench = Bench()
    for number in (1, 2):
        bench.hear(number, ReportStage.FAILED, 2, reason=Reason("broken"))
    assert bench.reports.describe_failures() == f"; {name(1)} failed: broken; {name(2)} failed: broken"


@check
def a_report_is_private_and_not_written_again_when_it_is_known():
    bench = Bench()
    bench.acknowledge(1)
    file = bench.node.instance_file("reports") / f"{name(1)}.json"
    before = file.stat()
    bench.acknowledge(1)
    assert file.stat().st_ino == before.st_ino
    assert before.st_mode & 0o777 == 0o600


@check
def an_address_is_asked_once_a_minute_for_each_node():
    bench = Bench(workers=0)
    check = AddressCheck(bench.node)
    for number in range(11, 14):
        check.verify(member(1, address=f"10.0.0.{number}"))
    assert bench.asked == 1
    bench.clock.now += 61
    check.verify(member(1))
    assert bench.asked == 2


# --- Formation --------------------------------------------------------------------------------------


@check
def who_is_short_of_gpus_is_left_out():
    bench = Bench(workers=3)
    bench.join(3, 1, sequence=2)
    assert set(bench.leave_out(1, 2, 3)) == {name(3)}


@check
def the_minimum_holds_for_who_is_short_of_gpus():
    bench = Bench(workers=3, minimum=3)
    bench.join(3, 1, sequence=2)
    expect(lambda: bench.leave_out(1, 2, 3), StageFailure, "at least 3 must remain")


@check
def a_tie_leaves_everyone_in():
    bench = Bench(workers=2)
    bench.join(2, 8, sequence=2)
    assert bench.leave_out(1, 2) == {}


@check
def the_minimum_holds_for_who_failed():
    bench = Bench(workers=2, minimum=2)
    bench.hear(2, ReportStage.FAILED, 2, reason=Reason("broken"))
    expect(lambda: bench.leave_out(1, 2), StageFailure, f"worker {name(2)}: 1 of 2 workers failed and at least 2")


@check
def the_only_worker_is_blamed_alone_and_named_once():
    for cause in ("broken", f"{name(1)} is broken"):
        bench = Bench(workers=1, minimum=1)
        bench.hear(1, ReportStage.FAILED, 2, reason=Reason(cause, "mend it", "the last line"))
        with pytest.raises(StageFailure) as failure:
            bench.leave_out(1)
        assert (failure.value.remedy, failure.value.output) == ("mend it", "the last line")
        assert str(failure.value) == (cause if name(1) in cause else f"worker {name(1)}: {cause}")


@check
def the_minimum_holds_for_who_is_missing():
    bench = Bench(workers=2, minimum=3)
    bench.clock.now += 899
    with pytest.raises(StageFailure) as raised:
        bench.leave_out(1, 2, 3, 4)
    cause = "the set-up time of 900 s is over and 2 of 4 workers are missing: "
    missing = f"{name(3)} never reported, {name(4)} never reported"
    told = raised.value
    assert (told.cause, told.stage, told.where) == (cause + missing, "form the cluster", None)
    assert told.remedy == "read the agent's log on them, or allow more time"


@check
def who_is_missing_is_waited_for_until_the_reserve():
    bench = Bench(workers=2)
    assert bench.leave_out(1, 2, 3) is None
    bench.clock.now += 900 - 89
    assert bench.leave_out(1, 2, 3) == {name(3): Reason(f"{name(3)} never reported")}


@check
def the_end_of_the_set_up_time_has_a_cause_and_no_remedy():
    bench = Bench()
    bench.formation.check_deadline("nobody came")
    bench.clock.now += 900
    with pytest.raises(StageFailure) as raised:
        bench.formation.check_deadline("nobody came")
    told = (raised.value.cause, raised.value.remedy, raised.value.stage)
    assert told == ("the set-up time of 900 s is over: nobody came", "", "form the cluster")


@check
def who_failed_is_not_waited_for_and_too_few_wait_for_nobody():
    for minimum, expected, is_complete in (
        (0, (1, 2), True),
        (0, (1, 2, 3), False),
        (3, (1, 3), False),
        (0, (1, 2, 4), True),
        (3, (1, 2, 3, 4), False),
        (4, (1, 2, 3, 4), True),
    ):
        bench = Bench(minimum=minimum)
        bench.hear(4, ReportStage.FAILED, reason=Reason("broken"))
        with contextlib.suppress(StageFailure):
            bench.leave_out(*expected)
        assert bench.is_complete is is_complete, (minimum, expected)


@check
def half_of_the_reserve_is_for_acknowledgements():
    formation = Bench().formation
    assert (formation.joined_by.at, formation.ready_by.at) == (formation.deadline.at - 90, formation.deadline.at - 45)


@check
def a_minimum_of_zero_holds():
    bench = Bench(workers=2, minimum=0)
    for number in (1, 2):
        bench.hear(number, ReportStage.FAILED, 2, reason=Reason("broken"))
    assert set(bench.leave_out(1, 2)) == {name(1), name(2)}


@check
def a_silence_before_the_cluster_forms_is_a_reboot_at_first():
    bench = Bench(workers=3)
    bench.acknowledge(1)
    state = bench.state(workers=3, phase=Phase.PUBLISHED)
    bench.found = MemberHealth(silent=dict.fromkeys((name(1), name(2)), "it is silent"))
    ready = functools.partial(
        bench.formation.collect_ready, state, bench.formation.ready_by, bench.formation.ready_by, bench.controller.look
    )
    assert ready() is None
    bench.clock.now += 45 - 1
    assert ready() is None
    bench.clock.now += 1
    assert ready() == succession.Change({name(2): Reason("it is silent")}), "the third is awaited"


def collect_from_one_of_two(bench, look=None, **changes):
    """Return how the master of a bench collects two acknowledgements, where the second worker is silent."""
    bench.acknowledge(1)
    bench.found = MemberHealth(silent={name(2): "it is silent"})
    state, limit = bench.state(phase=Phase.PUBLISHED, **changes), bench.formation.ready_by
    return functools.partial(bench.formation.collect_ready, state, limit, limit, look or bench.controller.look)


@check
def a_gone_worker_without_which_too_few_remain_is_awaited_until_the_reserve():
    bench = Bench(minimum=2)
    collect = collect_from_one_of_two(bench)
    assert collect() is None
    bench.clock.now = bench.formation.ready_by.at - 1
    assert collect() is None
    bench.clock.now += 1
    expect(collect, StageFailure, "1 of 2 workers failed and at least 2 must remain; the first: it is silent")


@check
def a_replacement_takes_the_place_of_a_gone_worker():
    bench = Bench(minimum=2)
    bench.join(3)
    collect = collect_from_one_of_two(bench)
    assert collect() is None, "it may be a reboot"
    bench.clock.now += 45
    assert collect() == succession.Change({name(2): Reason("it is silent")}, (member(3),))


@check
def a_replacement_at_the_address_of_a_worker_shows_that_it_is_gone():
    for number in (1, 2):
        bench, newcomer = Bench(minimum=2), member(3, address=member(number).address)
        bench.keys[newcomer.address] = newcomer.host_key
        bench.join(3, address=newcomer.address)
        cause = Reason(f"its address {newcomer.address} is {name(3)}'s now")
        assert collect_from_one_of_two(bench)() == succession.Change({name(number): cause}, (newcomer,))


@check
def nobody_joins_before_the_cluster_forms_while_nobody_is_lost():
    bench = Bench()
    bench.join(3)
    assert collect_from_one_of_two(bench)() is None

    def acknowledge_meanwhile(state):
        bench.acknowledge(2)
        return bench.controller.look(state)

    for look in (acknowledge_meanwhile, bench.controller.look):
        assert collect_from_one_of_two(bench, look)() == succession.Change({})


@check
def a_new_master_of_a_formed_cluster_admits_nobody_before_the_acknowledgements():
    bench = Bench(minimum=2)
    bench.join(3)
    collect = collect_from_one_of_two(bench, has_formed=True)
    assert collect() == succession.Change({name(2): Reason("it is silent")})


@check
def nobody_is_too_many_to_lose_once_the_cluster_has_formed():
    bench = Bench(minimum=2)
    for number in (1, 2):
        bench.hear(number, ReportStage.FAILED, 2, reason=Reason("broken"))
    state = bench.state(phase=Phase.PUBLISHED, has_formed=True)
    limit = bench.formation.ready_by
    change = bench.formation.collect_ready(state, limit, limit, bench.controller.look)
    assert (set(change.left), change.joined) == ({name(1), name(2)}, ())


# --- MembershipController -----------------------------------------------------------------------------------------


def stand_by():
    """Return a bench whose agent was the master before, and the item of the one that followed."""
    bench = Bench()
    state = bench.state()
    follower = member(9)
    bench.keys[follower.address] = follower.host_key
    return bench, ClusterState(
        CLUSTER, 4, 2, Phase.FORMED, 3, state.expected, members=(follower, *state.members[1:]), has_formed=True
    )


@check
def a_master_that_answers_is_not_vacant():
    bench, state = stand_by()
    for _ in range(10):
        assert not bench.controller.is_vacant(state, member(0))
        bench.clock.now += 900


@check
def who_stands_by_probes_the_members():
    bench, state = stand_by()
    bench.controller.is_vacant(state, member(0))
    assert bench.probed == ((member(0),), state.members)


@check
def a_silent_master_is_vacant_after_minutes():
    bench, state = stand_by()
    bench.found = MemberHealth(unanswered={name(9)})
    assert not bench.controller.is_vacant(state, member(0))
    bench.clock.now += 180 - 1
    assert not bench.controller.is_vacant(state, member(0))
    bench.clock.now += 1
    assert bench.controller.is_vacant(state, member(0))


@check
def silence_is_counted_anew_after_an_answer():
    bench, state = stand_by()
    for mute in ({name(9)}, set(), {name(9)}):
        bench.found = MemberHealth(unanswered=mute)
        bench.clock.now += 180
        assert not bench.controller.is_vacant(state, member(0))


@check
def a_node_that_hears_nobody_doubts_itself_first():
    bench, state = stand_by()
    bench.found = MemberHealth(unanswered={name(9)}, has_answer=False)
    bench.controller.is_vacant(state, member(0))
    bench.clock.now += 900 - 1
    assert not bench.controller.is_vacant(state, member(0))
    bench.clock.now += 1
    assert bench.controller.is_vacant(state, member(0))


@check
def a_dead_masters_address_with_a_new_holder_is_vacant():
    bench, state = stand_by()
    bench.keys[member(9).address] = member(5).host_key
    bench.controller.is_vacant(state, member(0))
    bench.clock.now += 180
    assert bench.controller.is_vacant(state, member(0))


def change_of(bench, workers=2):
    change = bench.controller.plan_change(bench.state(workers))
    return set(change.left), [joined.instance_id for joined in change.joined]


@check
def who_joins_is_admitted_unless_it_is_mute():
    bench = Bench(workers=4)
    bench.acknowledge(1, 2)
    bench.found = MemberHealth(unanswered={name(4)})
    assert change_of(bench) == (set(), [name(3)])


@check
def who_joined_and_is_no_member_is_probed_beside_the_members():
    bench = Bench(workers=3)
    bench.controller.look(bench.state())
    assert bench.probed == (bench.state().members, (member(3),))


@check
def a_member_that_joins_again_elsewhere_is_no_newcomer():
    bench = Bench()
    bench.join(1, sequence=2, address="10.0.0.99")
    assert change_of(bench)[1] == []


@check
def who_joined_before_the_member_with_its_address_is_not_admitted():
    bench = Bench(workers=0)
    bench.join(3, address="10.0.0.12")
    bench.join(2, address="10.0.0.99")
    bench.keys["10.0.0.12"] = member(3).host_key
    assert change_of(bench)[1] == []


@check
def who_proves_to_hold_a_members_address_is_admitted_in_its_place():
    bench = Bench()
    bench.keys["10.0.0.11"] = member(3).host_key
    bench.join(3, address="10.0.0.11")
    change = bench.controller.plan_change(bench.state())
    assert change.joined == (member(3, address="10.0.0.11"),)
    assert change.left == {name(1): Reason(f"its address 10.0.0.11 is {name(3)}'s now")}


@check
def a_condemned_newcomer_is_not_admitted_again():
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.hear(3, ReportStage.FAILED, 1, reason=Reason("broken"))
    assert change_of(bench) == (set(), [])
    assert bench.ordered == [name(3)]
    bench.join(3, sequence=2)
    assert change_of(bench) == (set(), [])


@check
def a_newcomer_that_is_short_of_gpus_is_replaced():
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.join(3, 1)
    assert change_of(bench) == (set(), [])
    assert change_of(bench) == (set(), [])
    assert bench.ordered == [name(3)]


@check
def a_newcomer_that_does_not_acknowledge_is_dropped_after_a_minute():
    bench = Bench()
    bench.acknowledge(1)
    assert change_of(bench) == (set(), [])
    bench.clock.now += 60 - 1
    assert change_of(bench) == (set(), [])
    bench.clock.now += 1
    assert change_of(bench) == ({name(2)}, [])


@check
def who_failed_is_unfit_or_silent_leaves():
    bench = Bench(workers=4)
    bench.acknowledge(1, 2, 3, 4)
    bench.hear(1, ReportStage.FAILED, 2, reason=Reason("broken"))
    bench.found = MemberHealth(silent={name(2): "it is silent"}, unfit={name(3): "gpu"}, unanswered={name(2)})
    assert change_of(bench, 4) == ({name(1), name(2), name(3)}, [])
    assert bench.ordered == [name(1), name(3)]
    assert bench.node.path("/opt/deeplearning/ready_hosts").read_text().splitlines() == [f"{name(0)}:2", f"{name(4)}:2"]


@check
def who_left_must_join_anew():
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.controller.forget_departed(succession.Change({name(2): Reason("it is silent")}))
    assert change_of(bench, 1) == (set(), [])
    bench.join(2, sequence=2)
    assert change_of(bench, 1) == (set(), [name(2)])
    assert not bench.reports.is_ready(name(2), 1)


@check
def who_returns_has_its_whole_minute_to_acknowledge():
    bench = Bench()
    bench.acknowledge(1)
    change_of(bench)
    bench.clock.now += 60
    assert change_of(bench) == ({name(2)}, [])
    bench.controller.forget_departed(succession.Change({name(2): Reason("late")}))
    bench.join(2, sequence=2)
    assert change_of(bench) == (set(), [])


@check
def who_failed_is_forgotten_once_its_replacement_is_ordered():
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.hear(2, ReportStage.FAILED, 2, reason=Reason("broken"))
    assert change_of(bench) == ({name(2)}, [])
    bench.controller.forget_departed(succession.Change({name(2): Reason("broken")}))
    assert bench.reports.failed() == ()


# --- Replacements -----------------------------------------------------------------------------------


def silence(**findings):
    """Return a formed bench whose second worker is silent."""
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.found = MemberHealth(silent={name(2): "it is silent"}, unanswered={name(2)}, **findings)
    bench.controller.plan_change(bench.state())
    bench.controller.forget_departed(succession.Change({name(2): Reason("it is silent")}))
    bench.found = MemberHealth(unanswered={name(2)}, **findings)
    return bench


@check
def a_short_silence_costs_no_instance():
    bench = silence()
    bench.clock.now += 60 - 1
    change_of(bench, 1)
    assert (bench.ordered, bench.replacements.awaited()) == ([], (member(2),))
    bench.clock.now += 1
    change_of(bench, 1)
    assert (bench.ordered, bench.replacements.awaited()) == ([name(2)], ())


@check
def a_silent_node_that_answers_again_has_ten_minutes_to_join():
    bench = silence()
    bench.found = MemberHealth()
    bench.clock.now += 600 - 1
    change_of(bench, 1)
    assert bench.ordered == []
    bench.clock.now += 1
    change_of(bench, 1)
    assert bench.ordered == [name(2)]


@check
def who_fails_between_its_publication_and_the_formation_is_replaced_once_formed():
    bench = Bench()
    bench.acknowledge(1)
    bench.hear(2, ReportStage.FAILED, 2, reason=Reason("its disk is full"))
    published = bench.state(phase=Phase.PUBLISHED)
    limit = bench.formation.ready_by
    change = bench.formation.collect_ready(published, limit, limit, bench.controller.look)
    assert set(change.left) == {name(2)}
    bench.controller.forget_departed(change)
    bench.read_again()
    assert change_of(bench, 1) == (set(), [])
    assert bench.ordered == [name(2)]


@check
def nobody_is_replaced_while_nobody_answers():
    bench = silence(has_answer=False)
    bench.clock.now += 10 * 60
    change_of(bench, 1)
    assert bench.ordered == []


@check
def whom_ec2_takes_is_not_replaced():
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.hear(2, ReportStage.LEAVING, 2, reason=Reason("spot"))
    bench.found = MemberHealth(silent={name(2): "it is silent"}, unanswered={name(2)})
    change_of(bench)
    bench.clock.now += 60
    change_of(bench, 1)
    assert bench.ordered == []


@check
def an_order_that_failed_is_made_again_and_one_that_did_not_is_not():
    bench = Bench()
    bench.acknowledge(1, 2)
    bench.refusals = 1
    bench.hear(2, ReportStage.FAILED, 2, reason=Reason("broken"))
    for _ in range(3):
        change_of(bench)
    assert bench.ordered == []
    bench.join(2, sequence=3)
    assert change_of(bench, 1) == (set(), [])
    for _ in range(3):
        bench.clock.now += 60
        change_of(bench, 1)
    assert bench.ordered == [name(2)]


@check
def an_order_for_a_node_that_auto_scaling_has_replaced_is_made():
    bench = Bench()
    bench.is_gone = True
    assert bench.replacements._replace(name(2))
    assert bench.replacements.has_ordered(name(2))


@check
def a_silent_node_whose_order_failed_may_come_back():
    bench = silence()
    bench.refusals = 1
    bench.clock.now += 60
    change_of(bench, 1)
    bench.found = MemberHealth()
    bench.join(2, sequence=2)
    assert change_of(bench, 1) == (set(), [name(2)])
    bench.acknowledge(2)
    bench.clock.now += 10 * 60
    assert change_of(bench) == (set(), [])
    assert bench.ordered == []


@check
def a_silent_node_whose_order_failed_is_replaced_a_minute_later():
    bench = silence()
    bench.refusals = 1
    for pause, ordered in ((60, []), (60 - 1, []), (1, [name(2)]), (60, [name(2)])):
        bench.clock.now += pause
        change_of(bench, 1)
        assert bench.ordered == ordered


# --- Liveness ---------------------------------------------------------------------------------------


@check
def two_silent_rounds_in_a_row_make_a_node_gone():
    rounds = iter([{"a"}, {"b"}, {"a"}, {"a"}])
    watch = liveness.Watch(lambda _: next(rounds))
    assert [watch.find_silent("ab") for _ in range(4)] == [set(), set(), set(), {"a"}]
    assert watch.silent == {"a"}


@check
def a_refusal_is_an_answer():
    assert liveness.find_silent(["127.0.0.1"], steps=((9, 1.0),)) == set()


@check
def what_this_machine_lacks_says_nothing_of_another():
    room, liveness.start_connecting, kept = 24, lambda *_: (room, None), liveness.start_connecting
    try:
        assert liveness.find_silent(["127.0.0.1"], steps=((9, 1.0),)) == set()
    finally:
        liveness.start_connecting = kept


# --- Succession -------------------------------------------------------------------------------------


@check
def survivors_keep_their_order_and_newcomers_come_last():
    change = succession.Change({name(1): Reason("gone")}, (member(8), member(7)))
    following = succession.follow_up(Bench().state(3), change)
    assert [m.instance_id for m in following.members] == [name(n) for n in (0, 2, 3, 8, 7)]
    assert (following.generation, following.revision, following.phase) == (2, 4, Phase.FORMED)
    assert [(gone.instance_id, gone.generation, gone.reason) for gone in following.departed] == [
        (name(1), 2, Reason("gone"))
    ]


@check
def a_cluster_that_is_whole_again_has_no_reason():
    full = ClusterState(CLUSTER, 3, 1, Phase.FORMED, 3, (), Reason("no capacity"), tuple(member(n) for n in range(2)))
    assert succession.follow_up(full, succession.Change({}, (member(2),))).reason == NO_REASON
    assert succession.follow_up(full, succession.Change({name(1): Reason("gone")})).reason == Reason("no capacity")


@check
def a_new_master_stands_first_and_asks_for_acknowledgements():
    following = succession.take_over(Bench().state(), member(9), "ssh-ed25519 key")
    assert [m.instance_id for m in following.members] == [name(9), name(1), name(2)]
    assert (following.phase, following.generation, following.user_key) == (Phase.PUBLISHED, 2, "ssh-ed25519 key")
    assert [(gone.instance_id, gone.generation) for gone in following.departed] == [(name(0), 2)]
    assert following.has_formed


@check
def a_worker_whose_address_the_new_master_has_is_gone():
    following = succession.take_over(Bench().state(), member(9, address=member(1).address), "ssh-ed25519 key")
    assert [m.instance_id for m in following.members] == [name(9), name(2)]
    assert [gone.instance_id for gone in following.departed] == [name(0), name(1)]


@check
def a_new_master_finds_who_joined_and_responds():
    bench, own = Bench(workers=4), member(9)
    bench.found = MemberHealth(unanswered={name(4)})
    assert bench.controller.look_for_newcomers(bench.state(), own) == (member(3),)
    assert bench.probed == ((own,), (member(3), member(4)))


@check
def a_new_master_takes_workers_along_in_place_of_those_that_are_gone():
    master, newcomer = member(9, address=member(1).address), member(3, address=member(2).address)
    following = succession.take_over(Bench().state(), master, "ssh-ed25519 key", [newcomer])
    assert following.members == (master, newcomer)
    assert [gone.instance_id for gone in following.departed] == [name(0), name(1), name(2)]


@check
def a_membership_has_enough_with_the_minimum_and_always_once_it_has_formed():
    formation = Bench().formation
    for workers, minimum, has_formed, is_enough in ((2, 2, False, True), (1, 2, False, False), (1, 2, True, True)):
        state = Bench(minimum=minimum).state(workers, Phase.PUBLISHED, has_formed=has_formed)
        assert formation.has_enough(state) is is_enough


@check
def the_first_roster_says_who_was_left_out():
    state = ClusterState(CLUSTER, 1, 0, Phase.LAUNCHED, 3, ())
    following = succession.publish(state, [member(0), member(1)], {name(2): Reason("x" * 5000)}, "ssh-ed25519 key")
    assert (following.generation, following.phase, following.user_key) == (1, Phase.PUBLISHED, "ssh-ed25519 key")
    assert following.members == (member(0), member(1))
    assert following.reason.cause.startswith(f"left out {name(2)}: x")
    assert len(str(following.reason)) == MAX_REASON
    assert [gone.instance_id for gone in following.departed] == [name(2)]


@check
def several_reasons_are_one_with_all_causes_and_the_first_remedy_and_output():
    reasons = [Reason("a"), Reason("b", "do", "1"), Reason("c", "or do", "2")]
    assert succession.join_reasons(reasons) == Reason("a; b; c", "do", "1")
    assert succession.join_reasons(reasons[:1]) == Reason("a")


@check
def a_master_knows_that_it_was_followed():
    bench = Bench()
    epoch = MasterEpoch(bench.node)
    state = bench.state()
    assert not epoch.is_superseded(state)
    epoch.record(2)
    assert not epoch.is_superseded(state)
    assert MasterEpoch(bench.node).is_superseded(succession.take_over(state, member(9), ""))


# --- Files and reports ------------------------------------------------------------------------------


@check
def a_file_is_replaced_and_never_written_over():
    with tempfile.TemporaryDirectory() as folder:
        path, old = Path(folder) / "file", Path(folder) / "old"
        write_file(path, "before")
        os.link(path, old)
        assert write_file(path, "after")
        assert (path.read_text(), old.read_text()) == ("after", "before")
        assert not write_file(path, "after")
        assert sorted(entry.name for entry in Path(folder).iterdir()) == ["file", "old"]


@check
def of_many_reports_of_a_node_the_newest_counts():
    told = [
        NodeReport(CLUSTER, name(1), ReportStage.FAILED, reason=Reason("new"), sequence=5),
        NodeReport(CLUSTER, name(1), ReportStage.FAILED, reason=Reason("old"), sequence=4),
        NodeReport(CLUSTER, name(2), ReportStage.READY, generation=3),
        NodeReport(CLUSTER, name(2), ReportStage.READY, generation=2),
    ]
    assert collector.newest_of_each(told) == (told[0], told[2])
