"""Removal of one grant from a synthesized template."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.embedded_aws.cloudformation.intrinsics import evaluate
from cdk_rehearsal.errors import RehearsalError
from deeplearning_rehearsal.privileges.grants import Grant, expand_conditions, name_grant
from deeplearning_rehearsal.privileges.template_rights import TemplateScope, read_template_rights

_POLICIES = {"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"}


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
        if resource["Type"] not in _POLICIES or {"Ref": grant.role} not in properties.get("Roles", []):
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
