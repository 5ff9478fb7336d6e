"""
The lab: EC2 instances and containers as namespaces of this machine.

Runs as root inside network, mount and pid namespaces of its own, which take everything away when they end. Nodes boot
an image (a base root file system and a layer of stand-ins) with their unmodified user data, and containers run a
program over the layers of theirs.
"""

import base64
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.container import CONTAINER, Container, ContainerOrder
from cdk_rehearsal.lab.disk import check_run
from cdk_rehearsal.lab.downloads import HOST, Downloads
from cdk_rehearsal.lab.file_systems import FileSystems
from cdk_rehearsal.lab.images.base_root import BaseRoot
from cdk_rehearsal.lab.images.image_parts import PART_STAND_INS, SOFTWARE, write_image_part
from cdk_rehearsal.lab.images.stand_in_layer import AUTHORITIES, Image, StandIn
from cdk_rehearsal.lab.network import Network
from cdk_rehearsal.lab.node import Node
from cdk_rehearsal.lab.node_faults import MetadataFault, NodeFaults
from cdk_rehearsal.lab.packages import PackageServer
from cdk_rehearsal.machine import ImagePart, LustreTarget, Machine

ROUTER, PORT = "100.64.0.1", 4566
"""Address of the embedded AWS for nodes, of the range that no VPC may have (RFC 6598)."""
ENDPOINT = f"http://{ROUTER}:{PORT}"
_INDEX_PORT, _ARCHIVE_PORT = 3141, 3142


