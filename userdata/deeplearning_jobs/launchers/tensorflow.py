"""
TensorFlow, which starts nothing by itself: each process learns from `TF_CONFIG` who all are and which it is.

Who all are is a file of the run, from which the rank script makes the variable: in the environment of each process, the
command lines of a large cluster would grow with the square of its size.

- `tf-ps`: a coordinator (`chief`) on the master, a parameter server a host and a worker a slot. The servers and the
  workers serve for ever; the job ends with its chief.
- `tf-multiworker`: a worker a host, which drives all its GPUs; the first is the chief.
"""

import json
from typing import NamedTuple

from deeplearning_jobs.launchers.ports import take_ports
from deeplearning_jobs.launchers.visible_gpus import NO_GPUS, explain_gpus, worker_gpus
from deeplearning_jobs.plan.job import RANK_VARIABLE, TASK_VARIABLE, Draft, Job, Part, explain_parts, join_parts
from deeplearning_jobs.plan.launch_plan import Host, Process, Reason
from deeplearning_jobs.plan.rank_script import CLUSTER_FILE, RANK

Cluster = dict[str, list[str]]


class Task(NamedTuple):
    """One process: its kind, its number, its own variables, and whether the job waits for its end."""

    kind: str
    number: int
    own: dict[str, str]
    is_essential: bool


def draft_parameter_servers(job: Job) -> Draft:
    """
    Plan a job of `ParameterServerStrategy`.

    Raises:
        PlanError: A host offered too few ports.
    """
    slots, cluster = job.layout.slots, Cluster(chief=[], worker=[], ps=[])
    for index, host in enumerate(job.layout.hosts):
        has_chief = index == 0
        ports = list(take_ports(job, host, slots + 1 + has_chief))
        cluster["ps"].append(f"{host.address}:{ports[slots]}")
        cluster["worker"] += [f"{host.address}:{port}" for port in ports[:slots]]
        if has_chief:
            cluster["chief"].append(f"{host.address}:{ports[slots + 1]}")
    processes = [
        _make(job, host, Task("ps", index, NO_GPUS, is_essential=False)) for index, host in enumerate(job.layout.hosts)
    ]
    processes += _make_workers(job, is_essential=False)
    processes.append(_make(job, job.first, Task("chief", 0, NO_GPUS, is_essential=True)))
    ends = Reason("chief-0", "tells the workers what to compute; they and the parameter servers serve until it ends")
    return Draft(tuple(processes), _cluster_file(job, cluster), (*_explain(job), ends), job.path("chief-0.log"))


def draft_multiworker(job: Job) -> Draft:
    """
    Plan a job of `MultiWorkerMirroredStrategy`.

    Raises:
        PlanError: A host offered too few ports.
    """
    slots, cluster = job.layout.slots, Cluster(worker=[])
    for host in job.layout.hosts:
        cluster["worker"] += [f"{host.address}:{port}" for port in take_ports(job, host, slots)]
    processes = _make_workers(job, is_essential=True)
    first = Reason("worker-0", "is the chief: it alone writes what TensorFlow keeps")
    return Draft(tuple(processes), _cluster_file(job, cluster), (*_explain(job), first), job.path("rank-0.log"))


def _make_workers(job: Job, *, is_essential: bool) -> list[Process]:
    return [
        _make(job, host, Task("worker", rank, {RANK_VARIABLE: str(rank), **gpus}, is_essential))
        for rank, host, gpus in worker_gpus(job)
    ]


def _make(job: Job, host: Host, task: Task) -> Process:
    name = f"{task.kind}-{task.number}"
    environment = {TASK_VARIABLE: name, **task.own, **job.variables}
    return Process(host.name, name, join_parts(_list_parts(job)), environment, task.is_essential)


def _cluster_file(job: Job, cluster: Cluster) -> dict[str, str]:
    return {job.path(CLUSTER_FILE): json.dumps(cluster) + "\n"}


def _list_parts(job: Job) -> list[Part]:
    return [
        Part((job.path(RANK),), "gives each process its log, its host's interface and the job's variables"),
        Part(job.request.program),
    ]


def _explain(job: Job) -> tuple[Reason, ...]:
    return (
        *explain_parts(_list_parts(job)),
        Reason("TF_CONFIG", f"from {CLUSTER_FILE}: all by address, with ports that were free when each host was asked"),
        explain_gpus(job),
    )
