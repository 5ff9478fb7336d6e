"""Request and plan of a job, as values without access to a host."""

from collections.abc import Mapping
from dataclasses import dataclass

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.names import MASTER_HOST


class PlanError(ValueError):
    """A request that cannot be planned; the message names the option, its rule, its value and the remedy."""


@dataclass(frozen=True)
class Host:
    """One node in a plan; plans take hosts in the membership's order, the master first."""

    name: str  # In the cluster, such as `deeplearning-worker1`
    instance_id: str
    address: str  # Private address in the cluster
    gpu_count: int | None  # Counted GPUs; None or negative when they could not be counted
    instance_type: str  # Empty when unknown
    network_cards: int
    efa_cards: int  # Network cards that take an EFA
    interface: str  # Network interface that carries `address`
    expected_gpu_count: int = 0  # GPUs of the type in the catalog; 0 for none or unknown
    # Why traffic goes by TCP although the host has EFA; empty where it does not, or where it is unknown
    efa_fault: str = ""

    @property
    def trains(self) -> bool:
        """True if ranks run on the host: a master that trains has a worker's name, a head node the master's."""
        return self.name != MASTER_HOST


@dataclass(frozen=True)
class JobRequest:
    """A job, and its place on the cluster."""

    definition: JobDefinition  # The job, with the program's arguments, the variables and the container of this run
    folder: str  # The run's folder on the shared file system, `…/jobs/<job>/runs/<k>`
    ports: Mapping[str, tuple[int, ...]]  # Host name -> free ports that the host offered
    python: str  # Folder of the interpreter, first in the ranks' PATH; empty for the image's own
    # The user's working directory, which ranks enter where a host has it; empty for the login user's home
    directory: str = ""


@dataclass(frozen=True)
class PartReason:
    """One part of a command line, or one variable, and the reason for it."""

    part: str
    why: str


@dataclass(frozen=True)
class Process:
    """One process to start: on a host over SSH, or on the master itself."""

    host: str
    name: str  # `launcher`, `node-0`, `chief-0`, `worker-0`, `ps-1`, `server-0` or `scheduler`
    argv: tuple[str, ...]
    environment: Mapping[str, str]  # Variables to add
    # Whether the job waits for its end. A parameter server does not end by itself: it is stopped after the others end.
    is_essential: bool


@dataclass(frozen=True)
class LaunchPlan:
    """The plan of a run."""

    launcher: str
    hosts: tuple[Host, ...]  # Hosts that take part, that of rank 0 first
    slots: int  # Ranks a host
    ranks: int  # Always hosts x slots
    drives_whole_host: bool  # Whether one rank drives all GPUs of its host
    # Processes in the order of their start: one on the master for a central launcher, else one or more a host
    processes: tuple[Process, ...]
    files: Mapping[str, str]  # Path -> text to write before the start; executable when the text begins with `#!`
    # For each part of the command lines, and for each variable that is set or deliberately not set
    reasons: tuple[PartReason, ...]
    rank_zero_log: str  # Path of the log of rank 0
