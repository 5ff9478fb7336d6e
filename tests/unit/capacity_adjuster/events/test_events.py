"""Events that wake the adjuster are described and never trusted (D10, D11, D13, D17; FAULTS 21 to 24)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity_adjuster.events.notifications import describe_event

LAUNCH_ERROR = {
    "Event": "autoscaling:EC2_INSTANCE_LAUNCH_ERROR",
    "AutoScalingGroupName": "workers",
    "EC2InstanceId": "",
    "StatusMessage": "no capacity",
    "Details": {},
}


def sns(*messages):
    records = [{"Sns": {"Message": m if isinstance(m, str) else json.dumps(m)}} for m in messages]
    return {"Records": records}


@pytest.mark.parametrize(
    ("event", "description"),
    [
        (sns(LAUNCH_ERROR), "autoscaling:EC2_INSTANCE_LAUNCH_ERROR workers no capacity"),
        (
            sns({"Event": "autoscaling:TEST_NOTIFICATION", "AutoScalingGroupName": "workers"}),
            "autoscaling:TEST_NOTIFICATION workers",
        ),
        (sns({"Event": "a"}, {"Event": "b"}), "a, b"),
        (sns(*[{"Event": "a"}] * 12), ", ".join("a" * 10) + " and 2 more"),
        (sns({"Event": "autoscaling:EC2_INSTANCE_TERMINATE_ERROR"}), "autoscaling:EC2_INSTANCE_TERMINATE_ERROR"),
        ({"source": "aws.events", "detail-type": "Scheduled Event", "detail": {}}, "the timer"),
        (
            {"source": "aws.ec2", "detail-type": "Capacity Block Expiration Warning", "detail": {"end-date": "noon"}},
            "Capacity Block Expiration Warning {'end-date': 'noon'}",
        ),
        (sns("{not json"), "an unknown record: {'Sns': {'Message': '{not json'}}"),
        (sns("[]"), "an unknown record: {'Sns': {'Message': '[]'}}"),
        ({"Records": []}, "an unknown event: {'Records': []}"),
        ({"Records": [None, 7]}, "an unknown record: None, an unknown record: 7"),
        (None, "an unknown event: None"),
        ("text\nof two lines", "an unknown event: text of two lines"),
    ],
)
def test_an_event_is_described(event, description):
    assert describe_event(event) == description


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)
near_events = st.fixed_dictionaries(
    {},
    optional={
        "Records": json_values
        | st.lists(
            json_values
            | st.fixed_dictionaries(
                {
                    "Sns": json_values
                    | st.fixed_dictionaries({"Message": json_values | st.builds(json.dumps, json_values)})
                }
            ),
            max_size=12,
        ),
        "source": json_values,
        "detail-type": json_values,
    },
)


@pytest.mark.fault(21, 22)
@pytest.mark.defect("D11")
@given(json_values | near_events)
def test_any_event_is_described_in_one_line(event):
    description = describe_event(event)
    assert description
    assert len(description.splitlines()) <= 1


def test_a_document_nested_beyond_reason_is_described():
    deep = json.dumps({"Records": []})[:-1] + ', "x": ' + "[" * 100_000
    described = describe_event(sns(deep))
    assert described.startswith("an unknown record")
    assert len(described) < 300, "the log keeps the beginning of what a stranger sends"
    nested = []
    for _ in range(100_000):
        nested = [nested]
    assert describe_event(nested).startswith("an unknown event")
