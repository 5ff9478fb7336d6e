"""
Program of every pod: prepare it, form the cluster, and run the job or serve until its end.

The pod of index 0 alone decides the outcome of the job: its success completes the Job, and so does its failure. The
others run until Kubernetes ends them, which it does when the Job has ended. A pod that is ended never ends with status
0, which Kubernetes would take for the success of its index.
"""

import logging
import os
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

from deeplearning_agent.boot.steps import run_stage
from deeplearning_contract.cluster_event import ClusterEvent, EventKind, put_events_request
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.jobs.kubernetes_job import SIGNING_VARIABLE, TERMINATION_FILE
from deeplearning_contract.reason import Reason
from deeplearning_jobs.plan.checkpoints import find_newest
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.container import list_variables, read_settings, start_member
from deeplearning_member.first_process import run_in_child
from deeplearning_member.job_process import JobEnd, open_job, run_job
from deeplearning_member.kubernetes.pod import Pod, begin_data, open_pod
from deeplearning_member.kubernetes.pods import PodService, SupersededError
from deeplearning_member.reachability import SSH_PORT, responds
from deeplearning_member.signed_file import Signer
from deeplearning_node.aws_clients import AwsClients, AwsFailure, call_for
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.node import Node

LOG = logging.getLogger("deeplearning_member")
FOLLOW_SECONDS = 2.0
END_SECONDS = 100.0
"""Time for the ranks to end after a stop; Kubernetes kills a pod after the 120 s of its grace period."""
TERMINATED = 128 + signal.SIGTERM
EVENT_SECONDS = 30
MOST_STARTS = 10
"""
Most starts of a job without a newer checkpoint, beside those that `retries` allow.

Kubernetes has no bound of its own: a pod that the kubelet evicts for its node has the condition DisruptionTarget, as
one of a lost node, and a rule that ignores it counts towards no backoff limit (Kubernetes documentation, "Pod failure
policy").
"""
_MOST_CHARACTERS = 4096
_NEWER_DRIVER = "deploy with another node_image or version, whose nodes have a newer driver"


def serve(root: Path = Path("/")) -> int:
    """Run the program of the pod, its first process, and return the exit status."""
    return run_in_child(lambda: _run(root))


def _run(root: Path) -> int:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    logging.basicConfig(format="deeplearning-member: %(message)s", level=logging.INFO, stream=sys.stdout, force=True)
    try:
        return run_pod(root, stop)
    except SupersededError as error:
        LOG.warning("%s", error)
        return TERMINATED
    except Exception as error:  # noqa: BLE001 - kubectl shows the reason of any failure
        reason = str(describe_failure(error, "serve").reason(os.uname().nodename))
        LOG.error("%s", reason)  # noqa: TRY400 - the reason says it all
        write_reason(root, reason)
        return 1


def run_pod(root: Path, stop: threading.Event) -> int:
    """
    Prepare the pod, and run the job or serve until its end; `stop` is set when Kubernetes ends the pod.

    Effects: a failure of the pod's own, which ends the job, is sent as an event of the cluster.
    """
    settings, pod = read_settings(root), Pod.read()
    os.environ.pop(SIGNING_VARIABLE, None)  # What ranks print of their variables has it not.
    try:
        return _serve(open_pod(root, settings, pod), pod, stop)
    except Exception as error:
        if not stop.is_set() and not isinstance(error, SupersededError):
            send_failure(settings.event_cluster, pod, describe_failure(error, "serve").reason(pod.name))
        raise


def _serve(node: Node, pod: Pod, stop: threading.Event) -> int:
    LOG.info("preparing %s of %d pods", node, pod.members)
    deadline = node.limit(node.settings.setup_seconds)
    folder = ClusterFolder(node, pod.job_uid, Signer(pod.secret))
    run_stage(node.clock, "find the shared file system", folder.check)
    member = start_member(node, "", deadline, _NEWER_DRIVER)
    begin_data(node)
    service = PodService(node, folder, member, list_variables())
    try:
        return Leader(node, pod, folder, service, stop).run(deadline) if node.is_master else follow(node, service, stop)
    finally:
        service.withdraw()


