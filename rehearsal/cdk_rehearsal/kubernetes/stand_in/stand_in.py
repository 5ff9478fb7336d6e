"""The stand-in as a whole: objects, controllers and API server."""

from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects, Write
from cdk_rehearsal.kubernetes.stand_in.api.rights import add_roles
from cdk_rehearsal.kubernetes.stand_in.base.clock import Clock
from cdk_rehearsal.kubernetes.stand_in.base.resources import NAMESPACES
from cdk_rehearsal.kubernetes.stand_in.base.store import Store
from cdk_rehearsal.kubernetes.stand_in.controllers.controllers import Controllers
from cdk_rehearsal.kubernetes.stand_in.schemas.schema import parse_version, read_schema
from cdk_rehearsal.kubernetes.stand_in.server import Server
from cdk_rehearsal.kubernetes.users import Review

_NAMESPACES = ("default", "kube-node-lease", "kube-public", "kube-system")


class StandIn:
    """
    A control plane in this process.

    Args:
        version: Minor version of Kubernetes that it stands in for.
        address: Address and port of its API server.
        certificate: File with the server's certificate.
        key: File with its key.
        review: Finds out who sent a token.
        grace_seconds: Time without a sign of life after which a node is not ready.
        tell_time: Returns the seconds since 1970.

    Attributes:
        clock: Its clock.

    Raises:
        UnavailableError: The schemas of the version are absent.
    """

    def __init__(
        self,
        version: str,
        *,
        address: tuple[str, int],
        certificate: Path,
        key: Path,
        review: Review,
        grace_seconds: float,
        tell_time: Callable[[], float],
    ) -> None:
        self.clock = Clock(tell_time)
        objects = Objects(Store(self.clock), read_schema(version), parse_version(version))
        add_roles(objects.store)
        for name in _NAMESPACES:
            objects.create(Write(NAMESPACES, ""), {"metadata": {"name": name}})
        self._controllers = Controllers(objects, version, grace_seconds)
        self._server = Server(
            address, certificate=certificate, key=key, objects=objects, version=version, review=review
        )
        self._controllers.start()
        self._server.start()

    def pass_time(self, seconds: float) -> None:
        """Advance the clock, and let the controllers act on it."""
        self.clock.advance(seconds)
        self._controllers.settle()

    def stop(self) -> None:
        """End it."""
        self._server.stop()
        self._controllers.stop()
