"""The software of a rehearsal's nodes: what their images have, and what they may install; made or downloaded first."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack, read_stack
from cdk_rehearsal.image_families import find_template_parts
from cdk_rehearsal.lab.images.base_root import BaseRoot, prepare_base_root
from cdk_rehearsal.lab.images.image_software import PYTORCH, prepare_layers
from cdk_rehearsal.lab.packages.debian_archive import DebianArchive
from cdk_rehearsal.lab.packages.package_index import PackageIndex
from cdk_rehearsal.machine import ImagePart
from deeplearning_rehearsal.software.digits import prepare_digits
from deeplearning_rehearsal.software.downloads import HOROVOD_VERSION, prepare_horovod
from deeplearning_rehearsal.software.job_packages import prepare_job_packages
from deeplearning_rehearsal.template.environment_override import TORCH

_INDEX_PORT, _ARCHIVE_PORT = 3141, 3142


@dataclass(frozen=True)
class NodeSoftware:
    """
    What nodes boot from and install from.

    Attributes:
        base: The base of all images, with the archive that goes with it.
        layers: What some images have over it.
        packages: Folders of the package index; none where nodes need no packages.
    """

    base: BaseRoot
    layers: Mapping[ImagePart, Path]
    packages: tuple[Path, ...]

    def index_url(self, address: str) -> str:
        """Return the URL of the package index that `serve` serves at an address; empty for none."""
        return f"http://{address}:{_INDEX_PORT}/simple/" if self.packages else ""

    def archive_url(self, address: str) -> str:
        """Return the URL of the Debian archive that `serve` serves at an address."""
        return f"http://{address}:{_ARCHIVE_PORT}/"

    @contextmanager
    def serve(self, address: str) -> Iterator[None]:
        """Serve the nodes what they may install, at an address where they reach this process."""
        with ExitStack() as servers:
            servers.enter_context(DebianArchive(address, _ARCHIVE_PORT, self.base.archive))
            if self.packages:
                servers.enter_context(PackageIndex(address, _INDEX_PORT, self.packages))
            yield


def prepare_software(assembly: Path, stack_name: str | None, cache: Path, tell: Callable[[str], None]) -> NodeSoftware:
    """
    Return the software of a stack's nodes; what the cache has not is made or downloaded, which needs a network.

    Args:
        assembly: The cloud assembly.
        stack_name: Name of its stack. None: the only one.
        cache: Folder that keeps it.
        tell: Told a line for every slow step.

    Raises:
        RehearsalError: The assembly cannot be read, its nodes ask for what no rehearsal has, or this machine can
            neither make nor fetch it.
    """
    stack = read_stack(assembly, stack_name)
    prepare_digits(cache, tell)
    base = prepare_base_root(cache, tell)
    layers = _prepare_layers(stack, base, cache, tell)
    return NodeSoftware(base, layers, prepare_job_packages(stack, cache, tell))


def _prepare_layers(
    stack: AssemblyStack, base: BaseRoot, cache: Path, tell: Callable[[str], None]
) -> Mapping[ImagePart, Path]:
    parts = find_template_parts(stack.template)
    wheels = prepare_horovod(cache, TORCH, HOROVOD_VERSION, tell) if PYTORCH in parts else None
    return prepare_layers(parts, base, wheels, cache, tell)
