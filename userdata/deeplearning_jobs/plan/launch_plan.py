"""Request and plan of a job: values that are made without touching a host."""

from collections.abc import Mapping
from dataclasses import dataclass

from deeplearning_contract.names import MASTER_HOST


class PlanError(ValueError):
    """A request that cannot be planned; the message names the option, its rule, its value and the remedy."""


@dataclass(frozen=True)
class Host:
    """
    One node in a plan; plans take hosts in the membership's order, the master first.

    Attributes:
        name: In the cluster, such as `deeplearning-worker1`.
        address: The private address by which nodes reach each other.
        gpu_count: Counted GPUs; None or negative when they could not be counted.
        instance_type: Empty when unknown.
        efa_cards: Network cards that take an EFA.
        interface: The network interface that carries `address`, as the host found it.
        expected_gpu_count: GPUs of the type in the catalog; 0 for none or unknown.
        efa_fault: Why traffic goes by TCP although the host has EFA; empty where it does not, or where it is unknown.
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
        """Whether ranks run on it: a master that trains has a worker's name, another one the master's."""
        return self.name != MASTER_HOST


@dataclass(frozen=True)
class JobRequest:
    """
    The user's request.

    Attributes:
        program: The program and its arguments.
        ranks: Ranks in all; None for every slot of every host.
        slots: Ranks a host; None for one a GPU, or one on a host without GPUs.
        elastic: Whether the job continues when hosts are lost or added.
        environment: Variables for the program.
        folder: The run's folder on the shared file system, `…/jobs/<job>/runs/<k>`.
        ports: Host name -> free ports that the host offered.
        python: Folder of the interpreter, first in the ranks' PATH; empty for the image's own.
        container: Image in which ranks run; empty for none.
        directory: The user's working directory, which ranks enter where a host has it; empty for the login user's home.
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
    """One part of a command line, or one variable, and the reason for it."""

    part: str
    why: str


@dataclass(frozen=True)
class Process:
    """
    One process to start: on a host over SSH, or on the master itself.

    Attributes:
        name: `launcher`, `node-0`, `chief-0`, `worker-0`, `ps-1`, `server-0` or `scheduler`.
        environment: Variables to add.
        is_essential: Whether the job waits for its end. A parameter server does not end by itself: it is stopped after
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
    The plan of a run.

    Attributes:
        hosts: Those that take part, that of rank 0 first.
        slots: Ranks a host.
        ranks: Always hosts x slots.
        drives_whole_host: Whether one rank drives all GPUs of its host.
        processes: In the order of their start: one on the master for a central launcher, else one or more a host.
        files: Path -> text to write before the start; executable when the text begins with `#!`.
        reasons: For each part of the command lines, and for each variable that is set or deliberately not set.
        rank_zero_log: Path of the log of rank 0.
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
