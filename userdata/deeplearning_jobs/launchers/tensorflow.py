"""
TensorFlow: the plan starts every process, which reads the cluster and its own task from `TF_CONFIG`.

The rank script sets the variable from a file of the run: in the command lines its size would grow with the square of
the cluster's.

- `tf-ps`: a coordinator (`chief`) on the first host, a parameter server a host and a worker a slot. Servers and workers
never end by themselves; the job ends with its chief.
- `tf-multiworker`: a worker a host, which drives all its GPUs; the first is the chief.
"""

import json
import shlex

from deeplearning_jobs.launchers.launcher import (
    NO_GPUS,
    Launcher,
    explain_gpus,
    list_parts,
    make_process,
    take_ports,
    worker_gpus,
)
from deeplearning_jobs.plan.job import RANK_VARIABLE, TASK_VARIABLE, Draft, Job, explain_parts
from deeplearning_jobs.plan.launch_plan import PartReason, Process

CLUSTER_FILE = "cluster.json"
"""Addresses of all processes of a TensorFlow job."""

Cluster = dict[str, list[str]]


def draft_parameter_servers(job: Job) -> Draft:
    """Plan a job of `ParameterServerStrategy`."""
    slots, cluster = job.layout.slots, Cluster(chief=[], worker=[], ps=[])
    for index, host in enumerate(job.layout.hosts):
        has_chief = index == 0
        ports = list(take_ports(job, host, slots + 1 + has_chief))
        cluster["ps"].append(f"{host.address}:{ports[slots]}")
        cluster["worker"] += [f"{host.address}:{port}" for port in ports[:slots]]
        if has_chief:
            cluster["chief"].append(f"{host.address}:{ports[slots + 1]}")
    processes = [
        make_process(job, host, f"ps-{index}", NO_GPUS, is_essential=False)
        for index, host in enumerate(job.layout.hosts)
    ]
    processes += _make_workers(job, is_essential=False)
    processes.append(make_process(job, job.first, "chief-0", NO_GPUS, is_essential=True))
    ends = PartReason("chief-0", "sends the workers their work; they and the parameter servers run until it ends")
    return _make_draft(job, cluster, processes, (*_explain(job, has_servers=True), ends), "chief-0.log")


def draft_multiworker(job: Job) -> Draft:
    """Plan a job of `MultiWorkerMirroredStrategy`."""
    slots, cluster = job.layout.slots, Cluster(worker=[])
    for host in job.layout.hosts:
        cluster["worker"] += [f"{host.address}:{port}" for port in take_ports(job, host, slots)]
    processes = _make_workers(job, is_essential=True)
    first = PartReason("worker-0", "is the chief: only it writes checkpoints and summaries")
    return _make_draft(job, cluster, processes, (*_explain(job, has_servers=False), first), "rank-0.log")


def _make_workers(job: Job, *, is_essential: bool) -> list[Process]:
    return [
        make_process(job, host, f"worker-{rank}", {RANK_VARIABLE: str(rank), **gpus}, is_essential=is_essential)
        for rank, host, gpus in worker_gpus(job)
    ]


def _make_draft(
    job: Job, cluster: Cluster, processes: list[Process], reasons: tuple[PartReason, ...], rank_zero_log: str
) -> Draft:
    file = job.path(CLUSTER_FILE)
    lines = (
        f"cluster=$(cat {shlex.quote(file)}) || exit 1",
        f"kind=${{{TASK_VARIABLE}%-*}} number=${{{TASK_VARIABLE}##*-}}",
        r'export TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"$kind\", \"index\": $number}}"',
    )
    return Draft(tuple(processes), reasons, job.path(rank_zero_log), {file: json.dumps(cluster) + "\n"}, lines)


def _explain(job: Job, *, has_servers: bool) -> tuple[PartReason, ...]:
    return (
        *explain_parts(list_parts(job)),
        PartReason(
            "TF_CONFIG", f"from {CLUSTER_FILE}: all by address, with ports that were free at the time of the plan"
        ),
        explain_gpus(job, has_servers=has_servers),
    )


TF_PS = Launcher(
    name="tf-ps",
    draft=draft_parameter_servers,
    ports=lambda slots: slots + 2,
    starter=None,
    is_elastic=False,
    is_central=False,
    drives_whole_host=False,
    reserved=("TF_CONFIG",),
    passed=("TF_CONFIG",),
    why_no_container="",
)
TF_MULTIWORKER = Launcher(
    name="tf-multiworker",
    draft=draft_multiworker,
    ports=lambda slots: slots,
    starter=None,
    is_elastic=False,
    is_central=False,
    drives_whole_host=True,
    reserved=("TF_CONFIG",),
    passed=("TF_CONFIG",),
    why_no_container="",
)
