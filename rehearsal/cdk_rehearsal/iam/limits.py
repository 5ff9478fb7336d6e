"""
Policies that grant nothing, and limit what a caller's other policies grant.

IAM user guide, "Permissions boundaries for IAM entities"; AWS Organizations user guide, "SCP evaluation"; AWS
PrivateLink guide, "Control access to VPC endpoints using endpoint policies".
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Literal

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.policy import Statement
from cdk_rehearsal.iam.request import Request

LimitReason = Literal[
    "organization denies",
    "organization is silent",
    "endpoint denies",
    "endpoint is silent",
    "boundary denies",
    "boundary is silent",
]


@dataclass(frozen=True)
class Document:
    """A policy, and the name by which denials name it: its ARN, or its file."""

    name: str
    statements: tuple[Statement, ...]

    def has(self, request: Request, *, is_allow: bool) -> bool:
        """Return whether it allows a request, or denies it; PolicyError names it where that cannot be judged."""
        try:
            return any(
                statement.is_allow == is_allow
                and statement.is_about(request.action)
                and (statement.names(request.caller) or statement.names_account(request.caller))
                and statement.covers(request.resource, request.context)
                for statement in self.statements
            )
        except PolicyError as error:
            raise PolicyError(f"{self.name}: {error}") from error


@dataclass(frozen=True)
class Limits:
    """
    Limits of one caller.

    Attributes:
        boundary: The permissions boundary of the caller's role. Default: it has none.
        organization: The service control policies of the account, all attached to one level. Default: it has none.
        endpoint: The policy of the VPC endpoint through which the call goes. Default: it goes through none.
    """

    boundary: Document | None = None
    organization: tuple[Document, ...] = ()
    endpoint: Document | None = None

    def list_documents(self) -> tuple[Document, ...]:
        """Return all documents."""
        return (*self.organization, *(each for each in (self.endpoint, self.boundary) if each))

    def list_statements(self) -> Iterator[Statement]:
        """Return the statements of all documents."""
        return chain.from_iterable(document.statements for document in self.list_documents())

    def find_organization_denial(self, request: Request) -> str:
        """Return the name of a service control policy that denies a request; empty when none does."""
        return next((each.name for each in self.organization if each.has(request, is_allow=False)), "")

    def find_silent_organization(self, request: Request) -> str:
        """Return the names of the service control policies when none of them allows a request; empty when one does."""
        if any(each.has(request, is_allow=True) for each in self.organization):
            return ""
        return ", ".join(each.name for each in self.organization)

    def find_boundary_denial(self, request: Request) -> str:
        """Return the name of the boundary when it denies a request."""
        return self.boundary.name if self.boundary and self.boundary.has(request, is_allow=False) else ""

    def find_silent_boundary(self, request: Request) -> str:
        """Return the name of the boundary when it does not allow a request; empty when it does, or there is none."""
        return self.boundary.name if self.boundary and not self.boundary.has(request, is_allow=True) else ""


NO_LIMITS = Limits()
