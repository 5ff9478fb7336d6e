"""Condition operators, from the tables of the IAM User Guide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.condition import read_conditions


def is_met(operator, wanted, *found, key="aws:x"):
    (condition,) = read_conditions({operator: {key: wanted}}, has_variables=True)
    return condition.is_met({"aws:x": found} if found else {})


ARN = "arn:aws:sns:us-east-1:1:topic"


@pytest.mark.parametrize(
    ("operator", "wanted", "found", "expected"),
    [
        ("StringEquals", "a", ["a"], True),
        ("StringEquals", "a", ["A"], False),
        ("StringEquals", ["a", "b"], ["b"], True),
        ("StringEquals", "a*", ["ab"], False),
        ("StringEquals", "a", [], False),
        ("StringEqualsIfExists", "a", [], True),
        ("StringEqualsIfExists", "a", ["b"], False),
        ("StringNotEquals", ["a", "b"], ["c"], True),
        ("StringNotEquals", ["a", "b"], ["b"], False),
        ("StringNotEquals", "a", [], True),
        ("StringEqualsIgnoreCase", "Ab", ["aB"], True),
        ("StringNotEqualsIgnoreCase", "Ab", ["aB"], False),
        ("StringLike", "a*c?", ["abbcd"], True),
        ("StringLike", "a*c?", ["abbc"], False),
        ("StringNotLike", "a*", ["abc"], False),
        ("StringNotLikeIfExists", "a*", ["b"], True),
        ("ArnEquals", "arn:aws:sns:*:1:top*", [ARN], True),
        ("ArnLike", ARN, [ARN], True),
        ("ArnLike", "arn:aws:sns:*", [ARN], False),
        ("ArnLike", "arn:aws:*:topic", [ARN], False),
        ("ArnNotEquals", ARN, [ARN], False),
        ("ArnNotLike", "arn:aws:sqs:*:*:*", [ARN], True),
        ("Bool", "true", ["true"], True),
        ("Bool", True, ["true"], True),
        ("Bool", "false", ["true"], False),
        ("Bool", "false", [], False),
        ("BoolIfExists", "false", [], True),
        ("Null", "true", [], True),
        ("Null", "true", ["x"], False),
        ("Null", "false", ["x"], True),
        ("Null", False, [], False),
        ("NumericEquals", "3", ["3.0"], True),
        ("NumericNotEquals", "3", ["3.0"], False),
        ("NumericLessThan", 3, ["2"], True),
        ("NumericLessThanEquals", 3, ["3"], True),
        ("NumericGreaterThan", 3, ["3"], False),
        ("NumericGreaterThanEquals", 3, ["3"], True),
        ("NumericEquals", "3", ["many"], False),
        ("DateLessThan", "2026-01-01T00:00:00Z", ["2025-12-31T23:59:59Z"], True),
        ("DateGreaterThan", "1700000000", ["2026-01-01"], True),
        ("IpAddress", "10.0.0.0/8", ["10.9.8.7"], True),
        ("IpAddress", ["192.0.2.1", "2001:db8::/32"], ["2001:db8::1"], True),
        ("NotIpAddress", "10.0.0.0/8", ["10.9.8.7"], False),
        ("IpAddress", "10.0.0.0/8", ["nowhere"], False),
        ("BinaryEquals", "QmluYXJ5", ["QmluYXJ5"], True),
        ("ForAnyValue:StringEquals", "a", ["b", "a"], True),
        ("ForAnyValue:StringEquals", "a", [], False),
        ("ForAnyValue:StringNotEquals", "a", ["a", "b"], True),
        ("ForAllValues:StringEquals", ["a", "b"], ["b", "a"], True),
        ("ForAllValues:StringEquals", ["a", "b"], ["b", "c"], False),
        ("ForAllValues:StringEquals", "a", [], True),
        ("ForAllValues:StringNotEquals", "a", ["a", "b"], False),
        ("ForAllValues:StringLikeIfExists", "a*", [], True),
    ],
)
def test_compares_as_the_user_guide_says(operator, wanted, found, expected):
    assert is_met(operator, wanted, *found) == expected


def test_names_of_keys_ignore_case():
    assert is_met("StringEquals", "a", "a", key="AWS:X")


def test_asks_for_a_quantifier_where_a_key_has_several_values():
    with pytest.raises(PolicyError, match="ForAnyValue"):
        is_met("StringEquals", "a", "a", "b")


def test_values_may_be_variables():
    (condition,) = read_conditions({"StringEquals": {"s3:prefix": "home/${aws:userid}/"}}, has_variables=True)
    assert condition.is_met({"s3:prefix": ("home/x/",), "aws:userid": ("x",)})
    assert not condition.is_met({"s3:prefix": ("home/y/",), "aws:userid": ("x",)})
    assert not condition.is_met({"s3:prefix": ("home//",)})


@given(
    st.sampled_from(["StringEquals", "StringLike", "StringEqualsIgnoreCase"]),
    st.lists(st.text("ab*?A"), min_size=1),
    st.text("abA"),
)
def test_a_negation_holds_where_its_operator_does_not(operator, wanted, found):
    negation = operator.replace("String", "StringNot")
    assert is_met(operator, wanted, found) != is_met(negation, wanted, found)


@given(st.lists(st.text("ab", min_size=1), min_size=1), st.lists(st.text("ab", min_size=1), min_size=1))
def test_all_values_fit_where_none_is_left(wanted, found):
    assert is_met("ForAllValues:StringEquals", wanted, *found) == (set(found) <= set(wanted))
    assert is_met("ForAnyValue:StringEquals", wanted, *found) == bool(set(found) & set(wanted))
