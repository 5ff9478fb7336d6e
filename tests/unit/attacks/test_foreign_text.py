"""Texts from a queue, the table or instance metadata are refused with one error, or harmless."""

import contextlib
import json
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_agent.coordination.queues import is_sent_by, notification_generation
from deeplearning_agent.membership.host_files import hosts_lines
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.document import ContractError
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.reason import MAX_REASON
from deeplearning_node.ssh import known_hosts_lines

METACHARACTERS = (
    "$(reboot)",
    "`reboot`",
    "; reboot",
    "\n10.0.0.1 evil",
    "' || reboot #",
    '"',
    "\\",
    "\0",
    "\x1b[2J",
    "../..",
    "-oProxyCommand=reboot",
    "é\u2028",
    "{{resolve:ssm:x}}",
)
FOREIGN = (
    st.text()
    | st.sampled_from(METACHARACTERS)
    | st.builds("".join, st.lists(st.sampled_from(METACHARACTERS), max_size=4))
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | FOREIGN,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FOREIGN, inner, max_size=4),
    max_leaves=10,
)
GOOD_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIexample"
MEMBER = {"instance_id": "i-0123456789abcdef0", "address": "10.0.0.7", "gpu_count": 8, "host_key": GOOD_KEY}
REPORT = {
    "kind": "report",
    "cluster": "c",
    "instance_id": MEMBER["instance_id"],
    "stage": "joined",
    "generation": 0,
    "member": MEMBER,
    "reason": {"cause": "", "remedy": "", "output": ""},
    "sequence": 1,
}
PLAIN = re.compile(r"[ -~]+")
"""One line of printable ASCII."""


def read_report(body):
    """Return a report, or None for the one error; of foreign text, that quotes a little."""
    try:
        return NodeReport.from_body(body)
    except ContractError as error:
        message = str(error)
    assert len(message) < 1000
    return None


@st.composite
def changed(draw, document):
    """A document in which some values are foreign."""
    result = {}
    for key, value in document.items():
        kind = draw(st.sampled_from(("same", "same", "foreign", "absent")))
        if kind == "absent":
            continue
        if kind == "foreign":
            result[key] = draw(JSON)
        else:
            result[key] = draw(changed(value)) if isinstance(value, dict) else value
    return result


@given(body=st.text() | JSON.map(json.dumps))
def test_any_body_is_a_report_or_one_error(body):
    read_report(body)


@given(document=changed(REPORT))
def test_text_that_an_accepted_report_brings_into_files_is_plain(document):
    report = read_report(json.dumps(document))
    if report is None or report.stage is not ReportStage.JOINED:
        return
    for line in (
        *hosts_lines((report.member,)),
        *known_hosts_lines((report.member,)),
        f"{report.member.instance_id}:{report.member.slots}",
    ):
        assert PLAIN.fullmatch(line)
        assert shlex.split(line)  # no quote stays open
        assert not set("$`;&|<>(){}'\"\\*?!") & set(line)
    assert len(str(report.reason)) <= MAX_REASON


@given(value=FOREIGN, key=st.sampled_from(sorted(MEMBER)))
def test_a_member_with_a_foreign_value_is_refused(value, key):
    if key == "gpu_count":
        value = -1
    document = MEMBER | {key: value}
    try:
        member = Member.from_document(document)
    except ContractError:
        return
    assert PLAIN.fullmatch(str(getattr(member, key)))


@pytest.mark.parametrize("key", ["instance_id", "host_key", "address"])
@pytest.mark.parametrize("tail", ["\n", " ", "\r", "\0", "\u2028", "\u0661"])
def test_nothing_hides_behind_a_value_that_is_right(key, tail):
    with pytest.raises(ContractError):
        Member.from_document(MEMBER | {key: MEMBER[key] + tail})


@given(body=st.text() | JSON.map(json.dumps))
def test_any_body_of_a_notification_is_read_as_a_number(body):
    assert isinstance(notification_generation(body, "c"), int)


@given(
    item=st.dictionaries(st.sampled_from(["document", "parts", "digest", "cluster"]), JSON, max_size=4)
    | changed({"document": {"S": "{}"}, "cluster": {"S": "c"}})
)
def test_any_item_is_a_state_or_one_error(item):
    with contextlib.suppress(ContractError):
        ClusterState.from_item(item)


@given(role=st.text(max_size=30), instance=st.sampled_from([MEMBER["instance_id"], ""]), sender=st.text(max_size=60))
def test_a_sender_is_believed_only_when_role_and_instance_are_exactly_its_own(role, instance, sender):
    report = NodeReport("c", instance, ReportStage.READY)
    assert is_sent_by(role, report, sender) == (bool(role) and sender == f"{role}:{instance}")


@pytest.mark.parametrize("size", [256 * 1024, 1024 * 1024])
def test_a_body_of_any_size_is_read_or_refused_in_one_go(size):
    assert read_report("x" * size) is None
    assert read_report("[" * size) is None
    long_reason = json.dumps(
        REPORT | {"stage": "failed", "member": None, "reason": {"cause": "$(reboot)" * (size // 9)}}
    )
    assert len(read_report(long_reason).reason.cause) == MAX_REASON
    assert (
        notification_generation('{"kind": "notification", "cluster": "c", "generation": ' + "9" * 4000 + "}", "c") > 0
    )
