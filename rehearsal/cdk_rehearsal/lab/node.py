"""One node: an overlay of the base root, processes in namespaces of their own, and entry into them; its faults."""

import json
import math
import signal
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.disk import Disk
from cdk_rehearsal.lab.images.stand_in_layer import describe_cuda
from cdk_rehearsal.lab.metadata_service import MetadataServer, MetadataSession
from cdk_rehearsal.lab.namespaces import Namespaces, as_user, name_cgroup, run_inside
from cdk_rehearsal.lab.network import NodeLink
from cdk_rehearsal.lab.node_faults import (
    GPU_STATE,
    Gpus,
    MountFault,
    MountTrouble,
    NodeFaults,
    write_faults,
    write_gpus,
    write_mount_fault,
)
from cdk_rehearsal.machine import Machine, host_name, make_machine_id, private_dns_name

if TYPE_CHECKING:
    import subprocess

_START = Path(__file__).with_name("start_node.sh")
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
        self.disk = Disk(folder)
        self._console = folder / "console.log"
        self.lock = threading.Lock()
        self._metadata = MetadataServer(link.metadata_socket, machine)
        self._namespaces: Namespaces | None = None

    @property
    def root(self) -> Path:
        """Its root file system, mounted for as long as the node exists."""
        return self.disk.root

    @property
    def metadata(self) -> MetadataSession:
        """Its metadata service, which announces interruptions and may have a fault."""
        return self._metadata.session

    def make_disk(self, lower: Sequence[Path], faults: NodeFaults, known_hosts: Mapping[str, str]) -> None:
        """
        Mount its disk over the layers of the image, the uppermost first; RehearsalError when the kernel refused.

        It knows hosts by their names: name -> address.
        """
        machine_id = make_machine_id(self.machine.instance_id)
        name = host_name(self.machine)
        hosts = f"127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{self.machine.address} "
        others = "".join(f"{address} {known}\n" for known, address in known_hosts.items())
        files = {
            "etc/hostname": f"{name}\n",
            "etc/machine-id": f"{machine_id}\n",
            "etc/hosts": f"{hosts}{private_dns_name(self.machine)} {name}\n{others}",
            "etc/cloud/cloud.cfg.d/95-image.cfg": _CLOUD.format(user=self.machine.login_user),
            "usr/lib/lab/login-user": f"{self.machine.login_user}\n",
            "usr/lib/lab/sys/hypervisor/uuid": f"ec2{str(uuid.UUID(machine_id))[3:]}\n",
        }
        self.disk.make(lower, ((path, text.encode()) for path, text in files.items()), faults.disk_bytes)
        write_faults(self.root, faults)

    def start(self, targets: Mapping[str, object], file_systems: Sequence[Path]) -> None:
        """Power the node on; returns when its first process has its own root, before anything else runs."""
        (self.folder / "targets.json").write_text(json.dumps(targets))
        cgroup = name_cgroup(self.machine.instance_id)
        command = [_START, self.root, self.folder / "targets.json", cgroup, *file_systems]
        self._namespaces = Namespaces(
            self.machine.instance_id, self.link.namespace_path, [str(word) for word in command], self._console
        )
        self._namespaces.output.close()

    def console(self) -> str:
        """Return what the node's start wrote; what happened afterwards is in its journal and cloud-init's logs."""
        return self._console.read_text(errors="replace")

    def kill(self) -> None:
        """End every process of the node at once, as a loss of power does."""
        namespaces, self._namespaces = self._namespaces, None
        if namespaces is not None:
            namespaces.kill()

    def ended(self) -> str:
        """Return how the node ended by itself, `off`, `reboot` or with which status; empty while it runs."""
        status = self._namespaces.wait(0) if self._namespaces else None
        # reboot(2): in a pid namespace the first process ends by these signals.
        by_itself = {128 + signal.SIGINT: "off", 128 + signal.SIGHUP: "reboot"}
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
        Run a program in the node.

        Args:
            argv: The program and its arguments.
            user: Its user. Default: root.
            login_shell: Whether through a login shell. Default: with a bare environment, which nothing has filled.
            timeout: Seconds after which it is killed; its status is then 137. Default: 60.

        Raises:
            RehearsalError: The node is off.
        """
        return run_inside(self.entry(), as_user(argv, user or "root", login_shell=login_shell), timeout)

    def entry(self) -> list[str]:
        """Return the arguments with which `nsenter` enters the node; RehearsalError when it is off."""
        if self._namespaces is None:
            raise RehearsalError(f"{self.machine.instance_id} must be running, it is off; boot it first")
        return self._namespaces.entry()

    def set_gpus(self, count: int, **troubles: Any) -> None:
        """Let `nvidia-smi` show other GPUs from now on, with the troubles of `Gpus`."""
        write_gpus(self.root, Gpus(count, **troubles))

    def set_driver(self, version: str, *, cuda: str) -> None:
        """Let its GPUs have a driver of a version, and the Pythons of its image a version of CUDA."""
        gpus = Gpus(**json.loads((self.root / GPU_STATE).read_text()))
        write_gpus(self.root, replace(gpus, driver=version))
        files = dict(describe_cuda(cuda))
        for folder in self.root.glob("opt/pytorch/lib/python3*/site-packages"):
            files |= describe_cuda(cuda, str(folder.relative_to(self.root)))
        for name, text in files.items():
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(text)

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
