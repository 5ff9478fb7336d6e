"""Which GPUs the processes of a host see, where several share it and no launcher tells them apart."""

from collections.abc import Iterator

from deeplearning_jobs.job import Job
from deeplearning_jobs.launch_plan import Host, Reason
from deeplearning_jobs.topology import WHOLE_HOST_LAUNCHERS, choose_gpus

VISIBLE = "CUDA_VISIBLE_DEVICES"
NO_GPUS = {VISIBLE: ""}
"""A process that computes nothing would take memory of every GPU that it sees."""


def worker_gpus(job: Job) -> Iterator[tuple[int, Host, dict[str, str]]]:
    """Yield each worker's rank, its host, and the variable that gives it its GPUs; empty on hosts without any."""
    for index, host in enumerate(job.layout.hosts):
        for local_rank in range(job.layout.slots):
            gpus = choose_gpus(job.request.launcher, host, job.layout.slots, local_rank)
            variable = {VISIBLE: ",".join(map(str, gpus))} if gpus else {}
            yield index * job.layout.slots + local_rank, host, variable


def explain_gpus(job: Job) -> Reason:
    """Say how the GPUs of a host are divided."""
    if not job.layout.has_gpus:
        return Reason(f"{VISIBLE} not set", "these hosts have no GPUs; servers get an empty one all the same")
    if job.request.launcher not in WHOLE_HOST_LAUNCHERS:
        return Reason(VISIBLE, "a GPU a worker, and none for what does not compute: it would take memory of each")
    each = (job.master.gpu_count or 0) // job.layout.slots
    return Reason(VISIBLE, f"{each} GPUs a worker, and none for what does not compute: it would take memory of each")
