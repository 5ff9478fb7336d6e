"""Rights of a stack in its template, with made-up names where CloudFormation would make some up; takes a grant out."""

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.embedded_aws.access.managed_policies import read_managed_policy
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.intrinsics import evaluate
from deeplearning_rehearsal.privileges.grants import Grant, expand_conditions, name_grant
from deeplearning_rehearsal.privileges.rights import Rights

_ACCOUNT, _REGION = "123456789012", "us-east-1"
_ARNS: Mapping[str, str] = {
    "AWS::SQS::Queue": f"arn:aws:sqs:{_REGION}:{_ACCOUNT}:",
    "AWS::SNS::Topic": f"arn:aws:sns:{_REGION}:{_ACCOUNT}:",
    "AWS::DynamoDB::Table": f"arn:aws:dynamodb:{_REGION}:{_ACCOUNT}:table/",
    "AWS::KMS::Key": f"arn:aws:kms:{_REGION}:{_ACCOUNT}:key/",
    "AWS::Lambda::Function": f"arn:aws:lambda:{_REGION}:{_ACCOUNT}:function:",
    "AWS::IAM::Role": f"arn:aws:iam::{_ACCOUNT}:role/",
    "AWS::IAM::ManagedPolicy": f"arn:aws:iam::{_ACCOUNT}:policy/",
    "AWS::Logs::LogGroup": f"arn:aws:logs:{_REGION}:{_ACCOUNT}:log-group:",
    "AWS::EFS::FileSystem": f"arn:aws:elasticfilesystem:{_REGION}:{_ACCOUNT}:file-system/",
    "AWS::EFS::AccessPoint": f"arn:aws:elasticfilesystem:{_REGION}:{_ACCOUNT}:access-point/",
    "AWS::EKS::Cluster": f"arn:aws:eks:{_REGION}:{_ACCOUNT}:cluster/",
    "AWS::Events::Rule": f"arn:aws:events:{_REGION}:{_ACCOUNT}:rule/",
    "AWS::S3::Bucket": "arn:aws:s3:::",
    "AWS::Backup::BackupVault": f"arn:aws:backup:{_REGION}:{_ACCOUNT}:backup-vault:",
}
_ATTACHED: Mapping[str, tuple[str, str]] = {
    "AWS::SQS::QueuePolicy": ("Queues", "AWS::SQS::Queue"),
    "AWS::SNS::TopicPolicy": ("Topics", "AWS::SNS::Topic"),
}
_PROPERTIES = frozenset(
    {
        *("Policies", "ManagedPolicyArns", "PolicyDocument", "PolicyName", "Roles"),
        *("Queues", "Topics", "KeyPolicy", "FileSystemPolicy"),
    }
)
"""Properties that have to do with rights; others may refer to what has no value here."""
_OWN: Mapping[str, str] = {"AWS::KMS::Key": "KeyPolicy", "AWS::EFS::FileSystem": "FileSystemPolicy"}
_ROLE_POLICIES = {"AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"}
_WITH_PATHS = {"AWS::IAM::Role", "AWS::IAM::ManagedPolicy"}
_KINDS = {"AWS::IAM::Role", *_ROLE_POLICIES, *_ATTACHED, *_OWN}


class TemplateScope:
    """Names everything of a template after its logical ids."""

    def __init__(self, template: Mapping[str, Any], stack_name: str) -> None:
        self.resources: Mapping[str, Any] = template["Resources"]
        self._template = template
        self._stack = stack_name

    def name(self, logical_id: str) -> str:
        return f"{self._stack}-{logical_id}"

    def ref(self, name: str) -> Any:
        if name in self.resources:
            kind = self.resources[name]["Type"]
            if kind == "AWS::SQS::Queue":
                return f"https://sqs.{_REGION}.amazonaws.com/{_ACCOUNT}/{self.name(name)}"
            return (
                self.attribute(name, "Arn")
                if kind in {"AWS::SNS::Topic", "AWS::IAM::ManagedPolicy"}
                else self.name(name)
            )
        pseudo = {
            "AWS::AccountId": _ACCOUNT,
            "AWS::Region": _REGION,
            "AWS::Partition": "aws",
            "AWS::URLSuffix": "amazonaws.com",
            "AWS::StackName": self._stack,
            "AWS::StackId": f"arn:aws:cloudformation:{_REGION}:{_ACCOUNT}:stack/{self._stack}/x",
        }
        return pseudo.get(name) or self._template.get("Parameters", {}).get(name, {}).get("Default", name)

    def attribute(self, name: str, attribute: str) -> Any:
        kind = self.resources[name]["Type"]
        prefix = _ARNS.get(kind)
        if not attribute.endswith("Arn") or prefix is None:
            return f"{self.name(name)}.{attribute}"
        path = self.resources[name].get("Properties", {}).get("Path", "/") if kind in _WITH_PATHS else "/"
        ending = ":*" if kind == "AWS::Logs::LogGroup" else ""
        return prefix + str(evaluate(path, self))[1:] + self.name(name) + ending

    def condition(self, name: str) -> bool:
        return bool(evaluate(self._template["Conditions"][name], self))

    def mapping(self, name: str, first: str, second: str) -> Any:
        return self._template["Mappings"][name][first][second]

    def zones(self, region: str) -> list[str]:
        return [f"{region or _REGION}{letter}" for letter in "abc"]

    def dynamic(self, reference: str) -> str:
        return reference

    def read_other_stack(self, function: str, argument: Any) -> str:
        return f"{function}:{argument}"


