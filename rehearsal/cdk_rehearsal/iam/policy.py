"""Policy documents, read once for many requests."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.condition import Condition, read_conditions
from cdk_rehearsal.iam.pattern import ArnPattern, Context, Pattern
from cdk_rehearsal.iam.request import Caller, is_known_key

_ACCOUNT = re.compile(r"\d{12}")
_ROOT = re.compile(r"arn:[a-z-]+:iam::(\d{12}):root")
_NAMED = re.compile(r"arn:[a-z-]+:(iam|sts)::\d{12}:(user|role|assumed-role|federated-user)/[^*?]+")
_KINDS = {"AWS", "Service", "Federated", "CanonicalUser"}


@dataclass(frozen=True)
class PrincipalMatch:
    """One principal that a policy names: its kind, and its name."""

    kind: str
    name: str

    def is_caller(self, caller: Caller) -> bool:
        """Return whether it is the caller itself."""
        if self.kind == "*":
            return True
        if self.kind == "Service":
            return bool(caller.service) and self.name == caller.service
        return self.kind == "AWS" and not caller.service and self.name in {"*", caller.arn, caller.role_arn}

    def is_session(self, caller: Caller) -> bool:
        """Return whether it is the caller's session or everybody, and not the role of the session."""
        return self.is_caller(caller) and self.name != caller.role_arn

    def is_account(self, caller: Caller) -> bool:
        """Return whether it is the caller's account, whose identity policies then decide."""
        match = _ROOT.fullmatch(self.name)
        account = match[1] if match else self.name
        return self.kind == "AWS" and not caller.service and account == caller.account


def read_principals(element: Any) -> tuple[PrincipalMatch, ...]:
    """Read the element; raise PolicyError for what is no principal. AWS takes no wildcard inside a name."""
    if element == "*":
        return (PrincipalMatch("*", "*"),)
    if not isinstance(element, Mapping) or not element or set(element) - _KINDS:
        raise PolicyError(f"Principal must be * or name {', '.join(sorted(_KINDS))}, got {element!r}; correct it")
    matches = [
        PrincipalMatch(kind, name)
        for kind, names in element.items()
        for name in ([names] if isinstance(names, str) else names)
    ]
    for match in matches:
        is_named = match.name == "*" or any(form.fullmatch(match.name) for form in (_ACCOUNT, _ROOT, _NAMED))
        if match.kind == "AWS" and not is_named:
            raise PolicyError(f"Principal must be an account or a whole ARN, got {match.name!r}; wildcards do not work")
    return tuple(matches)


PolicyKind = Literal["identity", "resource"]
_VERSIONS = {"2008-10-17", "2012-10-17"}
_VARIABLES_SINCE = "2012-10-17"
_ELEMENTS = {
    *("Sid", "Effect", "Action", "NotAction", "Resource", "NotResource", "Principal", "NotPrincipal", "Condition")
}


@dataclass(frozen=True)
class Statement:
    """
    One statement of a policy, which allows or denies; with `excludes_…` it is about all others.

    Actions are in lower case; `resources` may be empty in a resource policy, `principals` is None in the other kind.
    """

    sid: str
    is_allow: bool
    actions: tuple[Pattern, ...]
    excludes_actions: bool
    resources: tuple[ArnPattern, ...]
    excludes_resources: bool
    principals: tuple[PrincipalMatch, ...] | None
    excludes_principals: bool
    conditions: tuple[Condition, ...]

    @property
    def keys(self) -> frozenset[str]:
        """Condition keys that it looks at, in lower case."""
        return frozenset(condition.key for condition in self.conditions).union(
            *(pattern.keys for pattern in self.resources)
        )

    def is_about(self, action: str) -> bool:
        """Return whether it is about an action."""
        return any(pattern.is_match(action.lower(), {}) for pattern in self.actions) != self.excludes_actions

    def is_about_resource(self, resource: str, context: Context) -> bool:
        """Return whether it is about a resource; one without resources is about that which it belongs to."""
        is_listed = any(pattern.is_match(resource, context) for pattern in self.resources)
        return not self.resources or is_listed != self.excludes_resources

    def names(self, caller: Caller) -> bool:
        """Return whether a resource policy's statement names the caller, rather than its whole account."""
        if self.principals is None:
            return True
        return any(match.is_caller(caller) for match in self.principals) != self.excludes_principals

    def names_session(self, caller: Caller) -> bool:
        """Return whether a resource policy's statement names the caller's session or everybody, and not its role."""
        principals = () if self.principals is None or self.excludes_principals else self.principals
        return any(match.is_session(caller) for match in principals)

    def names_account(self, caller: Caller) -> bool:
        """Return whether it hands the decision to the identity policies of the caller's account."""
        principals = () if self.principals is None or self.excludes_principals else self.principals
        return any(match.is_account(caller) for match in principals)

    def covers(self, resource: str, context: Context) -> bool:
        """
        Return whether it is about a resource, under the request's conditions.

        Raise PolicyError for a key that the request lacks here, though AWS may set it: to take it for absent would
        pass over a Deny.
        """
        _require_known(frozenset().union(*(pattern.keys for pattern in self.resources)) - context.keys())
        if not self.is_about_resource(resource, context):
            return False
        _require_known(self.keys - context.keys())
        return all(condition.is_met(context) for condition in self.conditions)


