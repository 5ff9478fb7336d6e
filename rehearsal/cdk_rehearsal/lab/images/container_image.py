"""
Container images without a container engine: the steps of a Dockerfile, carried out over the base root.

Of Dockerfiles it knows FROM, `RUN`, also with a bind mount of the context, and ENV; it refuses every other instruction
by name. Docker documentation, "Dockerfile reference".
"""

import hashlib
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Template

from cdk_rehearsal.assembly import ImageAsset
from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import AssemblyError, UnavailableError
from cdk_rehearsal.lab.images.base_root import ENCLOSED, BaseRoot
from cdk_rehearsal.lab.images.stand_in_layer import StandIn
from cdk_rehearsal.lab.namespaces import SYSTEM_PATH

BUILT_IMAGE = StandIn(
    "container image",
    "the image that Docker builds",
    "the RUN lines of its Dockerfile, over the nodes' Debian 12 in place of the image of its FROM line, with packages "
    "that this machine downloaded; no repository holds it",
)

_MAKE_LAYER = Path(__file__).with_name("make_layer.sh")
_RUN = re.compile(r"RUN (?:--mount=type=bind,target=(?P<target>/\S+) )?(?P<command>[^-[\s].*)")
_VARIABLE = re.compile(r"ENV (?P<name>\w+)=(?P<value>\S+)")
_BEGIN = """
hostname localhost
ip link set lo up
echo 'deb [trusted=yes] file:/srv/archive ./' > /etc/apt/sources.list
"""
"""As in a build of Docker's, the host's own name resolves and has an interface: Gloo needs both to try Horovod."""
_END = """
rm /etc/apt/sources.list
find /var/lib/apt/lists /var/cache/apt -type f -delete
"""
_LAST_LINES = 8


@dataclass(frozen=True)
class ContainerImage:
    """
    An image, as containers of the lab take it.

    Attributes:
        layers: Its layers over the base root, the uppermost first; only read.
        environment: Variables of its containers.
        stand_in: What of it is not the real thing.
    """

    layers: tuple[Path, ...]
    environment: Mapping[str, str]
    stand_in: StandIn


@dataclass(frozen=True)
class Step:
    """
    One RUN line.

    Attributes:
        command: For a shell.
        target: Where it finds the context; empty for nowhere.
        environment: Variables of the ENV lines before it.
    """

    command: str
    target: str
    environment: Mapping[str, str]


def read_dockerfile(text: str) -> tuple[tuple[Step, ...], Mapping[str, str]]:
    """Return the steps of a Dockerfile, and the variables of its image; AssemblyError for other instructions."""
    environment = {"PATH": SYSTEM_PATH}
    steps: list[Step] = []
    lines = [line.strip() for line in text.replace("\\\n", " ").splitlines()]
    for line in lines:
        if run := _RUN.fullmatch(line):
            steps.append(Step(run["command"], run["target"] or "", dict(environment)))
        elif variable := _VARIABLE.fullmatch(line):
            environment[variable["name"]] = Template(variable["value"]).safe_substitute(environment)
        elif line and not line.startswith(("#", "FROM ")):
            raise AssemblyError(f"a Dockerfile may have FROM, RUN and ENV in the rehearsal, got {line!r}")
    return tuple(steps), environment


def build_image(
    asset: ImageAsset, base: BaseRoot, packages: Sequence[Path], cache: Path, report: Callable[[str], None]
) -> ContainerImage:
    """
    Return the image of an asset, built when the cache does not hold it.

    Args:
        asset: The asset, whose Dockerfile takes no arguments.
        base: What is in place of the image of its FROM line; its archive is apt's.
        packages: Folders of Python packages, which are pip's; it has no index.
        cache: The cache.
        report: Called with each line of a build.

    Raises:
        AssemblyError: The Dockerfile has other instructions, or the build has arguments.
        UnavailableError: A step failed; the message has its last lines.
    """
    if asset.build_args:
        raise AssemblyError(f"a build may have no arguments in the rehearsal, got {sorted(asset.build_args)}")
    text = asset.dockerfile.read_text()
    steps, environment = read_dockerfile(text)
    script = _write_script(steps, len(packages))
    recipe = (script, _digest(asset.directory), base.key, [path.parts[-2:] for path in packages])
    folders = {"context": asset.directory, "archive": base.archive}
    folders |= {f"packages-{number}": folder for number, folder in enumerate(packages)}

    def fill(work: Path) -> Path:
        report("building the container image, once")
        return _make_layer(work, script, base, folders, report)

    name = f"image-{hashlib.sha256(repr((recipe, _MAKE_LAYER.read_text())).encode()).hexdigest()[:16]}"
    return ContainerImage((fill_once(cache, name, fill, report),), environment, BUILT_IMAGE)


def _write_script(steps: Sequence[Step], packages: int) -> str:
    """Return the shell script of all steps; each has the variables that it would have, and those of pip."""
    links = " ".join(f"/srv/packages-{number}" for number in range(packages))
    pip = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": links} if packages else {}
    script = [_BEGIN]
    for step in steps:
        variables = {"HOME": "/root", **pip, **step.environment}
        words = ["env", "--ignore-environment", *(f"{name}={value}" for name, value in variables.items())]
        run = shlex.join([*words, "/bin/sh", "-c", step.command])
        script.append(f"ln -s /srv/context {step.target}\n{run}\nrm {step.target}\n" if step.target else f"{run}\n")
    return "".join([*script, _END])


def _make_layer(
    work: Path, script: str, base: BaseRoot, folders: Mapping[str, Path], report: Callable[[str], None]
) -> Path:
    layer, srv = work / "layer", work / "srv"
    for folder in (layer, srv):
        folder.mkdir()
    for name, folder in folders.items():
        (srv / name).symlink_to(folder)
    command = [*ENCLOSED, "--uts", "sh", str(_MAKE_LAYER), str(layer), str(base.root), str(srv), script]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            lines.append(line.rstrip())
            report(lines[-1])
    if process.returncode != 0:
        raise UnavailableError(f"the container image could not be built: {' | '.join(lines[-_LAST_LINES:])}")
    return layer


def _digest(folder: Path) -> str:
    """Return a digest of the files of a build context: names, modes and content."""
    digest = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(repr((path.relative_to(folder).as_posix(), path.stat().st_mode, content)).encode())
    return digest.hexdigest()
