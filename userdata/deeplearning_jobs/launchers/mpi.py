"""Open MPI: one `mpirun` on the master, whose daemons start the ranks of each host."""

import ipaddress
import re

from deeplearning_jobs.launchers.launcher import LAUNCHER, Launcher, Starter, hostfile_reason
from deeplearning_jobs.plan.job import HOSTFILE, RANK, SSH, START, Draft, Job, Part, explain_parts, join_parts
from deeplearning_jobs.plan.launch_plan import Host, Process

OPENMPI_FOLDER = "/opt/amazon/openmpi/bin"
"""Folder in which AWS's EFA installer, and so a deep-learning image, installs Open MPI."""


def draft_mpi(job: Job) -> Draft:
    """Plan a job of Open MPI."""
    layout = job.layout
    meeting = tuple(dict.fromkeys((job.master, *layout.hosts)))
    network = find_network(meeting)
    parts = [
        Part((job.path(START),), f"puts the environment's programs first in PATH, then {OPENMPI_FOLDER} where it is"),
        Part(("mpirun",)),
        Part(("-np", str(layout.ranks)), f"hosts x slots: {len(layout.hosts)} x {layout.slots}"),
        Part(("--hostfile", job.path(HOSTFILE)), hostfile_reason(job)),
        Part(("--bind-to", "none"), "data loaders use all cores, not the one of their rank"),
        Part(("--map-by", "slot"), "ranks of a host are neighbours, as the topology shows"),
        Part(("--mca", "pml", "ob1"), "messages use only the transports of btl"),
        Part(("--mca", "btl", "tcp,self"), "TCP between ranks: tensors of GPU ranks use NCCL, not MPI"),
        Part(("--mca", "btl_tcp_if_include", network), _explain_network(meeting)),
        Part(("--mca", "oob_tcp_if_include", network), "the same for Open MPI's daemons"),
        Part(("--mca", "plm_rsh_agent", job.path(SSH)), "checks the host keys that the agent installed"),
        Part(("--mca", "plm_rsh_no_tree_spawn", "1"), "only the master can log in to every node"),
        *(Part(("-x", name)) for name in job.variables),
        Part((job.path(RANK),), "gives each rank its log, its host's interface and the job's variables"),
        Part(job.definition.program),
    ]
    launcher = Process(job.master.name, LAUNCHER, join_parts(parts), job.variables, is_essential=True)
    return Draft((launcher,), explain_parts(parts), job.path("rank-0.log"))


def find_network(hosts: tuple[Host, ...]) -> str:
    """Return the common name of the hosts' interfaces, or the smallest network that contains all their addresses."""
    names = {host.interface for host in hosts}
    if len(names) == 1:
        return names.pop()
    addresses = [ipaddress.IPv4Address(host.address) for host in hosts]
    network = ipaddress.IPv4Network((addresses[0], 32))
    while not all(address in network for address in addresses):
        network = network.supernet()
    return str(network)


def _explain_network(hosts: tuple[Host, ...]) -> str:
    if len({host.interface for host in hosts}) == 1:
        return "the interface that carries each host's address of the cluster; others, such as docker's, reach no host"
    return "the network of the hosts' addresses: their interfaces have different names"


MPI = Launcher(
    name="mpi",
    draft=draft_mpi,
    ports=lambda _slots: 0,
    starter=Starter(
        program="mpirun",
        rank_variable="OMPI_COMM_WORLD_RANK",
        folder=OPENMPI_FOLDER,
        fallback=(),
        is_in_container=False,
        first_failure=re.compile(r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]\s+Exit code:\s+(?P<code>-?\d+)"),
        version=("--version",),
        remedy="for `--launcher mpi` install Open MPI",
    ),
    is_elastic=False,
    is_central=True,
    drives_whole_host=False,
    reserved=(),
    passed=(),
    why_no_container="a rank of Open MPI needs its daemon on the host; use --launcher horovod or torchrun",
)
