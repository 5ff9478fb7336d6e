"""Who calls: credentials that the embedded AWS minted, and the principals behind them."""

import threading
from contextvars import ContextVar
from dataclasses import dataclass, field

from cdk_rehearsal.embedded_aws.place import OPERATOR_KEY, OPERATOR_SECRET, Place


@dataclass(frozen=True)
class Credentials:
    """What signs a request; long-lived credentials have no session token."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False, default="")


@dataclass(frozen=True)
class Principal:
    """
    An identity that signs requests.

    Attributes:
        kind: `lambda`, `operator` for the rehearsal itself, or the label of an instance.
        sender_id: What SQS gives as `SenderId`: `<role unique id>:<session name>`.
        name: Instance id or function name.
        role_arn: ARN of its role, whose policies decide what it may do; empty for the rehearsal itself.
    """

    kind: str
    sender_id: str
    name: str
    role_arn: str = ""


OPERATOR = Principal(kind="operator", sender_id="AIDAREHEARSALOPERATOR", name="operator")

caller: ContextVar[Principal] = ContextVar("caller", default=OPERATOR)
"""The principal of the request that this thread serves."""


class PrincipalRegistry:
    """Mints credentials and tells to whom an access key belongs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = {OPERATOR_KEY: (Credentials(OPERATOR_KEY, OPERATOR_SECRET), OPERATOR)}

    def mint(self, place: Place, *, role_arn: str, session: str, kind: str) -> Credentials:
        """Mint a role's credentials, as EC2 does for an instance and Lambda for a function; both name the session."""
        answer = place.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=session)
        credentials = Credentials(
            answer["Credentials"]["AccessKeyId"],
            answer["Credentials"]["SecretAccessKey"],
            answer["Credentials"]["SessionToken"],
        )
        sender = answer["AssumedRoleUser"]["AssumedRoleId"]
        with self._lock:
            self._known[credentials.access_key_id] = (credentials, Principal(kind, sender, session, role_arn))
        return credentials

    def find(self, access_key_id: str) -> tuple[Credentials, Principal] | None:
        """Return the credentials and principal of an access key, None for an unknown one."""
        with self._lock:
            return self._known.get(access_key_id)
