"""Clusters on EKS for the commands: the rehearsal's stand-in of Kubernetes, whose pods act while a command sleeps."""

import base64
import json
import time
from dataclasses import replace
from types import SimpleNamespace

import boto3
import pytest
from botocore.stub import ANY, Stubber
from cryptography import x509

from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from cdk_rehearsal.kubernetes.users import ADMINISTRATORS, User
from deeplearning_cli import prepare_cluster
from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.jobs import kubernetes_jobs
from tests.kubernetes.client import MERGE, locate
from tests.kubernetes.conftest import NUMBERS, VERSION
from tests.kubernetes.lab import GRACE_SECONDS, ROLE, Lab
from tests.unit.deeplearning_contract.test_kubernetes_job import SUBMISSION

REGION = "eu-west-1"
SESSION = boto3.session.Session("AKIDEXAMPLE", "secret", region_name=REGION)
MOST_SLEEPS = 50
SUBMITTER = User(ROLE, ("eks:submitters",))


class Callers:
    """
    Reviewer of the tokens of commands.

    Attributes:
        user: Sender of all of them.
        refused: Number of the next requests whose token is not accepted.
        tokens: Tokens of the requests so far.
    """

    def __init__(self):
        """Take the sender for an administrator of the cluster."""
        self.user, self.refused, self.tokens = User("administrator", (ADMINISTRATORS,)), 0, []

    def review(self, token):
        """Return the sender of a token; None for one that is refused."""
        self.tokens.append(token)
        if self.refused:
            self.refused -= 1
            return None
        return self.user


class Cluster(Lab):
    """
    Cluster of a test.

    Attributes:
        callers: Who sends the requests of commands.
        script: What happens in the next sleeps of a command; afterwards, nodes go on by themselves.
        log: Lines of the pods of index 0.
        seconds: Time that commands have slept.
    """

    def __init__(self, plane, callers):
        """Bind the control plane."""
        super().__init__(plane, next(NUMBERS))
        authority = base64.b64encode(plane.authority.read_bytes()).decode()
        self.settings = replace(self.settings, endpoint=plane.endpoint, authority=authority)
        self.callers = callers
        self.begin()

    def begin(self):
        """Forget what the test before has set."""
        vars(self.callers).update(vars(Callers()))
        self.script, self.log, self.seconds, self._sleeps, self.kubelet.waiting = [], [], 0.0, 0, None

    def sleep(self, seconds):
        """Let the next step happen while a command sleeps."""
        self._sleeps += 1
        assert self._sleeps < MOST_SLEEPS, "a command waits without an end"
        if self.script:
            self.script.pop(0)()
        self.kubelet.step()
        self.seconds += seconds
        self.plane.pass_time(seconds)

    def start(self, name="train-digits"):
        """Start the pods of a Job."""
        self.until(lambda: self.get_status(name).get("ready") == 2, f"all pods of {name} run")
        self.write_log(self.get_running(name, 2)[0])

    def write_log(self, pod):
        """Write the lines of the log of a pod, as `--timestamps` has them."""
        lines = [f"2026-01-02T03:04:05.{number:09}Z {line}\n" for number, line in enumerate(self.log)]
        self.kubelet.logs[pod["metadata"]["name"]] = "".join(lines)

    def finish(self, code=0):
        """End the program of index 0 with an exit status."""
        self.kubelet.end(self.get_running("train-digits", 2)[0], code)
        self.await_end("train-digits")

    def replace_first(self):
        """Delete the pod of index 0 by hand, and start the next one."""
        pod = self.get_running("train-digits", 2)[0]
        self.admin.call("DELETE", locate("pods", self.namespace, pod["metadata"]["name"]))
        self.write_log(self.await_successor(pod))

    def report(self, about, reason, message):
        """Record an event of the kubelet about a pod."""
        metadata = about["metadata"]
        event = {
            "metadata": {"name": f"{metadata['name']}.{reason.lower()}", "namespace": self.namespace},
            "involvedObject": {"kind": "Pod", **{key: metadata[key] for key in ("namespace", "name", "uid")}},
            "type": "Normal" if reason in ("Pulling", "Pulled") else "Warning",
            "reason": reason,
            "message": message,
            "lastTimestamp": f"2026-01-02T03:04:{len(self.admin.list('events', self.namespace)) % 60:02}Z",
        }
        self.admin.do("POST", locate("events", self.namespace), event)

    def find(self, plural, name):
        """Return an object of the cluster, or of its namespace; None when it does not exist."""
        return self.admin.get(plural, "" if plural in ("nodes", "persistentvolumes") else self.namespace, name)

    def set_status(self, plural, name, **status):
        """Change the status of an object."""
        namespace = "" if plural in ("nodes", "persistentvolumes") else self.namespace
        self.admin.do("PATCH", locate(plural, namespace, name, "status"), {"status": status}, MERGE)


