"""
Decides requests by IAM's documented logic.

IAM User Guide, "Policy evaluation logic": an explicit deny wins; inside an account an allow of the identity's policies
or of the resource's is enough, across accounts both are needed. KMS Developer Guide, "Key policies": identity policies
count only where the key's policy hands the decision to the account.

A permissions boundary limits what identity policies grant, and what a resource's policy grants to the ARN of the role;
what that grants to the ARN of the session, or to everybody, it does not limit (IAM User Guide, "How AWS enforcement
code logic evaluates requests to allow or deny access"). Service control policies limit every grant, and so
does the policy of the VPC endpoint through which a call goes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cdk_rehearsal.iam.limits import NO_LIMITS, LimitReason, Limits
from cdk_rehearsal.iam.policy import Statement
from cdk_rehearsal.iam.request import Request

Reason = Literal["identity allows", "resource allows", "identity denies", "resource denies", "nothing allows"]
_ALLOWS = frozenset({"identity allows", "resource allows"})


@dataclass(frozen=True)
class Decision:
    """
    Decision about a request.

    Attributes:
        keys: Lower-case condition keys that the statements about the action read.
        document: Name of the boundary or of the service control policy that refuses. Default: another policy decides.
    """

    is_allowed: bool
    reason: Reason | LimitReason
    keys: frozenset[str]
    document: str = ""


def evaluate(
    request: Request,
    identity: Iterable[Statement],
    resource: Iterable[Statement] | None,
    limits: Limits = NO_LIMITS,
) -> Decision:
    """
    Decide a request.

    Args:
        request: The request.
        identity: Statements of the caller's own policies.
        resource: Statements of the resource's policy; None where it has none.
        limits: What limits the caller. Default: nothing does.
    """
    own = [statement for statement in identity if statement.is_about(request.action)]
    theirs = [statement for statement in resource or () if statement.is_about(request.action)]
    limiting = [statement for statement in limits.list_statements() if statement.is_about(request.action)]
    keys = frozenset().union(*(statement.keys for statement in (*own, *theirs, *limiting)))
    met = [statement for statement in own if statement.covers(request.resource, request.context)]
    their_met = [statement for statement in theirs if statement.covers(request.resource, request.context)]
    reason, document = _decide(request, met, their_met, limits)
    return Decision(reason in _ALLOWS, reason, keys, document)


def _decide(
    request: Request, own: list[Statement], theirs: list[Statement], limits: Limits
) -> tuple[Reason | LimitReason, str]:
    """Return the reason, and the name of the boundary or service control policy that is one."""
    if denial := _find_denial(request, own, theirs, limits):
        return denial
    if document := limits.find_silent_organization(request):
        return "organization is silent", document
    if limits.endpoint and not limits.endpoint.has(request, is_allow=True):
        return "endpoint is silent", ""
    reason, is_limited = _find_grant(request, own, [statement for statement in theirs if statement.is_allow])
    if reason in _ALLOWS and is_limited and (document := limits.find_silent_boundary(request)):
        return "boundary is silent", document
    return reason, ""


def _find_denial(
    request: Request, own: list[Statement], theirs: list[Statement], limits: Limits
) -> tuple[Reason | LimitReason, str] | None:
    """Return the explicit deny of a request; AWS names one of several."""
    if document := limits.find_organization_denial(request):
        return "organization denies", document
    if limits.endpoint and limits.endpoint.has(request, is_allow=False):
        return "endpoint denies", ""
    if document := limits.find_boundary_denial(request):
        return "boundary denies", document
    if any(not statement.is_allow for statement in own):
        return "identity denies", ""
    if any(not statement.is_allow and _denies(statement, request, limits) for statement in theirs):
        return "resource denies", ""
    return None


def _denies(statement: Statement, request: Request, limits: Limits) -> bool:
    """
    Return whether a denial of a resource's policy is one for the caller.

    One for all but some principals is one for every caller with a boundary, whoever it excepts (IAM User Guide,
    "Permissions boundaries for IAM entities", which therefore recommends another condition).
    """
    if limits.boundary is not None and statement.excludes_principals:
        return True
    return statement.names(request.caller) or statement.names_account(request.caller)


def _find_grant(request: Request, own: list[Statement], allowing: list[Statement]) -> tuple[Reason, bool]:
    """Return what grants a request that nothing denies, and whether a boundary limits the grant."""
    caller = request.caller
    has_own_allow = any(statement.is_allow for statement in own)
    is_named = any(statement.names(caller) for statement in allowing)
    is_handed_over = is_named or any(statement.names_account(caller) for statement in allowing)
    if request.is_across_accounts:
        return ("identity allows" if has_own_allow and is_handed_over else "nothing allows"), True
    if is_named:
        return "resource allows", not any(statement.names_session(caller) for statement in allowing)
    needs_key_policy = request.action.lower().startswith("kms:")
    return ("identity allows" if has_own_allow and (is_handed_over or not needs_key_policy) else "nothing allows"), True


def explain_denial(request: Request, decision: Decision) -> str:
    """
    Return the message with which AWS refuses a request.

    IAM User Guide, "Troubleshoot access denied error messages".
    """
    missing = "resource-based" if request.caller.service else "identity-based"
    cause = _CAUSES.get(decision.reason, f"because no {missing} policy allows the {{}} action").format(request.action)
    user = f"User: {request.caller.arn} is not authorized to perform: {request.action}"
    document = f": {decision.document}" if decision.document else ""
    resource = f" on resource: {request.resource}" if request.resource != "*" else ""
    return f"{user}{resource} {cause}{document}"


_CAUSES: Mapping[str, str] = {
    "identity denies": "with an explicit deny in an identity-based policy",
    "resource denies": "with an explicit deny in a resource-based policy",
    "endpoint denies": "with an explicit deny in a VPC endpoint policy",
    "endpoint is silent": "because no VPC endpoint policy allows the {} action",
    "boundary denies": "with an explicit deny in a permissions boundary",
    "boundary is silent": "because no permissions boundary allows the {} action",
    "organization denies": "with an explicit deny in a service control policy",
    "organization is silent": "because no service control policy allows the {} action",
}