class Leader:
    """The pod of index 0, which runs the job."""

    def __init__(self, node: Node, pod: Pod, folder: ClusterFolder, service: PodService, stop: threading.Event) -> None:
        """Bind the pod; nothing is started yet."""
        self._node, self._pod, self._folder, self._service, self._stop = node, pod, folder, service, stop
        self._next = Deadline.after(node.clock, 0)
        self._state: ClusterState | None = None

    def run(self, deadline: Deadline) -> int:
        """
        Run the job to its end on all pods, again with those that have replaced others; return the exit status.

        Raises:
            StageFailure: A pod has not come until the deadline; that of a replacement begins when a pod has left. Or
                pods have left so often, without a newer checkpoint, that the job would begin again for ever.
        """
        definition = self._pod.definition
        self._count_start()
        while (formed := self._form(deadline)) is not None:
            LOG.info("the cluster has formed with %d pods", len(formed.members))
            end = run_job(self._node, definition, partial(self._wait, formed))
            if self._stop.is_set():
                break
            if end.status == 0 or not self._has_left(formed):
                return self._report(end, formed.generation)
            LOG.info("a pod has left while the job ran; waiting for its replacement")
            self._count_start()
            deadline = self._node.limit(self._node.settings.setup_seconds)
            # What it had saved before is no earlier job's.
            definition = replace(definition, fresh=False)
        return TERMINATED

    def _count_start(self) -> None:
        definition = self._pod.definition
        newest = find_newest(open_job(self._node, definition).checkpoints, definition.checkpoint_pattern)
        written = Path(newest).stat().st_mtime_ns if newest and Path(newest).exists() else 0
        count = self._folder.count_start(f"{newest} {written}")
        if count > MOST_STARTS + definition.retries:
            raise StageFailure(
                f"the job has begun {count} times without a newer checkpoint, because pods were ended",
                "let the program save checkpoints more often, or need less memory and disk; "
                "kubectl get events says why pods were ended",
            )

    def _form(self, deadline: Deadline) -> ClusterState | None:
        """Wait until all pods have installed a membership and respond; None when the pod is ended meanwhile."""
        while not self._stop.wait(0):
            state = self._service.follow()
            ready = self._service.find_ready(state) if state else set()
            silent = [m.instance_id for m in state.members if not responds(m.address)] if state else []
            has_met = len(ready) == self._pod.members
            if state and has_met and not silent:
                return state
            if deadline.is_over:
                raise StageFailure(
                    f"{', '.join(silent)} must respond on port {SSH_PORT}"
                    if has_met
                    else f"{len(ready)} of {self._pod.members} pods have met",
                    "let the security group of the nodes admit its own members; kubectl describe pod says why a pod "
                    "does not run",
                )
            deadline.pause(FOLLOW_SECONDS)
        return None

    def _wait(self, formed: ClusterState, seconds: float) -> bool:
        """Wait for so many seconds; return whether the ranks must end: this pod is ended, or another one has left."""
        if self._next.is_over:
            self._next = Deadline.after(self._node.clock, FOLLOW_SECONDS)
            self._state = self._service.follow() or self._state
        return self._stop.wait(seconds) or (self._state is not None and self._state.generation > formed.generation)

    def _has_left(self, formed: ClusterState) -> bool:
        """Return whether one of the pods does not respond any more, or was replaced."""
        state = self._service.follow()
        return (
            state is None
            or state.generation > formed.generation
            or not all(responds(member.address) for member in formed.members)
        )

    def _report(self, end: JobEnd, generation: int) -> int:
        if end.status:
            said = end.cause or f"the job ended with status {end.status}; see the log of {self._pod.name}"
            write_reason(self._node.root, said)
            cause = f"the command ended with status {end.status}: {end.cause}" if end.cause else said
            send_failure(self._node.settings.event_cluster, self._pod, Reason(cause), generation)
        return end.status


def follow(node: Node, service: PodService, stop: threading.Event) -> int:
    """Serve until Kubernetes ends the pod, and then for as long as ranks may end."""
    while not stop.wait(FOLLOW_SECONDS):
        service.follow()
    service.withdraw()
    deadline = node.limit(END_SECONDS)
    while service.is_needed() and not deadline.is_over:
        deadline.pause(FOLLOW_SECONDS)
    return TERMINATED


def send_failure(cluster: str, pod: Pod, reason: Reason, generation: int = 0) -> None:
    """
    Send the event that the job of a pod has failed; an error is logged, and stops nothing.

    The supervisor of a run cannot: it does not know whether a pod has left, whose replacement lets the job go on.

    Args:
        cluster: Cluster whose event it is; empty for none, and nothing is sent.
        pod: The pod.
        reason: Reason of the failure.
        generation: Generation of the membership. Default: 0, the pods have not met.
    """
    if not cluster:
        return
    name = pod.definition.name
    logs = f"read its logs with deeplearning-cdk logs --job {name}"
    remedy = f"{reason.remedy}; {logs}" if reason.remedy else logs
    event = ClusterEvent(
        kind=EventKind.JOB_FAILED,
        cluster=cluster,
        generation=generation,
        nodes=pod.members,
        reason=Reason(f"job {name} failed: {reason.cause}", remedy, reason.output),
    )
    client = AwsClients(os.environ.get("AWS_REGION", "")).events
    try:
        call_for(Clock(), EVENT_SECONDS, lambda: client.put_events(**put_events_request(event)))
    except AwsFailure as error:
        LOG.warning("could not send the event %r: %s", event.kind.value, error)


def write_reason(root: Path, reason: str) -> None:
    """Write the reason of a failure where kubectl shows it."""
    path = root / TERMINATION_FILE.lstrip("/")
    if path.exists():  # Kubernetes mounts it.
        path.write_text(reason[:_MOST_CHARACTERS] + "\n")