class Account:
    """Parameter with the submission document, and a bucket for sources."""

    def __init__(self, submission):
        """Deploy nothing but the document."""
        self.submission = submission
        self.sources = []
        self.copies = []

    def change(self, **more):
        """Deploy the stack again, with other settings."""
        self.submission = replace(self.submission, kubernetes=replace(self.submission.kubernetes, **more))

    def get_paginator(self, operation):
        """Return the pages of parameters."""
        assert operation == "get_parameters_by_path"
        return self

    def paginate(self, **_):
        """Return the page with the document."""
        value = json.dumps(self.submission.to_document())
        return [{"Parameters": [{"Name": "/deeplearning/Train-0123abcd/submission", "Value": value}]}]

    def put_object(self, **request):
        """Keep the key of an object."""
        with Stubber(boto3.client("s3", REGION)) as stub:
            stub.add_response("put_object", {}, {**request, "Body": ANY})
            stub.client.put_object(**request)
        self.sources.append(request["Key"])

    def copy_object(self, **request):
        """Keep the keys of a copied object."""
        with Stubber(boto3.client("s3", REGION)) as stub:
            stub.add_response("copy_object", {}, request)
            stub.client.copy_object(**request)
        self.copies.append((request["CopySource"]["Key"], request["Key"]))


def add_as_eks(builder, extension, critical, add=x509.CertificateBuilder.add_extension):
    """Leave out what the authority of EKS lacks: all but one extension (https://github.com/awslabs/mcp/issues/3791)."""
    lacks = (x509.SubjectKeyIdentifier, x509.AuthorityKeyIdentifier, x509.KeyUsage)
    return builder if isinstance(extension, lacks) else add(builder, extension, critical)


@pytest.fixture(scope="session")
def plane(tmp_path_factory):
    """The control plane of all tests and its reviewer; time passes by the sleeps of commands alone."""
    moment, callers = time.time(), Callers()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(x509.CertificateBuilder, "add_extension", add_as_eks)
        opened = ControlPlane(
            tmp_path_factory.mktemp("plane"),
            version=VERSION,
            review=callers.review,
            grace_seconds=GRACE_SECONDS,
            tell_time=lambda: moment,
        )
    yield opened, callers
    opened.stop()


@pytest.fixture
def cluster(plane):
    """A cluster without nodes, with its administrator as the caller; `open` adds nodes and what jobs need."""
    found = Cluster(*plane)
    yield found
    found.close()


@pytest.fixture
def account(cluster, monkeypatch):
    """The account of a stack on EKS, whose cluster goes on while commands sleep."""
    clock = SimpleNamespace(sleep=cluster.sleep, monotonic=lambda: cluster.seconds)
    for module in (kubernetes_jobs, prepare_cluster):
        monkeypatch.setattr(module, "time", clock)
    found = Account(replace(SUBMISSION, kubernetes=cluster.settings))
    clients = {"ssm": found, "s3": found, "sts": SESSION.client("sts")}
    access = CloudAccess(clients.__getitem__, REGION, None)
    for command in ("jobs.submit", "jobs.listing", "jobs.stop", "jobs.plan", "logs", "prepare_cluster"):
        monkeypatch.setattr(f"deeplearning_cli.{command}.open_cloud", lambda _: access)
    return found
