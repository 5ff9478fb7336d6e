"""Planner of jobs: a pure function of the hosts' facts and the request."""

from collections.abc import Sequence

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.names import METRICS_PATH_VARIABLE
from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_jobs.launchers.launcher import Launcher
from deeplearning_jobs.launchers.scripts import PASSED_PREFIXES, make_scripts
from deeplearning_jobs.plan.job import (
    CHECKPOINT_VARIABLE,
    DATA_VARIABLE,
    JOB_VARIABLE,
    RANK_VARIABLE,
    RESUME_VARIABLE,
    TASK_VARIABLE,
    UNBUFFERED_VARIABLE,
    Job,
)
from deeplearning_jobs.plan.launch_plan import Host, JobRequest, LaunchPlan, PartReason, PlanError
from deeplearning_jobs.plan.network_environment import LEFT_TO_EFA, LEFT_TO_NCCL, explain_network
from deeplearning_jobs.plan.topology import choose_layout

PASSED = tuple(sorted({*PASSED_PREFIXES, *(name for each in LAUNCHERS.values() for name in each.passed)}))
RESERVED = frozenset(
    {
        RANK_VARIABLE,
        TASK_VARIABLE,
        *(each.starter.rank_variable for each in LAUNCHERS.values() if each.starter),
        *(name for each in LAUNCHERS.values() for name in each.reserved),
    }
)
"""Variables that every launcher reserves: one value of `--env` would be the same for all ranks."""


def make_plan(hosts: Sequence[Host], request: JobRequest) -> LaunchPlan:
    """Plan a job on hosts in the membership's order, the master first; a PlanError names the remedy."""
    launcher = find_launcher(request.definition.launcher)
    _check_launcher(request.definition, launcher)
    layout = choose_layout(hosts, request.definition, drives_whole_host=launcher.drives_whole_host)
    _check_interfaces(layout.hosts)
    job = Job(request, layout)
    _check_variables(job)
    draft = launcher.draft(job)
    return LaunchPlan(
        launcher=launcher.name,
        hosts=layout.hosts,
        slots=layout.slots,
        ranks=layout.ranks,
        drives_whole_host=layout.drives_whole_host,
        processes=draft.processes,
        files={**make_scripts(job, launcher, draft, PASSED), **draft.files},
        reasons=(*draft.reasons, *_explain_variables(job), *_explain_network(job)),
        rank_zero_log=draft.rank_zero_log,
    )


def find_launcher(name: str) -> Launcher:
    """Return a launcher by its name; PlanError for another name."""
    if name not in LAUNCHERS:
        raise PlanError(f"--launcher must be one of {', '.join(LAUNCHERS)}, got {name!r}; choose one")
    return LAUNCHERS[name]


def _check_launcher(job: JobDefinition, launcher: Launcher) -> None:
    if job.elastic and not launcher.is_elastic:
        elastic = " or ".join(each.name for each in LAUNCHERS.values() if each.is_elastic)
        raise PlanError(
            f"--elastic must go with --launcher {elastic}, got {launcher.name}; "
            "leave --elastic out or choose one of them"
        )
    if job.container and launcher.why_no_container:
        raise PlanError(
            f"--launcher must not be {launcher.name} with a container, got {job.container}: {launcher.why_no_container}"
        )


def _check_variables(job: Job) -> None:
    for name, value in job.definition.env.items():
        if name in RESERVED or (name == JOB_VARIABLE and value != job.name):
            raise PlanError(f"--env must not set {name}, got {value!r}; the plan sets it, leave it out")


def _check_interfaces(hosts: Sequence[Host]) -> None:
    for host in hosts:
        if not host.interface:
            raise PlanError(
                f"{host.name} must have a network interface with the address {host.address}, got none; "
                "see `ip address` there"
            )


def _explain_network(job: Job) -> list[PartReason]:
    return explain_network(job.layout.hosts, job.definition.env, is_on_one_host=job.is_on_one_host)


def _explain_variables(job: Job) -> list[PartReason]:
    whys = {
        JOB_VARIABLE: "mark of the run's processes: `deeplearning stop` ends only these",
        CHECKPOINT_VARIABLE: "folder in which every run of the job keeps its checkpoints",
        RESUME_VARIABLE: "the newest checkpoint, from which the program may resume; empty for none",
        DATA_VARIABLE: "on every host, one entry for each source of data, on any disk",
        METRICS_PATH_VARIABLE: "file in which rank 0 may report its throughput for the cluster's dashboard",
        UNBUFFERED_VARIABLE: "writes each line to the log at once",
    }
    reasons = [PartReason(f"{name}={job.variables[name]}", why) for name, why in whys.items()]
    known = {*whys, *LEFT_TO_EFA, *LEFT_TO_NCCL}
    yours = {name: value for name, value in job.definition.env.items() if name not in known}
    reasons += [PartReason(f"{name}={value}", "from --env") for name, value in yours.items()]
    if job.request.python and not job.definition.container:
        reasons.append(PartReason(f"PATH={job.request.python}:…", "the environment that the cluster declares"))
    if job.definition.container:
        why = "ranks run in it as the login user, with the shared file system, the data and this host's network"
        reasons.append(PartReason(f"container {job.definition.container}", why))
    return reasons
