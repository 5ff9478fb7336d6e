"""Which GPUs the processes of a host see, where several share it and no launcher tells them apart."""

from collections.abc import Iterator

from deeplearning_jobs.plan.job import Job
from deeplearning_jobs.plan.launch_plan import Host, PlanError, Reason
from deeplearning_jobs.plan.topology import WHOLE_HOST_LAUNCHERS, choose_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_GPUS = {VISIBLE: ""}
"""A process that computes nothing would take memory of every GPU that it sees."""


def worker_gpus(job: Job) -> Iterator[tuple[int, Host, dict[str, str]]]:
    """
    Yield each worker's rank, its host, and the variable that gives it its GPUs; empty on hosts without any.

    Raises:
        PlanError: The user gives all workers the same GPUs.
    """
    if VISIBLE in job.request.environment:
        raise PlanError(
            f"--env must not set {VISIBLE} with --launcher {job.request.launcher}, got "
            f"{job.request.environment[VISIBLE]!r}: the plan gives each worker its own; leave it out"
        )
    for index, host in enumerate(job.layout.hosts):
        for local_rank in range(job.layout.slots):
            gpus = choose_gpus(job.request.launcher, host, job.layout.slots, local_rank)
            variable = {VISIBLE: ",".join(map(str, gpus))} if gpus else {}
            yield index * job.layout.slots + local_rank, host, variable


def explain_gpus(job: Job) -> Reason:
    """Say how the GPUs of a host are divided."""
    if not job.layout.has_gpus:
        return Reason(f"{VISIBLE} not set", "for workers: these hosts have no GPUs")
    is_whole = job.request.launcher in WHOLE_HOST_LAUNCHERS
    each = (job.first.gpu_count or 0) // job.layout.slots if is_whole else 1
    servers = "" if job.request.launcher == "tf-multiworker" else "; none for servers, which would take memory of each"
    return Reason(VISIBLE, f"{each} GPU{'s' if each > 1 else ''} a worker{servers}")
