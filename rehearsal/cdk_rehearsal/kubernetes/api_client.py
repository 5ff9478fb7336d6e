"""Client of a control plane for what the rehearsal does itself; objects are JSON."""

import http.client
import json
import ssl
import urllib.parse
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import RehearsalError

MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
_GROUPS = {
    "configmaps": "api/v1",
    "daemonsets": "apis/apps/v1",
    "events": "api/v1",
    "jobs": "apis/batch/v1",
    "leases": "apis/coordination.k8s.io/v1",
    "namespaces": "api/v1",
    "nodes": "api/v1",
    "persistentvolumeclaims": "api/v1",
    "persistentvolumes": "api/v1",
    "pods": "api/v1",
    "rolebindings": "apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings": "apis/rbac.authorization.k8s.io/v1",
    "serviceaccounts": "api/v1",
}
"""Resource -> path of its API group and version."""
_SECONDS = 30
NOT_FOUND = 404


class ApiError(RehearsalError):
    """
    Refusal of an API server, in its own words.

    Attributes:
        code: Status code of the response.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


def locate(resource: str, namespace: str = "", name: str = "", part: str = "") -> str:
    """Return the path of an object, of a part of it such as `status`, or of all objects of a namespace."""
    parts = [_GROUPS[resource], *(("namespaces", namespace) if namespace else ()), resource, name, part]
    return "/" + "/".join(each for each in parts if each)


@dataclass(frozen=True)
class ApiClient:
    """
    Client with one user's token.

    Attributes:
        endpoint: URL of the API server.
        authority: File with the certificate that it trusts.
        token: The user's token.
    """

    endpoint: str
    authority: Path
    token: str = field(repr=False)

    def call(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> dict[str, Any]:
        """Send a request and return the object of the response; ApiError if the server refuses it."""
        found: dict[str, Any] = json.loads(self._send(method, path, body, kind) or b"{}")
        return found

    def read_text(self, path: str) -> str:
        """Return the text of a response, such as a log; ApiError if the server refuses it."""
        return self._send("GET", path, None, "application/json").decode("utf-8", "replace")

    def _send(self, method: str, path: str, body: Any, kind: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind, "Accept": "application/json"}
        context = ssl.create_default_context(cafile=str(self.authority))
        server = urllib.parse.urlsplit(self.endpoint).netloc
        connection = http.client.HTTPSConnection(server, timeout=_SECONDS, context=context)
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            found = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise RehearsalError(f"the API server must respond at {self.endpoint}, got {error}") from error
        finally:
            connection.close()
        if response.status >= HTTPStatus.BAD_REQUEST:
            said = found.decode("utf-8", "replace")
            raise ApiError(response.status, _read_message(said) or f"{response.status} {response.reason}")
        return found

    def list(self, resource: str, namespace: str = "", **query: str) -> list[dict[str, Any]]:
        """Return the objects of a resource; `query` selects some."""
        words = urllib.parse.urlencode(query)
        found: list[dict[str, Any]] = self.call("GET", f"{locate(resource, namespace)}{'?' if words else ''}{words}")[
            "items"
        ]
        return found

    def find(self, resource: str, namespace: str, name: str) -> dict[str, Any] | None:
        """Return an object; None without it."""
        try:
            return self.call("GET", locate(resource, namespace, name))
        except ApiError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    def apply(self, document: Mapping[str, Any], manager: str) -> dict[str, Any]:
        """Create an object, or change it to this one (server-side apply)."""
        metadata = document["metadata"]
        resource = f"{str(document['kind']).lower()}s"
        path = locate(resource, metadata.get("namespace", ""), metadata["name"])
        return self.call("PATCH", f"{path}?fieldManager={manager}&force=true", document, APPLY)


def _read_message(text: str) -> str:
    try:
        return str(json.loads(text).get("message", ""))
    except (ValueError, AttributeError):
        return ""
