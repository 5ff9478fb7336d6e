"""Containers of training jobs in the lab, on the images of the stack."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.embedded_aws.sagemaker.host import RunningContainer, TrainingContainer
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.lab.container import CREDENTIALS_PATH, Container, ContainerOrder, Folder
from deeplearning_rehearsal.software.training_images import ImageBuilder

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_TELLING = "deeplearning-member: "


class LabContainers:
    """The lab as the host of containers; it has the containers of one job at a time by their names."""

    def __init__(self, lab: Lab, images: ImageBuilder, report: Callable[[str, str], None]) -> None:
        self._lab, self._images, self._report = lab, images, report
        self._running: dict[str, Container] = {}
        self.absent: list[str] = []
        """Paths that the image lacks, for faults."""

    @property
    def credentials_path(self) -> str:
        """Path of the credentials service of containers."""
        return CREDENTIALS_PATH

    def require_image(self, image: str) -> None:
        """Build an image of the stack, unless that is done; RehearsalError for another one."""
        self._images.build(image)

    def start(self, order: TrainingContainer, on_line: Callable[[str], None]) -> Container:
        """Start a container; `on_line` gets each line of its output, and the timeline those of the member's program."""
        image = self._images.build(order.image)
        folders = [
            Folder(self._find_folder(mount.file_system_id, mount.path), mount.target, is_writable=mount.is_writable)
            for mount in order.mounts
        ]

        def take(line: str) -> None:
            on_line(line)
            if line.startswith(_TELLING):
                self._report(order.host, line.removeprefix(_TELLING))

        container = self._lab.start_container(
            ContainerOrder(
                host=order.host,
                address=order.address,
                prefix_length=order.prefix_length,
                layers=image.layers,
                command=order.command,
                environment={**image.environment, **order.environment},
                hosts=order.hosts,
                files=order.files,
                folders=folders,
                credentials=order.credentials,
                absent=tuple(self.absent),
            ),
            take,
        )
        container.link.set_up(up=order.is_reachable)
        self._running[order.host] = container
        return container

    def remove(self, container: RunningContainer) -> None:
        """End a container and forget it."""
        assert isinstance(container, Container)
        if self._running.get(container.order.host) is container:
            del self._running[container.order.host]
        self._lab.remove_container(container)

    def find(self, host: str) -> Container:
        """Return the container of a name; RehearsalError when there is none."""
        if (container := self._running.get(host)) is None:
            raise RehearsalError(f"container {host} must be running, it has ended")
        return container

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "CompletedProcess[str]":
        """Run a program in a container, with the options of `Node.run`."""
        return self.find(instance_id).run(argv, **options)

    def _find_folder(self, file_system_id: str, path: str) -> Path:
        folder = self._lab.file_system(file_system_id) / path.lstrip("/")
        if not folder.is_dir():
            raise RehearsalError(f"{path} must be a folder of file system {file_system_id}, there is none")
        return folder
