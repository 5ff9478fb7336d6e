"""Hypothesis strategies for values of the contract, for any JSON, and for documents that are nearly right."""

import ipaddress
import json

import hypothesis.strategies as st

from deeplearning_contract.cluster_state import CapacityAttempt, ClusterState, Departure, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import MAX_REASON, Reason
from deeplearning_contract.setting_parts import (
    DataSettings,
    EnvironmentSettings,
    FileSystemSettings,
    HardwareSettings,
    JobNeeds,
    ScriptSettings,
)
from deeplearning_contract.settings import AdjusterSettings, NodeSettings

counts = st.integers(0, 10_000)
instance_ids = st.from_regex(r"i-[0-9a-f]{8}([0-9a-f]{9})?", fullmatch=True)
keys = st.from_regex(r"ssh-ed25519 [A-Za-z0-9+/]{68}", fullmatch=True)
addresses = st.builds(lambda n: str(ipaddress.IPv4Address(n)), st.integers(0x0A000001, 0x0AFFFFFE))
notes = st.text(max_size=MAX_REASON)
reasons = st.builds(Reason, notes, notes, notes)
members = st.builds(Member, instance_ids, addresses, st.integers(0, 16), keys)
attempts = st.builds(CapacityAttempt, st.text(), st.text(), counts, counts, st.text(), counts, counts)
states = st.builds(
    ClusterState,
    cluster=st.text(min_size=1),
    revision=st.integers(1, 1000),
    generation=st.integers(1, 1000),
    phase=st.sampled_from(Phase),
    requested=counts,
    expected=st.lists(instance_ids, max_size=4).map(tuple),
    reason=reasons,
    members=st.lists(members, max_size=3).map(tuple),
    user_key=st.just("") | keys,
    departed=st.lists(st.builds(Departure, instance_ids, counts, reasons), max_size=2).map(tuple),
    has_formed=st.booleans(),
    run_ended=st.booleans(),
    notice=notes,
    worker_minimum=counts,
    candidate=st.text(),
    attempts=st.lists(attempts, max_size=2).map(tuple),
)
reports = st.one_of(
    members.flatmap(
        lambda member: st.builds(
            NodeReport, st.text(), st.just(member.instance_id), st.just(ReportStage.JOINED), member=st.just(member)
        )
    ),
    st.builds(NodeReport, st.text(), instance_ids, st.just(ReportStage.READY), counts),
    st.builds(
        NodeReport,
        st.text(),
        instance_ids,
        st.sampled_from([ReportStage.FAILED, ReportStage.LEAVING]),
        reason=reasons,
        sequence=counts,
    ),
)
scripts = st.none() | st.builds(ScriptSettings, st.text(), st.text(), st.text())
texts = st.text(max_size=5)
file_systems = st.builds(FileSystemSettings, texts, texts, texts, texts)
job_needs = st.builds(
    JobNeeds,
    st.dictionaries(texts, st.builds(HardwareSettings, texts, counts, counts, counts), max_size=2),
    st.lists(st.builds(DataSettings, texts, texts, texts, texts, texts), max_size=2).map(tuple),
    st.none() | st.builds(EnvironmentSettings, texts, scripts, texts, texts),
    st.none() | file_systems,
)
node_settings = st.builds(
    NodeSettings,
    needs=job_needs,
    role=st.sampled_from(NodeRole),
    file_system=file_systems,
    packages=st.dictionaries(st.text(), st.lists(st.text(), max_size=3).map(tuple), max_size=3),
    setup_script=scripts,
    run_script=scripts,
    **{
        name: st.text(max_size=5)
        for name in (
            "cluster",
            "region",
            "state_table",
            "master_queue_url",
            "worker_queue_url",
            "report_queue_url",
            "report_sender",
            "signal_url",
            "login_user",
            "log_group",
        )
    },
    expected_gpu_count=counts,
    setup_seconds=counts,
)
adjuster_settings = st.builds(
    AdjusterSettings, st.text(), st.text(), st.text(), st.text(), worker_min_capacity=counts, settle_seconds=counts
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=6,
)


@st.composite
def nearly(draw, documents):
    """A JSON document with one place, at any depth, replaced by any value or removed."""
    document = json.loads(json.dumps(draw(documents)))
    place = document
    while True:
        key = draw(st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place)))))
        if isinstance(place[key], dict | list) and place[key] and draw(st.booleans()):
            place = place[key]
            continue
        if draw(st.booleans()) and isinstance(place, dict):
            del place[key]
        else:
            place[key] = draw(json_values)
        return document
