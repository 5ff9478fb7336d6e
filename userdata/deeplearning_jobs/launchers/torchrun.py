"""torchrun: one process a host, which starts the ranks of its host."""

import re

from deeplearning_jobs.launchers.launcher import Launcher, Starter, take_ports
from deeplearning_jobs.plan.job import RANK, START, Draft, Job, Part, explain_parts, join_parts
from deeplearning_jobs.plan.launch_plan import Process

RESTARTS = 3
NO_RANK = "9:1"
"""
Standard output of local rank 9, which few hosts have and whose rank script writes its own log anyway.

The default, nothing, fails in PyTorch 1.13 on Python 3.11, where its enum of streams has no empty member.
"""


def draft_torchrun(job: Job) -> Draft:
    """Plan a job of torchrun; PyTorch 1.13 and 2.x both accept options with underscores."""
    (port,) = take_ports(job, job.first, 1)
    commands = [_list_parts(job, node, port) for node in range(len(job.layout.hosts))]
    processes = tuple(
        Process(host.name, f"node-{node}", join_parts(commands[node]), job.variables, is_essential=True)
        for node, host in enumerate(job.layout.hosts)
    )
    return Draft(processes, explain_parts(commands[0]), job.path("rank-0.log"))


def _list_parts(job: Job, node: int, port: int) -> list[Part]:
    layout = job.layout
    start = (
        "starts torchrun in the container, with this host's interface and devices"
        if job.definition.container
        else "puts the environment's programs first in PATH; without torchrun there: python3 -m torch.distributed.run"
    )
    return [
        Part((job.path(START),), start),
        Part(("torchrun",)),
        *(_elastic_parts(job, node, port) if job.definition.elastic else _static_parts(job, node, port)),
        Part(("--nproc_per_node", str(layout.slots)), _explain_slots(job)),
        Part(("--redirects", NO_RANK, "--tee", NO_RANK), "no redirection, in a form for PyTorch 1.13 on Python 3.11"),
        Part(("--no_python",), "the rank script starts the program, in any language"),
        Part((job.path(RANK),), "gives each rank its log and the job's variables"),
        Part(job.definition.program),
    ]


def _static_parts(job: Job, node: int, port: int) -> list[Part]:
    return [
        Part(("--nnodes", str(len(job.layout.hosts))), "hosts that take part"),
        Part(("--node_rank", str(node)), "position of the host in the membership: rank 0 is on the master"),
        Part(("--rdzv_backend", "static"), "the ranks are fixed, so that they follow the topology"),
        Part(("--master_addr", job.first.address), "the master's address in the cluster; names may differ"),
        Part(("--master_port", str(port)), "free on the master at the time of the plan"),
    ]


def _elastic_parts(job: Job, node: int, port: int) -> list[Part]:
    return [
        Part(("--nnodes", f"1:{len(job.layout.hosts)}"), "continues with one host, and uses up to all"),
        Part(("--max_restarts", str(RESTARTS)), "failures of ranks on a host before the job fails"),
        Part(("--rdzv_backend", "c10d"), "hosts meet again whenever one leaves or returns"),
        Part(("--rdzv_id", job.name.replace("/", "-")), "no other run meets there; torchrun names a folder after it"),
        Part(("--rdzv_endpoint", f"{job.first.address}:{port}"), "on the master; the port was free"),
        Part(("--rdzv_conf", f"is_host={int(node == 0)}"), "the master is the server; torchrun guesses it from names"),
    ]


def _explain_slots(job: Job) -> str:
    if not job.layout.has_gpus:
        return "ranks a host, which has no GPUs"
    return "a rank a GPU" if job.layout.slots == job.first.gpu_count else "ranks a host, as asked for"


TORCHRUN = Launcher(
    name="torchrun",
    draft=draft_torchrun,
    ports=lambda _slots: 1,
    starter=Starter(
        program="torchrun",
        rank_variable="RANK",
        folder="",
        fallback=(
            "# An environment may have PyTorch without having its command in PATH.",
            'command -v torchrun > /dev/null || { shift && set -- python3 -m torch.distributed.run "$@"; }',
        ),
        is_in_container=True,  # It comes with PyTorch, which the host may lack.
        first_failure=re.compile(
            r"Root Cause.*?rank\s+: (?P<rank>\d+) \(local_rank.*?exitcode\s+: (?P<code>-?\d+)", re.DOTALL
        ),
        version=(),
        remedy="for `--launcher torchrun` declare torch in the job's environment",
    ),
    is_elastic=True,
    is_central=False,
    drives_whole_host=False,
    reserved=(),
    passed=("GROUP_", "LOCAL_", "MASTER_", "OMP_", "RANK", "ROLE_", "TORCHELASTIC_", "WORLD_SIZE"),
    why_no_container="",
)
