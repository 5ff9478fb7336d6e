"""Containers of training jobs in the lab, on the images of the stack."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.embedded_aws.sagemaker.containers import ContainerOrder, Mount, MountError, RunningContainer
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.lab.container import CREDENTIALS_PATH, Container, Folder, Program
from deeplearning_rehearsal.software.training_images import ImageBuilder

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_TELLING = "deeplearning-member: "
_PREFIX = 16
"""Length of the prefix of the lab's subnets; the router answers for what is outside."""
_KEYS = {
    "AccessKeyId": "AWS_ACCESS_KEY_ID",
    "SecretAccessKey": "AWS_SECRET_ACCESS_KEY",
    "Token": "AWS_SESSION_TOKEN",
}
"""Key of the answer of the credentials service -> variable."""


class LabContainers:
    """
    The lab as the host of containers; it finds the containers of the job that began last by their names.

    Attributes:
        absent: Paths that the image lacks, for faults.
    """

    def __init__(self, lab: Lab, images: ImageBuilder, report: Callable[[str, str], None]) -> None:
        self._lab, self._images, self._report = lab, images, report
        self._running: dict[str, Container] = {}
        self._separated: set[str] = set()
        self.absent: list[str] = []

    def start(self, order: ContainerOrder, on_line: Callable[[str], None]) -> Container:
        """Start a container; `on_line` gets each line of its output, and the timeline those of the member's program."""
        image = self._images.build(order.image)
        environment = {**image.environment, **order.environment}
        answer = {key: environment.pop(variable) for key, variable in _KEYS.items()}
        environment["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"] = CREDENTIALS_PATH

        def take(line: str) -> None:
            on_line(line)
            if line.startswith(_TELLING):
                self._report(order.name, line.removeprefix(_TELLING))

        container = self._lab.start_container(
            Program(
                host=order.name,
                address=order.address,
                prefix_length=_PREFIX,
                layers=image.layers,
                command=order.command,
                environment=environment,
                hosts=order.hosts,
                files={**{f"{folder}/": b"" for folder in order.folders}, **order.files},
                folders=[self._mount(mount) for mount in order.mounts],
                credentials={**answer, "Expiration": "2099-01-01T00:00:00Z"},
                absent=tuple(self.absent),
            ),
            take,
        )
        container.link.set_up(up=order.address not in self._separated)
        self._running[order.name] = container
        return container

    def separate(self, addresses: Sequence[str]) -> None:
        """Drop all packets of these addresses, whose containers start next; what they mount is not the network's."""
        self._separated |= set(addresses)

    def remove(self, container: RunningContainer) -> None:
        """End a container and forget it."""
        assert isinstance(container, Container)
        if self._running.get(container.program.host) is container:
            del self._running[container.program.host]
        self._lab.remove_container(container)

    def find(self, host: str) -> Container:
        """Return the container of a name; RehearsalError when there is none."""
        if (container := self._running.get(host)) is None:
            raise RehearsalError(f"container {host} must be running, it has ended")
        return container

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "CompletedProcess[str]":
        """Run a program in a container, with the options of `Node.run`."""
        return self.find(instance_id).run(argv, **options)

    def _mount(self, mount: Mount) -> Folder:
        folder = self._find_folder(mount)
        if not folder.is_dir():
            raise MountError(f"{mount.folder} must be a folder of file system {mount.file_system_id}, there is none")
        return Folder(folder, mount.path, is_writable=mount.is_writable)

    def _find_folder(self, mount: Mount) -> Path:
        root = self._lab.file_system(mount.file_system_id)
        if mount.lustre is not None:
            self._lab.fill_lustre(mount.file_system_id, mount.lustre)
        return root / mount.folder.lstrip("/")
