"""The intrinsic functions, each on the example of its documentation."""

import pytest

from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.intrinsics import evaluate, find_references


class Scope:
    """A small template's names."""

    def ref(self, name):
        return {"AWS::Region": "eu-west-1", "List": ["a", "b"], "Flag": "true"}[name]

    def attribute(self, name, attribute):
        return f"<{name}.{attribute}>"

    def condition(self, name):
        return name == "Yes"

    def mapping(self, name, first, second):
        return f"{name}/{first}/{second}"

    def zones(self, region):
        return [f"{region or 'eu-west-1'}a"]

    def dynamic(self, reference):
        return f"[{reference}]"

    def read_other_stack(self, function, argument):
        return f"{function} {argument}"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ({"Fn::Join": ["-", ["x", {"Ref": "AWS::Region"}, 3]]}, "x-eu-west-1-3"),
        ({"Fn::Join": [",", {"Ref": "List"}]}, "a,b"),
        ({"Fn::Sub": "${AWS::Region} ${Queue.Arn} ${!literal} $plain"}, "eu-west-1 <Queue.Arn> ${literal} $plain"),
        ({"Fn::Sub": ["${Here}-${There}", {"Here": {"Ref": "AWS::Region"}, "There": "x"}]}, "eu-west-1-x"),
        ({"Fn::GetAtt": ["Queue", "Arn"]}, "<Queue.Arn>"),
        ({"Fn::ImportValue": {"Fn::Sub": "${AWS::Region}-x"}}, "Fn::ImportValue eu-west-1-x"),
        (
            {"Fn::GetStackOutput": {"StackName": "s", "OutputName": "o"}},
            "Fn::GetStackOutput {'StackName': 's', 'OutputName': 'o'}",
        ),
        ({"Fn::GetAtt": "Table.Stream.Arn"}, "<Table.Stream.Arn>"),
        ({"Fn::Select": ["1", {"Fn::Split": ["/", "a/b/c"]}]}, "b"),
        ({"Fn::If": ["Yes", "then", {"Ref": "nobody"}]}, "then"),
        ({"Fn::FindInMap": ["Map", {"Ref": "AWS::Region"}, "k"]}, "Map/eu-west-1/k"),
        ({"Fn::Cidr": ["10.0.0.0/16", 2, 8]}, ["10.0.0.0/24", "10.0.1.0/24"]),
        ({"Fn::GetAZs": ""}, ["eu-west-1a"]),
        ({"Fn::Base64": "hello"}, "aGVsbG8="),
        ({"Fn::Equals": [True, "true"]}, True),
        ({"Fn::And": [{"Condition": "Yes"}, {"Fn::Not": [{"Condition": "No"}]}]}, True),
        ({"Fn::Or": [{"Condition": "No"}, {"Condition": "No"}]}, False),
        ("at {{resolve:ssm:/a/b}}", "at [ssm:/a/b]"),
        ({"kept": 1, "gone": {"Ref": "AWS::NoValue"}, "list": [{"Ref": "AWS::NoValue"}, 2]}, {"kept": 1, "list": [2]}),
    ],
)
def test_evaluates_each_function(expression, value):
    assert evaluate(expression, Scope()) == value


def test_refuses_what_it_does_not_implement():
    with pytest.raises(AssemblyError, match="does not implement Fn::Length"):
        evaluate({"Fn::Length": ["x"]}, Scope())
    with pytest.raises(AssemblyError, match="nonexistent value at index 2"):
        evaluate({"Fn::Select": [2, ["a", "b"]]}, Scope())


def test_finds_every_reference_also_in_text():
    value = {
        "a": {"Fn::Sub": ["${One} ${Two.Arn} ${Own} ${!Not}", {"Own": {"Ref": "Three"}}]},
        "b": [{"Fn::GetAtt": "Four.Arn"}, {"Fn::If": ["Yes", {"Ref": "Five"}, ""]}],
    }
    assert find_references(value) == {("One", ""), ("Two", "Arn"), ("Three", ""), ("Four", "Arn"), ("Five", "")}