def read_template_rights(template: Mapping[str, Any], stack_name: str = "sample") -> Rights:
    """Return the rights that a template gives; RehearsalError for a boundary that is not in it."""
    scope = TemplateScope(template, stack_name)
    roles: dict[str, dict[str, Any]] = defaultdict(dict)
    policies: dict[str, Any] = {}
    arns = {
        scope.name(logical_id): scope.attribute(logical_id, "Arn")
        for logical_id, resource in scope.resources.items()
        if resource["Type"] == "AWS::IAM::Role"
    }
    for logical_id, resource in scope.resources.items():
        kind, given = resource["Type"], resource.get("Properties", {})
        if kind not in _KINDS:
            continue
        properties = evaluate({name: given[name] for name in _PROPERTIES & given.keys()}, scope)
        if kind == "AWS::IAM::Role":
            roles[arns[scope.name(logical_id)]] |= dict(_list_role_policies(properties))
        elif kind in _ROLE_POLICIES:
            for role in properties.get("Roles", []):
                roles[arns.get(role, f"{_ARNS['AWS::IAM::Role']}{role}")][logical_id] = properties["PolicyDocument"]
        elif kind in _ATTACHED:
            listed, target = _ATTACHED[kind]
            for name in properties[listed]:
                arn = _ARNS[target] + str(name).replace(":", "/").rpartition("/")[2]
                policies[arn] = properties["PolicyDocument"]
        elif _OWN[kind] in properties:
            policies[scope.attribute(logical_id, "Arn")] = properties[_OWN[kind]]
    names = {scope.name(logical_id): logical_id for logical_id in scope.resources}
    return Rights(_ACCOUNT, _REGION, dict(roles), policies, names, _read_boundaries(scope))


def _read_boundaries(scope: TemplateScope) -> dict[str, dict[str, Any]]:
    """Return role ARN -> ARN of its permissions boundary -> that policy's document."""
    managed = {
        scope.attribute(logical_id, "Arn"): evaluate(resource["Properties"]["PolicyDocument"], scope)
        for logical_id, resource in scope.resources.items()
        if resource["Type"] == "AWS::IAM::ManagedPolicy"
    }
    bounded = {
        scope.attribute(logical_id, "Arn"): evaluate(resource["Properties"]["PermissionsBoundary"], scope)
        for logical_id, resource in scope.resources.items()
        if resource["Type"] == "AWS::IAM::Role" and "PermissionsBoundary" in resource["Properties"]
    }
    return {role: {arn: _find_boundary(arn, managed)} for role, arn in bounded.items()}


def _find_boundary(arn: str, managed: Mapping[str, Any]) -> Any:
    """Return the document of a boundary; RehearsalError for one that the account has and the template does not make."""
    if arn not in managed and ":aws:policy/" not in arn:
        raise RehearsalError(
            f"a boundary must be a policy of the template or of AWS, got {arn}; its rights are not known"
        )
    return managed.get(arn) or json.loads(read_managed_policy(arn.rpartition("/")[2]))


def _list_role_policies(properties: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for policy in properties.get("Policies", []):
        yield policy["PolicyName"], policy["PolicyDocument"]
    for arn in properties.get("ManagedPolicyArns", []):
        if ":aws:policy/" in arn:
            yield arn, json.loads(read_managed_policy(arn.rpartition("/")[2]))


def remove_grant(assembly: Path, grant: Grant) -> None:
    """Rewrite the template of an assembly's only stack; RehearsalError when no policy of it has the grant."""
    source = read_stack(assembly, None)
    (file,) = assembly.glob(f"{source.name}.template.json")
    template = json.loads(file.read_text(encoding="utf-8"))
    if not strip_grant(template, grant, source.name):
        raise RehearsalError(f"the grant must be in the template, got none like {grant}; synthesize the same case")
    file.write_text(json.dumps(template, indent=1), encoding="utf-8")


def strip_grant(template: dict[str, Any], grant: Grant, stack_name: str) -> bool:
    """Take a grant out of a template in place, and return whether it was there."""
    scope, rights = TemplateScope(template, stack_name), read_template_rights(template, stack_name)
    is_found = False
    for resource in template["Resources"].values():
        properties = resource.get("Properties", {})
        if resource["Type"] not in _ROLE_POLICIES or {"Ref": grant.role} not in properties.get("Roles", []):
            continue
        kept: list[Any] = []
        for entry in properties["PolicyDocument"]["Statement"]:
            parts = _split(entry)
            evaluated = [evaluate(part, scope) for part in parts]
            left = [
                part
                for part, plain in zip(parts, evaluated, strict=True)
                if name_grant(rights, grant.role, plain["Action"], plain["Resource"], plain.get("Condition", {}))
                != grant
            ]
            is_found |= len(left) < len(parts)
            kept += [entry] if len(left) == len(parts) else left
        properties["PolicyDocument"]["Statement"] = kept
    return is_found


def _split(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Split a statement of a template into statements with one grant each, references as they are."""
    if entry["Effect"] != "Allow":
        return [dict(entry)]
    return [
        {"Effect": "Allow", "Action": action, "Resource": resource, **({"Condition": conditions} if conditions else {})}
        for action, resource in itertools.product(_list(entry["Action"]), _list(entry["Resource"]))
        for conditions in expand_conditions(entry.get("Condition", {}))
    ]


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
