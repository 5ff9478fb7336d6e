"""Interfaces of a platform to the rehearsal."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_rehearsal.checks.contract_check import Nodes

Clients = Callable[[str], Any]
"""Client of an AWS service by its name."""


class Platform(Protocol):
    """
    A service that runs clusters: what its stacks have in a template.

    Attributes:
        runs_containers: Whether jobs bring containers of their own, so that there is no node before.
        runs_pods: Whether these are pods of a control plane.
        gpus_per_node: GPUs that a node shows where its type has any, unless the user says another number.
        events_lane: Lane of the timeline for what the service does.
        gpu_key: Key of the number of GPUs of a type in the settings.
    """

    runs_containers: bool = False
    runs_pods: bool = False
    gpus_per_node: int = 1
    events_lane: str = "adjuster"
    gpu_key: str = "expected_gpu_count"

    def owns(self, template: Mapping[str, Any]) -> bool:
        """Return whether the cluster of a template is on this platform."""

    def count_nodes(self, template: Mapping[str, Any]) -> int:
        """Return the nodes that a template asks for."""

    def require_nodes(self, template: Mapping[str, Any], nodes: int) -> None:
        """Raise UnavailableError if the cluster does not form with this number of nodes, the master included."""

    def resize(self, template: dict[str, Any], workers: int) -> dict[str, str]:
        """Set the number of workers in a template, and return path -> new value; AssemblyError if it has none."""

    def list_settings(self, template: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield where the nodes get their settings, as containers with keys."""


class ClusterPlatform(Platform, Protocol):
    """
    A platform whose members are there before a job, which starts on their master.

    Attributes:
        has_late_members: Whether members may come after the stack is complete.
    """

    has_late_members: bool

    def await_members(self, clients: Clients, submission: SubmissionSettings, seconds: float) -> None:
        """Wait for members that come after the stack is complete; PromiseError if the cluster has ended."""

    def find_logs(self, clients: Clients, submission: SubmissionSettings) -> Mapping[str, bool]:
        """Return the logs that the service itself writes, URI -> whether it is there."""

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
        """
        Run a job as `deeplearning-cdk submit` does, and return its standard output.

        As for a user, the job waits for what it needs.

        Raises:
            PromiseError: The job fails, or takes more seconds; the message has its last lines of output.
        """
