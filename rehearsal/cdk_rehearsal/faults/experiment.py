"""
The same faults on an account: a CloudFormation template of an experiment of AWS Fault Injection Service and its role.

Actions, parameters, resource types and rights: AWS FIS user guide, "AWS FIS Actions reference". Targets: the same,
"Targets for AWS FIS". FIS finds targets with a service-linked role of its own ("Use service-linked roles for AWS FIS").
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.faults.target import LOGICAL_ID_TAG, STACK_TAG, Fault, GroupTarget, find_groups

_MINUTES = 10
_PRICE = (
    "https://aws.amazon.com/fis/pricing/ names 0.10 USD for each, 0.12 USD in AWS GovCloud; what else it makes you use "
    "is not in it"
)
_EXPECTED: dict[Fault, str] = {
    "capacity": "Launches of the groups fail with InsufficientInstanceCapacity, and an instance ends that is replaced "
    "only after that. FIS strikes groups that exist: in the rehearsal their first launches fail already.",
    "instance": "An instance of a group ends, and the group must replace it.",
    "network": "A subnet of a group is cut off from all outside it.",
}


@dataclass(frozen=True)
class _Experiment:
    """Actions and targets by their names, what the role may do, and for how many action-minutes AWS is paid."""

    actions: Mapping[str, Any]
    targets: Mapping[str, Any]
    statements: tuple[Mapping[str, Any], ...]
    minutes: int
    managed_policy: str | None = None


def write_experiment(path: Path, fault: Fault, stacks: Sequence[AssemblyStack]) -> str:
    """Write the template of a fault, and return a line that says how to use it and what it costs."""
    template = make_experiment(fault, stacks)
    path.write_text(json.dumps(template, indent=2) + "\n")
    return (
        f"{path}: aws cloudformation deploy --template-file {path} --stack-name fis-{fault} --capabilities "
        f"CAPABILITY_IAM; its output Start starts it. {template['Description']}"
    )


def make_experiment(fault: Fault, stacks: Sequence[AssemblyStack]) -> dict[str, Any]:
    """
    Return a CloudFormation template with an experiment of a fault and its role.

    Raises:
        AssemblyError: There is no group, or FIS cannot strike it so.
    """
    groups = find_groups(stacks)
    makers = {"capacity": _miss_capacity, "instance": _end_instance, "network": _cut_network}
    made = makers[fault](groups)
    cost = f"Action-minutes: {made.minutes} at most; {_PRICE}."
    name = f"cdk-rehearse {fault}"
    experiment = {
        "Description": name,
        "RoleArn": {"Fn::GetAtt": ["Role", "Arn"]},
        "StopConditions": [{"Source": "none"}],
        "Targets": made.targets,
        "Actions": made.actions,
        "Tags": {"Name": name},
    }
    return {
        "Description": f"{_EXPECTED[fault]} {cost}",
        "Resources": {
            "Role": {"Type": "AWS::IAM::Role", "Properties": _make_role(made)},
            "Experiment": {"Type": "AWS::FIS::ExperimentTemplate", "Properties": experiment},
        },
        "Outputs": {"Start": {"Value": {"Fn::Sub": "aws fis start-experiment --experiment-template-id ${Experiment}"}}},
    }


def _make_role(made: _Experiment) -> dict[str, Any]:
    """The trust is that of the user guide's "IAM roles for AWS FIS experiments", against a confused deputy."""
    trust = {
        "Effect": "Allow",
        "Principal": {"Service": "fis.amazonaws.com"},
        "Action": "sts:AssumeRole",
        "Condition": {
            "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}},
            "ArnLike": {
                "aws:SourceArn": {"Fn::Sub": "arn:${AWS::Partition}:fis:${AWS::Region}:${AWS::AccountId}:experiment/*"}
            },
        },
    }
    role: dict[str, Any] = {"AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [trust]}}
    if made.managed_policy is not None:
        arn = f"arn:${{AWS::Partition}}:iam::aws:policy/service-role/{made.managed_policy}"
        return role | {"ManagedPolicyArns": [{"Fn::Sub": arn}]}
    document = {"Version": "2012-10-17", "Statement": list(made.statements)}
    return role | {"Policies": [{"PolicyName": "experiment", "PolicyDocument": document}]}


def _miss_capacity(groups: Sequence[GroupTarget]) -> _Experiment:
    """An instance ends a minute later, so that something is launched."""
    end = _end_instance(groups)
    by_stack: dict[str, list[GroupTarget]] = {}
    for group in groups:
        if not {"LaunchTemplate", "MixedInstancesPolicy"} & group.properties.keys():
            raise AssemblyError(
                "aws:ec2:asg-insufficient-instance-capacity-error is for groups with launch templates, got "
                f"{group.stack.name}.{group.logical_id} without one"
            )
        by_stack.setdefault(group.stack.name, []).append(group)
    actions: dict[str, Any] = {
        "wait": {"ActionId": "aws:fis:wait", "Parameters": {"duration": "PT1M"}},
        "end": end.actions["end"] | {"StartAfter": ["wait"]},
    }
    targets = dict(end.targets)
    for number, (stack, own) in enumerate(by_stack.items(), 1):
        targets[f"groups{number}"] = {
            "ResourceType": "aws:ec2:autoscaling-group",
            "ResourceTags": {STACK_TAG: stack},
            "SelectionMode": "ALL",
        }
        actions[f"capacity{number}"] = {
            "ActionId": "aws:ec2:asg-insufficient-instance-capacity-error",
            "Parameters": {
                "duration": f"PT{_MINUTES}M",
                "availabilityZoneIdentifiers": {"Fn::Join": [",", _list_zones(own)]},
            },
            "Targets": {"AutoScalingGroups": f"groups{number}"},
        }
    return _Experiment(
        actions, targets, (*_inject_rights(groups), *end.statements), _MINUTES * len(by_stack) + 1 + end.minutes
    )


def _inject_rights(groups: Sequence[GroupTarget]) -> tuple[Mapping[str, Any], ...]:
    """As in the user guide, "Example: Use condition keys for ec2:InjectApiError"."""
    prefix = "arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*"
    names = dict.fromkeys(_name_group(group) for group in groups)
    inject = {
        "Effect": "Allow",
        "Action": "ec2:InjectApiError",
        "Resource": "*",
        "Condition": {
            "StringEquals": {"ec2:FisActionId": "aws:ec2:asg-insufficient-instance-capacity-error"},
            "ForAllValues:ArnLike": {
                "ec2:FisTargetArns": [{"Fn::Sub": f"{prefix}:autoScalingGroupName/{name}"} for name in names]
            },
        },
    }
    return inject, {"Effect": "Allow", "Action": "autoscaling:DescribeAutoScalingGroups", "Resource": "*"}


def _name_group(group: GroupTarget) -> str:
    """CloudFormation begins the name that it makes up with that of the stack."""
    given = group.properties.get("AutoScalingGroupName", f"{group.stack.name}-*")
    return given if isinstance(given, str) else "*"


def _list_zones(groups: Sequence[GroupTarget]) -> Any:
    """Return the zones of the groups' subnets where the templates have them, or else all of the region."""
    subnets = [
        group.stack.template["Resources"].get(subnet["Ref"]) if isinstance(subnet, dict) and "Ref" in subnet else None
        for group in groups
        for subnet in _list_subnets(group)
    ]
    zones = [each and each.get("Properties", {}).get("AvailabilityZone") for each in subnets]
    if not zones or not all(zone and _stands_alone(zone) for zone in zones):
        return {"Fn::GetAZs": ""}
    return [json.loads(zone) for zone in dict.fromkeys(json.dumps(zone) for zone in zones)]


def _stands_alone(value: Any) -> bool:
    """Return whether a value means the same in a template of its own."""
    if isinstance(value, dict):
        return all(key in ("Fn::Select", "Fn::GetAZs") and _stands_alone(each) for key, each in value.items())
    return all(map(_stands_alone, value)) if isinstance(value, list) else True


def _list_subnets(group: GroupTarget) -> list[Any]:
    subnets = group.properties.get("VPCZoneIdentifier", [])
    return subnets if isinstance(subnets, list) else []


def _end_instance(groups: Sequence[GroupTarget]) -> _Experiment:
    target = {
        "ResourceType": "aws:ec2:instance",
        "ResourceTags": groups[0].tags,
        "Filters": [{"Path": "State.Name", "Values": ["running"]}],
        "SelectionMode": "COUNT(1)",
    }
    action = {"ActionId": "aws:ec2:terminate-instances", "Targets": {"Instances": "instance"}}
    end = {
        "Effect": "Allow",
        "Action": "ec2:TerminateInstances",
        "Resource": {"Fn::Sub": "arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:instance/*"},
        "Condition": {"StringEquals": {f"aws:ResourceTag/{STACK_TAG}": groups[0].stack.name}},
    }
    look = {"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}
    return _Experiment({"end": action}, {"instance": target}, (end, look), 1)


def _cut_network(groups: Sequence[GroupTarget]) -> _Experiment:
    """The scope `all` "allows intra-subnet traffic"; for its many rights AWS names a policy of its own."""
    target = {"ResourceType": "aws:ec2:subnet", **_find_subnet(groups[0]), "SelectionMode": "ALL"}
    action = {
        "ActionId": "aws:network:disrupt-connectivity",
        "Parameters": {"scope": "all", "duration": f"PT{_MINUTES}M"},
        "Targets": {"Subnets": "subnet"},
    }
    policy = "AWSFaultInjectionSimulatorNetworkAccess"
    return _Experiment({"cut": action}, {"subnet": target}, (), _MINUTES, policy)


def _find_subnet(group: GroupTarget) -> dict[str, Any]:
    """Return the group's first subnet, by its tags where the template has it, or else by its id."""
    first = next(iter(_list_subnets(group)), None)
    if isinstance(first, dict) and first.get("Ref") in group.stack.template["Resources"]:
        return {"ResourceTags": {STACK_TAG: group.stack.name, LOGICAL_ID_TAG: first["Ref"]}}
    if isinstance(first, str) or (isinstance(first, dict) and "Fn::ImportValue" in first):
        arn = "arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:subnet/${Subnet}"
        return {"ResourceArns": [{"Fn::Sub": [arn, {"Subnet": first}]}]}
    raise AssemblyError(
        f"the first subnet of {group.stack.name}.{group.logical_id} must be in its template, exported, or named by its "
        f"id, for FIS to find it, got {first}"
    )
