"""The ports of a plan: free ones that each host offered, never fixed ones."""

from deeplearning_jobs.plan.job import Job
from deeplearning_jobs.plan.launch_plan import Host, PlanError


def count_ports(launcher: str, slots: int) -> int:
    """Return how many ports a host must offer at most for a launcher with so many ranks a host."""
    return {"horovod": 0, "mpi": 0, "torchrun": 1, "mxnet": 1, "tf-multiworker": slots}.get(launcher, slots + 2)


def take_ports(job: Job, host: Host, count: int) -> tuple[int, ...]:
    """
    Return the first ports that a host offered.

    Raises:
        PlanError: It offered fewer.
    """
    offered = job.request.ports.get(host.name, ())
    if len(offered) < count:
        raise PlanError(
            f"{host.name} must offer {count} free ports, got {len(offered)}; see what listens there: ss -tln"
        )
    return offered[:count]
