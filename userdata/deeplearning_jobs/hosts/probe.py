"""Probe of this host before a job starts."""

import os
import random
import shutil
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from deeplearning_contract.names import ENVIRONMENT_DIRECTORY
from deeplearning_jobs.hosts.preflight import HostFacts
from deeplearning_jobs.hosts.processes import find_processes
from deeplearning_jobs.plan.topology import UNKNOWN_HARDWARE
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.health.findings import last_line
from deeplearning_node.health.gpus import COMMAND, GPU_SECONDS, read_gpus
from deeplearning_node.health.network import find_provider
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.provision_status import Step

ADDRESS_SECONDS = 5
PORTS = range(20000, 32000)
"""Below Linux's ephemeral ports: no outgoing connection takes one before the job binds it."""


def probe_host(
    root: Path,
    programs: Programs,
    facts: NodeFacts,
    membership: InstalledMembership,
    steps: Mapping[str, Step],
    *,
    port_count: int,
    wanted: Sequence[str] = (),
) -> HostFacts:
    """Return the facts of this host; `wanted` are paths that must be readable, and names of programs."""
    member = membership.find(facts.instance_id)
    address = member.address if member else ""
    hardware = facts.needs.hardware.get(facts.role, UNKNOWN_HARDWARE)
    gpu_count, gpu_detail = count_gpus(programs, member.gpu_count if member else None)
    provider = find_provider(programs, root, hardware)
    return HostFacts(
        instance_id=facts.instance_id,
        gpu_count=gpu_count,
        gpu_detail=gpu_detail,
        interface=find_interface(programs, address) if address else "",
        address=address,
        generation=membership.generation if member else 0,
        instance_type=hardware.instance_type,
        expected_gpu_count=facts.expected_gpu_count,
        network_cards=hardware.network_cards,
        efa_cards=hardware.efa_cards,
        ports=offer_ports(port_count),
        steps=steps,
        environment=read_environment(root),
        jobs=tuple(sorted(set(find_processes().values()))),
        missing={what: why for what in wanted if (why := find_fault(what, programs))},
        efa_fault=provider.why if provider.is_fault else "",
    )


def count_gpus(programs: Programs, joined: int | None) -> tuple[int | None, str]:
    """Return the GPUs and an error: 0 without nvidia-smi, None when it fails, `joined` when it is late but may work."""
    if not programs.has(COMMAND):
        return 0, ""
    try:
        reading = read_gpus(programs, Deadline.after(Clock(), GPU_SECONDS))
    except ProgramError as error:
        if "No devices were found" in error.output:
            return 0, ""
        return joined if error.is_late else None, last_line(error.output) or str(error)
    return reading.count, "; ".join(reading.broken)


def find_interface(programs: Programs, address: str) -> str:
    """Return the network interface that carries an address; empty when none does."""
    try:
        argv = ["ip", "-oneline", "-4", "address", "show", "to", address]
        words = programs.run(argv, timeout_seconds=ADDRESS_SECONDS).split()
    except ProgramError:
        return ""
    return words[1] if len(words) > 1 else ""


def offer_ports(count: int) -> tuple[int, ...]:
    """Return different TCP ports that are free on all addresses; fewer when there are not so many."""
    found: list[int] = []
    with ExitStack() as held:
        for port in random.sample(PORTS, len(PORTS)):
            if len(found) >= count:
                break
            attempt = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                attempt.bind(("", port))
            except OSError:
                attempt.close()
                continue
            found.append(port)
    return tuple(found)


def read_environment(root: Path) -> str:
    """Return the digest of the installed environment; empty for none."""
    try:
        return (root / ENVIRONMENT_DIRECTORY.lstrip("/") / "current").readlink().name
    except OSError:
        return ""


def find_fault(what: str, programs: Programs) -> str:
    """Return why the login user cannot use a path or a program here; empty when it can."""
    if not what.startswith("/"):
        return "" if shutil.which(what, path=programs.search_path) else "is not a program"
    if not Path(what).exists():
        return "does not exist"
    return "" if os.access(what, os.R_OK) else "cannot be read"
