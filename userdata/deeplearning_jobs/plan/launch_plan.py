"""What a job is asked for, and what would run for it: made without touching a host, so that it can be printed."""

from collections.abc import Mapping
from dataclasses import dataclass

from deeplearning_contract.names import MASTER_HOST


class PlanError(ValueError):
    """A job cannot be planned as it was asked for; the message names the option, its rule, its value and the remedy."""


@dataclass(frozen=True)
class Host:
    """
    One node as the plan sees it; plans take them in the membership's order, the master first.

    Attributes:
        name: The cluster's name of it, such as `deeplearning-worker1`.
        instance_id: EC2 instance id.
        address: The private address by which the nodes know each other.
        gpu_count: GPUs that were counted on it; None or negative when nobody could count them.
        instance_type: EC2 instance type; empty when it is not known.
        network_cards: Network cards of the type.
        efa_cards: How many of them take an EFA.
        interface: Network interface that carries `address`, as the host itself found it.
        expected_gpu_count: GPUs that the type has by the catalogue; 0 when it has none or it is not known.
        efa_fault: Why its traffic goes by TCP though it has EFA; empty where it does not, or where it was not asked.
    """

    name: str
    instance_id: str
    address: str
    gpu_count: int | None
    instance_type: str
    network_cards: int
    efa_cards: int
    interface: str
    expected_gpu_count: int = 0
    efa_fault: str = ""

    @property
    def trains(self) -> bool:
        """Whether ranks run on it: a master that trains is named by its rank, another has the master's name alone."""
        return self.name != MASTER_HOST


@dataclass(frozen=True)
class JobRequest:
    """
    What the user asks for.

    Attributes:
        launcher: Name of the launcher.
        program: The program and its arguments.
        ranks: How many ranks; None for every slot of every host.
        slots: Ranks a host; None for one a GPU, or one a host without GPUs.
        elastic: Whether the job goes on when hosts are lost or added.
        environment: Variables for the program.
        folder: The run's folder on the shared file system, `…/jobs/<job>/runs/<k>`.
        ports: Host name -> free ports that the host offered.
        python: Folder of the interpreter, first in the ranks' PATH; empty for the image's own.
        container: Image in which ranks run; empty for none.
        directory: Where the user stands, which ranks enter where a host has it; empty for the login user's home.
    """

    launcher: str
    program: tuple[str, ...]
    ranks: int | None
    slots: int | None
    elastic: bool
    environment: Mapping[str, str]
    folder: str
    ports: Mapping[str, tuple[int, ...]]
    python: str
    container: str
    directory: str = ""


@dataclass(frozen=True)
class Reason:
    """One part of a command line, or one variable, and why it is there."""

    part: str
    why: str


@dataclass(frozen=True)
class Process:
    """
    One thing to start: on one host over SSH, or on the master itself.

    Attributes:
        host: The host's name.
        name: `launcher`, `node-0`, `chief-0`, `worker-0`, `ps-1`, `server-0` or `scheduler`.
        argv: The command line.
        environment: Variables to add.
        is_essential: Whether the job waits for its end. A parameter server does not end by itself: it is stopped when
            the others have ended.
    """

    host: str
    name: str
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    is_essential: bool


@dataclass(frozen=True)
class LaunchPlan:
    """
    What runs for a job.

    Attributes:
        launcher: Name of the launcher.
        hosts: Those that take part, that of rank 0 first.
        slots: Ranks a host.
        ranks: Always hosts x slots.
        drives_whole_host: Whether one rank drives all GPUs of its host.
        processes: In the order of their start. horovod and mpi: one `launcher` on the master; the others: one or more
            a host.
        files: Path -> text to write before anything starts; executable when it begins with `#!`.
        reasons: Why each part of the command lines and each variable is there, or is not.
        rank_zero_log: The file that holds what rank 0 writes.
    """

    launcher: str
    hosts: tuple[Host, ...]
    slots: int
    ranks: int
    drives_whole_host: bool
    processes: tuple[Process, ...]
    files: Mapping[str, str]
    reasons: tuple[Reason, ...]
    rank_zero_log: str
