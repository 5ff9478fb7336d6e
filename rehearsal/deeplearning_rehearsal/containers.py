"""Containers of training jobs in the lab, on the images of the stack."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.embedded_aws.sagemaker import containers as sagemaker
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Container, ContainerOrder, Lab, Mount, StandIn
from cdk_rehearsal.lab.credentials_service import RELATIVE_URI, CredentialsService
from cdk_rehearsal.lab.images.base_root import BaseRoot
from cdk_rehearsal.lab.images.container_image import ContainerImage
from deeplearning_rehearsal.software.job_image import find_or_build_image

if TYPE_CHECKING:
    from subprocess import CompletedProcess

    from cdk_rehearsal.place import Place

TRAINING_ENGINE = StandIn(
    "training engine",
    "Amazon SageMaker",
    "training jobs alone; no spot market, warm pools and queues; security groups between containers are decided, and "
    "not enforced by port",
)
_TELLING = "deeplearning-member: "
_PREFIX = 16
"""Length of the prefix of the lab's subnets; the router answers for what is outside."""
_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def prepare_images(
    stack: AssemblyStack, base: BaseRoot, cache: Path, report: Callable[[str], None]
) -> Mapping[str, ContainerImage]:
    """Return the images that a stack builds, by the name of their asset."""
    return {asset.name: find_or_build_image(asset, base, cache, report) for asset in stack.images}


class LabContainers:
    """
    The lab as the host of containers; it finds the containers of the job that began last by their names.

    Args:
        lab: The lab.
        stack: The stack of the jobs.
        images: Those of `prepare_images`.
        report: Told the name of a container and what it says of its way to the job.

    Attributes:
        absent: Files that the image lacks, for faults.
        images: The images that containers had.
        find_place: Returns the place of the stack, which is there when it is deployed.
    """

    def __init__(
        self,
        lab: Lab,
        stack: AssemblyStack,
        images: Mapping[str, ContainerImage],
        report: Callable[[str, str], None],
    ) -> None:
        self._lab, self._stack, self._built, self._report = lab, stack, images, report
        self._running: dict[str, Container] = {}
        self._separated: set[str] = set()
        self._credentials = CredentialsService()
        self.absent: list[str] = []
        self.images: list[ContainerImage] = []
        self.find_place: Callable[[], Place]

    def start(self, order: sagemaker.ContainerOrder, on_line: Callable[[str], None]) -> Container:
        """Start a container; `on_line` gets each line of its output, and the timeline those of the member's program."""
        image = self._find_image(order.image)
        if image not in self.images:
            self.images.append(image)
        environment = {**image.environment, **order.environment}
        environment[RELATIVE_URI] = self._credentials.add(*(environment.pop(name) for name in _CREDENTIALS))

        def take(line: str) -> None:
            on_line(line)
            if line.startswith(_TELLING):
                self._report(order.name, line.removeprefix(_TELLING))

        container = self._lab.start_container(
            ContainerOrder(
                container_id=f"{order.job}-{order.name}",
                hostname=order.name,
                address=order.address,
                prefix_length=_PREFIX,
                layers=image.layers,
                command=order.command,
                environment=environment,
                hosts=order.hosts,
                files={**{f"{folder}/": b"" for folder in order.folders}, **order.files},
                absent=self.absent,
                mounts=[self._mount(mount) for mount in order.mounts],
            ),
            take,
        )
        for other in self._running.values():
            if {order.address, other.address} <= self._separated:
                self._lab.separate(container.container_id, other.container_id)
        self._running[order.name] = container
        return container

    def separate(self, addresses: Sequence[str]) -> None:
        """Drop all packets between these addresses, whose containers start next; mounts are not affected."""
        self._separated = set(addresses)

    def remove(self, container: sagemaker.RunningContainer) -> None:
        """End a container and forget it."""
        assert isinstance(container, Container)
        self._running = {name: each for name, each in self._running.items() if each is not container}
        self._lab.remove_container(container.container_id)

    def find(self, host: str) -> Container:
        """Return the container of a name; RehearsalError when there is none."""
        if (container := self._running.get(host)) is None:
            raise RehearsalError(f"container {host} must be running, it has ended")
        return container

    def run(self, instance_id: str, argv: Sequence[str], **options: Any) -> "CompletedProcess[str]":
        """Run a program in a container, with the options of `Node.run`."""
        return self.find(instance_id).run(argv, **options)

    def _find_image(self, uri: str) -> ContainerImage:
        asset = self._stack.find_image(uri, self.find_place())
        if asset is None:
            raise RehearsalError(
                f"the rehearsal pulls no images, got {uri}; leave image out, so that the stack builds one"
            )
        return self._built[asset.name]

    def _mount(self, mount: sagemaker.Mount) -> Mount:
        if mount.lustre is not None:
            self._lab.fill_lustre(mount.file_system_id, mount.lustre)
        if not (self._lab.file_system(mount.file_system_id) / mount.folder.lstrip("/")).is_dir():
            raise sagemaker.MountError(
                f"{mount.folder} must be a folder of file system {mount.file_system_id}, there is none"
            )
        return Mount(
            file_system_id=mount.file_system_id,
            folder=mount.folder,
            target=mount.path,
            is_read_only=not mount.is_writable,
        )
