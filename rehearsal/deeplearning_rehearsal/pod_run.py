"""One run of a stack on EKS: deploy, prepare the cluster, look at the pods of a job, stop it, train."""

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

from cdk_rehearsal.errors import PromiseError, RehearsalError
from cdk_rehearsal.kubernetes.api_client import MERGE, locate
from cdk_rehearsal.run.timeline import Span
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_cluster import CLAIM, MANAGER, VOLUME, make_cluster_objects
from deeplearning_contract.jobs.kubernetes_job import make_job
from deeplearning_contract.jobs.submission import KubernetesSettings, make_secret
from deeplearning_contract.names import MEMBERSHIP_FILE
from deeplearning_rehearsal.checks.contract_check import check_nodes, read_membership
from deeplearning_rehearsal.checks.failure_alarm import FAILING_JOB
from deeplearning_rehearsal.checks.training import (
    ENDLESS_JOB,
    LAUNCHER,
    copy_programs,
    make_training_report,
    read_result,
)
from deeplearning_rehearsal.cluster_run import ClusterRun
from deeplearning_rehearsal.kubernetes_jobs import KubernetesJobs, name_node
from deeplearning_rehearsal.platforms.eks import await_job, find_end, list_pods, read_log, require_success
from deeplearning_rehearsal.report.assessment import Evidence
from deeplearning_rehearsal.report.environment_report import EnvironmentReport
from deeplearning_rehearsal.report.paid_seconds import STARTING, TRAINING

_POLL_SECONDS = 0.3
_LANE = "training"


