"""A client of the Kubernetes API of the size of its tests: it speaks as lightkube does, and hides nothing."""

import http.client
import json
import ssl
import urllib.parse
from dataclasses import dataclass

from tests.real_time import GENEROUS_SECONDS

APPLY, MERGE, STRATEGIC = (
    "application/apply-patch+yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
)
MANAGER = "deeplearning-cdk"
_ROOTS = {
    "pods": "/api/v1",
    "nodes": "/api/v1",
    "namespaces": "/api/v1",
    "events": "/api/v1",
    "secrets": "/api/v1",
    "serviceaccounts": "/api/v1",
    "configmaps": "/api/v1",
    "persistentvolumes": "/api/v1",
    "persistentvolumeclaims": "/api/v1",
    "jobs": "/apis/batch/v1",
    "daemonsets": "/apis/apps/v1",
    "leases": "/apis/coordination.k8s.io/v1",
    "rolebindings": "/apis/rbac.authorization.k8s.io/v1",
    "clusterrolebindings": "/apis/rbac.authorization.k8s.io/v1",
}
_KINDS = {
    "Namespace": "namespaces",
    "ServiceAccount": "serviceaccounts",
    "ConfigMap": "configmaps",
    "PersistentVolume": "persistentvolumes",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "Job": "jobs",
    "DaemonSet": "daemonsets",
}


@dataclass(frozen=True)
class Answer:
    """Status and document of an answer, and its warnings."""

    code: int
    document: dict
    warnings: tuple = ()

    @property
    def message(self):
        """Words of a refusal."""
        return self.document.get("message", "")

    @property
    def reason(self):
        """Reason of a refusal in one word."""
        return self.document.get("reason", "")


class Client:
    """Sends requests with one token over one connection."""

    def __init__(self, plane, token):
        parts = urllib.parse.urlsplit(plane.endpoint)
        context = ssl.create_default_context(cafile=plane.authority)
        self._open = lambda: http.client.HTTPSConnection(
            parts.hostname, parts.port, context=context, timeout=GENEROUS_SECONDS
        )
        self._connection = self._open()
        self._token = token

    def call(self, method, path, body=None, kind="application/json", accept="application/json"):
        """Send a request; return the answer, whatever it is."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "User-Agent": "tests/1"}
        headers["Accept"] = accept
        data = None if body is None else json.dumps(body)
        try:
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        except (ConnectionError, http.client.RemoteDisconnected):  # the server has closed an idle connection
            self._connection.close()
            self._connection.request(method, path, data, headers)
            answer = self._connection.getresponse()
        text = answer.read()
        return Answer(answer.status, json.loads(text), tuple(answer.headers.get_all("Warning") or ()))

    def do(self, method, path, body=None, kind="application/json"):
        """Send a request that has to succeed; return the document."""
        answer = self.call(method, path, body, kind)
        assert answer.code < 300, f"{method} {path}: {answer.code} {answer.message}"
        return answer.document

    def apply(self, manifest, *, manager=MANAGER, force=True, **query):
        """Apply an object server-side; return the answer."""
        metadata = manifest["metadata"]
        path = locate(_KINDS[manifest["kind"]], metadata.get("namespace", ""), metadata["name"])
        options = {"fieldManager": manager, "force": str(force).lower(), **query}
        return self.call("PATCH", f"{path}?{urllib.parse.urlencode(options)}", manifest, APPLY)

    def get(self, plural, namespace, name):
        """Return an object; None when it does not exist."""
        answer = self.call("GET", locate(plural, namespace, name))
        assert answer.code in (200, 404), answer
        return answer.document if answer.code == 200 else None

    def list(self, plural, namespace="", **query):
        """Return the objects that a query selects."""
        return self.do("GET", f"{locate(plural, namespace)}?{urllib.parse.urlencode(query)}")["items"]

    def stream(self, path):
        """Yield the lines of an answer as they come, over a connection of their own."""
        connection = self._open()
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self._token}"})
            answer = connection.getresponse()
            assert answer.status == 200, answer.read()
            while line := answer.readline():
                yield line.decode().rstrip("\n")
        finally:
            connection.close()


def locate(plural, namespace="", name="", part=""):
    """Return the path of objects, or of one."""
    parts = [_ROOTS[plural], *(["namespaces", namespace] if namespace else []), plural, name, part]
    return "/".join(filter(None, parts))
