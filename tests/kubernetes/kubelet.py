"""Nodes of the tests: they renew their leases and run pods, which end when a test says so or when they are deleted."""

import http.server
import ssl
import threading
from datetime import datetime, timezone
from urllib.parse import parse_qs, urlsplit

from tests.kubernetes.client import MERGE, STRATEGIC, locate

LEASES = "kube-node-lease"
TERMINATED = 143
POLL_SECONDS = 0.02
RENEW_SECONDS = 2
"""Far less than a step of a statement takes from `GRACE_SECONDS`."""


class Kubelet:
    """The kubelets of all nodes. Nothing happens but by `step`."""

    def __init__(self, plane, client):
        self._plane, self._client = plane, client
        self.nodes = {}
        self._renewed = 0.0
        self.codes = {}
        self.logs = {}
        self.waiting = None
        """Reason and message for which containers wait; None where they start."""
        self._server = _serve_logs(self, plane)

    def join(self, name, labels, resources, taints=()):
        """Add a node, which is ready at once."""
        capacity = {"cpu": "8", "memory": "16Gi", "pods": "20", "ephemeral-storage": "100Gi", **resources}
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **labels}
        node = {"metadata": {"name": name, "labels": labels}, "spec": {"taints": list(taints)}}
        self._client.do("POST", "/api/v1/nodes", node)
        status = {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self._server.server_address[1]}},
            "conditions": [self._condition("Ready", "True", "KubeletReady") | {"lastHeartbeatTime": self._now()}],
        }
        self._client.do("PATCH", locate("nodes", name=name, part="status"), {"status": status}, MERGE)
        self.nodes[name] = True

    def kill(self, name):
        """Let a node stop without a word."""
        self.nodes[name] = False

    def end(self, pod, code):
        """Let the program of a running pod end with a status at the next step."""
        self.codes[pod["metadata"]["uid"]] = code

    def step(self):
        """Renew the leases of living nodes when it is time, and do what their pods need."""
        living = {name for name, is_alive in self.nodes.items() if is_alive}
        if (now := self._plane.read_clock()) >= self._renewed + RENEW_SECONDS:
            self._renewed = now
            for name in living:
                self._renew(name)
        for pod in self._client.list("pods") if living else ():
            if pod["spec"].get("nodeName") in living:
                self._tend(pod)

    def stop(self):
        """End the server of the logs."""
        self._server.shutdown()
        self._server.server_close()

    def _renew(self, name):
        moment = f"{datetime.fromtimestamp(self._plane.read_clock(), timezone.utc):%Y-%m-%dT%H:%M:%S.%fZ}"
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": moment}
        lease = {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}
        if self._client.call("PATCH", locate("leases", LEASES, name), lease, MERGE).code == 404:
            self._client.do("POST", locate("leases", LEASES), lease)

    def _tend(self, pod):
        phase, uid = pod["status"]["phase"], pod["metadata"]["uid"]
        is_deleted = "deletionTimestamp" in pod["metadata"]
        if phase == "Pending" and not is_deleted:
            self._start(pod)
        elif phase == "Running" and (is_deleted or uid in self.codes):
            self._finish(pod, self.codes.get(uid, TERMINATED))
        elif is_deleted:
            self._client.call("DELETE", self._locate(pod), {"gracePeriodSeconds": 0})

    def _start(self, pod):
        if self.waiting:
            self._write(pod, {"containerStatuses": [self._describe(pod, {"waiting": self.waiting})]})
            return
        kinds = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")
        status = {
            "phase": "Running",
            "podIP": "10.20.0.1",
            "startTime": self._now(),
            "conditions": [self._condition(kind, "True") for kind in kinds],
            "containerStatuses": [self._describe(pod, {"running": {"startedAt": self._now()}})],
        }
        self._write(pod, status)

    def _finish(self, pod, code):
        reason = "Error" if code else "Completed"
        ended = {"exitCode": code, "startedAt": self._now(), "finishedAt": self._now(), "reason": reason}
        status = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [self._condition(kind, "False", "PodCompleted") for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [self._describe(pod, {"terminated": ended})],
        }
        self._write(pod, status)

    def _describe(self, pod, state):
        container, is_running = pod["spec"]["containers"][0], "running" in state
        identity = {"containerID": f"lab://{pod['metadata']['uid']}", "image": container["image"], "imageID": "lab"}
        return {
            "name": container["name"],
            "ready": is_running,
            "started": is_running,
            "restartCount": 0,
            "state": state,
            **identity,
        }

    def _write(self, pod, status):
        self._client.call("PATCH", f"{self._locate(pod)}/status", {"status": status}, STRATEGIC)

    def _locate(self, pod):
        return locate("pods", pod["metadata"]["namespace"], pod["metadata"]["name"])

    def _condition(self, kind, value, reason=""):
        return {"type": kind, "status": value, "reason": reason, "lastTransitionTime": self._now()}

    def _now(self):
        return f"{datetime.fromtimestamp(self._plane.read_clock(), timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def _serve_logs(kubelet, plane):
    class Logs(http.server.BaseHTTPRequestHandler):
        def log_message(self, *words):
            pass

        def do_GET(self):
            parts = urlsplit(self.path)
            lines = kubelet.logs.get(parts.path.split("/")[3], "").splitlines(keepends=True)
            if tail := parse_qs(parts.query).get("tailLines"):
                lines = lines[-int(tail[0]) :]
            self.send_response(200)
            self.end_headers()
            self.wfile.write("".join(lines).encode())

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Logs)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    folder = plane.authority.parent
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), daemon=True).start()
    return server
