"""
The lab: EC2 instances as namespaces of this machine.

Runs as root inside network, mount and pid namespaces of its own, which take everything away when they end. Nodes boot
an image (a base root file system and a layer of stand-ins) with their unmodified user data.
"""

import base64
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.fault_injection import FaultInjection, RunningNode
from cdk_rehearsal.lab.file_systems import FileSystems
from cdk_rehearsal.lab.images.image_parts import PART_STAND_INS, write_image_part
from cdk_rehearsal.lab.images.image_software import SOFTWARE
from cdk_rehearsal.lab.images.stand_in_layer import StandIn, list_stand_ins, write_image_layer
from cdk_rehearsal.lab.metadata_service import MetadataServer
from cdk_rehearsal.lab.network import Network
from cdk_rehearsal.lab.node import Node
from cdk_rehearsal.lab.node_faults import NodeFaults
from cdk_rehearsal.machine import ImagePart, Machine


class Lab(FaultInjection):
    """
    Boots machines and lets the caller into them.

    Args:
        base_root: Root file system of `prepare_base_root`; only read.
        work: Empty folder for disks and file systems; they are in memory and end with the namespaces.
        endpoint_url: The embedded AWS, as nodes reach it.
        gateway: IPv4 address of the VPC's router; this process can listen on it.
        gpus_per_node: GPUs that `nvidia-smi` lists; 0 leaves the program out.
        with_lustre_client: Whether the image has `mount.lustre`. Default: it has not, like Ubuntu's.
        package_index_url: Package index that the image's pip is told of. Default: none.
        archive_url: Debian archive that the image's apt is told of. Default: none.
        layers: Layers of `prepare_layers`, for the machines whose images have these parts; only read. Default: none.
    """

    def __init__(
        self,
        *,
        base_root: Path,
        work: Path,
        endpoint_url: str,
        gateway: str,
        gpus_per_node: int,
        with_lustre_client: bool = False,
        package_index_url: str = "",
        archive_url: str = "",
        layers: Mapping[ImagePart, Path] = MappingProxyType({}),
    ) -> None:
        for name, path in {"base_root": base_root, "work": work}.items():
            if set(":,\\") & set(str(path.resolve())):
                raise RehearsalError(f"{name} must not have ':', ',' or '\\' in its path, got {path.resolve()}")
        self._base_root = base_root.resolve()
        self._work = work.resolve()
        self._write_layer: Callable[[Path], None] = lambda folder: write_image_layer(
            folder,
            endpoint_url,
            gpus_per_node,
            with_lustre_client=with_lustre_client,
            package_index_url=package_index_url,
            archive_url=archive_url,
        )
        self._layers = dict(layers)
        self._stand_ins = list_stand_ins(archive_url, package_index_url, with_lustre_client=with_lustre_client)
        self._parts: set[ImagePart] = set()
        self._file_systems = FileSystems(self._work / "file-systems")
        self._network = Network(gateway)
        self._nodes: dict[str, RunningNode] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        _run(["mount", "-t", "tmpfs", "-o", "mode=755", "rehearsal", str(self._work)])
        self._network.open()
        self._write_layer(self._work / "image")
        for part in PART_STAND_INS:
            if part not in SOFTWARE:
                self._layers[part] = self._work / "parts" / part
                write_image_part(self._layers[part], part)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for instance_id in list(self._nodes):
            self.power_off(instance_id)
        subprocess.run(["umount", "--lazy", str(self._work)], check=False)

    @property
    def stand_ins(self) -> tuple[StandIn, ...]:
        """What of the nodes is not the real thing; of images that were booted only."""
        return (*self._stand_ins, *(PART_STAND_INS[part] for part in sorted(self._parts)))

    def boot(self, machine: Machine, faults: NodeFaults | None = None) -> None:
        """
        Start a machine; returns when it runs, which is before its user data ends.

        Args:
            machine: The machine.
            faults: What is wrong with it from the beginning. Default: nothing.

        Raises:
            RehearsalError: The machine exists, or the kernel refused.
        """
        with self._lock:
            if missing := machine.image_parts - set(self._layers):
                raise RehearsalError(f"image of {machine.instance_id} must have its layers, got no {sorted(missing)}")
            if machine.instance_id in self._nodes:
                raise RehearsalError(f"instance_id must be new to the lab, got {machine.instance_id}")
            link = self._network.add_node(machine.address, machine.prefix_length)
            node = Node(machine, self._work / "nodes" / machine.instance_id, link)
            running = RunningNode(node, MetadataServer(link.metadata_socket, machine))
            if faults is not None and faults.metadata is not None:
                running.metadata.session.fault = faults.metadata
            running.lock.acquire()  # before anyone else can find it
            self._nodes[machine.instance_id] = running
            self._parts |= machine.image_parts
        try:
            parts = [self._layers[part] for part in sorted(machine.image_parts)]
            node.make_disk([*parts, self._work / "image", self._base_root], faults or NodeFaults())
            self._start(node)
        except RehearsalError:
            running.lock.release()
            self.power_off(machine.instance_id)
            raise
        running.lock.release()

    def power_off(self, instance_id: str) -> None:
        """End a machine at once and forget it, as EC2 does on termination; an unknown or ended one is not an error."""
        with self._lock:
            running = self._nodes.pop(instance_id, None)
            if running is None:
                return
        with running.lock:
            running.node.kill()
            running.metadata.close()
            self._network.remove_node(running.node.link, running.node.machine.address)
            running.node.disk.remove()

    def reboot(self, instance_id: str) -> None:
        """
        Cut a machine's power and start it again: its disk and address stay, user data does not run again.

        Raises:
            RehearsalError: There is no such machine.
        """
        running = self.find(instance_id)
        with running.lock:
            running.node.kill()
            self._start(running.node)

    def run(
        self,
        instance_id: str,
        argv: Sequence[str],
        *,
        user: str | None = None,
        login_shell: bool = False,
        timeout: float = 60,
    ) -> "subprocess.CompletedProcess[str]":
        """
        Run a program in a machine.

        Args:
            instance_id: Which machine.
            argv: The program and its arguments.
            user: As whom. Default: root.
            login_shell: Whether through a login shell. Default: with a bare environment, which nothing has filled.
            timeout: Seconds after which it is killed; its status is then 137. Default: 60.

        Raises:
            RehearsalError: There is no such machine, or it is off.
        """
        return self.find(instance_id).node.run(argv, user=user, login_shell=login_shell, timeout=timeout)

    def read_file(self, instance_id: str, path: str) -> bytes:
        """
        Read a file of a machine.

        Raises:
            RehearsalError: There is no such machine or file.
        """
        answer = self.run(instance_id, ["base64", path])
        if answer.returncode != 0:
            raise RehearsalError(f"{instance_id}: {answer.stderr.strip()}")
        return base64.b64decode(answer.stdout)

    def disk(self, instance_id: str) -> Path:
        """Return the folder under which a machine's files can be read; its mounts are not among them."""
        return self.find(instance_id).node.root

    def entry(self, instance_id: str) -> str:
        """Return the arguments of `nsenter` that lead from the lab into a machine that is on."""
        return " ".join(self.find(instance_id).node.entry())

    def console(self, instance_id: str) -> str:
        """Return what the machine's start wrote; what happened afterwards is in its journal and cloud-init's logs."""
        return (self.find(instance_id).node.folder / "console.log").read_text(errors="replace")

    def silence(self, instance_id: str) -> None:
        """Drop all of a machine's packets, while it goes on running."""
        self._network.set_up(self.find(instance_id).node.link, up=False)

    def restore(self, instance_id: str) -> None:
        """Let a silenced machine's packets through again."""
        self._network.set_up(self.find(instance_id).node.link, up=True)

    def file_system(self, file_system_id: str) -> Path:
        """Return the folder behind an EFS file system; a new one belongs to root with mode 0755, as on AWS."""
        return self._file_systems.open(file_system_id)

    def file_system_roots(self, machine: Machine) -> tuple[Path, ...]:
        """Return the folders that a machine may mount of EFS, whether it has booted or not."""
        return self._file_systems.find_roots(machine)

    def find(self, instance_id: str) -> RunningNode:
        """
        Return a machine.

        Raises:
            RehearsalError: There is no such machine.
        """
        running = self._nodes.get(instance_id)
        if running is None:
            raise RehearsalError(f"instance_id must name a machine of the lab, got {instance_id}")
        return running

    def _start(self, node: Node) -> None:
        targets = self._file_systems.describe_targets(node.machine)
        names = (*node.machine.mount_targets, *node.machine.lustre)
        node.start(targets, [self.file_system(name) for name in names])


def _run(command: list[str]) -> None:
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    if answer.returncode != 0:
        raise RehearsalError(f"{command[0]} failed: {answer.stderr.strip()}")
