"""
Software that some images have and others have not, as layers that are made once over the base root.

| layer | what images it is of | what is in it |
|---|---|---|
| compilers | every Deep Learning AMI | g++, make, Python's headers, pip, venv; OpenMPI, which EFA's installer brings |
| pytorch | the Deep Learning AMI with PyTorch | the virtual environment /opt/pytorch, with PyTorch for the CPU |

No image has Horovod.
"""

import hashlib
import subprocess
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import COMPILER_PACKAGES, ENCLOSED, MPI_PACKAGES, NODE_PYTHON, BaseRoot
from cdk_rehearsal.machine import ImagePart

COMPILERS: ImagePart = "compilers"
PYTORCH: ImagePart = "pytorch"
SOFTWARE = frozenset({COMPILERS, PYTORCH})

_SCRIPT = Path(__file__).with_name("make_layer.sh")
_APT = ("apt-get", "--quiet", "-o", "Dir::Etc::SourceList=/tmp/sources.list")
_INSTALL = f"""
echo 'deb [trusted=yes] file:/srv/archive ./' > /tmp/sources.list
{" ".join(_APT)} update
{" ".join(_APT)} install --yes --no-install-recommends {" ".join((*COMPILER_PACKAGES, *MPI_PACKAGES))}
find /var/lib/apt/lists /var/cache/apt -type f -delete
"""
_ENVIRONMENT = """
python3 -m venv /opt/pytorch
/opt/pytorch/bin/pip install --quiet --no-index --find-links /srv/wheels --disable-pip-version-check torch numpy
/opt/pytorch/bin/python -c 'import numpy, torch'
"""
"""As the image has it: at the release notes' `python_location`, /opt/pytorch/bin/python, with packages of its own."""


@dataclass(frozen=True)
class _Layer:
    """A layer as it is made: by a shell command over lower layers, which finds folders in /srv."""

    part: ImagePart
    what: str
    command: str
    lower: tuple[Path, ...]
    folders: Mapping[str, Path]

    @property
    def key(self) -> str:
        below = [(path.parent.name, path.name) for path in (*self.lower, *self.folders.values())]
        recipe = (self.command, below, NODE_PYTHON, _SCRIPT.read_text())
        return f"{self.part}-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"


def prepare_layers(
    parts: Collection[ImagePart], base: BaseRoot, wheels: Path | None, cache: Path, tell: Callable[[str], None]
) -> dict[ImagePart, Path]:
    """
    Return the layers of the parts that are software, each made when the cache has it not.

    Args:
        parts: What the images of a cluster have; parts of another kind are none of these layers.
        base: What they lie over.
        wheels: Folder with PyTorch and what it needs; None where no image has it.
        cache: Folder that keeps layers.
        tell: Told a line for every slow step.

    Raises:
        UnavailableError: One could not be made; the message ends with what failed.
    """
    layers: dict[ImagePart, Path] = {}
    if not SOFTWARE & set(parts):
        return layers
    what = "installing what Deep Learning AMIs have beside their driver: compilers and OpenMPI"
    archive = {"archive": base.archive}
    compilers = _prepare(_Layer(COMPILERS, what, _INSTALL, (base.root,), archive), cache, tell)
    layers[COMPILERS] = compilers
    if PYTORCH in parts and wheels is not None:
        what = "making the environment of the images with PyTorch"
        lower = (compilers, base.root)
        layers[PYTORCH] = _prepare(_Layer(PYTORCH, what, _ENVIRONMENT, lower, {"wheels": wheels}), cache, tell)
    return layers


def _prepare(layer: _Layer, cache: Path, tell: Callable[[str], None]) -> Path:
    def fill(work: Path) -> Path:
        tell(f"{layer.what}, once (a minute)")
        made, srv = work / "layer", work / "srv"
        made.mkdir()
        srv.mkdir()
        for name, folder in layer.folders.items():
            (srv / name).symlink_to(folder)
        lower = ":".join(map(str, layer.lower))
        command = [*ENCLOSED, "sh", str(_SCRIPT), str(made), lower, str(srv), layer.command]
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
        if answer.returncode != 0:
            last = " | ".join((answer.stdout + answer.stderr).splitlines()[-8:])
            raise UnavailableError(f"the layer {layer.part} of the nodes' image could not be made: {last}")
        return made

    return fill_once(cache, layer.key, fill, tell)
