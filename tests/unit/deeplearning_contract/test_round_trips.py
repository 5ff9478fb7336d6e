"""Documents that one program writes another reads; all other input is one kind of error."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest
from documents import (
    adjuster_settings,
    json_values,
    members,
    nearly,
    node_settings,
    reports,
    states,
)
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_contract.cluster_state import ClusterState, Departure, Phase
from deeplearning_contract.document import ContractError, field, parse_object, read_record
from deeplearning_contract.membership import Member, named_members
from deeplearning_contract.messages import ClusterNotification, NodeReport, ReportStage
from deeplearning_contract.names import host_name
from deeplearning_contract.reason import MAX_REASON, Reason
from deeplearning_contract.settings import AdjusterSettings, NodeSettings
from deeplearning_contract.web import signal_body

KEY = "ssh-ed25519 " + "A" * 68
MEMBER = Member("i-0123456789abcdef0", "10.0.0.1", 8, KEY)
ITEM_LIMIT = 400 * 1024


@given(states)
def test_a_state_survives_its_item(state):
    assert ClusterState.from_item(state.to_item()) == state


@given(reports)
def test_a_report_survives_its_message(report):
    assert NodeReport.from_body(report.to_body()) == report.clean()


@given(members)
def test_a_member_survives_its_document(member):
    assert Member.from_document(json.loads(json.dumps(member.to_document()))) == member


@given(node_settings)
def test_a_nodes_settings_survive_their_file(settings):
    assert NodeSettings.from_json(json.dumps(settings.to_document())) == settings


@given(adjuster_settings)
def test_the_adjusters_settings_survive_their_environment(settings):
    assert AdjusterSettings.from_environment(settings.to_environment()) == settings


def refuse(read, value):
    """Read, and let nothing but the contract's own error through."""
    try:
        return read(value)
    except ContractError as error:
        assert len(str(error)) < MAX_REASON  # noqa: PT017 - most values are read, and that is fine
        return None


READERS = {
    "state": (lambda d: ClusterState.from_item({"document": {"S": json.dumps(d)}}), states, lambda s: s.to_item()),
    "report": (lambda d: NodeReport.from_body(json.dumps(d)), reports, lambda r: r.to_body()),
    "settings": (lambda d: NodeSettings.from_json(json.dumps(d)), node_settings, lambda s: s.to_document()),
    "member": (Member.from_document, members, lambda m: m.to_document()),
}


def to_document(kind, value):
    written = READERS[kind][2](value)
    if kind == "state":
        return json.loads(written["document"]["S"])
    return json.loads(written) if isinstance(written, str) else written


@pytest.mark.fault(22)
@pytest.mark.parametrize("kind", READERS)
@given(data=st.data())
def test_a_document_that_is_nearly_right_is_read_or_refused(kind, data):
    read, values, _ = READERS[kind]
    refuse(read, data.draw(nearly(values.map(lambda value: to_document(kind, value)))))


@pytest.mark.fault(22)
@given(json_values | st.text(), json_values)
def test_anything_else_is_refused(value, key):
    text = value if isinstance(value, str) else json.dumps(value)
    for read in (NodeReport.from_body, NodeSettings.from_json, lambda text: parse_object(text, "it")):
        refuse(read, text)
        refuse(read, value)
    for item in ({"document": {"S": value}}, {"document": value}, {"document": {"N": "1"}}, {}):
        assert refuse(ClusterState.from_item, item) is None
    if isinstance(value, dict):
        refuse(AdjusterSettings.from_environment, value)


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' * 100_000, "1" * 10_000, "NaN", "", "\ud800", b"\xff", None, 7]
)
def test_text_that_breaks_parsers_is_refused(text):
    with pytest.raises(ContractError, match=r"it must be (a )?JSON"):
        parse_object(text, "it")