def _require_known(keys: frozenset[str]) -> None:
    for key in sorted(keys):
        if not is_known_key(key):
            raise PolicyError(
                f"a condition key must be one that the rehearsal decides by, got {key}; AWS decides by it, so the "
                "statement is unusable here"
            )


@lru_cache(maxsize=512)
def read_policy_text(text: str, kind: PolicyKind) -> tuple[Statement, ...]:
    """Read the JSON text of a policy, as `read_policy` does; the same text is read once."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise PolicyError(f"a policy must be JSON, got {text[:80]!r}; {error}") from error
    return read_policy(document, kind)


def read_policy(document: Mapping[str, Any], kind: PolicyKind) -> tuple[Statement, ...]:
    """Read a policy; raise PolicyError for what AWS would refuse, or what is not known here."""
    version = document.get("Version", "2008-10-17")
    if version not in _VERSIONS:
        raise PolicyError(f"Version of a policy must be 2012-10-17 or 2008-10-17, got {version!r}; use 2012-10-17")
    statements = document.get("Statement", [])
    listed = [statements] if isinstance(statements, Mapping) else statements
    return tuple(_read_statement(entry, kind, has_variables=version == _VARIABLES_SINCE) for entry in listed)


def _read_statement(entry: Mapping[str, Any], kind: PolicyKind, *, has_variables: bool) -> Statement:
    if unknown := set(entry) - _ELEMENTS:
        raise PolicyError(f"a statement must have only elements that IAM knows, got {sorted(unknown)}; remove them")
    if entry.get("Effect") not in {"Allow", "Deny"}:
        raise PolicyError(f"Effect must be Allow or Deny, got {entry.get('Effect')!r}; correct it")
    has_principal = "Principal" in entry or "NotPrincipal" in entry
    if has_principal != (kind == "resource"):
        raise PolicyError(f"Principal must be in resource policies and in no others, got {dict(entry)!r}")
    actions, excludes_actions = _choose(entry, "Action")
    resources, excludes_resources = _choose(entry, "Resource", is_optional=kind == "resource")
    patterns = tuple(ArnPattern(text, has_variables=has_variables) for text in resources)
    if broken := [pattern.text for pattern in patterns if not pattern.is_complete]:
        raise PolicyError(f"Resource must be an ARN of six parts or *, got {broken[0]!r}; write all parts")
    principals, excludes_principals = _choose_principals(entry) if has_principal else (None, False)
    return Statement(
        sid=str(entry.get("Sid", "")),
        is_allow=entry["Effect"] == "Allow",
        actions=tuple(Pattern(action.lower(), has_variables=False) for action in actions),
        excludes_actions=excludes_actions,
        resources=patterns,
        excludes_resources=excludes_resources,
        principals=principals,
        excludes_principals=excludes_principals,
        conditions=read_conditions(entry.get("Condition", {}), has_variables=has_variables),
    )


def _choose(entry: Mapping[str, Any], name: str, *, is_optional: bool = False) -> tuple[tuple[str, ...], bool]:
    """Return the texts of an element or of its negation, and whether it is the negation."""
    given = [key for key in (name, f"Not{name}") if key in entry]
    if not given and is_optional:
        return (), False
    if len(given) != 1:
        raise PolicyError(f"a statement must have {name} or Not{name}, got {given or 'neither'}; keep one")
    texts = list_texts(entry[given[0]])
    if not texts:
        raise PolicyError(f"{given[0]} must name at least one, got none; remove the statement")
    return texts, given[0] != name


def _choose_principals(entry: Mapping[str, Any]) -> tuple[tuple[PrincipalMatch, ...], bool]:
    is_negated = "NotPrincipal" in entry
    if is_negated and "Principal" in entry:
        raise PolicyError("a statement must have Principal or NotPrincipal, got both; keep one")
    return read_principals(entry["NotPrincipal" if is_negated else "Principal"]), is_negated


def list_texts(value: str | Iterable[str]) -> tuple[str, ...]:
    """Return an element's texts, whether it is one or a list."""
    return (value,) if isinstance(value, str) else tuple(value)
