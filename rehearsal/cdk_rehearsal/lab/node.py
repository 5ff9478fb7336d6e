"""One node: an overlay of the base root, processes in namespaces of their own, and entry into them; its faults."""

import json
import math
import os
import shlex
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

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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
_DEFAULT_SIZE = "50%"
"""Of this machine's memory; what is not written takes none."""
_ATTEMPTS = 10
_NAMESPACES = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")


class NodeDisk:
    """Disk of one node, and the root file system that is made of it."""

    def __init__(self, folder: Path) -> None:
        self._disk = folder / "disk"
        self.root = folder / "root"

    def make(self, lower: Sequence[Path], files: Mapping[str, str], size_bytes: int | None) -> None:
        """Mount the disk over the image's layers, the uppermost first. Default size: half of this machine's memory."""
        for folder in (self._disk, self.root):
            folder.mkdir(parents=True)
        size = str(size_bytes or _DEFAULT_SIZE)
        check_run(["mount", "-t", "tmpfs", "-o", f"mode=755,size={size}", "disk", str(self._disk)])
        upper, scratch = self._disk / "upper", self._disk / "scratch"
        for folder in (upper, scratch):
            folder.mkdir()
        for path, text in files.items():
            (upper / path).parent.mkdir(parents=True, exist_ok=True)
            (upper / path).write_text(text)
        layers = ":".join(str(layer) for layer in lower)
        options = f"lowerdir={layers},upperdir={upper},workdir={scratch}"
        check_run(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)])

    def fill(self, free_bytes: int = 0) -> None:
        """
        Shrink the disk around what it holds, but for some bytes; less than a page counts as nothing.

        RehearsalError when the kernel refused, or the node wrote faster than its disk could shrink.
        """
        for attempt in range(_ATTEMPTS):
            status = os.statvfs(self._disk)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            try:
                self._resize(str(used + free_bytes))
            except RehearsalError:
                if attempt + 1 == _ATTEMPTS:  # the node has written meanwhile
                    raise
            else:
                return

    def free(self) -> None:
        """Let the disk have its usual size again."""
        self._resize(_DEFAULT_SIZE)

    def remove(self) -> None:
        """Unmount and forget the disk; its memory is free when the node's last process has ended."""
        for folder in (self.root, self._disk):
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)

    def _resize(self, size: str) -> None:
        check_run(["mount", "-o", f"remount,size={size}", str(self._disk)])


class Node:
    """Machine of the lab in a folder that holds its disk and its console; `lock` is held between off and on."""

    def __init__(self, machine: Machine, folder: Path, link: NodeLink) -> None:
        self.machine = machine
        self.folder = folder
        self.link = link
        self.disk = NodeDisk(folder)
        self.lock = threading.Lock()
        self._metadata = MetadataServer(link.metadata_socket, machine)
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
        command = ["nsenter", f"--net={self.link.namespace_path}", "--", "unshare", *_NAMESPACES]
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
        first = _first_child(process.pid)
        # The first process of a pid namespace takes all others with it, and `unshare` ends when they have ended.
        if first is None or not _kill(first):
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
        Run a program in the node.

        Args:
            argv: The program and its arguments.
            user: Its user. Default: root.
            login_shell: Whether through a login shell. Default: with a bare environment, which nothing has filled.
            timeout: Seconds after which it is killed; its status is then 137. Default: 60.

        Raises:
            RehearsalError: The node is off.
        """
        limited = ["timeout", "--signal=KILL", str(timeout), *_as_user(argv, user or "root", login_shell=login_shell)]
        return subprocess.run(
            ["nsenter", *self.entry(), "--", *limited],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
            encoding="utf-8",
            errors="replace",
            check=False,
        )

    def entry(self) -> list[str]:
        """Return the arguments with which `nsenter` enters the node; RehearsalError when it is off."""
        first = _first_child(self._process.pid) if self._process else None
        if first is None:
            raise RehearsalError(f"{self.machine.instance_id} must be running, it is off; boot it first")
        return ["--target", str(first), "--mount", "--uts", "--ipc", "--net", "--pid"]

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


def _as_user(argv: Sequence[str], user: str, *, login_shell: bool) -> list[str]:
    if login_shell:
        return ["su", "--login", user, "--command", shlex.join(argv)]
    if user == "root":
        return list(argv)
    home = f"/home/{user}"
    bare = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    assignments = [f"{name}={value}" for name, value in bare.items()]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    return [*become, "env", "--ignore-environment", f"--chdir={home}", *assignments, *argv]


def _first_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def _kill(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def check_run(command: list[str]) -> None:
    """
    Run a program; RehearsalError when it fails.

    From util-linux 2.39 on, mount passes each option by fsconfig(2), which takes at most 255 characters. They are too
    few for the layers of an overlay; with the variable, mount calls mount(2).
    """
    environment = os.environ | {"LIBMOUNT_FORCE_MOUNT2": "always"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if answer.returncode != 0:
        raise RehearsalError(f"{command[0]} failed: {answer.stderr.strip()}")
