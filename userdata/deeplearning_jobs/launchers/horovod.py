"""Horovod: one `horovodrun` on the master starts every rank over SSH."""

import re
from pathlib import Path

from deeplearning_jobs.launchers.launcher import LAUNCHER, Launcher, Starter, hostfile_reason
from deeplearning_jobs.plan.job import HOSTFILE, RANK, START, Draft, Job, Part, explain_parts, join_parts
from deeplearning_jobs.plan.launch_plan import PartReason, PlanError, Process

ELASTIC = "elastic_horovod.sh"
ELASTIC_SOURCE = Path(__file__).parents[1] / ELASTIC
TIMEOUT_VARIABLE = "HOROVOD_GLOO_TIMEOUT_SECONDS"
TIMEOUT_SECONDS = 300
TIMEOUT_WHY = (
    "ranks wait this long for the last one: the first load of a framework from a new disk takes minutes on some "
    "hosts; a rank that fails still ends the job at once"
)


def draft_horovod(job: Job) -> Draft:
    """Plan a job of Horovod with Gloo."""
    return _draft_elastic(job) if job.definition.elastic else _draft_fixed(job)


def _draft_fixed(job: Job) -> Draft:
    layout = job.layout
    interface = "lo" if job.is_on_one_host else job.master.interface
    where = (
        "all ranks are on one host, and there Horovod uses no other interface"
        if job.is_on_one_host
        else "it carries the master's address in the cluster; the rank script sets each host's own"
    )
    parts = [
        Part((job.path(START),), "puts the run's own ssh and the environment's programs first in PATH"),
        Part(("horovodrun",)),
        Part(("--gloo",), "ranks find each other over TCP; no MPI needs to be installed"),
        Part(("-np", str(layout.ranks)), f"hosts x slots: {len(layout.hosts)} x {layout.slots}"),
        Part(("--hostfile", job.path(HOSTFILE)), hostfile_reason(job)),
        Part(("--network-interfaces", interface), where),
        Part((job.path(RANK),), "gives each rank its log, its host's interface and the job's variables"),
        Part(job.definition.program),
    ]
    timeout = {} if TIMEOUT_VARIABLE in job.variables else {TIMEOUT_VARIABLE: str(TIMEOUT_SECONDS)}
    reasons = [PartReason(f"{name}={value}", TIMEOUT_WHY) for name, value in timeout.items()]
    launcher = Process(job.master.name, LAUNCHER, join_parts(parts), {**timeout, **job.variables}, is_essential=True)
    return Draft((launcher,), (*explain_parts(parts), *reasons), job.path("rank-0.log"))


def _draft_elastic(job: Job) -> Draft:
    ranks, slots = job.definition.ranks, job.definition.gpus_per_member
    if ranks is not None or slots is not None:
        raise PlanError(
            f"--elastic must go without --np and --slots, got {ranks} and {slots}; "
            "leave them out: an elastic job takes every slot of every host that is ready"
        )
    if job.definition.container:
        raise PlanError(
            f"--elastic must go without a container, got {job.definition.container}; "
            "use --launcher torchrun, or declare a requirements or conda file"
        )
    if not job.master.trains:
        raise PlanError(
            f"--elastic must go with --launcher torchrun where the master does not train, got horovod on "
            f"{job.master.name}: Horovod Elastic keeps rank 0 on the host that starts it"
        )
    parts = [
        Part((job.path(START),), "puts the environment's programs first in PATH"),
        Part((job.path(ELASTIC),), "reads the agent's list of ready hosts; restarts a job that is lost as a whole"),
        Part((job.path(RANK),), "gives each rank its log, its host's interface and the job's variables"),
        Part(job.definition.program),
    ]
    files = {job.path(ELASTIC): ELASTIC_SOURCE.read_text(encoding="utf-8")}
    python = {"ELASTIC_PYTHON": f"{job.request.python}/python3"} if job.request.python else {}
    environment = {"ELASTIC_STARTER": "", **python, **job.variables}
    reasons = [PartReason("ELASTIC_STARTER=", "the rank script starts the program, in any language")]
    if python:
        reasons.append(
            PartReason(f"ELASTIC_PYTHON={python['ELASTIC_PYTHON']}", "loads the framework on a host that joins")
        )
    launcher = Process(job.master.name, LAUNCHER, join_parts(parts), environment, is_essential=True)
    return Draft((launcher,), (*explain_parts(parts), *reasons), job.path("rank-0.log"), files)


HOROVOD = Launcher(
    name="horovod",
    draft=draft_horovod,
    ports=lambda _slots: 0,
    starter=Starter(
        program="horovodrun",
        rank_variable="HOROVOD_RANK",
        folder="",
        fallback=(),
        is_in_container=False,
        first_failure=re.compile(r"Process name: (?P<rank>\d+)\s+Exit code:\s+(?P<code>-?\d+)"),
        version=("--version",),
        remedy="for `--launcher horovod` declare it in the job's environment",
    ),
    is_elastic=True,
    is_central=True,
    drives_whole_host=False,
    reserved=(),
    passed=("HOROVOD_",),
    why_no_container="",
)
