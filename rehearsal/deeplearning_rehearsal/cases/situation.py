"""The state of a running rehearsal: for the moments of a case, and for the wait until its cluster is at rest."""

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.place import Place
from cdk_rehearsal.run.fleet import Fleet
from deeplearning_contract.cluster_state import ClusterState, get_request
from deeplearning_contract.document import ContractError
from deeplearning_contract.names import (
    CLUSTER_TAG,
    EMR_CLUSTER_TAG,
    MEMBERSHIP_FILE,
    PROVISION_FILE,
    shared_membership,
)
from deeplearning_rehearsal.cases.recovery import ElasticJob
from deeplearning_rehearsal.checks.provision_watch import count_done
from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
from deeplearning_rehearsal.training_jobs import TrainingJobs

_TABLE_TYPE = "AWS::DynamoDB::Table"
_QUIET_SECONDS = 6.0
"""Silence of all agents after which a cluster is at rest in any case; they look for news more often than that."""
_SHORT_QUIET_SECONDS = 2.5
"""The same where AWS has nothing to do either: one round of the master, one look at the logs."""


@dataclass
class LiveSituation:
    """The state of a running rehearsal; `formed` is set when the stack is complete."""

    fleet: Fleet
    aws: EmbeddedAws
    job: ElasticJob
    jobs: TrainingJobs | None = None
    submitted: SubmittedJobs | None = None
    formed: threading.Event = field(default_factory=threading.Event)

    def state(self) -> ClusterState | None:
        """Return the state item, on EMR the membership on the shared file system; None while there is none."""
        machines = self.fleet.launched()
        try:
            tables = [r.physical_id for r in self.aws.wait(0).resources if r.resource_type == _TABLE_TYPE]
            if not machines:
                return None
            if not tables:
                return self._read_membership(machines[0])
            request = get_request(tables[0], machines[0].tags[CLUSTER_TAG])
            item = self.aws.place.client("dynamodb").get_item(**request).get("Item")
            return None if item is None else ClusterState.from_item(item)
        except (BotoCoreError, ClientError, ContractError, RehearsalError):
            return None  # not there yet

    def _read_membership(self, machine: Machine) -> ClusterState | None:
        cluster_id = machine.tags.get(EMR_CLUSTER_TAG, "")
        for root in self.fleet.lab.file_system_roots(machine) if cluster_id else ():
            path = root / shared_membership(machine.tags[CLUSTER_TAG], cluster_id)
            if path.exists():
                return ClusterState.from_text(path.read_text(encoding="utf-8"))
        return None

    def phase(self) -> str:
        """Return the phase of the state item; empty without one."""
        state = self.state()
        return "" if state is None else state.phase.value

    def provisioned(self, instance_id: str, step: str) -> float:
        """Return which part of a step of what jobs need a node has done, from 0 to 1."""
        try:
            text = (self.fleet.disk(instance_id) / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8")
            return count_done(json.loads(text)["steps"][step])
        except (OSError, ValueError, KeyError, TypeError, RehearsalError):
            return 0.0  # not begun, or being written just now

    def job_secondary(self) -> str:
        """Return the secondary status of the newest training job; empty without one."""
        return self.jobs.secondary() if self.jobs and self.formed.is_set() else ""

    def checkpoints(self) -> int:
        """Return the number of checkpoints of the training job's job."""
        jobs = self.jobs or self.submitted
        return len(jobs.list_checkpoints()) if jobs and self.formed.is_set() else 0

    def has_printed(self, text: str) -> bool:
        """Return whether a command for jobs has printed a text."""
        return self.submitted is not None and text in self.submitted.read_output()


def is_settled(state: ClusterState | None, fleet: Fleet, nodes: int, is_done: Callable[[], bool]) -> bool:
    """
    Return whether a cluster has so many nodes, master included, each at the last generation, and all is quiet.

    `is_done` is called when agents have been quiet for a short time: whether nothing more is known to come.
    """
    if state is None or state.phase.value != "formed" or len(state.members) != nodes:
        return False
    running = {machine.instance_id for machine in fleet.machines()}
    members = [member.instance_id for member in state.members]
    quiet = time.monotonic() - fleet.spoke_at
    if not running.issuperset(members) or quiet <= _SHORT_QUIET_SECONDS:
        return False
    if not all(_read_generation(fleet, member) == state.generation for member in members):
        return False
    return quiet > _QUIET_SECONDS or (running == set(members) and is_done())


def is_at_rest(place: Place) -> bool:
    """Return whether every group has the healthy instances that it asks for, and no queue has a message for anybody."""
    groups = place.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    for group in groups:
        states = [(entry["LifecycleState"], entry["HealthStatus"]) for entry in group["Instances"]]
        if states != [("InService", "Healthy")] * group["DesiredCapacity"]:
            return False
    sqs = place.client("sqs")
    counts = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible")
    names = [*counts, "QueueArn", "RedrivePolicy"]
    queues = [
        sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        for url in sqs.list_queues().get("QueueUrls", ())
    ]
    # Nobody takes what lies in a dead-letter queue.
    dead = {json.loads(queue["RedrivePolicy"])["deadLetterTargetArn"] for queue in queues if "RedrivePolicy" in queue}
    return all(int(queue[name]) == 0 for queue in queues if queue["QueueArn"] not in dead for name in counts)


def _read_generation(fleet: Fleet, instance_id: str) -> int:
    try:
        path = fleet.disk(instance_id) / MEMBERSHIP_FILE.lstrip("/")
        return int(json.loads(path.read_text(encoding="utf-8"))["generation"])
    except (OSError, ValueError, KeyError, RehearsalError):
        return 0  # it has none yet, or was powered off just now
