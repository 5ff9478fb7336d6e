"""One container: an overlay of an image's layers, and one program in namespaces of its own."""

import io
import shutil
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.disk import Disk
from cdk_rehearsal.lab.images.stand_in_layer import StandIn
from cdk_rehearsal.lab.namespaces import SYSTEM_PATH, Namespaces, as_user, name_cgroup, run_inside
from cdk_rehearsal.lab.network import Link

if TYPE_CHECKING:
    import subprocess

CONTAINER = StandIn(
    "namespaces of containers",
    "containers on instances of their own",
    "one kernel, one bridge, the capabilities Docker leaves; no seccomp filter, no limit of memory or CPU",
)
_START = Path(__file__).with_name("start_container.sh")
_CAPABILITIES = (
    *("audit_write", "chown", "dac_override", "fowner", "fsetid", "kill", "mknod", "net_bind_service", "net_raw"),
    *("setfcap", "setgid", "setpcap", "setuid", "sys_chroot"),
)
"""Docker documentation, "Running containers", "Runtime privilege and Linux capabilities": what a container has."""
_CONFINED = ("setpriv", f"--bounding-set=-all,{','.join(f'+{name}' for name in _CAPABILITIES)}")


@dataclass(frozen=True, kw_only=True)
class Mount:
    """
    A folder of a file system in a container.

    Attributes:
        file_system_id: The file system of the lab.
        folder: The folder on it, from its root; it is there.
        target: Path in the container.
        is_read_only: Whether the container may not write. Default: it may.
    """

    file_system_id: str
    folder: str
    target: str
    is_read_only: bool = False


@dataclass(frozen=True, kw_only=True)
class ContainerOrder:
    """
    Description of one container.

    Attributes:
        container_id: Its name in the lab, new to it; letters, digits and hyphens.
        hostname: Its own name.
        address: IPv4 address of its one interface, eth0.
        prefix_length: Of its subnet.
        layers: Of its image over the base root, the uppermost first.
        command: The program, which is process 1, and its arguments.
        environment: Variables of the image and of whoever starts it, beside those that Docker sets. Default: none.
        hosts: Name -> address, for /etc/hosts; its own is among them. Default: no names.
        files: Path -> content; read one at a time, so that a lazy mapping keeps none in memory. A path that ends with
            `/` is a folder. Default: none.
        absent: Files of the image that are not there, for faults. Default: none.
        mounts: Folders of file systems. Default: none.
    """

    container_id: str
    hostname: str
    address: str
    prefix_length: int
    layers: Sequence[Path]
    command: Sequence[str]
    environment: Mapping[str, str] = field(default_factory=dict)
    hosts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    absent: Sequence[str] = ()
    mounts: Sequence[Mount] = ()

    @property
    def asks_for_gpus(self) -> bool:
        """
        True if its variables ask NVIDIA's runtime for GPUs and the programs of their driver; else it has neither.

        Source: NVIDIA Container Toolkit, "Specialized Configurations with Docker", GPU Enumeration and Driver
        Capabilities. Unset capabilities are `utility,compute`.
        """
        devices = self.environment.get("NVIDIA_VISIBLE_DEVICES", "")
        capabilities = self.environment.get("NVIDIA_DRIVER_CAPABILITIES", "") or "utility,compute"
        return devices not in ("", "void", "none") and not {"all", "utility"}.isdisjoint(capabilities.split(","))


