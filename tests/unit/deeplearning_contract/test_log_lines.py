"""Log lines of nodes and Lambda: one line for any text, metrics that CloudWatch can read, and events."""

import json

import hypothesis.strategies as st
import pytest
from documents import json_values
from hypothesis import example, given

from deeplearning_contract.cluster_event import ClusterEvent, EventKind, name_source
from deeplearning_contract.document import ContractError
from deeplearning_contract.log_record import (
    FIELDS,
    MOST_DETAIL_CHARACTERS,
    MOST_LINE_BYTES,
    MOST_MESSAGE_CHARACTERS,
    LogLine,
    Speaker,
    format_time,
)
from deeplearning_contract.metrics import (
    CLUSTER,
    FORMATION_SECONDS,
    GENERATION,
    GPU_UTILIZATION,
    METRICS,
    NODE,
    NODES_FORMED,
    PHASE,
    embed_metrics,
    read_metrics,
)
from deeplearning_contract.reason import MAX_REASON, Reason
from tests.unit.deeplearning_contract.documents import reasons
from tests.unit.local_aws import read_event

ANY_TEXT = st.text(st.characters(codec=None), max_size=200)  # Lone surrogates and control characters among them.
SPEAKER = Speaker("cats", "i-0123456789abcdef0", "worker")


@given(ANY_TEXT, ANY_TEXT, st.dictionaries(ANY_TEXT, ANY_TEXT, max_size=3), st.floats(0, 4e9))
@example("", "", {}, 1073741824.40625)
def test_any_text_becomes_one_line_that_reads_back(message, logger, details, time):
    line = LogLine(time, "INFO", SPEAKER, 3, logger, message, details)
    text = line.to_text()
    assert text.isascii()
    assert text.isprintable()
    read = LogLine.from_text(text)
    assert (read.message, read.logger, read.speaker, read.generation) == (message, logger, SPEAKER, 3)
    assert read.details == {name: value for name, value in details.items() if name not in FIELDS}
    assert format_time(read.time) == format_time(time)


@given(st.dictionaries(st.text(max_size=8), json_values, max_size=4))
def test_any_detail_becomes_strict_json_and_changes_no_field(details):
    def refuse(constant):
        raise AssertionError(constant)

    text = LogLine(0, "INFO", SPEAKER, 0, "a", "b", details | {"message": "forged", "node": "forged"}).to_text()
    document = json.loads(text, parse_constant=refuse)
    assert document["message"] == "b"
    assert document["node"] == SPEAKER.node


@pytest.mark.parametrize("character", ["x", "\n", "\u00e4", "\U0001f408", "\ud800"])
def test_a_line_never_exceeds_what_cloudwatch_takes(character):
    million = character * 1_000_000
    text = LogLine(0, "INFO", SPEAKER, 0, "a", million, {str(n): million for n in range(100)}).to_text()
    assert len(text.encode()) <= MOST_LINE_BYTES
    assert LogLine.from_text(text).message == f"{character * MOST_MESSAGE_CHARACTERS}... (1000000 characters)"
    text = LogLine(
        0, "INFO", SPEAKER, 0, "a", "b", {"detail": million, "reason": Reason(million, "", million)}
    ).to_text()
    details = LogLine.from_text(text).details
    assert details["detail"].startswith(character * MOST_DETAIL_CHARACTERS)
    assert details["reason"] == {
        "cause": f"{character * (MOST_DETAIL_CHARACTERS - 3)}...",
        "output": character * MOST_DETAIL_CHARACTERS,
    }


@given(json_values)
def test_a_value_that_is_not_a_log_line_is_refused(value):
    with pytest.raises(ContractError):
        LogLine.from_text(json.dumps(value))


def test_a_line_that_names_no_time_is_refused():
    text = LogLine(0, "INFO", SPEAKER, 0, "a", "b").to_text().replace("1970-01-01T00:00:00.000Z", "yesterday")
    with pytest.raises(ContractError, match="UTC"):
        LogLine.from_text(text)


def test_metrics_of_different_dimensions_get_directives_of_their_own():
    values = {NODES_FORMED: 3, GENERATION: 2, GPU_UTILIZATION: 87.5, FORMATION_SECONDS: 61.0}
    details = embed_metrics(values, {CLUSTER: "cats", NODE: "i-1", PHASE: "formed"}, at=12.3456)
    assert details["_aws"]["Timestamp"] == 12345
    found = {
        metric["Name"]: (directive["Namespace"], directive["Dimensions"], metric["Unit"])
        for directive in details["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }
    assert found == {
        "NodesFormed": ("DeepLearning/Cluster", [["Cluster"]], "Count"),
        "Generation": ("DeepLearning/Cluster", [["Cluster"]], "Count"),
        "GpuUtilization": ("DeepLearning/Cluster", [["Cluster"], ["Cluster", "Node"]], "Percent"),
        "FormationSeconds": ("DeepLearning/Cluster", [["Cluster", "Phase"]], "Seconds"),
    }
    assert {name: details[name] for name in ("Cluster", "Node", "Phase")} == {
        "Cluster": "cats",
        "Node": "i-1",
        "Phase": "formed",
    }
    assert read_metrics(details) == {metric.name: value for metric, value in values.items()}


def test_a_metric_without_its_dimension_is_a_mistake_of_the_program():
    with pytest.raises(KeyError, match="Node"):
        embed_metrics({GPU_UTILIZATION: 1.0}, {CLUSTER: "cats"}, at=0)


def test_a_value_that_is_no_number_is_no_metric():
    assert embed_metrics({NODES_FORMED: float("nan"), GENERATION: float("inf")}, {CLUSTER: "cats"}, at=0) == {}


def test_each_metric_has_a_name_of_its_own_and_is_kept_by_cluster():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    assert all(names[0] == CLUSTER for metric in METRICS for names in metric.dimensions)


@given(st.sampled_from(EventKind), st.text(max_size=20), st.integers(0, 99), st.integers(0, 99), reasons)
def test_an_event_reads_back_as_it_was_sent(kind, cluster, generation, nodes, reason):
    event = ClusterEvent(kind=kind, cluster=cluster, generation=generation, nodes=nodes, reason=reason)
    entry = event.to_entry()
    assert set(entry) == {"Source", "DetailType", "Detail"}
    assert entry["Source"] == name_source(cluster)
    assert read_event(entry["DetailType"], json.loads(entry["Detail"])) == event


def test_a_long_reason_is_cut_to_what_other_messages_carry():
    entry = ClusterEvent(
        kind=EventKind.FAILED, cluster="cats", generation=1, nodes=0, reason=Reason("x" * 10 * MAX_REASON)
    ).to_entry()
    detail = json.loads(entry["Detail"])
    assert len(detail["message"]) == len(detail["reason"]["cause"]) == MAX_REASON
