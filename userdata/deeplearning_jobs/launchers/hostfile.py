"""The hostfile of a run, which horovodrun and mpirun read alike."""

from deeplearning_jobs.plan.job import Job

HOSTFILE, LAUNCHER = "hostfile", "launcher"


def hostfile_text(job: Job) -> str:
    """Return a line a host, in the order of ranks."""
    return "".join(f"{host.name} slots={job.layout.slots}\n" for host in job.layout.hosts)


def hostfile_reason(job: Job) -> str:
    """Say what slots are here."""
    if not job.layout.has_gpus:
        return f"the run's own: ranks {job.layout.slots} a host, which has no GPUs"
    if job.layout.slots == job.first.gpu_count:
        return "the run's own: a slot a GPU"
    return f"the run's own: {job.layout.slots} of {job.first.gpu_count} GPUs a host, as asked for"
