"""The `Principal` element of resource policies."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.iam.errors import PolicyError
from cdk_rehearsal.iam.request import Caller

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
        """Tell whether it is the caller itself."""
        if self.kind == "*":
            return True
        if self.kind == "Service":
            return bool(caller.service) and self.name == caller.service
        return self.kind == "AWS" and not caller.service and self.name in {"*", caller.arn, caller.role_arn}

    def is_account(self, caller: Caller) -> bool:
        """Tell whether it is the caller's account, whose identity policies then decide."""
        match = _ROOT.fullmatch(self.name)
        account = match[1] if match else self.name
        return self.kind == "AWS" and not caller.service and account == caller.account


def read_principals(element: Any) -> tuple[PrincipalMatch, ...]:
    """
    Read the element.

    Raises:
        PolicyError: It names what is no principal; AWS takes no wildcard inside a name.
    """
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
