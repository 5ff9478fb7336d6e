"""The host of containers, as training jobs need one."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol


@dataclass(frozen=True)
class FileSystemMount:
    """Folder of a file system in a container."""

    file_system_id: str
    path: str  # Absolute path on the file system
    target: str  # Absolute path in the container
    is_writable: bool


@dataclass(frozen=True)
class TrainingContainer:
    """Container that a training job asks for."""

    host: str  # Its name, such as `algo-1`
    address: str
    prefix_length: int  # Of its subnet
    hosts: Mapping[str, str]  # Name -> address of all containers of the job
    image: str  # URI of the image
    command: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, bytes]  # Absolute path -> content
    mounts: Sequence[FileSystemMount]
    credentials: Callable[[], Mapping[str, str]]  # Answers of its credentials service
    is_reachable: bool  # Whether the security groups let the containers reach each other


class RunningContainer(Protocol):
    """Container that runs, or has ended and is not removed."""

    @property
    def root(self) -> Path:
        """Its root file system, without its mounts."""

    def wait(self, seconds: float | None = None) -> int | None:
        """Return the exit status; None while it runs."""

    def stop(self, seconds: float) -> int | None:
        """Send SIGTERM, and SIGKILL after so many seconds; return the exit status."""

    def kill(self) -> None:
        """End it at once."""


class ContainerHost(Protocol):
    """Runs containers."""

    @property
    def credentials_path(self) -> str:
        """Path of the credentials service of containers, the value of AWS_CONTAINER_CREDENTIALS_RELATIVE_URI."""

    def require_image(self, image: str) -> None:
        """Make an image ready; RehearsalError when this host cannot have it."""

    def start(self, order: TrainingContainer, on_line: Callable[[str], None]) -> RunningContainer:
        """Start a container; `on_line` gets each line of its output."""

    def remove(self, container: RunningContainer) -> None:
        """End a container and forget it."""
