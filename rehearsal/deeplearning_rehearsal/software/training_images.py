"""
Images of containers, built in the lab by their own Dockerfile.

The base of an image is the root file system of the lab, in place of the one that the Dockerfile names. Environments
that an earlier rehearsal finished are in the cache of the build, as in one that Docker keeps between builds.
"""

import json
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import ImageAsset
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Lab, StandIn
from cdk_rehearsal.lab.container import Folder, Program
from cdk_rehearsal.lab.namespaces import SYSTEM_PATH
from deeplearning_rehearsal.software.kept_environments import KeptEnvironments
from deeplearning_rehearsal.template import NODE_FILE

CONTAINER_STAND_INS = (
    StandIn(
        "training engine",
        "Amazon SageMaker",
        "training jobs alone; no spot market, warm pools and queues; security groups between containers are decided, "
        "and not enforced by port",
    ),
    StandIn(
        "containers",
        "the containers of SageMaker and its instances",
        "namespaces of this machine on the root file system of nodes, in place of the image that the Dockerfile names",
    ),
    StandIn(
        "image build", "Docker and Amazon ECR", "runs the RUN steps of the Dockerfile; nothing is pushed or pulled"
    ),
)
_BUILD_ADDRESS, _PREFIX = "100.64.0.2", 10
_MOUNT = re.compile(r"--mount=(\S+)")
_LAST_LINES = 12


@dataclass(frozen=True)
class ContainerImage:
    """Image of the lab: layers over each other, the uppermost first, and variables of its programs."""

    layers: Sequence[Path]
    environment: Mapping[str, str]


class ImageBuilder:
    """Builds each image of a stack once, when a container first needs it."""

    def __init__(
        self,
        lab: Lab,
        images: Sequence[ImageAsset],
        kept: KeptEnvironments,
        work: Path,
        *,
        change_framework: Callable[[str], str],
        report: Callable[[str], None],
    ) -> None:
        self._lab, self._images, self._kept, self._work = lab, {each.tag: each for each in images}, kept, work
        self._change_framework, self._report = change_framework, report
        self._built: dict[str, ContainerImage] = {}
        self._lock = threading.Lock()

    def build(self, image: str) -> ContainerImage:
        """Return the image of a URI; RehearsalError when it is none of the stack, or its build fails."""
        tag = image.rpartition(":")[2]
        with self._lock:
            if tag not in self._images:
                raise RehearsalError(
                    f"the rehearsal pulls no images, got {image}; leave image out, so that the stack builds one"
                )
            if tag not in self._built:
                self._built[tag] = self._build(self._images[tag])
            return self._built[tag]

    def _build(self, asset: ImageAsset) -> ContainerImage:
        context, shared = self._work / "context", self._work / "shared"
        shutil.copytree(asset.folder, context)
        self._change_node(context / NODE_FILE)
        shared.mkdir(parents=True)
        self._kept.put([shared])
        layers, environment = list(self._lab.base_layers), {"PATH": SYSTEM_PATH}
        for words in _read_dockerfile((context / "Dockerfile").read_text()):
            if words[0] == "ENV":
                name, _, text = words[1].partition("=")
                environment[name] = text.replace(f"${name}", environment.get(name, ""))
            elif words[0] == "RUN":
                layers.insert(0, self._run(words[1], layers, environment, {"bind": context, "cache": shared}))
        self._kept.keep([shared])
        return ContainerImage(layers, environment)

    def _run(
        self, text: str, layers: Sequence[Path], environment: Mapping[str, str], sources: Mapping[str, Path]
    ) -> Path:
        """Carry out a step, and return what it changed as a layer."""
        folders = []
        for mount in _MOUNT.findall(text):
            options: dict[str, Any] = dict(part.partition("=")[::2] for part in mount.split(","))
            is_bound = options["type"] == "bind"
            folders.append(Folder(sources[options["type"]], options["target"], is_writable=not is_bound))
        command = _MOUNT.sub("", text).strip()
        program = Program(
            host="build",
            address=_BUILD_ADDRESS,
            prefix_length=_PREFIX,
            layers=layers,
            command=["/bin/sh", "-c", command],
            environment={**environment, "HOME": "/root"},
            folders=folders,
        )
        lines: list[str] = []

        def take(line: str) -> None:
            lines.append(line)
            self._report(line)

        self._report(f"builds the image: {command}")
        container = self._lab.start_container(program, take)
        if status := container.wait():
            said = " | ".join(line.strip() for line in lines[-_LAST_LINES:] if line.strip())
            raise RehearsalError(f"the build of the image ended with status {status}: {said}")
        return container.finish()

    def _change_node(self, path: Path) -> None:
        """Build for a machine without GPUs, as the nodes of a rehearsal are."""
        if not path.is_file():
            return
        node = json.loads(path.read_text())
        needs = node.get("needs", {})
        if environment := needs.get("environment"):
            environment["framework"] = self._change_framework(environment.get("framework", ""))
        for hardware in needs.get("hardware", {}).values():
            hardware.pop("compute_capability", None)
        path.write_text(json.dumps(node, indent=2))


def _read_dockerfile(text: str) -> list[tuple[str, str]]:
    steps = []
    for line in text.splitlines():
        word, _, rest = line.strip().partition(" ")
        if word in ("RUN", "ENV"):
            steps.append((word, rest.strip()))
        elif word and word != "FROM" and not word.startswith("#"):
            raise RehearsalError(f"the rehearsal carries out FROM, RUN and ENV of a Dockerfile, got {line!r}")
    return steps
