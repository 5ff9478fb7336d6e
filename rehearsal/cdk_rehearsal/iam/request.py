"""Who asks AWS for what."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdk_rehearsal.iam.pattern import ARN_PARTS, Context, split_arn


@dataclass(frozen=True)
class Caller:
    """
    A principal as IAM sees it.

    Attributes:
        arn: ARN of the role's session; for a service its name.
        account: Account id; empty for a service.
        role_arn: ARN of the role, which policies name; empty for a service.
        service: Name of the service that calls by itself, as `events.amazonaws.com`; empty for others.
        user_id: `<role id>:<session name>`; empty for a service.
    """

    arn: str
    account: str = ""
    role_arn: str = ""
    service: str = ""
    user_id: str = ""

    @classmethod
    def of_service(cls, name: str) -> "Caller":
        """Return a service that calls by itself."""
        return cls(arn=name, service=name)


@dataclass(frozen=True)
class Request:
    """
    One action on one resource.

    Attributes:
        caller: Who asks.
        action: `service:Action`.
        resource: ARN; `*` for an action that takes no resource.
        context: Values of the condition keys, whose names are in lower case.
        resource_account: Account of the resource, where its ARN does not say it. Default: the caller's.
    """

    caller: Caller
    action: str
    resource: str
    context: Context = field(default_factory=dict)
    resource_account: str = ""

    @property
    def is_across_accounts(self) -> bool:
        """Whether the resource belongs to another account than the caller."""
        parts = split_arn(self.resource)
        owner = self.resource_account or (parts[4] if len(parts) == ARN_PARTS else "")
        return bool(self.caller.account and owner and owner != self.caller.account)


def make_context(caller: Caller, extra: Mapping[str, str | tuple[str, ...]], *, is_secure: bool = True) -> Context:
    """Return the condition keys of a request: the global ones, and what the service adds."""
    keys: dict[str, str | tuple[str, ...]] = {"aws:SecureTransport": "true" if is_secure else "false"}
    if caller.service:
        keys |= {"aws:PrincipalIsAWSService": "true", "aws:PrincipalServiceName": caller.service}
    else:
        keys |= {
            "aws:PrincipalIsAWSService": "false",
            "aws:PrincipalArn": caller.role_arn,
            "aws:PrincipalAccount": caller.account,
            "aws:PrincipalType": "AssumedRole",
            "aws:userid": caller.user_id,
        }
    keys |= extra
    return {key.lower(): (value,) if isinstance(value, str) else value for key, value in keys.items()}
