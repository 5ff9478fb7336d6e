"""
API server that is played: it stores objects as Kubernetes does, and its Jobs follow a script.

Its words are those of Kubernetes 1.36.2, recorded on real servers.
"""

import base64
import copy
import http.server
import ipaddress
import json
import ssl
import threading
from datetime import datetime, timedelta, timezone
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NOW = "2026-01-02T03:04:05Z"
FORBIDDEN = (
    'persistentvolumes "nfs-data" is forbidden: User "arn:aws:iam::111122223333:role/Researchers" cannot patch '
    'resource "persistentvolumes" in API group "" at the cluster scope'
)
UNSCHEDULABLE = (
    "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu."
)
EXIT_CODE = (
    "Container member for pod kubeflow-dist-train/train-digits-1-wwwds failed with exit code 7 matching FailJob rule "
    "at index 1"
)

RUNNING = {"running": {"startedAt": NOW}}


class ApiServer:
    """Objects of one cluster, behind a socket of this machine."""

    def __init__(self, folder):
        """Listen, with a certificate authority of its own."""
        self.objects = {}
        self.script = ["running", "succeeded"]
        self.scripts = {}
        self.suffix = "x7k2q"
        """End of the name of the pod of index 0."""
        self.log = []
        self.requests = []
        self.steps = {}
        """Further steps of scripts -> state of the containers."""
        self.warnings = []
        """Reason and message of the warnings about a Job without pods, or about its pods."""
        self.phase = "Bound"
        """Phase of the volume."""
        self.claim_phase = "Bound"
        """Phase of its claim."""
        self.expired = 0
        """Number of the next requests whose token is not accepted."""
        self.refusals = {}
        """Method and plural of a resource -> status code and message."""
        self._lock = threading.Lock()
        self.authority = _make_authority(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / "server.pem")
        handler = type("Handler", (_Handler,), {"api": self})
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.endpoint = f"https://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def get(self, plural, name):
        return self.objects.get((plural, name))

    def list(self, plural):
        return [each for (kind, _), each in self.objects.items() if kind == plural]

    def list_events(self, fields):
        """Return the events with these fields about each pod, or about each Job without pods."""
        about = self.list("pods") or self.list("jobs")
        key, _, value = fields.partition("=")
        found = [
            {
                "metadata": {"name": f"{reason}-{each['metadata']['name']}"},
                "type": "Normal" if reason in ("Pulling", "Pulled") else "Warning",
                "reason": reason,
                "message": message,
                "lastTimestamp": NOW,
                "involvedObject": {"name": each["metadata"]["name"], "uid": each["metadata"]["uid"]},
            }
            for reason, message in self.warnings
            for each in about
        ]
        return [each for each in found if not key or each[key] == value]

    def add_pods(self, job, **status):
        """Create the pods of a Job that it lacks."""
        name = job["metadata"]["name"]
        for index in range(job["spec"]["completions"]):
            labels = {
                **job["spec"]["template"]["metadata"]["labels"],
                "batch.kubernetes.io/job-completion-index": str(index),
            }
            pod = f"{name}-{index}-{'x7k2q' if index else self.suffix}"
            found = self.objects.setdefault(("pods", pod), {"metadata": _identify(pod, labels=labels), "status": {}})
            found["status"] = {"phase": "Pending", **status}

    def advance(self, job):
        """Let a Job take the next step of its script; the last one lasts."""
        if job["spec"].get("suspend"):  # In a queue, until Kueue starts it.
            return
        script = self.scripts.setdefault(job["metadata"]["uid"], list(self.script))
        step = script.pop(0) if len(script) > 1 else script[0]
        members = job["spec"]["completions"]
        if step == "pending":
            job["status"] = {"active": members, "ready": 0}
            self.add_pods(job, conditions=[_condition("PodScheduled", "Unschedulable", UNSCHEDULABLE, "False")])
        elif step in self.steps:
            job["status"] = {"active": members, "ready": 0}
            self.add_pods(job, containerStatuses=[_describe_container(self.steps[step])])
        elif step == "expired":
            self.expired = 1
        elif step == "replaced":
            job["status"] = {"active": members, "ready": members, "failed": 1}
            del self.objects["pods", f"{job['metadata']['name']}-0-x7k2q"]
            self.suffix = "b8m4z"
            self.add_pods(job, phase="Running", containerStatuses=[_describe_container(RUNNING)])
        elif step == "running":
            job["status"] = {"active": members, "ready": members}
            self.add_pods(job, phase="Running", containerStatuses=[_describe_container(RUNNING)])
        elif step == "succeeded":
            job["status"] = {"succeeded": 1, "completionTime": NOW}
            job["status"]["conditions"] = [_condition("Complete", "SuccessPolicy", "Matched rules at index 0")]
        elif step == "failed":
            job["status"] = {"failed": members, "conditions": [_condition("Failed", "PodFailurePolicy", EXIT_CODE)]}

    def suspend(self, job):
        """End the pods of a Job."""
        job["status"] = {"conditions": [_condition("Suspended", "JobSuspended", "Job suspended")]}
        for key in [key for key in self.objects if key[0] == "pods" and key[1].startswith(job["metadata"]["name"])]:
            del self.objects[key]


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection to the server."""

    protocol_version = "HTTP/1.1"
    api: ApiServer

    def log_message(self, *_):
        """Print nothing."""

    def do_GET(self):
        self._serve("GET", self._read)

    def do_POST(self):
        self._serve("POST", self._create)

    def do_PATCH(self):
        self._serve("PATCH", self._change)

    def do_DELETE(self):
        self._serve("DELETE", self._delete)

    def _serve(self, method, answer):
        parts = urlsplit(self.path)
        length = int(self.headers.get("Content-Length", 0))
        body = json.loads(self.rfile.read(length)) if length else None
        words = parts.path.strip("/").split("/")
        words = words[2:] if words[0] == "api" else words[3:]
        words = words[2:] if words[0] == "namespaces" and len(words) > 2 else words
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        api = self.api
        with api._lock:
            api.requests.append((method, words[0], words[1] if len(words) > 1 else None, query, body))
            if api.expired:
                api.expired -= 1
                self._send(*_refuse(401, "Unauthorized"))
            elif (method, words[0]) in api.refusals:
                self._send(*_refuse(*api.refusals[method, words[0]]))
            else:
                self._send(*answer(words, query, body))

    def _read(self, words, query, _):
        if len(words) > 2:
            assert words[2] == "log"
            lines = [f"2026-01-02T03:04:05.{number:09}Z {line}" for number, line in enumerate(self.api.log)]
            return 200, "".join(f"{line}\n" for line in lines[-int(query.get("tailLines", 10_000)) :])
        if len(words) == 2:
            found = self.api.get(*words)
            if found is None:
                return _refuse(404, f'{words[0]} "{words[1]}" not found')
            if words[0] == "jobs":
                self.api.advance(found)
            return 200, found
        labels = [pair.partition("=") for pair in query.get("labelSelector", "").split(",") if pair]
        items = [
            each
            for each in (
                self.api.list_events(query.get("fieldSelector", ""))
                if words[0] == "events"
                else self.api.list(words[0])
            )
            if all(each["metadata"].get("labels", {}).get(key) == value for key, _, value in labels)
        ]
        return 200, {"metadata": {}, "items": items}

    def _create(self, words, query, body):
        name = body["metadata"].get("name") or body["metadata"]["generateName"] + "x7k2q"
        if self.api.get(words[0], name):
            return _refuse(409, f'{words[0]}.batch "{name}" already exists')
        made = copy.deepcopy(body)
        made["metadata"] |= _identify(name, uid=f"uid-{len(self.api.requests)}")
        if "dryRun" not in query:
            self.api.objects[words[0], name] = made
        return 201, made

    def _change(self, words, query, body):
        plural, name = words
        if self.headers["Content-Type"] == "application/apply-patch+yaml":
            found = self.api.objects.setdefault((plural, name), {"metadata": _identify(name)})
            metadata = found["metadata"] | body["metadata"]
            found |= copy.deepcopy(body) | {"metadata": metadata}
            if plural in ("persistentvolumes", "persistentvolumeclaims"):
                found["status"] = {"phase": self.api.phase if plural == "persistentvolumes" else self.api.claim_phase}
            return 200, found
        found = self.api.get(plural, name)
        _merge(found, body)
        if found["spec"].get("suspend"):
            self.api.suspend(found)
        return 200, found

    def _delete(self, words, *_):
        del self.api.objects[tuple(words)]
        self.api.objects = {
            key: each for key, each in self.api.objects.items() if key[0] != "pods" or not key[1].startswith(words[1])
        }
        return 200, {"kind": "Status", "status": "Success"}

    def _send(self, code, answer):
        is_text = isinstance(answer, str)
        content = (answer if is_text else json.dumps(answer)).encode()
        self.send_response(code)
        self.send_header("Content-Type", "text/plain" if is_text else "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def _refuse(code, message):
    return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}


def _describe_container(state):
    is_ready = "running" in state
    return {"name": "member", "image": "", "imageID": "", "ready": is_ready, "restartCount": 0, "state": state}


def _condition(kind, reason, message, status="True"):
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW}


def _identify(name, **more):
    return {"name": name, "uid": f"uid-{name}", "creationTimestamp": NOW, **more}


def _merge(found, change):
    """Change an object by a JSON merge patch (RFC 7386)."""
    for key, value in change.items():
        if value is None:
            found.pop(key, None)
        elif isinstance(value, dict):
            _merge(found.setdefault(key, {}), value)
        else:
            found[key] = value


def _make_authority(folder):
    """
    Write the server's key and certificates, and return its authority as EKS does, in base64.

    EKS's authority has one extension, and no key identifier (https://github.com/awslabs/mcp/issues/3791).
    """
    root, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority, server = _name("kubernetes"), _name("kube-apiserver")
    is_authority = x509.BasicConstraints(ca=True, path_length=None)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = _sign(authority, authority, root, root.public_key(), is_authority)
    served = _sign(authority, server, root, key.public_key(), host)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(secret + served)
    return base64.b64encode(signed).decode()


def _name(text):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _sign(issuer, subject, root, public, extension):
    now = datetime.now(timezone.utc)
    made = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        .sign(root, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)
