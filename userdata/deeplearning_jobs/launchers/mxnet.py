"""
MXNet's `dist_sync`: a scheduler on the first host, and a parameter server and a worker a host.

All run the same program; `import mxnet` turns scheduler and servers into their roles. MXNet numbers its workers itself,
in no fixed order: `DEEPLEARNING_RANK` follows the topology.
"""

from deeplearning_jobs.launchers.launcher import (
    NO_GPUS,
    Launcher,
    explain_gpus,
    list_parts,
    make_process,
    take_ports,
    worker_gpus,
)
from deeplearning_jobs.plan.job import RANK_VARIABLE, Draft, Job, explain_parts
from deeplearning_jobs.plan.launch_plan import Host, PartReason, Process


def draft_mxnet(job: Job) -> Draft:
    """Plan a job of MXNet."""
    layout = job.layout
    (port,) = take_ports(job, job.first, 1)
    shared = {
        "DMLC_PS_ROOT_URI": job.first.address,
        "DMLC_PS_ROOT_PORT": str(port),
        "DMLC_NUM_SERVER": str(len(layout.hosts)),
        "DMLC_NUM_WORKER": str(layout.ranks),
    }

    def make(host: Host, role: str, name: str, own: dict[str, str], *, is_essential: bool) -> Process:
        place = {"DMLC_ROLE": role, "DMLC_NODE_HOST": host.address, "DMLC_INTERFACE": _interface(job, host)}
        return make_process(job, host, name, {**shared, **place, **own}, is_essential=is_essential)

    servers = [make(job.first, "scheduler", "scheduler", NO_GPUS, is_essential=False)]
    servers += [
        make(host, "server", f"server-{index}", NO_GPUS, is_essential=False) for index, host in enumerate(layout.hosts)
    ]
    workers = [
        make(host, "worker", f"worker-{rank}", {RANK_VARIABLE: str(rank), **gpus}, is_essential=True)
        for rank, host, gpus in worker_gpus(job)
    ]
    reasons = (*explain_parts(list_parts(job)), *_explain(shared), explain_gpus(job, has_servers=True))
    return Draft((*servers, *workers), reasons, job.path("rank-0.log"))


def _interface(job: Job, host: Host) -> str:
    return "lo" if job.is_on_one_host else host.interface


def _explain(shared: dict[str, str]) -> tuple[PartReason, ...]:
    whys = (
        "the scheduler's address: MXNet accepts no host names here",
        "free on the master at the time of the plan",
        "a parameter server a host",
        "hosts x slots",
    )
    return (
        *(PartReason(f"{name}={value}", why) for (name, value), why in zip(shared.items(), whys, strict=True)),
        PartReason("DMLC_ROLE", "scheduler and servers end with the workers; only workers decide how the job ended"),
        PartReason("DMLC_NODE_HOST, DMLC_INTERFACE", "of each host; MXNet would use the first interface that it finds"),
    )


MXNET = Launcher(
    name="mxnet",
    draft=draft_mxnet,
    ports=lambda _slots: 1,
    starter=None,
    is_elastic=False,
    is_central=False,
    drives_whole_host=True,
    reserved=(
        "DMLC_NODE_HOST",
        "DMLC_NUM_SERVER",
        "DMLC_NUM_WORKER",
        "DMLC_PS_ROOT_PORT",
        "DMLC_PS_ROOT_URI",
        "DMLC_ROLE",
    ),
    passed=("DMLC_",),
    why_no_container="",
)