def test_a_value_of_any_depth_is_refused():
    """Reading JSON, and writing a value into an error, both end where the interpreter's stack does."""
    for depth in (*range(900, 1000), 5000, 90_000):
        body = '{"kind": ' + "[" * depth + "]" * depth + "}"
        with pytest.raises(ContractError):
            NodeReport.from_body(body)


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"instance_id": "i-xyz"}, "member.instance_id must be like"),
        ({"instance_id": "algo-0"}, "member.instance_id must be like"),
        ({"instance_id": "i-01234567\n"}, "member.instance_id must be like"),
        ({"address": "10.0.0.256"}, "member.address must be an IPv4 address"),
        ({"address": "10.0.0.1 evil"}, "member.address must be an IPv4 address"),
        ({"address": "::1"}, "member.address must be an IPv4 address"),
        ({"address": "127.0.0.1"}, "member.address must be reachable by other nodes"),
        ({"address": "0.0.0.0"}, "member.address must be reachable by other nodes"),  # noqa: S104 - to refuse it
        ({"address": "224.0.0.1"}, "member.address must be reachable by other nodes"),
        ({"gpu_count": -1}, "member.gpu_count must be from 0 to 1024, got -1"),
        ({"gpu_count": 1025}, "member.gpu_count must be from 0 to 1024, got 1025"),
        ({"host_key": 'command="rm" ' + KEY}, "member.host_key must be an SSH public key"),
        ({"host_key": KEY + "\n" + KEY}, "member.host_key must be an SSH public key"),
        ({"host_key": KEY + " comment"}, "member.host_key must be an SSH public key"),
    ],
)
def test_a_member_must_be_what_it_says(change, rule):
    with pytest.raises(ContractError, match=rule):
        replace(MEMBER, **change)


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_a_number_must_be_a_whole_one(value):
    with pytest.raises(ContractError, match=r"it.count must be of type int"):
        field({"count": value}, "count", int, "it")


@dataclass(frozen=True)
class Sample:
    name: str
    share: float
    tags: tuple[str, ...]
    counts: Mapping[str, int]
    phase: Phase
    mode: Literal["on", "off"] = "off"
    inner: "Departure | None" = None
    anything: Any = None


SAMPLE = {"name": "a", "share": 1, "tags": ["x"], "counts": {"k": 1}, "phase": "formed"}


def test_a_record_is_read_by_the_types_of_its_fields():
    assert read_record(Sample, SAMPLE | {"mode": "on", "added": 1}, "it") == Sample(
        "a", 1, ("x",), {"k": 1}, Phase.FORMED, "on"
    )
    inner = {"instance_id": "i-1", "generation": 2, "reason": {"cause": "why", "remedy": "do"}}
    assert read_record(Sample, SAMPLE | {"inner": inner}, "it").inner == Departure("i-1", 2, Reason("why", "do"))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"name": None}, "it.name must be of type str, got None"),
        ({"share": True}, "it.share must be of type float, got True"),
        ({"tags": ["a", 1]}, "it.tags must be of type str, got 1"),
        ({"tags": "ab"}, "it.tags must be of type list, got 'ab'"),
        ({"counts": {"k": "1"}}, "it.counts.k must be of type int, got '1'"),
        ({"phase": "dreaming"}, r"it.phase must be one of \['launched', 'published', 'formed', 'failed'\]"),
        ({"mode": ["on"]}, r"it.mode must be one of \['on', 'off'\], got \['on'\]"),
        ({"inner": []}, r"it.inner must be of type dict, got \[\]"),
        ({"inner": {"instance_id": "i-1", "generation": 2}}, "it.inner.reason must be of type dict, got None"),
    ],
)
def test_a_record_of_another_shape_is_refused_with_the_path_of_the_field(change, rule):
    with pytest.raises(ContractError, match=rule):
        read_record(Sample, SAMPLE | change, "it")


def test_a_report_must_describe_its_sender():
    with pytest.raises(
        ContractError, match=r"report.member must describe the sender i-00000000, got i-0123456789abcdef0"
    ):
        NodeReport.from_body(NodeReport("c", "i-00000000", ReportStage.JOINED, member=MEMBER).to_body())


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"kind": "notification"}, "report.kind must be 'report', got 'notification'"),
        ({"stage": "dancing"}, "report.stage must be one of"),
        ({"member": None}, "report.member must be present only in the stage joined"),
        ({"generation": True}, "report.generation must be of type int"),
        ({"reason": "why"}, "report.reason must be of type dict, got 'why'"),
        ({"reason": {"cause": ["why"]}}, r"report.reason.cause must be of type str, got \['why'\]"),
    ],
)
def test_a_report_of_another_shape_is_refused(change, rule):
    document = json.loads(NodeReport("c", MEMBER.instance_id, ReportStage.JOINED, member=MEMBER).to_body())
    with pytest.raises(ContractError, match=rule):
        NodeReport.from_body(json.dumps(document | change))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"phase": "dreaming"}, "state.phase must be one of"),
        ({"user_key": "ssh-dss AAAA"}, "state.user_key must be an SSH public key"),
        ({"members": ["text"]}, "state.members must be of type dict, got 'text'"),
        ({"revision": "1"}, "state.revision must be of type int"),
        ({"reason": {"remedy": 7}}, "state.reason.remedy must be of type str, got 7"),
    ],
)
def test_a_state_of_another_shape_is_refused(change, rule):
    document = json.loads(make_state().to_item()["document"]["S"])
    with pytest.raises(ContractError, match=rule):
        ClusterState.from_item({"document": {"S": json.dumps(document | change)}})


