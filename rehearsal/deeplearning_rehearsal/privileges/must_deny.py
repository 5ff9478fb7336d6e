"""The calls that no role of a cluster may make, each with the reason."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import tomllib

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.iam.evaluation import Decision, evaluate
from cdk_rehearsal.iam.policy import read_policy
from cdk_rehearsal.iam.request import Caller, Request, make_context
from deeplearning_rehearsal.privileges.rights import Rights

_FILES = {
    "RolesInstance": "must_deny_emr",
    "ModelBucket": "must_deny_sagemaker",
    "AddonsJobRole": "must_deny_eks",
}
"""Part of a logical id that only stacks of a platform have -> the platform's file; EC2 has the other one."""


@dataclass(frozen=True)
class ForbiddenCall:
    """
    A call that must be denied.

    Attributes:
        roles: Parts of logical ids of the roles to which it is forbidden; empty for all roles.
        resource: ARN, `*`, or in braces, for the cluster's own: `kind:part of a logical id`, `granted:action` for what
            a role may do that on, `condition:key` for what a policy asks of a condition key.
    """

    name: str
    reason: str
    action: str
    resource: str
    roles: Sequence[str] = ()
    context: Mapping[str, str] = field(default_factory=dict)
    is_secure: bool = True


@dataclass(frozen=True)
class CallOutcome:
    """Decision about a forbidden call of one role."""

    call: ForbiddenCall
    role: str
    decision: Decision


def list_forbidden_calls(rights: Rights) -> tuple[ForbiddenCall, ...]:
    """Return the calls of the list for a stack's platform, in its order."""
    ids = " ".join(rights.names.values())
    name = next((file for part, file in _FILES.items() if part in ids), "must_deny")
    entries = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text(encoding="utf-8"))["call"]
    return tuple(ForbiddenCall(**entry) for entry in entries)


def judge_forbidden_calls(rights: Rights) -> tuple[CallOutcome, ...]:
    """Try every forbidden call as every role that it names; RehearsalError when the stack lacks one or its resource."""
    return tuple(chain.from_iterable(judge_call(rights, call) for call in list_forbidden_calls(rights)))


def judge_call(rights: Rights, call: ForbiddenCall) -> Iterator[CallOutcome]:
    """Try a call as every role that it names; RehearsalError when the stack lacks one of them or its resource."""
    roles = {arn: rights.names.get(arn.rpartition("/")[2], arn) for arn in rights.roles}
    chosen = {arn: name for arn, name in roles.items() if not call.roles or any(part in name for part in call.roles)}
    if not chosen:
        raise RehearsalError(
            f"roles of {call.name!r} must be in the stack, got {call.roles} and {sorted(roles.values())}"
        )
    resource = _fill(rights, call.resource)
    policy = rights.find_policy(resource) or _describe_foreign_policy(rights, resource)
    theirs = None if policy is None else read_policy(policy, "resource")
    for arn, name in chosen.items():
        caller = Caller(arn, rights.account, arn, user_id="AROAEXAMPLE:session")
        extra = {key: _fill(rights, value) for key, value in call.context.items()}
        context = make_context(caller, extra, is_secure=call.is_secure)
        own = chain.from_iterable(read_policy(document, "identity") for document in rights.roles[arn].values())
        request = Request(caller, call.action, resource, context)
        yield CallOutcome(call, name, evaluate(request, own, theirs, rights.find_limits(arn)))


def _describe_foreign_policy(rights: Rights, resource: str) -> dict[str, Any] | None:
    """Assume of a key of others what KMS gives every key: that the account's own policies decide."""
    if not resource.startswith(f"arn:{rights.partition}:kms:"):
        return None
    root = {"AWS": f"arn:{rights.partition}:iam::{rights.account}:root"}
    statement = {"Effect": "Allow", "Principal": root, "Action": "kms:*", "Resource": "*"}
    return {"Version": "2012-10-17", "Statement": [statement]}


def _fill(rights: Rights, text: str) -> str:
    """Replace `{account}`, `{region}`, `{partition}`, and `{kind:part}` by what is the cluster's own."""
    filled = text
    while "{" in filled:
        before, _, rest = filled.partition("{")
        name, _, after = rest.partition("}")
        kind, separator, part = name.partition(":")
        if kind == "granted":
            value = rights.find_granted(part)
        elif kind == "condition":
            value = rights.find_condition(part)
        else:
            value = rights.find(kind, part) if separator else str(getattr(rights, name))
        filled = before + value + after
    return filled
