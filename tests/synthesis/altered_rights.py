"""Rights of a stack with one limit less, and the forbidden calls that they then allow."""

import copy
from dataclasses import replace

from deeplearning_rehearsal.privileges.must_deny import (
    ForbiddenCall,
    judge_call,
    judge_forbidden_calls,
    list_forbidden_calls,
)


def call(name, role, action, resource, **context):
    """Return a call of one role."""
    return ForbiddenCall(name, "a call to try", action, resource, (role,), context)


def edit(rights, part, change):
    """Return rights in which a change has edited the statements of the roles whose logical ids contain a part."""
    roles = copy.deepcopy(dict(rights.roles))
    for arn, policies in roles.items():
        if part in rights.names[arn.rpartition("/")[2]]:
            change([entry for document in policies.values() for entry in document["Statement"]], policies)
    return replace(rights, roles=roles)


def allow(action, resource):
    """Return the change that allows an action."""

    def change(_, policies):
        statement = {"Effect": "Allow", "Action": action, "Resource": resource}
        policies["planted"] = {"Version": "2012-10-17", "Statement": [statement]}

    return change


def drop(action, operator):
    """Return the change that takes a condition from the statements about an action."""

    def change(statements, _):
        for entry in statements:
            if action in entry["Action"]:
                entry.get("Condition", {}).pop(operator, None)

    return change


def loosen(action, operator, wider):
    """Return the change that lets a condition of the statements about an action take every value."""

    def change(statements, _):
        for entry in statements:
            if action in entry["Action"]:
                keys = entry.get("Condition", {}).pop(operator, {})
                wide = {key: [*([own] if isinstance(own, str) else own), "*"] for key, own in keys.items()}
                if wide:
                    entry["Condition"][wider] = wide

    return change


def list_allowed(rights):
    """Return the names of the forbidden calls that the rights allow."""
    return {verdict.call.name for verdict in judge_forbidden_calls(rights) if verdict.decision.is_allowed}


def check_denials(rights, caller):
    """Show that no forbidden call is denied for another reason than the lack of its right; `caller` makes most."""
    for forbidden in list_forbidden_calls(rights):
        role = forbidden.roles[0] if forbidden.roles else caller
        planted = edit(rights, role, allow(forbidden.action, "*"))
        outcomes = judge_call(planted, forbidden)
        assert any(each.decision.is_allowed for each in outcomes), f"{forbidden.name} is denied for another reason"
