"""Containers of training jobs as SageMaker describes them to the lab, and the lab as it sees it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from cdk_rehearsal.machine import LustreTarget


class MountError(Exception):
    """A file system could not be mounted."""


@dataclass(frozen=True)
class Mount:
    """
    A folder of a file system in a container.

    Attributes:
        path: Where it is in the container.
        file_system_id: The file system.
        folder: The folder of the file system, for FSx for Lustre without its mount name.
        is_writable: Whether the container may write.
        address: Address of the mount target of an EFS file system; empty for FSx for Lustre.
        lustre: The FSx for Lustre file system; None for EFS.
    """

    path: str
    file_system_id: str
    folder: str
    is_writable: bool
    address: str = ""
    lustre: LustreTarget | None = field(default=None, repr=False)


@dataclass(frozen=True)
class ContainerOrder:
    """
    A container to start.

    Attributes:
        job: Name of the training job.
        name: Host name, `algo-1`.
        image: URI of the image.
        address: Address of its interface in the user's subnet.
        hosts: Host name -> address of all containers of the job.
        files: Path in the container -> content.
        folders: Folders that are there, and empty unless a file is in them.
        mounts: Folders of file systems.
        command: Entry point and arguments.
        environment: Variables beside those of the image.
    """

    job: str
    name: str
    image: str
    address: str
    hosts: Mapping[str, str]
    files: Mapping[str, bytes] = field(repr=False)
    folders: Sequence[str]
    mounts: Sequence[Mount]
    command: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


class RunningContainer(Protocol):
    """A container that was started."""

    @property
    def root(self) -> Path:
        """Its root file system on this machine, without what is mounted, until it is removed."""

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end and return its exit status; None if it still runs after so many seconds."""

    def stop(self, seconds: float) -> int:
        """Send SIGTERM to its first process, and SIGKILL after so many seconds; return its exit status."""

    def kill(self) -> int:
        """End it at once, if it still runs; return its exit status."""


class ContainerHost(Protocol):
    """Runs containers."""

    def start(self, order: ContainerOrder, on_line: Callable[[str], None]) -> RunningContainer:
        """Start a container; `on_line` takes each line of its output as it comes. MountError: a mount failed."""

    def separate(self, addresses: Sequence[str]) -> None:
        """Drop all packets between these addresses, whose containers start next."""

    def remove(self, container: RunningContainer) -> None:
        """End a container if it runs, and remove it with its files."""
