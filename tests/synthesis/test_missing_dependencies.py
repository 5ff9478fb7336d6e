"""Dependencies of the default stack that only `DependsOn` states: taken away, each is named or shows in an order."""

import copy

import pytest

from cdk_rehearsal.embedded_aws.cloudformation.template import draw_order
from cdk_rehearsal.intrinsics import find_references
from cdk_rehearsal.referees.judge import judge_template
from cdk_rehearsal.referees.order import judge_order
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate

_SYNTHESIZED = {}


@pytest.fixture
def template(synthesize):
    """A fresh copy of the default template."""
    if not _SYNTHESIZED:
        (_SYNTHESIZED["default"],) = synthesize({}).values()
    return copy.deepcopy(_SYNTHESIZED["default"])


def list_explicit(resource):
    """Return the names in `DependsOn`."""
    names = resource.get("DependsOn", [])
    return {names} if isinstance(names, str) else set(names)


def find_needs(resources):
    """Return what each resource of a template needs, as CloudFormation sees it."""
    return {
        name: list_explicit(resource) | ({other for other, _ in find_references(resource)} & resources.keys())
        for name, resource in resources.items()
    }


def reach(needs, name):
    """Return all that a resource needs, directly or not."""
    found, left = set(), set(needs[name])
    while left:
        found |= left
        left = {other for each in left for other in needs[each]} - found
    return found


@pytest.mark.parametrize(
    ("kind", "needed", "words"),
    [
        ("EC2::Route", "EC2::VPCGatewayAttachment", "because the gateway is not attached to the VPC before"),
        ("EC2::NatGateway", "EC2::Route", "because the gateway is not attached to the VPC before"),
        ("AutoScaling::AutoScalingGroup", "EC2::Route", "because its instances have no way out of their subnets"),
        ("Lambda::Function", "IAM::ManagedPolicy", "because its role lacks rights before"),
    ],
)
def test_the_referees_name_a_dependency_that_is_missing(template, kind, needed, words):
    resources = template["Resources"]
    assert list(judge_order(ResolvedTemplate(template, "us-east-1"))) == []
    changed = set()
    for name, resource in resources.items():
        kept = {other for other in list_explicit(resource) if resources[other]["Type"] != f"AWS::{needed}"}
        if resource["Type"] == f"AWS::{kind}" and kept != list_explicit(resource):
            resource["DependsOn"] = sorted(kept)
            changed.add(name)
    assert changed
    found = [finding for finding in judge_order(ResolvedTemplate(template, "us-east-1")) if words in finding.rule]
    assert changed <= {finding.path.split(".")[1] for finding in found}


def test_the_referees_name_a_circle_of_security_groups(template):
    groups = [name for name, each in template["Resources"].items() if each["Type"] == "AWS::EC2::SecurityGroup"]
    for name, other in zip(groups[:2], reversed(groups[:2]), strict=True):
        rule = {"IpProtocol": "-1", "SourceSecurityGroupId": {"Fn::GetAtt": [other, "GroupId"]}}
        template["Resources"][name]["Properties"]["SecurityGroupIngress"] = [rule]
    circles = [finding.rule for finding in judge_template(template, "us-east-1", {}) if "Circular" in finding.rule]
    assert all(any(group in circle for circle in circles) for group in groups[:2])


def test_every_dependency_that_only_the_template_states_shows_in_one_of_twenty_orders(template):
    resources = template["Resources"]
    needs = find_needs(resources)
    lone = []
    for name, resource in resources.items():
        referred = {other for other, _ in find_references(resource)}
        for other in list_explicit(resource) - referred:
            without = needs | {name: needs[name] - {other}}
            if other not in reach(without, name):
                lone.append((name, other, without))
    assert len(lone) > 40
    hidden = [
        (name, other)
        for name, other, without in lone
        if not any(order.index(name) < order.index(other) for order in (draw_order(without, n) for n in range(1, 21)))
    ]
    assert hidden == []
