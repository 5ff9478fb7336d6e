"""Client of a cluster's API server, with the caller's own AWS identity; objects are JSON."""

import base64
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.errors import UnavailableError, require_modules
from deeplearning_cli.kubernetes.token import RENEW_SECONDS, make_token
from deeplearning_contract.jobs.kubernetes_cluster import MANAGER
from deeplearning_contract.jobs.submission import KubernetesSettings

if TYPE_CHECKING:  # only commands about EKS import it
    from httpx2 import HTTPTransport
    from lightkube import Client

T = TypeVar("T")
VERSIONS: Mapping[str, str] = {
    "Event": "v1",
    "Job": "batch/v1",
    "Node": "v1",
    "PersistentVolume": "v1",
    "PersistentVolumeClaim": "v1",
    "Pod": "v1",
}
"""Kind of an object -> version of its API."""
UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 401, 403, 404
_REMEDIES = {
    UNAUTHORIZED: "; an access entry of the cluster must have the caller's role, which the stack's grant_submit adds",
    FORBIDDEN: "; the stack's grant_submit grants the use of jobs, and its administrators may prepare the cluster",
}


class ServerError(UnavailableError):
    """Refusal of the API server, in its own words."""

    def __init__(self, code: int, message: str) -> None:
        """Keep the status code of the response."""
        super().__init__(f"{message}{_REMEDIES.get(code, '')}")
        self.code = code


class KubernetesApi:
    """
    API server of a cluster on EKS.

    Each method raises ServerError if the server refuses it, and UnavailableError if it cannot be reached.
    """

    def __init__(
        self, access: CloudAccess, settings: KubernetesSettings, read_clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Bind a cluster; nothing is read yet."""
        require_modules("lightkube", extra="operate")
        self._access, self._settings, self._read_clock = access, settings, read_clock
        self._client: Client | None = None
        self._renewed = -RENEW_SECONDS

    def apply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object, or change it to this one (server-side apply)."""
        from lightkube import codecs  # noqa: PLC0415 - slow

        return self._call(lambda client: _read(client.apply(codecs.from_dict(dict(document)), force=True)))

    def create(self, document: Mapping[str, Any], *, is_dry_run: bool = False) -> dict[str, Any]:
        """Create an object, or only ask whether the server would take it."""
        from lightkube import codecs  # noqa: PLC0415 - slow

        made = codecs.from_dict(dict(document))
        return self._call(lambda client: _read(client.create(made, dry_run=is_dry_run)))

    def find(self, kind: str, name: str) -> dict[str, Any] | None:
        """Return an object; None without it."""
        try:
            return self._call(lambda client: _read(client.get(_load(kind), name)))
        except ServerError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def list_objects(
        self, kind: str, labels: Mapping[str, str] | None = None, fields: Mapping[str, str] | None = None
    ) -> list[dict[str, Any]]:
        """Return the objects of a kind with these labels and values of fields, of the namespace of jobs if of any."""
        return self._call(
            lambda client: [
                _read(each) for each in client.list(_load(kind), labels=dict(labels or {}), fields=dict(fields or {}))
            ]
        )

    def patch(self, kind: str, name: str, change: Mapping[str, Any]) -> None:
        """Change an object; None removes a value."""
        from lightkube.types import PatchType  # noqa: PLC0415 - slow

        self._call(lambda client: client.patch(_load(kind), name, dict(change), patch_type=PatchType.MERGE))

    def delete(self, kind: str, name: str) -> None:
        """Delete an object after what it owns."""
        from lightkube.types import CascadeType  # noqa: PLC0415 - slow

        self._call(lambda client: client.delete(_load(kind), name, cascade=CascadeType.FOREGROUND))

    def read_log(self, pod: str, *, lines: int | None = None, is_followed: bool = False) -> Iterator[str]:
        """
        Yield the lines of a pod's log, each after its time and a space.

        Args:
            pod: Name of the pod.
            lines: Most lines of the log so far. Default: all.
            is_followed: Whether to wait for new lines until the container ends or the connection does.
        """
        import httpx2  # noqa: PLC0415 - slow

        found: Iterator[str] = self._call(
            lambda client: client.log(pod, follow=is_followed, tail_lines=lines, timestamps=True, newlines=False)
        )
        try:
            yield from found
        except httpx2.HTTPError:  # The connection ended; the next call says why, if it is for long.
            return

    def _call(self, request: Callable[["Client"], T]) -> T:
        """Send a request, with a new token where the server does not accept this one any more."""
        try:
            return self._send(request)
        except ServerError as error:
            if error.code != UNAUTHORIZED:
                raise
        self._renewed = -RENEW_SECONDS
        return self._send(request)

    def _send(self, request: Callable[["Client"], T]) -> T:
        import httpx2  # noqa: PLC0415 - slow
        from lightkube import ApiError  # noqa: PLC0415

        try:
            return request(self._open())
        except ApiError as error:
            code = error.status.code or error.response.status_code
            raise ServerError(code, error.status.message or error.status.reason or str(code)) from error
        except httpx2.HTTPError as error:
            raise UnavailableError(
                f"could not reach the API server {self._settings.endpoint}: {error}; it is private unless the stack's "
                "api_from names the caller's network"
            ) from error

    def _open(self) -> "Client":
        from lightkube import Client, KubeConfig  # noqa: PLC0415 - slow
        from lightkube.config.models import Cluster, User  # noqa: PLC0415

        now, settings = self._read_clock(), self._settings
        if self._client is None or now - self._renewed >= RENEW_SECONDS:
            if self._client is not None:
                self._client.close()
            cluster = Cluster(server=settings.endpoint, certificate_auth_data=settings.authority)
            config = KubeConfig.from_one(cluster=cluster, user=User(token=make_token(self._access, settings)))
            transport = _open_transport(settings, is_proxied=self._access.lab is None)  # The lab has no proxy.
            self._client = Client(
                config, namespace=settings.namespace, field_manager=MANAGER, trust_env=False, transport=transport
            )
            self._renewed = now
        return self._client


def _open_transport(settings: KubernetesSettings, *, is_proxied: bool) -> "HTTPTransport":
    """
    Return the way to an API server, whose certificate authority is that of EKS.

    It has no key identifier, for which Python 3.13 and later refuse it
    (https://github.com/kubernetes-client/python/issues/2394); names, dates and signatures are checked all the same.
    """
    import httpx2  # noqa: PLC0415 - slow

    authority = ssl.create_default_context(cadata=base64.b64decode(settings.authority).decode())
    authority.verify_flags &= ~ssl.VERIFY_X509_STRICT
    host = urlsplit(settings.endpoint).hostname or ""
    is_direct = not is_proxied or bool(urllib.request.proxy_bypass(host))
    return httpx2.HTTPTransport(verify=authority, proxy=None if is_direct else urllib.request.getproxies().get("https"))


def _load(kind: str) -> Any:
    from lightkube import codecs  # noqa: PLC0415 - slow

    return codecs.resource_registry.load(VERSIONS[kind], kind)


def _read(found: Any) -> dict[str, Any]:
    document: dict[str, Any] = found.to_dict()
    return document
