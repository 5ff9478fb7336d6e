"""Clusters on Amazon EMR, whose jobs are steps."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.errors import PromiseError, UnavailableError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings, make_emr_step
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import last_lines
from deeplearning_rehearsal.platforms.platform import Clients, ClusterPlatform

_CLUSTER, _PARAMETER = "AWS::EMR::Cluster", "AWS::SSM::Parameter"
_CORE = "CoreInstanceGroup"
STEP_LOGS = "/mnt/var/log/hadoop/steps"
"""Folder of the logs of steps on EMR's primary node (EMR management guide, "View log files")."""
LOG_FILES = ("controller", "stdout", "stderr")
_POLL_SECONDS = 0.5


class EmrPlatform(ClusterPlatform):
    """Clusters on EMR, whose members a stack does not wait for."""

    has_late_members = True

    def owns(self, template: Mapping[str, Any]) -> bool:
        """Return whether a template has a cluster on EMR."""
        return bool(_find_clusters(template))

    def count_nodes(self, template: Mapping[str, Any]) -> int:
        """Return the instances of the primary's group and of the core group."""
        clusters = _find_clusters(template).values()
        groups = (each["Instances"][name] for each in clusters for name in ("MasterInstanceGroup", _CORE))
        return sum(int(group["InstanceCount"]) for group in groups)

    def require_nodes(self, template: Mapping[str, Any], nodes: int) -> None:  # noqa: ARG002
        """Raise UnavailableError for one node: a cluster has a primary and a core node."""
        if nodes == 1:
            raise UnavailableError(
                "--nodes must be at least 2 on EMR, the primary and a core node, got 1; leave it out, or raise it"
            )

    def resize(self, template: dict[str, Any], workers: int) -> dict[str, str]:
        """Set the number of core nodes in a template, and return path -> new value."""
        listing = {}
        for name, properties in _find_clusters(template).items():
            core = properties["Instances"][_CORE]
            core["InstanceCount"] = listing[f"{name}.{_CORE}.InstanceCount"] = str(workers)
        return listing

    def list_settings(self, template: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the parameters that bootstrap actions read."""
        for properties in _find_clusters(template).values():
            for action in properties.get("BootstrapActions", ()):
                for argument in action["ScriptBootstrapAction"].get("Args", []):
                    named = template["Resources"].get(argument.get("Ref"), {}) if isinstance(argument, dict) else {}
                    if named.get("Type") == _PARAMETER:
                        yield named["Properties"], "Value"

    def await_members(self, clients: Clients, submission: SubmissionSettings, seconds: float) -> None:
        """Wait for the first steps of a cluster; PromiseError if they end it."""
        emr, cluster = clients("emr"), submission.cluster_id
        _await_steps(emr, cluster, seconds)
        status = emr.describe_cluster(ClusterId=cluster)["Cluster"]["Status"]
        if status["State"] != "WAITING":
            reason = status["StateChangeReason"].get("Message", "no reason given")
            raise PromiseError(f"cluster {cluster} must wait for jobs, it is {status['State']}: {reason}")

    def find_logs(self, clients: Clients, submission: SubmissionSettings) -> Mapping[str, bool]:
        """
        Return the logs that EMR writes of a cluster's bootstrap actions and ended steps.

        Their names are those of the EMR management guide, "View log files". A cluster without a `LogUri` has none.
        """
        emr, cluster = clients("emr"), submission.cluster_id
        uri = str(emr.describe_cluster(ClusterId=cluster)["Cluster"].get("LogUri", "")).rstrip("/")
        if not uri:
            return {}
        instances = emr.list_instances(ClusterId=cluster, InstanceStates=["RUNNING"])["Instances"]
        actions = range(1, 1 + len(emr.list_bootstrap_actions(ClusterId=cluster)["BootstrapActions"]))
        steps = emr.list_steps(ClusterId=cluster, StepStates=["COMPLETED", "FAILED"])["Steps"]
        nodes = [each["Ec2InstanceId"] for each in instances]
        folders = [f"node/{node}/bootstrap-actions/{number}" for node in nodes for number in actions]
        folders += [f"steps/{step['Id']}" for step in steps]
        bucket, _, prefix = uri.partition("://")[2].partition("/")
        pages = clients("s3").get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/{cluster}/")
        found = {entry["Key"] for page in pages for entry in page.get("Contents", [])}
        names = [f"{prefix}/{cluster}/{folder}/{name}.gz" for folder in folders for name in LOG_FILES]
        return {f"s3://{bucket}/{name}": name in found for name in names}

    def run_job(
        self,
        nodes: Nodes,
        master: str,
        job: JobDefinition,
        seconds: float,
        *,
        clients: Clients,
        submission: SubmissionSettings,
    ) -> str:
        """Run a job in a step of the cluster."""
        emr, cluster = clients("emr"), submission.cluster_id
        (step,) = emr.add_job_flow_steps(JobFlowId=cluster, Steps=[make_emr_step(job)])["StepIds"]
        _await_steps(emr, cluster, seconds)
        state = emr.describe_step(ClusterId=cluster, StepId=step)["Step"]["Status"]["State"]
        logs = {name: nodes.run(master, ["cat", f"{STEP_LOGS}/{step}/{name}"]).stdout for name in ("stdout", "stderr")}
        if state != "COMPLETED":
            raise PromiseError(f"the job's step {step} is {state}: {last_lines(logs['stdout'] + logs['stderr'])}")
        return logs["stdout"]


def _find_clusters(template: Mapping[str, Any]) -> dict[str, Any]:
    resources = template.get("Resources", {}).items()
    return {name: each["Properties"] for name, each in resources if each["Type"] == _CLUSTER}


def _await_steps(emr: Any, cluster: str, seconds: float) -> None:
    """Wait until no step of a cluster is left to do, for so many seconds at most."""
    give_up = time.monotonic() + seconds
    while emr.list_steps(ClusterId=cluster, StepStates=["PENDING", "RUNNING"])["Steps"] and time.monotonic() < give_up:
        time.sleep(_POLL_SECONDS)
