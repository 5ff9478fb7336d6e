"""Makes the plan of a job: from facts about hosts and a request, without looking at anything else."""

from collections.abc import Callable, Mapping, Sequence

from deeplearning_contract.names import METRICS_PATH_VARIABLE
from deeplearning_jobs.launchers.horovod import draft_horovod
from deeplearning_jobs.launchers.mpi import draft_mpi
from deeplearning_jobs.launchers.mxnet import draft_mxnet
from deeplearning_jobs.launchers.tensorflow import draft_multiworker, draft_parameter_servers
from deeplearning_jobs.launchers.torchrun import draft_torchrun
from deeplearning_jobs.plan.job import (
    CHECKPOINT_VARIABLE,
    DATA_VARIABLE,
    JOB_VARIABLE,
    RESUME_VARIABLE,
    UNBUFFERED_VARIABLE,
    Draft,
    Job,
)
from deeplearning_jobs.plan.launch_plan import LAUNCHERS, Host, JobRequest, LaunchPlan, PlanError, Reason
from deeplearning_jobs.plan.network_environment import LEFT_TO_EFA, LEFT_TO_NCCL, explain_network
from deeplearning_jobs.plan.rank_script import base_files
from deeplearning_jobs.plan.topology import choose_layout

DRAFTS: Mapping[str, Callable[[Job], Draft]] = {
    "horovod": draft_horovod,
    "mpi": draft_mpi,
    "torchrun": draft_torchrun,
    "mxnet": draft_mxnet,
    "tf-ps": draft_parameter_servers,
    "tf-multiworker": draft_multiworker,
}
ELASTIC_LAUNCHERS = ("horovod", "torchrun")


def make_plan(hosts: Sequence[Host], request: JobRequest) -> LaunchPlan:
    """
    Decide what runs where.

    Args:
        hosts: In the membership's order, the master first.
        request: What the user asks for.

    Raises:
        PlanError: It cannot be done; the message says what to change.
    """
    if request.launcher not in DRAFTS:
        raise PlanError(f"--launcher must be one of {', '.join(LAUNCHERS)}, got {request.launcher!r}; choose one")
    if not request.program or not request.program[0]:
        raise PlanError("the program must follow --, got none; write e.g. deeplearning run -- python train.py")
    if request.elastic and request.launcher not in ELASTIC_LAUNCHERS:
        raise PlanError(
            f"--elastic must go with --launcher {' or '.join(ELASTIC_LAUNCHERS)}, got {request.launcher}; "
            "leave --elastic out or choose one of them"
        )
    layout = choose_layout(hosts, request)
    _check_interfaces(layout.hosts)
    job = Job(request, layout)
    draft = DRAFTS[request.launcher](job)
    return LaunchPlan(
        launcher=request.launcher,
        hosts=layout.hosts,
        slots=layout.slots,
        ranks=layout.ranks,
        processes=draft.processes,
        files={**base_files(job), **draft.files},
        reasons=(*draft.reasons, *_explain_variables(job), *_explain_network(job)),
        rank_zero_log=draft.rank_zero_log,
    )


def _check_interfaces(hosts: Sequence[Host]) -> None:
    for host in hosts:
        if not host.interface:
            raise PlanError(
                f"{host.name} must have a network interface with the address {host.address}, got none; "
                "see `ip address` there"
            )


def _explain_network(job: Job) -> list[Reason]:
    return explain_network(job.layout.hosts, job.request.environment, is_on_one_host=job.is_on_one_host)


def _explain_variables(job: Job) -> list[Reason]:
    whys = {
        JOB_VARIABLE: "the run's processes are known by it: `deeplearning stop` ends these and no others",
        CHECKPOINT_VARIABLE: "where every run of the job keeps its checkpoints",
        RESUME_VARIABLE: "the newest checkpoint, from which the program may go on; empty for none",
        DATA_VARIABLE: "on every host, an entry a source of data, wherever it lies",
        METRICS_PATH_VARIABLE: "where rank 0 may say how fast it trains, which the cluster's dashboard shows",
        UNBUFFERED_VARIABLE: "a log shows a line when it is written",
    }
    reasons = [Reason(f"{name}={job.variables[name]}", why) for name, why in whys.items()]
    known = {*whys, *LEFT_TO_EFA, *LEFT_TO_NCCL}
    yours = {name: value for name, value in job.request.environment.items() if name not in known}
    reasons += [Reason(f"{name}={value}", "you gave it with --env") for name, value in yours.items()]
    if job.request.python and not job.request.container:
        reasons.append(Reason(f"PATH={job.request.python}:…", "the environment that the cluster declares"))
    if job.request.container:
        why = "ranks run in it as the login user, with the shared file system, the data and this host's network"
        reasons.append(Reason(f"container {job.request.container}", why))
    return reasons