class Lab:
    """
    Boots machines and lets the caller into them.

    Args:
        base_root: Root file system of `prepare_base_root`; only read.
        work: Empty folder for disks and file systems; they are in memory and end with the namespaces.
        gateway: IPv4 address of the VPC's router; this process can listen on it.
        image: The layer of all images over the base root.
        layers: Layers of `prepare_layers`, for the machines whose images have these parts; only read. Default: none.
    """

    def __init__(
        self,
        *,
        base_root: Path,
        work: Path,
        gateway: str,
        image: Image,
        layers: Mapping[ImagePart, Path] = MappingProxyType({}),
    ) -> None:
        for name, path in {"base_root": base_root, "work": work}.items():
            if set(":,\\") & set(str(path.resolve())):
                raise RehearsalError(f"{name} must not have ':', ',' or '\\' in its path, got {path.resolve()}")
        self._base_root = base_root.resolve()
        self._work = work.resolve()
        self._image = image
        self._devices = self._work / "devices"
        self._layers = dict(layers)
        self._parts: set[ImagePart] = set()
        self._file_systems = FileSystems(self._work / "file-systems")
        self._network = Network(gateway)
        self._nodes: dict[str, Node] = {}
        self._containers: dict[str, Container] = {}
        self._has_containers = False
        self.installed: Sequence[Path] = ()
        """Layers over those of the images, of what nodes find on their disks; only read."""
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._work.mkdir(parents=True, exist_ok=True)
        check_run(["mount", "-t", "tmpfs", "-o", "mode=755", "rehearsal", str(self._work)])
        self._network.open()
        self._image.write(self._work / "image")
        self._devices.mkdir()
        self._image.write_devices(self._devices)
        for part in PART_STAND_INS:
            if part not in SOFTWARE:
                self._layers[part] = self._work / "parts" / part
                write_image_part(self._layers[part], part)
        return self

    def __exit__(self, *_: object) -> None:
        for instance_id in list(self._nodes):
            self.power_off(instance_id)
        for container_id in list(self._containers):
            self.remove_container(container_id)
        subprocess.run(["umount", "--lazy", str(self._work)], check=False)

    @property
    def stand_ins(self) -> tuple[StandIn, ...]:
        """Parts of the nodes that are not the real thing; of images that were booted only. Images name their own."""
        parts = (PART_STAND_INS[part] for part in sorted(self._parts))
        return (*self._image.stand_ins, *parts, *([CONTAINER] if self._has_containers else []))

    def boot(self, machine: Machine, faults: NodeFaults | None = None) -> None:
        """Start a machine that the lab does not have yet; returns when it runs, which is before its user data ends."""
        faults = faults or NodeFaults()
        with self._lock:
            if missing := machine.image_parts - set(self._layers):
                raise RehearsalError(f"image of {machine.instance_id} must have its layers, got no {sorted(missing)}")
            if machine.instance_id in self._nodes:
                raise RehearsalError(f"instance_id must be new to the lab, got {machine.instance_id}")
            link = self._network.add_node(machine.address, machine.prefix_length)
            node = Node(machine, self._work / "nodes" / machine.instance_id, link)
            node.metadata.fault = faults.metadata or MetadataFault()
            node.lock.acquire()  # before anyone else can find it
            self._nodes[machine.instance_id] = node
            self._parts |= machine.image_parts
        try:
            parts = [self._layers[part] for part in sorted(machine.image_parts)]
            node.make_disk([*self.installed, *parts, self._work / "image", self._base_root], faults, self._image.hosts)
            self._start(node)
        except RehearsalError:
            node.lock.release()
            self.power_off(machine.instance_id)
            raise
        node.lock.release()

    def power_off(self, instance_id: str) -> None:
        """End a machine at once and forget it, as EC2 does on termination; an unknown or ended one is not an error."""
        with self._lock:
            node = self._nodes.pop(instance_id, None)
        if node is not None:
            with node.lock:
                node.remove()
                self._network.remove(node.link, node.machine.address)

    def reboot(self, instance_id: str) -> None:
        """Cut a machine's power and start it again: its disk and address stay, user data does not run again."""
        node = self.node(instance_id)
        with node.lock:
            node.kill()
            self._start(node)

    def node(self, instance_id: str) -> Node:
        """Return a machine's node, to enter it and to inject faults; RehearsalError when there is none."""
        node = self._nodes.get(instance_id)
        if node is None:
            raise RehearsalError(f"instance_id must name a machine of the lab, got {instance_id}")
        return node

    def start_container(self, order: ContainerOrder, report: Callable[[str], None]) -> Container:
        """
        Start a container that the lab does not have yet, and return it.

        Args:
            order: What it is to be.
            report: Called with each line of output, in a thread, while the program runs.

        Raises:
            RehearsalError: A mounted folder is not on its file system, or the kernel refused.
        """
        mounts = {mount: self.file_system(mount.file_system_id) / mount.folder.lstrip("/") for mount in order.mounts}
        for mount, folder in mounts.items():
            if not folder.is_dir():
                raise RehearsalError(f"folder must be on {mount.file_system_id}, got {mount.folder}")
        with self._lock:
            if order.container_id in self._containers:
                raise RehearsalError(f"container_id must be new to the lab, got {order.container_id}")
            link = self._network.add_container(order.address, order.prefix_length)
            container = Container(order, self._work / "containers" / order.container_id, link)
            self._containers[order.container_id] = container
            self._has_containers = True
        try:
            devices = [self._devices] if order.asks_for_gpus else []
            container.start(order, [*devices, self._base_root], mounts, report)
        except RehearsalError:
            self.remove_container(order.container_id)
            raise
        return container

    def set_driver(self, version: str, *, cuda: str) -> None:
        """
        Let containers that start from now on have a driver of a version, and an image with a version of CUDA.

        The image's own software is for CPUs; CUDA is that of a package of NVIDIA's.
        """
        self._image.write_devices(self._devices, driver=version, cuda=cuda)

    def remove_container(self, container_id: str) -> None:
        """End a container and forget it and its files; one that is unknown is not an error."""
        with self._lock:
            container = self._containers.pop(container_id, None)
        if container is not None:
            container.remove()
            self._network.remove(container.link, container.address)

    def container(self, container_id: str) -> Container:
        """Return a container; RehearsalError when there is none."""
        container = self._containers.get(container_id)
        if container is None:
            raise RehearsalError(f"container_id must name a container of the lab, got {container_id}")
        return container

    def answer_at(self, address: str) -> None:
        """Let this process answer at the address of a machine that does not boot."""
        self._network.answer_at(address)

    def separate(self, container_id: str, other: str) -> None:
        """Drop the packets between two containers from now on, as security groups do that do not admit each other."""
        pair = self.container(container_id), self.container(other)
        for one, another in (pair, reversed(pair)):
            one.link.drop(another.address)

    def cut_off(self, instance_id: str) -> None:
        """Drop what a machine sends out of its subnet from now on; what comes from there has no answer then."""
        self.node(instance_id).link.drop(self._network.gateway)

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run a program in the machine, or in the container, of that id, with the options of `Node.run`."""
        place = self._containers.get(instance_id) or self.node(instance_id)
        return place.run(argv, **options)

    def read_file(self, instance_id: str, path: str) -> bytes:
        """Read a file of a machine or container that runs; RehearsalError when there is no such one or no such file."""
        answer = self.run(instance_id, ["base64", path])
        if answer.returncode != 0:
            raise RehearsalError(f"{instance_id}: {answer.stderr.strip()}")
        return base64.b64decode(answer.stdout)

    def disk(self, instance_id: str) -> Path:
        """Return the folder under which a machine's files can be read; its mounts are not among them."""
        return self.node(instance_id).root

    def file_system(self, file_system_id: str) -> Path:
        """Return the folder behind an EFS file system; a new one belongs to root with mode 0755, as on AWS."""
        return self._file_systems.open(file_system_id)

    def fill_lustre(self, file_system_id: str, target: LustreTarget) -> None:
        """Copy the files of linked buckets to an FSx for Lustre file system, where nobody has written one."""
        self._file_systems.fill(file_system_id, target)

    def file_system_roots(self, machine: Machine) -> tuple[Path, ...]:
        """Return the folders that a machine may mount of EFS, whether it has booted or not."""
        return self._file_systems.find_roots(machine)

    def _start(self, node: Node) -> None:
        targets = self._file_systems.describe_targets(node.machine)
        names = (*node.machine.mount_targets, *node.machine.lustre)
        node.start(targets, [self.file_system(name) for name in names])


