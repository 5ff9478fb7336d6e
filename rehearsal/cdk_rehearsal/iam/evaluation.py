"""
Decides requests by IAM's documented logic.

IAM User Guide, "Policy evaluation logic": an explicit deny wins; inside an account an allow of the identity's policies
or of the resource's is enough, across accounts both are needed. KMS Developer Guide, "Key policies": identity policies
count only where the key's policy hands the decision to the account.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from cdk_rehearsal.iam.policy import Statement
from cdk_rehearsal.iam.request import Request

Reason = Literal["identity allows", "resource allows", "identity denies", "resource denies", "nothing allows"]


@dataclass(frozen=True)
class Decision:
    """Decision about a request; `keys`: lower-case condition keys that the statements about the action read."""

    is_allowed: bool
    reason: Reason
    keys: frozenset[str]


def evaluate(request: Request, identity: Iterable[Statement], resource: Iterable[Statement] | None) -> Decision:
    """Decide a request by the caller's own statements and those of the resource; None where it has no policy."""
    own = [statement for statement in identity if statement.is_about(request.action)]
    theirs = [statement for statement in resource or () if statement.is_about(request.action)]
    keys = frozenset().union(*(statement.keys for statement in (*own, *theirs)))
    met = [statement for statement in own if statement.covers(request.resource, request.context)]
    their_met = [statement for statement in theirs if statement.covers(request.resource, request.context)]
    reason = _decide(request, met, their_met)
    return Decision(reason.endswith("allows") and reason != "nothing allows", reason, keys)


def _decide(request: Request, own: list[Statement], theirs: list[Statement]) -> Reason:
    caller = request.caller
    if any(not statement.is_allow for statement in own):
        return "identity denies"
    allowing = [statement for statement in theirs if statement.is_allow]
    if any(not s.is_allow and (s.names(caller) or s.names_account(caller)) for s in theirs):
        return "resource denies"
    has_own_allow = any(statement.is_allow for statement in own)
    is_named = any(statement.names(caller) for statement in allowing)
    is_handed_over = is_named or any(statement.names_account(caller) for statement in allowing)
    if request.is_across_accounts:
        return "identity allows" if has_own_allow and is_handed_over else "nothing allows"
    if is_named:
        return "resource allows"
    needs_key_policy = request.action.lower().startswith("kms:")
    return "identity allows" if has_own_allow and (is_handed_over or not needs_key_policy) else "nothing allows"


def explain_denial(request: Request, decision: Decision) -> str:
    """Return the message with which AWS refuses a request."""
    causes = {
        "identity denies": "with an explicit deny in an identity-based policy",
        "resource denies": "with an explicit deny in a resource-based policy",
    }
    missing = "resource-based" if request.caller.service else "identity-based"
    cause = causes.get(decision.reason, f"because no {missing} policy allows the {request.action} action")
    user = f"User: {request.caller.arn} is not authorized to perform: {request.action}"
    return f"{user} on resource: {request.resource} {cause}" if request.resource != "*" else f"{user} {cause}"
