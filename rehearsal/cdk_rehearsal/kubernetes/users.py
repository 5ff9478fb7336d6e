"""Users of a control plane, and the reviewers that find out who sent a token."""

from collections.abc import Callable
from dataclasses import dataclass

ADMINISTRATORS = "system:masters"
"""Group that may do everything (Kubernetes documentation, "Using RBAC Authorization")."""
AUTHENTICATED = "system:authenticated"


@dataclass(frozen=True)
class User:
    """
    Sender of a request.

    Attributes:
        name: User name, such as the ARN of a role.
        groups: Groups, to which role bindings give rights.
    """

    name: str
    groups: tuple[str, ...] = ()


Review = Callable[[str], User | None]
"""Returns the sender of a bearer token; None where the token is not valid, or its owner may not enter."""
