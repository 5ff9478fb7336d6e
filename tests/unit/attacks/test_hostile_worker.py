"""A worker whose credentials are stolen changes nobody's membership but its own."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deeplearning_agent
import deeplearning_contract
import deeplearning_node
from deeplearning_agent.membership.controller import MembershipController
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.report_collector import MOST_BATCHES, ReportCollector
from deeplearning_agent.membership.worker_reports import AddressCheck, Proof, WorkerReports
from deeplearning_agent.role import READ_SECONDS
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.document import ContractError
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import MOST_COUNTED, ClusterNotification, NodeReport, ReportStage
from deeplearning_contract.reason import MAX_REASON, Reason
from tests.unit.node_lab import CLUSTER, ROLE_ID, lab, make_lab, stopped, ticking_clock  # noqa: F401 - pytest finds fixtures by their names

HONEST, HOSTILE = (1, 2), 3


def make_member(index, address=None):
    return Member(f"i-{index:017x}", address or f"10.0.0.{9 + index}", 2, f"ssh-ed25519 {index:020d}AAAA")


def report(index, stage=ReportStage.JOINED, **changes):
    member = make_member(index) if stage is ReportStage.JOINED else None
    values = {"cluster": CLUSTER, "instance_id": f"i-{index:017x}", "stage": stage, "member": member, "sequence": 1}
    return NodeReport(**values | changes)


class Watch:
    """Finds nothing."""

    def probe(self, members, others=()):
        return MemberHealth()


class Replacements:
    """Orders nothing."""

    def awaited(self):
        return ()

    def mark_unhealthy(self, causes):
        assert set(causes) <= {f"i-{HOSTILE:017x}"}

    def has_ordered(self, _instance_id):
        return False

    def schedule(self, left, _found):
        assert {worker.instance_id for worker in left} <= {f"i-{HOSTILE:017x}"}

    def submit_due(self, *_):
        pass


def answer_with_owners_keys(lab):  # noqa: F811
    owners = {make_member(index).address: make_member(index).host_key for index in (0, *HONEST, HOSTILE)}
    lines = "".join(f"    {address}) echo '{address} {key}' ;;\n" for address, key in owners.items())
    lab.program(0, "ssh-keyscan", f'for address; do :; done\ncase "$address" in\n{lines}esac')


@pytest.fixture
def master(lab):  # noqa: F811 - the fixture
    """Return a master whose two honest workers joined; each address answers with its owner's key."""
    node = lab.node(0)
    answer_with_owners_keys(lab)
    (node.instance_file("reports")).mkdir(parents=True, exist_ok=True)
    node.path("/opt/deeplearning").mkdir(parents=True, exist_ok=True)
    reports = WorkerReports(node)
    for index in HONEST:
        reports.record(report(index))
        reports.record(report(index, ReportStage.READY, generation=1))
    members = tuple(make_member(index) for index in (0, *HONEST))
    ids = tuple(member.instance_id for member in members)
    state = ClusterState(CLUSTER, 3, 1, Phase.FORMED, 3, ids, members=members, has_formed=True)
    return reports, MembershipController(node, reports, Watch(), Replacements()), state


