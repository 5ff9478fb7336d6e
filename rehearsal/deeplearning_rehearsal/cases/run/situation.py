"""How a rehearsal stands, as the triggers of a case ask for it."""

import json
import threading
from dataclasses import dataclass, field

from botocore.exceptions import BotoCoreError, ClientError

from cdk_rehearsal.embedded_aws import EmbeddedAws
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.run.fleet import Fleet
from deeplearning_contract.cluster_state import ClusterState, get_request
from deeplearning_contract.document import ContractError
from deeplearning_contract.names import CLUSTER_TAG, PROVISION_FILE, ROLE_TAG
from deeplearning_rehearsal.cases.format.triggers import Target
from deeplearning_rehearsal.cases.verdict.elastic import ElasticJob
from deeplearning_rehearsal.checks.provision_watch import count_done

_TABLE_TYPE = "AWS::DynamoDB::Table"


@dataclass
class LiveSituation:
    """
    Answers triggers about a rehearsal that runs.

    Attributes:
        fleet: Its machines.
        aws: Its embedded AWS.
        job: Its elastic job.
        formed: Set when the stack is complete.
    """

    fleet: Fleet
    aws: EmbeddedAws
    job: ElasticJob
    formed: threading.Event = field(default_factory=threading.Event)

    def instance(self, target: Target) -> str | None:
        """Return the instance id of a machine that was booted; None before."""
        ids = [m.instance_id for m in self.fleet.launched() if m.tags.get(ROLE_TAG) == target.role.value]
        number = len(ids) if target.number is None else target.number
        return ids[number - 1] if 0 < number <= len(ids) else None

    def state(self) -> ClusterState | None:
        """Return the state item; None while there is none."""
        machines = self.fleet.launched()
        try:
            tables = [r.physical_id for r in self.aws.wait(0).resources if r.resource_type == _TABLE_TYPE]
            if not machines or not tables:
                return None
            request = get_request(tables[0], machines[0].tags[CLUSTER_TAG])
            item = self.aws.place.client("dynamodb").get_item(**request).get("Item")
            return None if item is None else ClusterState.from_item(item)
        except (BotoCoreError, ClientError, ContractError, RehearsalError):
            return None  # not there yet

    def phase(self) -> str:
        """Return the phase of the state item; empty without one."""
        state = self.state()
        return "" if state is None else state.phase.value

    def has_said(self, instance_id: str, text: str) -> bool:
        """Tell whether a node's agent has logged a text."""
        return self.fleet.has_said(instance_id, text)

    def provisioned(self, instance_id: str, step: str) -> float:
        """Return which part of a step of what jobs need a node has done, from 0 to 1."""
        try:
            text = (self.fleet.disk(instance_id) / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8")
            return count_done(json.loads(text)["steps"][step])
        except (OSError, ValueError, KeyError, TypeError, RehearsalError):
            return 0.0  # not begun, or being written just now

    def has_formed(self) -> bool:
        """Tell whether the stack is complete."""
        return self.formed.is_set()

    def commits(self, ranks: int) -> int:
        """Return how often a world of so many ranks has committed."""
        return self.job.commits(ranks)
