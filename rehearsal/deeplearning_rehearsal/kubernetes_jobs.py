"""The jobs of a rehearsed stack on EKS: created as `deeplearning-cdk submit` does, and looked at from outside."""

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from cdk_rehearsal.machine import Machine, private_dns_name
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_cluster import START_FILES, get_kubernetes
from deeplearning_contract.jobs.submission import KubernetesSettings, SubmissionSettings
from deeplearning_rehearsal.checks.training import find_submission
from deeplearning_rehearsal.platforms.platform import Clients

if TYPE_CHECKING:  # Reading a case needs no lab.
    from cdk_rehearsal.kubernetes.api_client import ApiClient
    from deeplearning_rehearsal.lab_clusters import KubernetesHost
    from deeplearning_rehearsal.lab_pods import LabPods


@dataclass
class KubernetesJobs:
    """
    Jobs of one stack.

    Attributes:
        clients: Clients of who submits jobs.
        operate: Clients of the operator, who stands for the stack's administrator.
        pods: The pods.
        clusters: The control plane.
        make_job: Returns the job, with its source uploaded.
        has_submitter: Whether a role of the stack may submit; without one, the administrator does.
        has_administrator: Whether the stack names one; without one, the control plane's own acts.
    """

    clients: Clients
    operate: Clients
    pods: "LabPods"
    clusters: "KubernetesHost"
    make_job: Callable[[SubmissionSettings], JobDefinition]
    has_submitter: bool
    has_administrator: bool

    @cached_property
    def submission(self) -> SubmissionSettings:
        """The submission document of the stack."""
        return find_submission(self.clients)

    @property
    def settings(self) -> KubernetesSettings:
        """The settings of Kubernetes."""
        return get_kubernetes(self.submission)

    @cached_property
    def job(self) -> JobDefinition:
        """The job of a case, with its source uploaded."""
        return self.make_job(self.submission)

    @property
    def api(self) -> "ApiClient":
        """Client of who submits jobs, with a new token."""
        return self._sign_in(self.clients) if self.has_submitter else self.administrator

    @property
    def administrator(self) -> "ApiClient":
        """Client of who prepares the cluster, with a new token."""
        return self._sign_in(self.operate) if self.has_administrator else self.control_plane

    @property
    def control_plane(self) -> "ApiClient":
        """Client of the control plane's own administrator, whom no stack has."""
        cluster = self.clusters.cluster
        assert cluster is not None  # The stack is complete.
        return cluster.api

    def _sign_in(self, clients: Clients) -> "ApiClient":
        return replace(self.control_plane, token=make_token(clients("sts"), self.settings))

    @cached_property
    def start_files(self) -> dict[str, str]:
        """The start program, as `deeplearning-cdk prepare-cluster` has it."""
        packed = Path(__file__).parents[1] / "deeplearning_cdk" / "_payload"
        folder = packed if packed.is_dir() else Path(__file__).parents[2] / "userdata"
        return {name: (folder / name).read_text(encoding="utf-8") for name in START_FILES}


def make_token(sts: Any, settings: KubernetesSettings) -> str:
    """Return the token of a caller for a cluster, as `aws eks get-token` makes it."""

    def add_cluster(request: Any, **_: Any) -> None:
        request.headers["x-k8s-aws-id"] = settings.cluster_name
        query = urlsplit(request.url).query
        request.url = urlunsplit(("https", f"sts.{settings.region}.amazonaws.com", "/", query, ""))

    events = sts.meta.events
    events.register("before-sign.sts.GetCallerIdentity", add_cluster)
    try:
        url = sts.generate_presigned_url("get_caller_identity", ExpiresIn=60, HttpMethod="GET")
    finally:
        events.unregister("before-sign.sts.GetCallerIdentity", add_cluster)
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


def name_node(machines: Iterable[Machine], instance_id: str) -> str:
    """Return the name of the node of Kubernetes on an instance, which is its track in the timeline."""
    return next((private_dns_name(each) for each in machines if each.instance_id == instance_id), instance_id)