def make_state(**changes):
    return replace(ClusterState("training", 1, 1, Phase.LAUNCHED, 1, (MEMBER.instance_id,)), **changes)


def test_keys_that_a_later_version_adds_are_passed_over():
    """Wire format: keys are added, never renamed, so older readers must live with them."""
    document = json.loads(make_state().to_item()["document"]["S"]) | {"added": 1}
    assert ClusterState.from_item({"document": {"S": json.dumps(document)}}) == make_state()
    report = NodeReport("c", MEMBER.instance_id, ReportStage.READY, 3)
    assert NodeReport.from_body(json.dumps(json.loads(report.to_body()) | {"added": 1})) == report


def test_reasons_are_cut_where_they_travel():
    long = "x" * (MAX_REASON + 1)
    reason = Reason(long, long, f"first line\n{long}")
    cut = Reason(f"{long[4:]}...", f"{long[4:]}...", long[1:])
    report = NodeReport("c", MEMBER.instance_id, ReportStage.FAILED, reason=reason)
    assert NodeReport.from_body(report.to_body()).reason == cut
    foreign = json.loads(report.to_body()) | {"reason": {"cause": long * 100, "remedy": long, "output": long * 9}}
    assert NodeReport.from_body(json.dumps(foreign)).reason == cut
    assert ClusterState.from_item(make_state(reason=reason).to_item()).reason == cut
    body = json.loads(signal_body("c", "FAILURE", long))
    assert len(body["Reason"]) == len(body["Data"]) == MAX_REASON


def test_a_thousand_members_fit_into_the_item():
    """FAULTS 28: an item of DynamoDB holds 400 KB."""
    many = tuple(
        replace(MEMBER, instance_id=f"i-{n:017x}", address=f"10.255.{n // 250}.{n % 250}") for n in range(1000)
    )
    item = make_state(
        members=many,
        expected=tuple(m.instance_id for m in many),
        user_key=KEY,
        reason=Reason("é" * 1000, "é" * 1000, "é" * 1000),
    ).to_item()
    assert len(item["document"]["S"]) < ITEM_LIMIT


def test_each_state_is_the_next_revision_of_the_one_before():
    state = make_state(revision=4).advance(Phase.FAILED, reason=Reason("why"))
    assert (state.revision, state.phase, state.reason, state.generation) == (5, Phase.FAILED, Reason("why"), 1)


def test_a_notification_contains_the_generation_alone():
    assert json.loads(ClusterNotification("c", 3).to_body()) == {
        "kind": "notification",
        "cluster": "c",
        "generation": 3,
    }


def test_members_are_named_by_rank():
    assert host_name(0) == "deeplearning-worker1"
    assert [name for name, _ in named_members((MEMBER, MEMBER))] == ["deeplearning-worker1", "deeplearning-worker2"]


@pytest.mark.parametrize(("gpus", "slots"), [(0, 1), (1, 1), (8, 8)])
def test_a_node_without_gpus_has_one_slot(gpus, slots):
    assert replace(MEMBER, gpu_count=gpus).slots == slots


@pytest.mark.parametrize(
    ("change", "words"),
    [({"DEEPLEARNING_CLUSTER": None}, "DEEPLEARNING_CLUSTER"), ({"DEEPLEARNING_SETTLE_SECONDS": "ten"}, "'ten'")],
)
def test_an_adjuster_without_its_environment_says_what_is_missing(change, words):
    environment = AdjusterSettings("c", "t", "q", "u", 1, 10).to_environment() | change
    with pytest.raises(ContractError, match=words):
        AdjusterSettings.from_environment({key: value for key, value in environment.items() if value is not None})
