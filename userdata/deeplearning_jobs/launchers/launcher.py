"""Record of a launcher, and the common parts of several: hostfile, ports, GPUs and command line."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from deeplearning_jobs.plan.job import RANK, TASK_VARIABLE, Draft, Job, Part, join_parts
from deeplearning_jobs.plan.launch_plan import Host, PartReason, PlanError, Process
from deeplearning_jobs.plan.topology import choose_gpus

LAUNCHER = "launcher"
"""Name of the process of a central launcher."""
VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_GPUS = {VISIBLE: ""}
"""Variables of a process without GPUs; it would allocate memory on every visible one."""


@dataclass(frozen=True, kw_only=True)
class Starter:
    """Program of a framework that starts ranks. No field has a default."""

    program: str
    rank_variable: str  # The variable from which each rank reads its number
    folder: str  # Folder of images with the program outside of PATH; empty for none
    fallback: tuple[str, ...]  # Lines of the start script for an environment that lacks the command
    is_in_container: bool  # Whether the program itself runs in the job's container
    first_failure: re.Pattern[str]  # Pattern of its report of the first failed rank, with the groups `rank` and `code`
    # Arguments that print the version, for `deeplearning check --image`; empty to only look for the program
    version: tuple[str, ...]
    remedy: str  # Hint of `deeplearning check --image` where the program is missing


@dataclass(frozen=True, kw_only=True)
class Launcher:
    """Record of a launcher. No field has a default: a new launcher sets each."""

    name: str
    draft: Callable[[Job], Draft]
    # Ranks a host -> free ports that each host must offer; 0 ranks stands for a host's default
    ports: Callable[[int], int]
    starter: Starter | None  # The program that starts ranks; None where the plan starts every rank itself
    is_elastic: bool  # Whether a job continues when hosts leave or join
    is_central: bool  # Whether one process on the master starts the ranks of all hosts
    drives_whole_host: bool  # Whether one rank drives all GPUs of its host
    reserved: tuple[str, ...]  # Variables that the plan sets; `--env` refuses them
    passed: tuple[str, ...]  # Prefixes of variables that containers receive, beside those that the plan itself sets
    why_no_container: str  # Why ranks cannot run in a container, with a remedy; empty where they can

    def starts_in_container(self, job: Job) -> bool:
        """Return whether the starter itself runs in the job's container, rather than each rank."""
        return bool(job.definition.container) and self.starter is not None and self.starter.is_in_container


def hostfile_reason(job: Job) -> str:
    """Return the reason for the slots of the hostfile."""
    if not job.layout.has_gpus:
        return f"the run's own: ranks {job.layout.slots} a host, which has no GPUs"
    if job.layout.slots == job.first.gpu_count:
        return "the run's own: a slot a GPU"
    return f"the run's own: {job.layout.slots} of {job.first.gpu_count} GPUs a host, as asked for"


def take_ports(job: Job, host: Host, count: int) -> tuple[int, ...]:
    """Return the first free ports that a host offers; raises PlanError where it offers fewer."""
    offered = job.request.ports.get(host.name, ())
    if len(offered) < count:
        raise PlanError(
            f"{host.name} must offer {count} free ports, got {len(offered)}; list the listeners there: ss -tln"
        )
    return offered[:count]


def worker_gpus(job: Job) -> Iterator[tuple[int, Host, dict[str, str]]]:
    """Yield each worker's rank, its host, and the variable with its GPUs; no variable on hosts without GPUs."""
    if VISIBLE in job.definition.env:
        raise PlanError(
            f"--env must not set {VISIBLE} with --launcher {job.definition.launcher}, got "
            f"{job.definition.env[VISIBLE]!r}: the plan gives each worker its own; leave it out"
        )
    layout = job.layout
    for index, host in enumerate(layout.hosts):
        for local_rank in range(layout.slots):
            gpus = choose_gpus(host, layout.slots, local_rank, drives_whole_host=layout.drives_whole_host)
            variable = {VISIBLE: ",".join(map(str, gpus))} if gpus else {}
            yield index * layout.slots + local_rank, host, variable


def list_parts(job: Job) -> list[Part]:
    """Return the command line of each process that the plan starts itself."""
    return [
        Part((job.path(RANK),), "gives each process its log, its host's interface and the job's variables"),
        Part(job.definition.program),
    ]


def make_process(job: Job, host: Host, name: str, own: Mapping[str, str], *, is_essential: bool) -> Process:
    """Return a process that the plan starts itself, with variables of its own."""
    environment = {TASK_VARIABLE: name, **own, **job.variables}
    return Process(host.name, name, join_parts(list_parts(job)), environment, is_essential=is_essential)


def explain_gpus(job: Job, *, has_servers: bool) -> PartReason:
    """Return the reason for the division of a host's GPUs."""
    if not job.layout.has_gpus:
        return PartReason(f"{VISIBLE} not set", "for workers: these hosts have no GPUs")
    each = (job.first.gpu_count or 0) // job.layout.slots if job.layout.drives_whole_host else 1
    servers = "; none for servers, which would take memory of each" if has_servers else ""
    return PartReason(VISIBLE, f"{each} GPU{'s' if each > 1 else ''} a worker{servers}")
