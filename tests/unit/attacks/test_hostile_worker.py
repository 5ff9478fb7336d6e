"""A worker whose credentials are stolen changes nobody's membership but its own."""

import json
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deeplearning_agent.address_proof import AddressProof, Proof
from deeplearning_agent.keeper import Findings, Keeper
from deeplearning_agent.roster import Roster
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import MAX_REASON, NodeReport, ReportStage
from tests.unit.node_lab import CLUSTER, ROLE_ID, lab, make_lab, stopped  # noqa: F401 - pytest finds fixtures by their names

HONEST, HOSTILE = (1, 2), 3


def make_member(index, address=None):
    return Member(f"i-{index:017x}", address or f"10.0.0.{9 + index}", 2, f"ssh-ed25519 {index:020d}AAAA")


def report(index, stage=ReportStage.JOINED, **changes):
    member = make_member(index) if stage is ReportStage.JOINED else None
    values = {"cluster": CLUSTER, "instance_id": f"i-{index:017x}", "stage": stage, "member": member, "sequence": 1}
    return NodeReport(**values | changes)


class Watch:
    """Finds nothing."""

    def look(self, members, others=()):
        return Findings()


class Replacements:
    """Orders nothing."""

    def awaited(self):
        return ()

    def has_ordered(self, _instance_id):
        return False

    def order(self, left, _found):
        assert {worker.instance_id for worker in left} <= {f"i-{HOSTILE:017x}"}

    def carry_out(self, *_):
        pass


@pytest.fixture
def master(lab):  # noqa: F811 - the fixture
    """Return a master whose two honest workers joined; each address answers with its owner's key."""
    owners = {make_member(index).address: make_member(index).host_key for index in (0, *HONEST, HOSTILE)}
    lines = "".join(f"    {address}) echo '{address} {key}' ;;\n" for address, key in owners.items())
    node = lab.node(0)
    lab.program(0, "ssh-keyscan", f'for address; do :; done\ncase "$address" in\n{lines}esac')
    (node.instance_file("reports")).mkdir(parents=True, exist_ok=True)
    node.path("/opt/deeplearning").mkdir(parents=True, exist_ok=True)
    roster = Roster(node)
    for index in HONEST:
        roster.accept(report(index))
        roster.accept(report(index, ReportStage.READY, generation=1))
    members = tuple(make_member(index) for index in (0, *HONEST))
    ids = tuple(member.instance_id for member in members)
    state = ClusterState(CLUSTER, 3, 1, Phase.FORMED, 3, ids, members=members, has_formed=True)
    return roster, Keeper(node, roster, Watch(), Replacements()), state


CLAIMS = st.builds(
    lambda stage, sequence, generation, reason, address: report(
        HOSTILE,
        stage,
        sequence=sequence,
        generation=generation,
        reason=reason,
        **({"member": make_member(HOSTILE, address)} if stage is ReportStage.JOINED else {}),
    ),
    st.sampled_from(ReportStage),
    st.integers(-5, 2**40),
    st.integers(-5, 2**40),
    st.text(max_size=2000),
    st.sampled_from([make_member(index).address for index in (0, *HONEST, HOSTILE)] + ["10.9.9.9", "169.254.169.254"]),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(claims=st.lists(CLAIMS, max_size=6), repeated=st.booleans())
def test_no_report_of_its_own_moves_another_member(master, claims, repeated):
    roster, keeper, state = master
    for claim in claims * (2 if repeated else 1):
        roster.accept(NodeReport.from_body(claim.to_body()))
    change = keeper.find_change(state)
    assert not change.left
    assert {member.instance_id for member in change.joined} <= {f"i-{HOSTILE:017x}"}
    taken = {member.address for member in state.members}
    assert not {member.address for member in change.joined} & taken
    for index in HONEST:
        assert roster.member(f"i-{index:017x}") == make_member(index)
        assert roster.cause(f"i-{index:017x}") == ""


def test_who_claims_the_address_of_another_has_failed_and_the_other_stays(master):
    roster, keeper, state = master
    roster.accept(report(HOSTILE, member=make_member(HOSTILE, make_member(1).address)))
    assert "at which another node answers" in roster.cause(f"i-{HOSTILE:017x}")
    assert keeper.find_change(state).joined == ()


def test_a_replacement_that_has_the_address_of_a_node_that_is_gone_may_have_it(lab, master):  # noqa: F811
    roster, keeper, state = master
    newcomer = make_member(HOSTILE, make_member(1).address)
    lab.program(0, "ssh-keyscan", f"echo '{newcomer.address} {newcomer.host_key}'")
    roster.accept(report(HOSTILE, member=newcomer))
    change = keeper.find_change(replace(state, members=(state.members[0], state.members[2])))
    assert change.joined == (newcomer,)


def test_an_address_at_which_nobody_answers_is_nobodys_yet(lab, master):  # noqa: F811
    roster, _, _ = master
    lab.program(0, "ssh-keyscan", "exit 1")
    roster.accept(report(HOSTILE, member=make_member(HOSTILE, make_member(1).address)))
    assert not roster.has_reported(f"i-{HOSTILE:017x}")


def test_the_masters_own_address_is_never_another_ones(lab, master):  # noqa: F811
    roster, _, _ = master
    claim = make_member(HOSTILE, make_member(0).address)
    lab.program(0, "ssh-keyscan", f"echo '{claim.address} {claim.host_key}'")
    roster.accept(report(HOSTILE, member=claim))
    assert roster.member(claim.instance_id) is None


def test_a_claim_that_is_repeated_asks_the_address_once_a_minute(lab):  # noqa: F811
    node = lab.node(0)
    lab.program(0, "ssh-keyscan", 'echo x >>"$FAKES/asked"; echo "10.0.0.10 ssh-ed25519 other"')
    proof = AddressProof(node)
    assert {proof.ask(make_member(HOSTILE, "10.0.0.10")) for _ in range(5)} == {Proof.OTHER}
    assert (lab.directory / "programs0/asked").read_text() == "x\n"


@pytest.mark.parametrize("size", [1000, 1024 * 1024])
def test_a_reason_of_any_size_is_kept_short_on_disk(master, size):
    roster, _, _ = master
    body = json.loads(report(HOSTILE, ReportStage.FAILED).to_body()) | {"reason": "\x1b[2J" * (size // 4)}
    roster.accept(NodeReport.from_body(json.dumps(body)))
    assert len(roster.cause(f"i-{HOSTILE:017x}")) <= MAX_REASON


def test_a_report_in_the_name_of_another_is_not_believed(lab, caplog):  # noqa: F811
    for index in HONEST:
        lab.send("report", report(index).to_body())
    forged = json.loads(report(1, ReportStage.FAILED, reason="forged", sequence=9).to_body())
    lab.send("report", json.dumps(forged | {"sent_by": f"i-{HOSTILE:017x}"}))
    lab.write_state(3)
    lab.run(lab.agent(0))
    assert "dropped a report about" in caplog.text
    assert [member.instance_id for member in lab.read_state().members] == [
        lab.instance(index) for index in (0, *HONEST)
    ]
    assert ROLE_ID in caplog.text
