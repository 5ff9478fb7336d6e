"""
Policies that an account has before the stacks are deployed, and that its organization gives it.

AWS Organizations user guide, "SCP evaluation": of the policies that are attached to one level, one must allow a call,
and none may deny it. Every level has `FullAWSAccess` until somebody takes it away.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cdk_rehearsal.errors import PolicyError, UnavailableError
from cdk_rehearsal.iam.limits import Document
from cdk_rehearsal.iam.policy import read_policy_text

FULL_ACCESS = "FullAWSAccess"
_FULL_ACCESS = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]})


@dataclass(frozen=True)
class GivenPolicies:
    """
    Texts of policies, each by the name under which a denial names it.

    Attributes:
        organization: Service control policies, all of one level. Default: the account is in no organization.
        deployment_boundary: Permissions boundary of the role with which CloudFormation creates resources: name and
            text. Default: it has none.
        account: Managed policies of the account, by their names with their paths. Default: it has none.
    """

    organization: Mapping[str, str] = field(default_factory=dict)
    deployment_boundary: tuple[str, str] | None = None
    account: Mapping[str, str] = field(default_factory=dict)

    def list_organization(self) -> tuple[Document, ...]:
        """
        Return the service control policies.

        `FullAWSAccess` is among them where none of the others allows anything: without it no call would be allowed, so
        that nobody has it taken away.
        """
        given = tuple(Document(name, read_policy_text(text, "identity")) for name, text in self.organization.items())
        if not given or any(statement.is_allow for document in given for statement in document.statements):
            return given
        return (*given, Document(FULL_ACCESS, read_policy_text(_FULL_ACCESS, "identity")))

    def read_deployment_boundary(self) -> Document | None:
        """Return the boundary of the role with which CloudFormation creates resources."""
        if self.deployment_boundary is None:
            return None
        name, text = self.deployment_boundary
        return Document(name, read_policy_text(text, "identity"))


def read_given_policies(
    organization: Sequence[Path | str],
    deployment_boundary: Path | str | None,
    account: Mapping[str, Path | str],
) -> GivenPolicies:
    """
    Read policies from files; denials name the files as they are given.

    Raises:
        UnavailableError: A file is not there, or is no policy.
    """
    return GivenPolicies(
        {str(file): _read(file) for file in organization},
        (str(deployment_boundary), _read(deployment_boundary)) if deployment_boundary is not None else None,
        {name.strip("/"): _read(file) for name, file in account.items()},
    )


def _read(file: Path | str) -> str:
    try:
        text = Path(file).read_text(encoding="utf-8")
        read_policy_text(text, "identity")
    except (OSError, ValueError, PolicyError, AttributeError) as error:
        raise UnavailableError(f"a policy must be a file of JSON as IAM takes it, got {file}; {error}") from error
    return text
