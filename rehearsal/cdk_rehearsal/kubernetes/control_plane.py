"""The control plane of a rehearsal: release binaries where the machine has them, and the stand-in otherwise."""

import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from cdk_rehearsal.kubernetes.binaries import Binaries
from cdk_rehearsal.kubernetes.certificates import make_certificates
from cdk_rehearsal.kubernetes.ports import choose_port
from cdk_rehearsal.kubernetes.servers import Servers
from cdk_rehearsal.kubernetes.stand_in.stand_in import StandIn
from cdk_rehearsal.kubernetes.users import ADMINISTRATORS, Review, User

GRACE_SECONDS = 50
"""Time without a sign of life after which a node is not ready: the default of kube-controller-manager."""
_STEP_SECONDS = 0.3


class ControlPlane:
    """
    A running control plane.

    Args:
        folder: Folder of its files and logs.
        version: Minor version of the stack, such as `1.35`.
        review: Finds out who sent a token.
        binaries: Programs of a release; None for the stand-in.
        address: Address of the API server.
        port: Its port. Default: one that is free.
        names: Further host names and addresses by which clients reach it.
        grace_seconds: Time without a sign of life after which a node is not ready.
        tell_time: Time of the stand-in, in seconds since 1970.

    Attributes:
        version: Minor version.
        endpoint: URL of the API server.
        authority: File with the certificate that clients trust.
        token: Token of an administrator, for nodes and for what EKS does itself.
        description: Kind and version, for reports.

    Raises:
        UnavailableError: The servers cannot run on this machine.
    """

    def __init__(
        self,
        folder: Path,
        *,
        version: str,
        review: Review,
        binaries: Binaries | None = None,
        address: str = "127.0.0.1",
        port: int = 0,
        names: Sequence[str] = (),
        grace_seconds: float = GRACE_SECONDS,
        tell_time: Callable[[], float] = time.time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.version, self.token = version, secrets.token_hex(16)
        where = (address, port or choose_port(address))
        self.endpoint = f"https://{address}:{where[1]}"
        certificates = make_certificates(folder, [*dict.fromkeys((address, "127.0.0.1", *names))])
        self.authority = certificates.authority
        self._stand_in: StandIn | None = None
        if binaries is not None:
            self.description = f"Kubernetes {binaries.version}, the servers of {binaries.folder}"
            self._servers: Servers | StandIn = Servers(
                folder,
                binaries=binaries,
                certificates=certificates,
                address=where,
                token=self.token,
                review=review,
                grace_seconds=grace_seconds,
            )
            return
        self.description = f"stand-in of Kubernetes {version}"
        self._servers = self._stand_in = StandIn(
            version,
            address=where,
            certificate=certificates.certificate,
            key=certificates.key,
            review=self._let_administrator_in(review),
            grace_seconds=grace_seconds,
            tell_time=tell_time,
        )

    @property
    def is_stand_in(self) -> bool:
        """True for the stand-in, False for servers of a release."""
        return self._stand_in is not None

    def read_clock(self) -> float:
        """Return its time, in seconds since 1970."""
        return self._stand_in.clock.read() if self._stand_in else time.time()

    def pass_time(self, seconds: float) -> None:
        """
        Let time pass: the stand-in's clock advances; real servers only get a moment.

        Args:
            seconds: How much the clock advances.
        """
        if self._stand_in:
            self._stand_in.pass_time(seconds)
        else:
            time.sleep(_STEP_SECONDS)

    def stop(self) -> None:
        """End it."""
        self._servers.stop()

    def _let_administrator_in(self, review: Review) -> Review:
        administrator = User("administrator", (ADMINISTRATORS,))
        return lambda token: administrator if secrets.compare_digest(token, self.token) else review(token)
