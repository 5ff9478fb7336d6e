"""One node: an overlay of the base root, processes in namespaces of their own, and entry into them; its faults."""

import json
import math
import signal
import subprocess
import threading
import uuid
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.metadata_service import MetadataServer, MetadataSession
from cdk_rehearsal.lab.namespaces import NAMESPACES, NodeDisk, enter, first_child, kill_process, run_inside
from cdk_rehearsal.lab.network import NodeLink
from cdk_rehearsal.lab.node_faults import (
    Gpus,
    MountFault,
    MountTrouble,
    NodeFaults,
    write_faults,
    write_gpus,
    write_mount_fault,
)
from cdk_rehearsal.machine import Machine, host_name, make_machine_id, private_dns_name

_START = Path(__file__).with_name("start_node.sh")
CGROUP = "cdk-rehearsal"
"""Folder of all nodes in the hierarchy of cgroup2."""
_CLOUD = """datasource_list: [Ec2]
datasource: {{Ec2: {{strict_id: false}}}}
network: {{config: disabled}}
locale: false
ssh_genkeytypes: [ed25519, ecdsa]
system_info:
  default_user:
    name: {user}
    gecos: {user}
    lock_passwd: true
    groups: [adm, sudo]
    sudo: ["ALL=(ALL) NOPASSWD:ALL"]
    shell: /bin/bash
"""
"""Of cloud-init, as images for EC2 have it: the data source and the login user. The lab has set the network up."""


class Node:
    """Machine of the lab in a folder that holds its disk and its console; `lock` is held between off and on."""

    def __init__(self, machine: Machine, folder: Path, link: NodeLink) -> None:
        self.machine = machine
        self.folder = folder
        self.link = link
        self.disk = NodeDisk(folder)
        self.lock = threading.Lock()
        self._metadata = MetadataServer(link.service_socket, machine)
        self._process: subprocess.Popen[bytes] | None = None  # `unshare`, the parent of its first process

    @property
    def root(self) -> Path:
        """Its root file system, mounted for as long as the node exists."""
        return self.disk.root

    @property
    def metadata(self) -> MetadataSession:
        """Its metadata service, which announces interruptions and may have a fault."""
        return self._metadata.session

    def make_disk(self, lower: Sequence[Path], faults: NodeFaults) -> None:
        """Mount its disk over the layers of the image, the uppermost first; RehearsalError when the kernel refused."""
        machine_id = make_machine_id(self.machine.instance_id)
        name = host_name(self.machine)
        hosts = f"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{self.machine.address} "
        files = {
            "etc/hostname": f"{name}\n",
            "etc/machine-id": f"{machine_id}\n",
            "etc/hosts": f"{hosts}{private_dns_name(self.machine)} {name}\n",
            "etc/cloud/cloud.cfg.d/95-image.cfg": _CLOUD.format(user=self.machine.login_user),
            "usr/lib/lab/login-user": f"{self.machine.login_user}\n",
            "usr/lib/lab/sys/hypervisor/uuid": f"ec2{str(uuid.UUID(machine_id))[3:]}\n",
        }
        self.disk.make(lower, files, faults.disk_bytes)
        write_faults(self.root, faults)

    def start(self, targets: Mapping[str, object], file_systems: Sequence[Path]) -> None:
        """Power the node on; returns when its first process has its own root, before anything else runs."""
        (self.folder / "targets.json").write_text(json.dumps(targets))
        command = ["nsenter", f"--net={self.link.namespace_path}", "--", "unshare", *NAMESPACES]
        cgroup = f"{CGROUP}/{Path('/proc/self/ns/pid').stat().st_ino}-{self.machine.instance_id}"
        arguments = (self.root, self.folder / "targets.json", cgroup, *file_systems)
        command += ["sh", str(_START), *map(str, arguments)]
        with (self.folder / "console.log").open("ab") as console:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=console)
        # Entering the node before it has left this machine's root would run programs on this machine.
        with process.stdout or nullcontext() as ready:
            is_ready = bool(ready and ready.readline())  # unshare keeps the pipe open: there is no end of file
        if not is_ready:
            process.kill()
            process.wait()
            raise RehearsalError(f"{self.machine.instance_id} did not start: {self.console()[-400:]}")
        self._process = process

    def console(self) -> str:
        """Return what the node's start wrote; what happened afterwards is in its journal and cloud-init's logs."""
        return (self.folder / "console.log").read_text(errors="replace")

    def kill(self) -> None:
        """End every process of the node at once, as a loss of power does."""
        process, self._process = self._process, None
        if process is None:
            return
        first = first_child(process.pid)
        # The first process of a pid namespace takes all others with it, and `unshare` ends when they have ended.
        if first is None or not kill_process(first):
            process.kill()
        process.wait()

    def ended(self) -> str:
        """Return how the node ended by itself, `off`, `reboot` or with which status; empty while it runs."""
        status = self._process.poll() if self._process else None
        # reboot(2): in a pid namespace the first process ends by these signals, and `unshare` like it.
        by_itself = {-signal.SIGINT: "off", -signal.SIGHUP: "reboot"}
        return "" if status is None else by_itself.get(status, f"status {status}: {self.console()[-200:]}")

    def remove(self) -> None:
        """End the node and its metadata service, and forget its disk."""
        self.kill()
        self._metadata.close()
        self.disk.remove()

    def run(
        self, argv: Sequence[str], *, user: str | None = None, login_shell: bool = False, timeout: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """
        Run a program in the node, with the options of `run_inside`.

        Raises:
            RehearsalError: The node is off.
        """
        return run_inside(self.entry(), argv, user=user, login_shell=login_shell, timeout=timeout)

    def entry(self) -> list[str]:
        """Return the arguments with which `nsenter` enters the node; RehearsalError when it is off."""
        first = first_child(self._process.pid) if self._process else None
        if first is None:
            raise RehearsalError(f"{self.machine.instance_id} must be running, it is off; boot it first")
        return enter(first)

    def set_gpus(self, count: int, **troubles: Any) -> None:
        """Let `nvidia-smi` show other GPUs from now on, with the troubles of `Gpus`."""
        write_gpus(self.root, Gpus(count, **troubles))

    def break_mounts(self, trouble: MountTrouble, seconds: float = math.inf) -> None:
        """Let each mount of a file system that begins in the next seconds hang, or not resolve its server."""
        write_mount_fault(self.root, MountFault(trouble, seconds))

    def mend_mounts(self) -> None:
        """Let mounts succeed again; those that hang go on."""
        write_mount_fault(self.root, None)

    def control_sshd(self, verb: Literal["start", "stop"]) -> None:
        """Start or stop the SSH server; RehearsalError when systemd refused."""
        answer = self.run(["systemctl", verb, "ssh"])
        if answer.returncode != 0:
            raise RehearsalError(f"{self.machine.instance_id}: systemctl {verb} ssh failed: {answer.stderr.strip()}")