@dataclass(frozen=True)
class PodRun(ClusterRun):
    """
    The parts of one rehearsal, with the jobs of its stack.

    Attributes:
        jobs: The jobs.
    """

    jobs: KubernetesJobs

    def check(self, evidence: Evidence) -> None:
        """Prepare the cluster, hold each pod of a job against the contract, and stop the job."""
        jobs, pods = self.jobs, self.jobs.pods
        with self.timeline.phase("prepare cluster"):
            evidence.kubernetes += [self._describe_control_plane(), self._prepare(jobs.settings)]
        began = time.monotonic()
        with self.timeline.phase("form pods"):
            name = self._start(ENDLESS_JOB)
            names = self._await_membership(name)
            evidence.formation_seconds = time.monotonic() - began
            evidence.calls = self.aws.calls()
        with self.timeline.phase("check"):
            evidence.membership = read_membership(pods, names[0])
            evidence.nodes = check_nodes(
                pods, evidence.membership, jobs.submission.login_user, self.timeline.report, has_systemd=False
            )
            self._stop(evidence, name)

    def train(self, evidence: Evidence) -> None:
        """Run the example job; RehearsalError when it failed, or a pod is left running."""
        jobs, namespace = self.jobs, self.jobs.settings.namespace
        with self.timeline.phase("train"):
            name = self._start(jobs.job)
            job = await_job(jobs.api, namespace, name, self.last_moment - time.monotonic())
            pods = list_pods(jobs.api, namespace, name)
            log = read_log(jobs.api, namespace, pods[0]["metadata"]["name"]) if pods else ""
            require_success(job, log)
            evidence.training = make_training_report(LAUNCHER, read_result(log))
            self.timeline.report(_LANE, f"training ends, held-out accuracy {evidence.training.accuracy:.3f}")
            self.timeline.report(_LANE, f"Job {name} is {find_end(job)}")
            left = jobs.pods.await_end(self.give_up)
            if left:
                evidence.problems.append(f"no pod must run after the end of the job, {', '.join(left)} does")
            evidence.kubernetes.append(f"Job {name} is {find_end(job)}, and {', '.join(left) or 'no pod'} runs")

    def run_failing_job(self) -> None:
        """Run the failing job; PromiseError with its end."""
        jobs, namespace = self.jobs, self.jobs.settings.namespace
        name = self._start(FAILING_JOB)
        job = await_job(jobs.api, namespace, name, self.last_moment - time.monotonic())
        require_success(job, "")

    def name_lane(self, instance_id: str) -> str:
        """Return the track of a node of Kubernetes."""
        return name_node(self.fleet.launched(), instance_id)

    def list_job_spans(self, _evidence: Evidence) -> Sequence[Span]:
        """Return what the jobs did: the first forms and is checked, the second trains."""
        causes = {"form pods": STARTING, "train": TRAINING}
        return [
            Span(causes[each.name], each.start, each.seconds) for each in self.timeline.spans if each.name in causes
        ]

    def find_environment(self) -> EnvironmentReport | None:
        """Return what jobs run in; None when no pod began."""
        images = self.jobs.pods.images
        return EnvironmentReport("image", detail=images[0].stand_in.behaviour) if images else None

    def _describe_control_plane(self) -> str:
        cluster = self.jobs.clusters.cluster
        assert cluster is not None  # The stack is complete.
        nodes = cluster.api.list("nodes")
        conditions = [each for node in nodes for each in node["status"]["conditions"]]
        ready = sum((each["type"], each["status"]) == ("Ready", "True") for each in conditions)
        return f"{cluster.plane.description}, {ready} of {len(nodes)} nodes are Ready"

    def _prepare(self, settings: KubernetesSettings) -> str:
        """
        Apply what `deeplearning-cdk prepare-cluster` applies, and return the volume's line.

        Raises:
            PromiseError: The claim is not bound.
        """
        api = self.jobs.administrator
        for each in make_cluster_objects(settings, self.jobs.start_files):
            api.apply(each, MANAGER)
        while time.monotonic() < self.give_up:
            volume = api.find("persistentvolumes", "", VOLUME) or {}
            phase = volume.get("status", {}).get("phase", "Pending")
            if phase == "Bound":
                spec = volume["spec"]
                words = [VOLUME, spec["capacity"]["storage"], "RWX", spec["persistentVolumeReclaimPolicy"], phase]
                line = f"{' '.join(words)} {settings.namespace}/{CLAIM} {spec['storageClassName']}"
                self.timeline.report("EKS", line)
                return line
            time.sleep(_POLL_SECONDS)
        raise PromiseError(f"volume {VOLUME} must be Bound, it is not in time")

    def _start(self, definition: JobDefinition) -> str:
        """Create a Job as `deeplearning-cdk submit` does, and return its name."""
        copy_programs(self.jobs.clients, self.jobs.submission)
        job = make_job(self.jobs.submission, definition, secret=make_secret())
        self.jobs.api.call("POST", locate("jobs", self.jobs.settings.namespace), job)
        return str(job["metadata"]["name"])

    def _stop(self, evidence: Evidence, name: str) -> None:
        """Suspend a Job as `deeplearning-cdk stop` does."""
        path = locate("jobs", self.jobs.settings.namespace, name)
        self.jobs.api.call("PATCH", path, {"spec": {"suspend": True}}, MERGE)
        if left := self.jobs.pods.await_end(self.give_up):
            evidence.problems.append(f"no pod must run after a stop, {', '.join(left)} does")

    def _await_membership(self, name: str) -> list[str]:
        """Wait until each pod has the membership, and return their names; PromiseError when the Job ends before."""
        jobs, namespace, find = self.jobs, self.jobs.settings.namespace, ["test", "-f", MEMBERSHIP_FILE]
        while time.monotonic() < self.last_moment:
            job = jobs.api.call("GET", locate("jobs", namespace, name))
            names = [pod["metadata"]["name"] for pod in list_pods(jobs.api, namespace, name)]
            if end := find_end(job):
                log = read_log(jobs.api, namespace, names[0]) if names else ""
                raise PromiseError(f"Job {name} is {end} before it formed: {' | '.join(log.splitlines()[-5:])}")
            with contextlib.suppress(RehearsalError):  # A pod is not there yet.
                if len(names) == jobs.settings.members and all(
                    jobs.pods.run(pod, find).returncode == 0 for pod in names
                ):
                    return names
            time.sleep(_POLL_SECONDS)
        raise PromiseError(f"Job {name} must form, it is not in time; {self._describe_waits()}")

    def _describe_waits(self) -> str:
        events = self.jobs.api.list("events", self.jobs.settings.namespace)
        return "; ".join(dict.fromkeys(str(event.get("message", "")) for event in events)) or "no events"