CLAIMS = st.builds(
    lambda stage, sequence, generation, reason, address: report(
        HOSTILE,
        stage,
        sequence=sequence,
        generation=generation,
        reason=Reason(reason),
        **({"member": make_member(HOSTILE, address)} if stage is ReportStage.JOINED else {}),
    ),
    st.sampled_from(ReportStage),
    st.integers(0, MOST_COUNTED),
    st.integers(0, MOST_COUNTED),
    st.text(max_size=2000),
    st.sampled_from([make_member(index).address for index in (0, *HONEST, HOSTILE)] + ["10.9.9.9", "8.8.8.8"]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(claims=st.lists(CLAIMS, max_size=6), repeated=st.booleans())
def test_no_report_of_its_own_moves_another_member(master, claims, repeated):
    reports, keeper, state = master
    for claim in claims * (2 if repeated else 1):
        reports.record(NodeReport.from_body(claim.to_body()))
    change = keeper.plan_change(state)
    assert not change.left
    assert {member.instance_id for member in change.joined} <= {f"i-{HOSTILE:017x}"}
    taken = {member.address for member in state.members}
    assert not {member.address for member in change.joined} & taken
    for index in HONEST:
        assert reports.member(f"i-{index:017x}") == make_member(index)
        assert reports.reason(f"i-{index:017x}").cause == ""


def test_a_worker_that_claims_another_nodes_address_fails_and_the_other_node_stays(master):
    reports, keeper, state = master
    reports.record(report(HOSTILE, member=make_member(HOSTILE, make_member(1).address)))
    assert "which belongs to another node" in reports.reason(f"i-{HOSTILE:017x}").cause
    assert keeper.plan_change(state).joined == ()


def test_a_replacement_that_has_the_address_of_a_node_that_is_gone_may_have_it(lab, master):  # noqa: F811
    reports, keeper, state = master
    newcomer = make_member(HOSTILE, make_member(1).address)
    lab.program(0, "ssh-keyscan", f"echo '{newcomer.address} {newcomer.host_key}'")
    reports.record(report(HOSTILE, member=newcomer))
    change = keeper.plan_change(replace(state, members=(state.members[0], state.members[2])))
    assert change.joined == (newcomer,)


def test_an_address_at_which_nobody_answers_is_nobodys_yet(lab, master):  # noqa: F811
    reports, _, _ = master
    lab.program(0, "ssh-keyscan", "exit 1")
    reports.record(report(HOSTILE, member=make_member(HOSTILE, make_member(1).address)))
    assert reports.describe(f"i-{HOSTILE:017x}").endswith("never reported")


def test_a_claim_that_is_repeated_asks_the_address_once_a_minute(lab):  # noqa: F811
    node = lab.node(0)
    lab.program(0, "ssh-keyscan", 'echo x >>"$FAKES/asked"; echo "10.0.0.10 ssh-ed25519 other"')
    check = AddressCheck(node)
    assert {check.verify(make_member(HOSTILE, "10.0.0.10")) for _ in range(5)} == {Proof.OTHER}
    assert (lab.directory / "programs0/asked").read_text() == "x\n"


@pytest.mark.parametrize("size", [1000, 1024 * 1024])
def test_a_reason_of_any_size_is_kept_short_on_disk(master, size):
    reports, _, _ = master
    body = json.loads(report(HOSTILE, ReportStage.FAILED).to_body()) | {"reason": {"cause": "\x1b[2J" * (size // 4)}}
    reports.record(NodeReport.from_body(json.dumps(body)))
    assert len(reports.reason(f"i-{HOSTILE:017x}").cause) <= MAX_REASON


def test_a_report_in_the_name_of_another_is_not_believed(lab, caplog):  # noqa: F811
    for index in HONEST:
        lab.send("report", report(index).to_body())
    forged = json.loads(report(1, ReportStage.FAILED, reason=Reason("forged"), sequence=9).to_body())
    lab.send("report", json.dumps(forged | {"sent_by": f"i-{HOSTILE:017x}"}))
    lab.write_state(3)
    lab.run(lab.agent(0))
    assert "dropped a report about" in caplog.text
    assert [member.instance_id for member in lab.read_state().members] == [
        lab.instance(index) for index in (0, *HONEST)
    ]
    assert ROLE_ID in caplog.text


# --- A false claim costs only the one that makes it -------------------------------------------------


class Heard:
    """A collector that has heard everything that there is to hear."""

    def __init__(self, reports):
        self.reports = reports

    def collect(self, is_done, _until):
        return is_done()


def test_an_address_goes_to_the_node_that_answers_there_and_not_to_the_first_claim(lab):  # noqa: F811
    node = lab.node(0)
    answer_with_owners_keys(lab)
    reports = WorkerReports(node)
    reports.record(report(HOSTILE, member=make_member(HOSTILE, make_member(1).address)))
    for index in HONEST:
        reports.record(report(index))
        assert reports.member(f"i-{index:017x}") == make_member(index)
        assert not reports.reason(f"i-{index:017x}").cause
    assert reports.member(f"i-{HOSTILE:017x}") is None
    reports.record(report(HOSTILE, member=make_member(HOSTILE, make_member(1).address), sequence=2))
    workers = [f"i-{index:017x}" for index in (*HONEST, HOSTILE)]
    formation = Formation(node, Heard(reports), node.limit(node.settings.setup_seconds))
    state = ClusterState(CLUSTER, 1, 1, Phase.LAUNCHED, 4, tuple(workers))
    assert set(formation.collect_joined(state, workers, formation.deadline)) == {f"i-{HOSTILE:017x}"}


def test_a_cluster_forms_though_a_worker_claimed_anothers_address_first(lab, caplog):  # noqa: F811
    lab.write_state(4)
    for index in range(4):
        lab.node(index)
    addresses = {index: lab.node(index).identity.address for index in range(4)}
    scan = lab.directory / "programs0" / "ssh-keyscan"
    lines = "".join(
        f"    {address}) echo '{address} {make_member(n).host_key}' ;;\n" for n, address in addresses.items()
    )
    scan.write_text(scan.read_text() + f'\ncase "$address" in\n{lines}esac\n')
    forged = make_member(HOSTILE, addresses[1])
    bodies = [report(HOSTILE, member=forged), *(report(index) for index in HONEST)]
    for message in (*bodies, report(HOSTILE, ReportStage.FAILED, reason=Reason("mine"), sequence=2)):
        lab.send("report", message.to_body())
    lab.run(lab.agent(0))
    assert [m.instance_id for m in lab.read_state().members] == [lab.instance(index) for index in (0, *HONEST)]
    assert not lab.signals.bodies


OUTSIDE = ["8.8.8.8", "192.168.0.1", "11.0.0.0", "172.31.0.5"]
SPECIAL = ["255.255.255.255", "240.0.0.1", "169.254.169.254", "127.0.0.1", "224.0.0.1", "0.1.2.3"]


@pytest.mark.parametrize("address", OUTSIDE)
def test_an_address_outside_of_the_vpc_is_refused_with_the_reason(master, address):
    reports, keeper, state = master
    reports.record(report(HOSTILE, member=make_member(HOSTILE, address)))
    assert (
        reports.reason(f"i-{HOSTILE:017x}").cause
        == f"it claims the address {address}, which is not in the VPC (10.0.0.0/8)"
    )
    assert not keeper.plan_change(state).joined


@pytest.mark.parametrize("address", SPECIAL)
def test_an_address_that_no_node_can_have_is_no_report(address):
    body = json.loads(report(HOSTILE).to_body())
    body["member"]["address"] = address
    with pytest.raises(ContractError, match="must be reachable by other nodes"):
        NodeReport.from_body(json.dumps(body))


@pytest.mark.parametrize("key", ["ssh-ed25519 AAAA\u0661" + "A" * 20, "ecdsa-sha2-nistp\u0662\u0665\u0666 " + "A" * 20])
def test_a_digit_of_another_script_is_none(key):
    with pytest.raises(ContractError, match="must be an SSH public key"):
        replace(make_member(HOSTILE), host_key=key)


def test_no_pattern_takes_digits_of_other_scripts():
    packages = (deeplearning_contract, deeplearning_agent, deeplearning_node)
    sources = [Path(package.__file__).parent for package in packages]
    found = [
        path.name for folder in sources for path in folder.rglob("*.py") if "\\d" in path.read_text(encoding="utf-8")
    ]
    assert found == []


@pytest.mark.parametrize("key", ["generation", "sequence"])
@pytest.mark.parametrize("count", [2**70, MOST_COUNTED + 1, -1])
def test_a_count_beyond_any_cluster_is_no_report(key, count):
    body = json.loads(report(HOSTILE, ReportStage.READY).to_body()) | {key: count}
    with pytest.raises(ContractError, match=f"report.{key} must be from 0 to {MOST_COUNTED}"):
        NodeReport.from_body(json.dumps(body))


# --- A flood of one keeps nobody waiting ------------------------------------------------------------


class Queue:
    """Hands out messages in the order in which they came, ten at a time."""

    def __init__(self, lab, reports):  # noqa: F811
        self.waiting = [
            {"Body": one.to_body(), "Attributes": {"SenderId": f"{ROLE_ID}:{one.instance_id}"}} for one in reports
        ]
        self.calls = 0

    def receive_message(self, *, MaxNumberOfMessages, WaitTimeSeconds, **_):  # noqa: N803 - boto3's names
        self.calls += 1
        batch, self.waiting = self.waiting[:MaxNumberOfMessages], self.waiting[MaxNumberOfMessages:]
        return {"Messages": [message | {"ReceiptHandle": "1"} for message in batch]}

    def delete_message_batch(self, **_):
        return {}


def flood(lab, reports):  # noqa: F811
    """Return a collector to which reports wait, and its queue."""
    node = lab.node(0)
    lab.program(0, "ssh-keyscan", 'echo x >>"$FAKES/asked"; exit 1')
    queue = Queue(lab, reports)
    clients = lab.clients
    clients.sqs = queue
    return ReportCollector(node, clients), queue


def test_a_flood_of_one_sender_keeps_others_waiting_for_one_round(lab):  # noqa: F811
    claims = [
        report(HOSTILE, member=make_member(HOSTILE, make_member(index % 200).address), sequence=index)
        for index in range(1, 301)
    ]
    collector, queue = flood(lab, [*claims, report(1)])
    collector.receive(lab.node(0).limit(2))
    assert collector.reports.member(f"i-{1:017x}") == make_member(1)
    assert queue.calls == 31
    asked = lab.directory / "programs0/asked"
    assert not asked.exists() or asked.read_text() == "x\n"


def test_a_round_ends_however_many_reports_there_are(lab):  # noqa: F811
    collector, queue = flood(lab, [report(HOSTILE, ReportStage.FAILED, sequence=index) for index in range(1, 5000)])
    collector.receive(lab.node(0).limit(600))
    assert queue.calls == MOST_BATCHES


def test_a_flood_of_unreadable_messages_is_read_to_its_end(lab):  # noqa: F811
    collector, queue = flood(lab, [report(1)])
    poison = {"Body": "{", "Attributes": {"SenderId": f"{ROLE_ID}:i-{HOSTILE:017x}"}}
    queue.waiting = [poison] * 100 + queue.waiting
    assert collector.receive(lab.node(0).limit(2)) == 1


def test_of_many_reports_of_one_node_the_newest_counts_whatever_their_order(lab):  # noqa: F811
    told = [
        report(1, sequence=1),
        report(1, ReportStage.READY, generation=3, sequence=2),
        report(1, ReportStage.READY, generation=2, sequence=3),
        report(1, ReportStage.FAILED, reason=Reason("the last"), sequence=5),
        report(1, ReportStage.FAILED, reason=Reason("late"), sequence=4),
    ]
    collector, _ = flood(lab, told)
    collector.receive(lab.node(0).limit(2))
    assert collector.reports.reason(f"i-{1:017x}").cause == "the last"
    assert collector.reports.is_ready(f"i-{1:017x}", 3)
    assert not collector.reports.is_ready(f"i-{1:017x}", 4)


def test_a_node_that_cannot_count_is_heard_in_the_order_in_which_it_reports(lab):  # noqa: F811
    collector, _ = flood(lab, [report(1, ReportStage.FAILED, sequence=0), report(1, sequence=0)])
    collector.receive(lab.node(0).limit(2))
    assert collector.reports.member(f"i-{1:017x}") == make_member(1)
    assert not collector.reports.reason(f"i-{1:017x}").cause


def test_claims_that_differ_cost_one_connection_a_minute(lab):  # noqa: F811
    node = lab.node(0)
    lab.program(0, "ssh-keyscan", 'echo x >>"$FAKES/asked"; echo "10.0.0.10 ssh-ed25519 other"')
    check = AddressCheck(node)
    claims = [check.verify(make_member(HOSTILE, f"10.0.0.{index}")) for index in range(10, 15)]
    assert claims == [Proof.OTHER] + [Proof.NOBODY] * 4
    assert (lab.directory / "programs0/asked").read_text() == "x\n"


def test_a_worker_that_hides_notifications_delays_the_others_by_a_minute_at_most(lab, ticking_clock):  # noqa: F811
    """SQS has no condition key for VisibilityTimeout, so that a worker may hide a ring until it expires."""
    lab.send("worker", ClusterNotification(CLUSTER, 1).to_body())
    queue = lab.queues["worker"]
    stolen = lab.clients.sqs.receive_message(QueueUrl=queue, VisibilityTimeout=300)
    assert len(stolen["Messages"]) == 1
    clock = ticking_clock()
    victim = lab.agent(1, clock)
    victim.seen_generation = 0
    began = clock.now
    victim.listen()
    assert "Messages" not in lab.clients.sqs.receive_message(QueueUrl=queue), "the ring is hidden still"
    # Each look at the simulated clock takes a second.
    assert READ_SECONDS <= clock.now - began <= READ_SECONDS + 5
