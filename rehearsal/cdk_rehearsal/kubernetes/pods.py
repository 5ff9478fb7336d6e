"""Pods as a kubelet describes them to whoever runs their containers, and their containers as it sees them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


class VolumeError(Exception):
    """A volume could not be mounted; the message has the words of the kubelet's event."""


class ImageError(Exception):
    """An image could not be pulled; the message has the words of the container runtime."""


@dataclass(frozen=True)
class ClaimVolume:
    """
    Volume of a claim, in a container.

    Attributes:
        name: Its name.
        path: Where it is in the container.
        driver: Its CSI driver.
        handle: The driver's name of it.
    """

    name: str
    path: str
    driver: str
    handle: str


@dataclass(frozen=True)
class PodOrder:
    """
    A pod to start; it has one container.

    Attributes:
        name: Its name.
        namespace: Its namespace.
        uid: Its uid.
        hostname: Its own name.
        node: Name of its node.
        service_account: Its account.
        image: URI of the image.
        command: Entry point and arguments.
        environment: Variables beside those of the image.
        files: Path in the container -> content.
        volumes: Volumes of claims.
        limits: Resource -> its limit; the plugin of a device brings it into the container.
    """

    name: str
    namespace: str
    uid: str
    hostname: str
    node: str
    service_account: str
    image: str
    command: Sequence[str]
    environment: Mapping[str, str]
    files: Mapping[str, bytes] = field(repr=False)
    volumes: Sequence[ClaimVolume]
    limits: Mapping[str, str]


class RunningPod(Protocol):
    """A pod that was started."""

    @property
    def address(self) -> str:
        """Its IPv4 address."""

    @property
    def root(self) -> Path:
        """Its root file system on this machine, without what is mounted, until it is removed."""

    def wait(self, seconds: float | None = None) -> int | None:
        """Wait for its end and return its exit status; None if it still runs after so many seconds."""

    def stop(self, seconds: float) -> int:
        """Send SIGTERM to its first process, and SIGKILL after so many seconds; return its exit status."""

    def kill(self) -> int:
        """End it at once, if it still runs; return its exit status."""


class PodHost(Protocol):
    """Runs pods."""

    def start(self, order: PodOrder, on_line: Callable[[str], None]) -> RunningPod:
        """
        Start a pod; `on_line` takes each line of its output as it comes.

        Raises:
            VolumeError: A volume cannot be mounted on the node.
            ImageError: The image cannot be pulled.
        """

    def require_pull(self, image: str, node: str) -> None:
        """Raise ImageError unless the registry lets a node pull an image, of which nothing will run."""

    def remove(self, pod: RunningPod) -> None:
        """End a pod if it runs, and remove it with its files."""
