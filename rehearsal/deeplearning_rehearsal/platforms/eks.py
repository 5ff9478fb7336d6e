"""Jobs of EKS, whose pods are there while a job runs."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.errors import PromiseError
from cdk_rehearsal.kubernetes.api_client import ApiClient, locate
from deeplearning_contract.jobs.kubernetes_job import CONTAINER, INDEX_LABEL, JOB_LABEL
from deeplearning_rehearsal.intrinsics import read_literals
from deeplearning_rehearsal.platforms.job_platform import JobPlatform

_NODE_GROUP = "AWS::EKS::Nodegroup"
_ACCESS_ENTRY = "AWS::EKS::AccessEntry"
_EDIT, _ADMINISTER = "AmazonEKSEditPolicy", "AmazonEKSClusterAdminPolicy"
_POLL_SECONDS = 0.5


class EksPlatform(JobPlatform):
    """Indexed Jobs of a cluster on EKS."""

    name = "eks"
    settings_key = "kubernetes"
    jobs = "jobs of EKS"
    runs_pods = True
    events_lane = "EKS"

    def resize(self, template: dict[str, Any], workers: int) -> dict[str, str]:
        """Set the nodes of members too in a template, and return path -> new value; AssemblyError if it has none."""
        for resource in template["Resources"].values():
            if resource["Type"] == _NODE_GROUP and "deeplearning/member" in resource["Properties"].get("Labels", {}):
                size = dict.fromkeys(("MinSize", "MaxSize", "DesiredSize"), workers + 1)
                resource["Properties"]["ScalingConfig"] = size
        return super().resize(template, workers)


def find_job_submitter(template: Mapping[str, Any]) -> str:
    """Return the logical id of a role of a template that has access to the jobs of a namespace; empty without one."""
    for principal in _list_principals(template, _EDIT):
        if isinstance(principal, dict) and "Fn::GetAtt" in principal:
            return str(principal["Fn::GetAtt"][0])
    return ""


def has_administrator(template: Mapping[str, Any]) -> bool:
    """Return whether somebody may prepare the cluster of a template."""
    return any(True for _ in _list_principals(template, _ADMINISTER))


def _list_principals(template: Mapping[str, Any], policy: str) -> Iterator[Any]:
    """Yield the ARNs of access entries with a policy."""
    for resource in template["Resources"].values():
        if resource["Type"] == _ACCESS_ENTRY:
            policies = resource["Properties"].get("AccessPolicies", ())
            if any(read_literals(each["PolicyArn"]).endswith(f"/{policy}") for each in policies):
                yield resource["Properties"]["PrincipalArn"]


def await_job(api: ApiClient, namespace: str, name: str, seconds: float) -> dict[str, Any]:
    """Wait for the end of a Job, for so many seconds at most; return it."""
    give_up = time.monotonic() + seconds
    while True:
        job = api.call("GET", locate("jobs", namespace, name))
        if find_end(job) or time.monotonic() > give_up:
            return job
        time.sleep(_POLL_SECONDS)


def find_end(job: Mapping[str, Any]) -> str:
    """Return how a Job ended, such as `Complete/SuccessPolicy`; empty while it runs."""
    for condition in job.get("status", {}).get("conditions", ()):
        if condition["type"] in ("Complete", "Failed") and condition["status"] == "True":
            return f"{condition['type']}/{condition.get('reason', '')}"
    return ""


def list_pods(api: ApiClient, namespace: str, name: str) -> list[dict[str, Any]]:
    """Return the pods of a Job, by index."""
    pods = api.list("pods", namespace, labelSelector=f"{JOB_LABEL}={name}")
    return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][INDEX_LABEL]))


def read_log(api: ApiClient, namespace: str, pod: str) -> str:
    """Return the log of a pod, as the API server relays it."""
    return api.read_text(f"{locate('pods', namespace, pod, 'log')}?container={CONTAINER}")


def require_success(job: Mapping[str, Any], log: str) -> None:
    """Raise PromiseError unless a Job is complete by the success of its first pod."""
    end = find_end(job)
    if end != "Complete/SuccessPolicy":
        conditions = job.get("status", {}).get("conditions", ())
        said = "; ".join(str(each.get("message", "")) for each in conditions if each.get("message"))
        tail = " | ".join(log.strip().splitlines()[-5:])
        raise PromiseError(f"Job {job['metadata']['name']} is {end or 'running'}: {said or tail}")
