"""
Grants of roles, one by one, and which recorded calls need which of them.

A grant is one action on one resource pattern under one set of conditions; a condition with a list of values is as many
grants. Taking a grant away is trying the calls without it: a call that is then denied fails its rehearsal.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.embedded_aws.access.authorizer import AUTO_SCALING_POLICY
from cdk_rehearsal.embedded_aws.access.managed_policies import read_managed_policy
from cdk_rehearsal.iam.call_record import RecordedCall
from cdk_rehearsal.iam.evaluation import evaluate
from cdk_rehearsal.iam.limits import Limits
from cdk_rehearsal.iam.policy import Statement, list_texts, read_policy, read_policy_text
from cdk_rehearsal.iam.request import Caller, Request
from deeplearning_rehearsal.privileges.rights import Document, Rights

_SPLIT_OPERATORS = frozenset({"StringEquals", "StringLike", "ArnEquals", "ArnLike", "ForAllValues:StringEquals"})
"""Operators for which one of their values is enough."""
_VERSION = "2012-10-17"
_SERVICE_ROLE = "/AWSServiceRoleForAutoScaling"


@dataclass(frozen=True, order=True)
class Grant:
    """One grant, in names that are the same in every stack; `condition` is JSON, empty without any."""

    role: str
    action: str
    resource: str
    condition: str

    def __str__(self) -> str:
        return f"{self.role}: {self.action} on {self.resource}" + (f" if {self.condition}" if self.condition else "")


@dataclass(frozen=True)
class HeldGrant:
    """A grant as a role of one stack holds it."""

    grant: Grant
    role_arn: str
    statement: Statement


def expand_roles(rights: Rights) -> tuple[HeldGrant, ...]:
    """Return every grant of every role; what is denied, or outside of the role's boundary, is no grant."""
    return tuple(
        held
        for role_arn, policies in rights.roles.items()
        for document in policies.values()
        for held in _expand_document(rights, role_arn, document)
        if _is_within(held, rights.find_limits(role_arn))
    )


def _is_within(held: HeldGrant, limits: Limits) -> bool:
    """Return whether a boundary has an allow for the action of a grant, or may have one for some of its actions."""
    if limits.boundary is None or set(held.grant.action) & set("*?"):
        return True
    return any(statement.is_allow and statement.is_about(held.grant.action) for statement in limits.list_statements())


def _expand_document(rights: Rights, role_arn: str, document: Document) -> Iterator[HeldGrant]:
    statements = document["Statement"]
    for entry in [statements] if isinstance(statements, Mapping) else statements:
        if entry["Effect"] != "Allow":
            continue
        for action, resource in itertools.product(list_texts(entry["Action"]), list_texts(entry["Resource"])):
            for conditions in expand_conditions(entry.get("Condition", {})):
                single: dict[str, Any] = {"Effect": "Allow", "Action": action, "Resource": resource}
                if conditions:
                    single["Condition"] = conditions
                (statement,) = read_policy({"Version": _VERSION, "Statement": [single]}, "identity")
                role = rights.names.get(role_arn.rpartition("/")[2], role_arn.rpartition("/")[2])
                yield HeldGrant(name_grant(rights, role, action, resource, conditions), role_arn, statement)


def name_grant(rights: Rights, role: str, action: str, resource: str, conditions: Mapping[str, Any]) -> Grant:
    """Return a grant in names that are the same in every stack."""
    condition = rights.shorten(json.dumps(conditions, sort_keys=True)) if conditions else ""
    return Grant(role, action, rights.shorten(resource), condition)


def expand_conditions(conditions: Mapping[str, Mapping[str, Any]]) -> Iterator[dict[str, dict[str, Any]]]:
    """Yield the conditions with one value each, where any of several values is enough."""
    pairs = [(operator, key, values) for operator, keys in conditions.items() for key, values in keys.items()]
    choices = [
        [[value] for value in (values if isinstance(values, list) else [values])]
        if operator in _SPLIT_OPERATORS
        else [values]
        for operator, _, values in pairs
    ]
    for chosen in itertools.product(*choices):
        expanded: dict[str, dict[str, Any]] = {}
        for (operator, key, _), value in zip(pairs, chosen, strict=True):
            expanded.setdefault(operator, {})[key] = value
        yield expanded


def find_needed(
    rights: Rights, held: tuple[HeldGrant, ...], calls: Mapping[RecordedCall, int]
) -> dict[Grant, RecordedCall]:
    """Return the grants without which a call would be denied, each with such a call."""
    needed: dict[Grant, RecordedCall] = {}
    for call in calls:
        own = [grant for grant in held if grant.role_arn == call.role_arn]
        for request in make_requests(call, rights.account):
            for grant in (grant for grant in own if _covers(grant.statement, request)):
                if grant.grant not in needed and not _is_allowed(rights, request, own, without=grant):
                    needed[grant.grant] = call
    return needed


def count_allowed(rights: Rights, held: tuple[HeldGrant, ...], calls: Mapping[RecordedCall, int]) -> int:
    """Return how many recorded calls of roles the policies allow, each as often as it was made."""
    own = {role: [grant for grant in held if grant.role_arn == role] for role in rights.roles}
    return sum(
        count
        for call, count in calls.items()
        if all(
            _is_allowed(rights, request, own.get(call.role_arn, [])) for request in make_requests(call, rights.account)
        )
    )


def make_requests(call: RecordedCall, account: str) -> Iterator[Request]:
    """
    Yield the requests of a recorded call, with the condition keys that policies looked at.

    There is one for each combination of the keys' values: grants have one value each, and `ForAllValues` holds for
    several where it holds for each.
    """
    caller = Caller(call.role_arn, account, call.role_arn) if ":" in call.role_arn else Caller.of_service(call.role_arn)
    for values in itertools.product(*(values or (None,) for _, values in call.context)):
        context = {key: () if value is None else (value,) for (key, _), value in zip(call.context, values, strict=True)}
        yield Request(caller, call.action, call.resource, context)


def _covers(statement: Statement, request: Request) -> bool:
    return statement.is_about(request.action) and statement.covers(request.resource, request.context)


def _is_allowed(rights: Rights, request: Request, own: list[HeldGrant], without: HeldGrant | None = None) -> bool:
    policy = rights.find_policy(request.resource)
    theirs = None if policy is None else read_policy(policy, "resource")
    mine = [held.statement for held in own if held is not without]
    if _SERVICE_ROLE in request.caller.role_arn:
        mine += read_policy_text(read_managed_policy(AUTO_SCALING_POLICY), "identity")
    return evaluate(request, mine, theirs, rights.find_limits(request.caller.role_arn)).is_allowed