@contextmanager
def open_lab(
    work: Path,
    base: BaseRoot,
    layers: Mapping[ImagePart, Path],
    *,
    index: Path | None = None,
    gpus_per_node: int = 0,
    has_lustre_client: bool = False,
    has_downloads: bool = False,
) -> Iterator[Lab]:
    """
    Open a lab whose nodes reach the embedded AWS at `ENDPOINT`, and serve them the packages that they may install.

    Args:
        work: Folder of the lab; temporary files of this process are in it, too.
        base: The base of all images, with its Debian archive.
        layers: Layers of `prepare_layers`.
        index: Folder of a package index. Default: none is served.
        gpus_per_node: GPUs that `nvidia-smi` lists. Default: 0, which leaves the program out.
        has_lustre_client: Whether the image has `mount.lustre`. Default: it has not, like Ubuntu's.
        has_downloads: Whether machines reach what `Downloads` has. Default: they do not.
    """
    image = Image(ENDPOINT, gpus_per_node, has_lustre_client, archive_url=f"http://{ROUTER}:{_ARCHIVE_PORT}/")
    if index is not None:
        image = replace(image, index_url=f"http://{ROUTER}:{_INDEX_PORT}/simple/")
    with ExitStack() as opened:
        downloads = None
        if has_downloads:
            downloads = Downloads(Path(opened.enter_context(tempfile.TemporaryDirectory())))
            authorities = (base.root / AUTHORITIES).read_text() + downloads.authority
            image = replace(image, authorities=authorities, hosts={HOST: ROUTER})
        lab = opened.enter_context(Lab(base_root=base.root, work=work, gateway=ROUTER, image=image, layers=layers))
        opened.enter_context(PackageServer(ROUTER, _ARCHIVE_PORT, base.archive))
        if downloads is not None:
            opened.enter_context(downloads.open(ROUTER))
        if index is not None:
            opened.enter_context(PackageServer(ROUTER, _INDEX_PORT, index))
        # The lab's folder is in memory and in this mount namespace only: not even SIGKILL leaves a temporary file.
        (work / "tmp").mkdir()
        tempfile.tempdir = str(work / "tmp")
        yield lab
