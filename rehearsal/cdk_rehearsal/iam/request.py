"""Requests to AWS and their callers."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdk_rehearsal.iam.pattern import ARN_PARTS, Context, split_arn

_KNOWN_GLOBAL_KEYS = frozenset(
    f"aws:{name}"
    for name in (
        *("securetransport", "principalisawsservice", "principalservicename", "principalarn", "principalaccount"),
        *("principaltype", "userid", "username", "requestedregion", "sourcearn", "sourceaccount", "viaawsservice"),
        "tagkeys",
        "sourceowner",  # of the default policies of topics; deprecated, and no service that is embedded here sends it
    )
)
_KNOWN_TAG_KEYS = ("aws:principaltag/", "aws:requesttag/", "aws:resourcetag/")
_KNOWN_S3_KEYS = frozenset(
    f"s3:{name}"
    for name in (
        *("prefix", "delimiter", "max-keys"),
        *("x-amz-acl", "x-amz-server-side-encryption", "x-amz-server-side-encryption-aws-kms-key-id"),
    )
)


def is_known_key(key: str) -> bool:
    """
    Return whether a request of the embedded AWS has a condition key, in lower case, wherever one of AWS has it.

    Listed are the global keys and those of S3, because policies of buckets name them freely; of other services, every
    key counts as known.
    """
    if key.startswith("s3:"):
        return key in _KNOWN_S3_KEYS
    return not key.startswith("aws:") or key in _KNOWN_GLOBAL_KEYS or key.startswith(_KNOWN_TAG_KEYS)


@dataclass(frozen=True)
class Caller:
    """A role's session, or a service that calls by itself, which has no account, role or user id."""

    arn: str
    """ARN of the session; name of the service."""
    account: str = ""
    role_arn: str = ""
    service: str = ""
    """Name of the service, such as `events.amazonaws.com`."""
    user_id: str = ""
    """`<role id>:<session name>`."""
    subnet: str = ""
    """Subnet from which it calls; empty for a call that comes from no VPC of the account."""

    @classmethod
    def of_service(cls, name: str) -> "Caller":
        """Return a service that calls by itself."""
        return cls(arn=name, service=name)


@dataclass(frozen=True)
class Request:
    """
    One action, `service:Action`, on one resource: its ARN, or `*` for an action that takes none.

    The names in `context` are in lower case. Default of `resource_account`: the ARN's, else the caller's.
    """

    caller: Caller
    action: str
    resource: str
    context: Context = field(default_factory=dict)
    resource_account: str = ""

    @property
    def is_across_accounts(self) -> bool:
        """True where the resource belongs to another account than the caller."""
        parts = split_arn(self.resource)
        owner = self.resource_account or (parts[4] if len(parts) == ARN_PARTS else "")
        return bool(self.caller.account and owner and owner != self.caller.account)


def make_context(caller: Caller, extra: Mapping[str, str | tuple[str, ...]], *, is_secure: bool = True) -> Context:
    """
    Return the condition keys of a request: the global ones, and what the service adds.

    `aws:SecureTransport` is true by default: calls of the embedded AWS stand for calls over HTTPS, whatever the scheme
    of its endpoint is.
    """
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
