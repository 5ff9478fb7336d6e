"""The user's minimum remains whoever is left out, and one worker's GPU count moves nobody else."""

import pytest

from deeplearning_agent.membership.controller import MembershipController
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.replacements import Replacements
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.reason import Reason
from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure
from tests.unit.node_lab import CLUSTER


class StillClock(Clock):
    """Stands until the test moves it."""

    now = 1000.0

    def read(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


class Heard:
    """A collector that has heard everything that there is to hear."""

    def __init__(self, reports):
        self.reports = reports

    def collect(self, is_done, _until):
        return is_done()


class Watch:
    """Finds nothing."""

    def probe(self, _members, _others=()):
        return MemberHealth()


def make_member(index, gpus):
    return Member(f"i-{index:017x}", f"10.0.0.{9 + index}", gpus, f"ssh-ed25519 {index:020d}AAAA")


def join(reports, index, gpus, sequence=1):
    name = f"i-{index:017x}"
    member = make_member(index, gpus)
    reports.record(NodeReport(CLUSTER, name, ReportStage.JOINED, member=member, sequence=sequence))
    return name


def launched(names, minimum=0):
    """Return the item of a cluster that has launched; the adjuster says the minimum, or nothing."""
    return ClusterState(CLUSTER, 1, 1, Phase.LAUNCHED, 1 + len(names), tuple(names), worker_minimum=minimum)


def form(lab, minimum, counts, effective=0):
    """Let workers join with some GPU counts, and return those that are left out."""
    node = lab.node(0, StillClock(), worker_min_capacity=minimum)
    reports = WorkerReports(node)
    names = [join(reports, index, gpus) for index, gpus in enumerate(counts, start=1)]
    formation = Formation(node, Heard(reports), node.limit(node.settings.setup_seconds))
    return formation.collect_joined(launched(names, effective), names, formation.deadline)


@pytest.mark.parametrize(("own", "effective"), [(1, 3), (5, 3)])
def test_the_minimum_that_the_adjuster_keeps_is_the_one_that_counts(lab, own, effective):
    with pytest.raises(StageFailure, match="at least 3 must remain"):
        form(lab, own, [2, 2, 1], effective)


def test_a_minimum_of_the_adjusters_that_is_lower_leaves_room(lab):
    assert set(form(lab, 5, [2, 2, 2, 1], 3)) == {lab.instance(4)}


def test_a_worker_that_is_short_of_gpus_is_left_out_while_the_minimum_remains(lab):
    assert form(lab, 2, [2, 2, 1]) == {
        lab.instance(3): Reason("GPU count: it joined with 1 GPUs, most workers have 2"),
    }


def test_a_cluster_never_forms_below_the_minimum_for_a_worker_that_is_short_of_gpus(lab):
    with pytest.raises(StageFailure) as failure:
        form(lab, 3, [2, 2, 1])
    assert str(failure.value.reason("master")) == (
        f"worker {lab.instance(3)}: 1 of 3 workers failed and at least 3 must remain; the first: "
        "GPU count: it joined with 1 GPUs, most workers have 2"
    )


def test_missing_nodes_and_nodes_short_of_gpus_count_together(lab):
    clock = StillClock()
    node = lab.node(0, clock, worker_min_capacity=3)
    reports = WorkerReports(node)
    names = [join(reports, index, gpus) for index, gpus in enumerate([2, 2, 2, 1], start=1)]
    formation = Formation(node, Heard(reports), node.limit(node.settings.setup_seconds))
    workers = [*names, lab.instance(9)]
    assert formation.collect_joined(launched(workers), workers, formation.deadline) is None
    clock.now = formation.joined_by.at + 1
    assert set(formation.collect_joined(launched(workers), workers, formation.deadline)) == {names[3], lab.instance(9)}
    reports.forget(names[0])
    with pytest.raises(StageFailure, match="joined with 1 GPUs, most workers have 2"):
        formation.collect_joined(launched(workers), workers, formation.deadline)


@pytest.mark.parametrize("counts", [[2, 99], [99, 2], [1, 2], [2, 2, 1, 1], [2, 2, 99], [1, 1, 2], [0, 1, 2], [2]])
def test_without_a_majority_no_node_is_left_out_and_extra_gpus_are_no_fault(lab, counts):
    assert form(lab, 0, counts) == {}


class Formed:
    """A formed cluster of a master and workers with two GPUs, and what is ordered in it."""

    def __init__(self, lab, workers):
        self.ordered = []
        self.clock = StillClock()
        node = lab.node(0, self.clock)
        node.path("/opt/deeplearning").mkdir(parents=True, exist_ok=True)
        lab.clients.autoscaling = self
        self.reports = WorkerReports(node)
        for index in range(1, workers + 1):
            name = join(self.reports, index, 2)
            self.reports.record(NodeReport(CLUSTER, name, ReportStage.READY, generation=1, sequence=2))
        self.controller = MembershipController(
            node, self.reports, Watch(), Replacements(node, lab.clients, self.reports)
        )
        members = tuple(make_member(index, 2) for index in range(workers + 1))
        expected = tuple(member.instance_id for member in members)
        self.state = ClusterState(CLUSTER, 3, 1, Phase.FORMED, workers + 1, expected, members=members, has_formed=True)

    def set_instance_health(self, *, InstanceId, **_):  # noqa: N803 - boto3's name
        self.ordered.append(InstanceId)

    def look(self):
        return self.controller.plan_change(self.state)


def test_a_worker_that_is_short_of_gpus_is_replaced_and_not_admitted_however_often_it_asks(lab):
    formed = Formed(lab, 2)
    for sequence in (1, 2, 3):
        name = join(formed.reports, 3, 1, sequence)
        assert not formed.look()
    assert formed.ordered == [name]


def test_a_replacement_with_as_many_gpus_as_the_others_is_admitted(lab):
    formed = Formed(lab, 2)
    join(formed.reports, 3, 1)
    name = join(formed.reports, 4, 2)
    assert [member.instance_id for member in formed.look().joined] == [name]


def test_a_newcomer_that_says_it_has_more_gpus_moves_no_member(lab):
    formed = Formed(lab, 1)
    join(formed.reports, 3, 99)
    change = formed.look()
    assert not change.left
    assert formed.ordered == []
