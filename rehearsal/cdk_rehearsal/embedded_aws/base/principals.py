"""Principals of calls, and the credentials that the embedded AWS mints for them."""

import threading
from contextvars import ContextVar
from dataclasses import dataclass

from cdk_rehearsal.place import OPERATOR_KEY, OPERATOR_SECRET, Credentials, Place


@dataclass(frozen=True)
class Principal:
    """An identity that signs requests: an instance, a function, or the rehearsal itself, which has no role."""

    kind: str
    """`lambda`, `operator` for the rehearsal itself, or the label of an instance."""
    sender_id: str
    """`SenderId` of SQS: `<role unique id>:<session name>`."""
    name: str
    role_arn: str = ""
    subnet: str = ""
    """Subnet of a container; that of an instance is known by its name."""


OPERATOR = Principal(kind="operator", sender_id="AIDAREHEARSALOPERATOR", name="operator")

caller: ContextVar[Principal] = ContextVar("caller", default=OPERATOR)
"""The principal of the request that this thread serves."""


class PrincipalRegistry:
    """Mints credentials and finds the principal of an access key."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known = {OPERATOR_KEY: (Credentials(OPERATOR_KEY, OPERATOR_SECRET), OPERATOR)}

    def mint(self, place: Place, *, role_arn: str, session: str, kind: str, subnet: str = "") -> Credentials:
        """
        Mint a role's credentials, as EC2 does for an instance and Lambda for a function; both name the session.

        Args:
            place: Account and region.
            role_arn: The role.
            session: Name of the session.
            kind: Kind of the principal.
            subnet: Subnet of the container that gets them. Default: an instance or what is in no subnet gets them.
        """
        answer = place.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=session)
        credentials = Credentials(
            answer["Credentials"]["AccessKeyId"],
            answer["Credentials"]["SecretAccessKey"],
            answer["Credentials"]["SessionToken"],
        )
        sender = answer["AssumedRoleUser"]["AssumedRoleId"]
        with self._lock:
            self._known[credentials.access_key_id] = (credentials, Principal(kind, sender, session, role_arn, subnet))
        return credentials

    def find(self, access_key_id: str) -> tuple[Credentials, Principal] | None:
        """Return the credentials and principal of an access key, None for an unknown one."""
        with self._lock:
            return self._known.get(access_key_id)