class Container:
    """
    Container of the lab, in a folder that holds its disk.

    Attributes:
        container_id: Its name in the lab.
        address: Its address.
        link: Its link to the network.
    """

    def __init__(self, order: ContainerOrder, folder: Path, link: Link) -> None:
        self.container_id, self.address, self.link = order.container_id, order.address, link
        self._folder = folder
        self._disk = Disk(folder)
        # Docker documentation, "docker container run", "Set environment variables": of every Linux container.
        defaults = {"PATH": SYSTEM_PATH, "HOSTNAME": order.hostname, "HOME": "/root"}
        self._variables = [f"{name}={value}" for name, value in {**defaults, **order.environment}.items()]
        self._namespaces: Namespaces | None = None
        self._reader: threading.Thread | None = None

    @property
    def root(self) -> Path:
        """Its root file system, until the container is removed; mounted file systems are not in it."""
        return self._disk.root

    def start(
        self, order: ContainerOrder, base: Sequence[Path], mounts: Mapping[Mount, Path], report: Callable[[str], None]
    ) -> None:
        """
        Start the program of its order; returns when it has its own root.

        Args:
            order: The order.
            base: The layers below the image's.
            mounts: Folder of each mount on this machine.
            report: Called with each line of output, in a thread, while the program runs.

        Raises:
            RehearsalError: The kernel refused.
        """
        lines = ["127.0.0.1 localhost", *(f"{address} {name}" for name, address in order.hosts.items())]
        own = {"etc/hostname": f"{order.hostname}\n", "etc/hosts": "".join(f"{line}\n" for line in lines)}
        files = ((name, text.encode()) for name, text in own.items())
        self._disk.make([*order.layers, *base], chain(files, order.files.items()))
        for path in order.absent:
            (self.root / path.lstrip("/")).unlink()
        words = [str(_START), str(self.root), name_cgroup(self.container_id)]
        for mount, folder in mounts.items():
            words += ["ro" if mount.is_read_only else "rw", str(folder), mount.target]
        words += ["--", *self._confine(order.command)]
        console = self._folder / "console.log"
        self._namespaces = Namespaces(self.container_id, self.link.namespace_path, words, console)
        self._reader = threading.Thread(target=self._read, args=[report], name=self.container_id, daemon=True)
        self._reader.start()

    def wait(self, seconds: float | None = None) -> int | None:
        """
        Return the exit status of the program when all its output was told; None if it runs after so many seconds.

        Of a program that a signal ended it is 128 and the signal's number, as `docker wait` has it.
        """
        status = self._running().wait(seconds)
        if status is not None and self._reader is not None:
            self._reader.join()
        return status

    def stop(self, seconds: float) -> int:
        """
        Send SIGTERM to the program, and SIGKILL if it runs after so many seconds; return its exit status.

        A program that has no handler for SIGTERM is not ended by it, because it is process 1: pid_namespaces(7).
        """
        self._running().send(signal.SIGTERM)
        status = self.wait(seconds)
        return self.kill() if status is None else status

    def kill(self) -> int:
        """End all processes at once; return the exit status of the program."""
        self._running().kill()
        status = self.wait()
        assert status is not None
        return status

    def run(
        self, argv: Sequence[str], *, user: str | None = None, login_shell: bool = False, timeout: float = 60
    ) -> "subprocess.CompletedProcess[str]":
        """
        Run another program in the container, as `docker exec` does.

        Args:
            argv: The program and its arguments.
            user: Its user. Default: root, with the container's environment; another one has a bare environment.
            login_shell: Whether through a login shell. Default: it is not.
            timeout: Seconds after which it is killed; its status is then 137. Default: 60.

        Raises:
            RehearsalError: The program of the container has ended.
        """
        command = as_user(argv, user or "root", login_shell=login_shell)
        return run_inside(self._running().entry(), self._confine(command), timeout)

    def remove(self) -> None:
        """End the container and forget its folder, so that another one may have its name."""
        if self._namespaces is not None:
            self.kill()
        self._disk.remove()
        shutil.rmtree(self._folder)

    def _confine(self, command: Sequence[str]) -> list[str]:
        return [*_CONFINED, "env", "--ignore-environment", *self._variables, *command]

    def _running(self) -> Namespaces:
        if self._namespaces is None:
            raise RehearsalError(f"{self.container_id} must have been started")
        return self._namespaces

    def _read(self, report: Callable[[str], None]) -> None:
        # Only a line feed ends a line: a progress bar's carriage returns are within one.
        with io.TextIOWrapper(self._running().output, encoding="utf-8", errors="replace", newline="\n") as lines:
            for line in lines:
                report(line.removesuffix("\n"))
