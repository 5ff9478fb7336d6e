"""Software environment of jobs: declared once, built once per cluster."""

import re
from dataclasses import dataclass
from typing import Annotated, Literal

from deeplearning_cdk.props.check import Rule, check_fields, checked, names_checked
from deeplearning_cdk.props.rules import is_file, matching
from deeplearning_cdk.software.software_file import check_conda_file, read_requirements

HOROVOD_VERSIONS = ("0.28.1",)
"""Versions that the master can build; 0.28.1 is the last release."""
NEWEST_TENSORFLOW = (2, 18)
"""Newest TensorFlow with which Horovod compiles: 2.15.1, 2.16.2 and 2.18.1 work, 2.20.0 lacks `xla_builder.h`."""

EnvironmentFile = Annotated[
    str,
    Rule(must="be a file", remedy="pass its path from the folder in which the app runs", is_kept=is_file),
]

CondaFile = Annotated[
    EnvironmentFile,
    Rule(
        must="be a .yml or .yaml file for conda",
        remedy="rename it, or use from_requirements for a file of pip",
        is_kept=lambda path: path.endswith((".yml", ".yaml")),
    ),
]

Horovod = Annotated[
    str,
    Rule(
        must=f"be one of {', '.join(HOROVOD_VERSIONS)}",
        remedy="write one, or leave it out and name Horovod in the requirements file",
        is_kept=lambda version: version in HOROVOD_VERSIONS,
    ),
]

_FRAMEWORK = re.compile(r"(torch|tensorflow)==([0-9]{1,4})\.([0-9]{1,4})\.[0-9]{1,4}")


def _is_compiled_against(framework: str) -> bool:
    found = _FRAMEWORK.fullmatch(framework)
    return found is None or found[1] != "tensorflow" or (int(found[2]), int(found[3])) <= NEWEST_TENSORFLOW


Framework = Annotated[
    str,
    matching(
        _FRAMEWORK.pattern,
        "be one exact version of torch or tensorflow",
        "write e.g. torch==2.13.0, and take from_requirements for anything else",
    ),
    Rule(
        must=f"be a TensorFlow up to {NEWEST_TENSORFLOW[0]}.{NEWEST_TENSORFLOW[1]}, against which Horovod compiles",
        remedy="write e.g. tensorflow==2.15.1, or take torch",
        is_kept=_is_compiled_against,
    ),
]

CONTAINER_IMAGE = r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}"
"""Pattern of the names of container images."""
ContainerImage = Annotated[
    str,
    matching(
        CONTAINER_IMAGE,
        "be the name of an image",
        "write e.g. registry.example.com/team/train:1.2",
        takes_tokens=True,
    ),
]


@names_checked
@dataclass(frozen=True, kw_only=True)
class JobEnvironment:
    """
    Software environment of all jobs, created with one of the class methods.

    Attributes:
        kind: `horovod`, `requirements`, `conda`, `container` or `none`.
        path: The requirements or conda file; empty for other kinds.
        image: The container's image; empty for other kinds.
        horovod: Version of Horovod that is built into the environment; empty for none.
        framework: Framework that kind `horovod` installs where the image has none; if empty, one that supports the GPUs
            is chosen.
    """

    kind: Literal["horovod", "requirements", "conda", "container", "none"]
    path: Literal[""] | EnvironmentFile = ""
    image: Literal[""] | ContainerImage = ""
    horovod: Literal[""] | Horovod = ""
    framework: Literal[""] | Framework = ""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.kind == "conda":
            check_conda_file(self.path)
        if self.kind == "requirements":
            listed = next((line for line in read_requirements(self.path).lines if line.name == "horovod"), None)
            if self.horovod and listed is not None:
                raise ValueError(
                    f"horovod must be left out with a file that lists Horovod, got {self.horovod!r} and "
                    f"{listed.where}; remove the line, or leave horovod out"
                )

    @classmethod
    @checked
    def with_horovod(
        cls, version: Horovod = HOROVOD_VERSIONS[-1], *, framework: Framework | None = None
    ) -> "JobEnvironment":
        """
        Use Horovod, built for the image's framework, or for one that is installed if the image has none.

        The master builds it once, and every node installs the result. An image with a framework and Horovod is not
        changed.

        Args:
            version: Version of Horovod. Default: 0.28.1, the last release.
            framework: `torch==X.Y.Z` or `tensorflow==X.Y.Z`, installed where the image has no framework.
                Default: torch 2.7.1 where GPUs are older than Turing (P3), 2.13.0 elsewhere.

        Raises:
            ValueError: The version is not known, or Horovod does not compile against the framework.
        """
        return cls(kind="horovod", horovod=version, framework=framework or "")

    @classmethod
    def none(cls) -> "JobEnvironment":
        """Use the software of the image; nothing is installed or built."""
        return cls(kind="none")

    @classmethod
    @checked
    def from_requirements(cls, path: EnvironmentFile, *, horovod: Horovod | None = None) -> "JobEnvironment":
        """
        Use a requirements file of pip: the master installs it once, and every node gets a copy.

        Args:
            path: The file, in UTF-8 or the encoding that it declares, without `-r`, `-c`, `-e`, environment variables,
                local paths and indexes of this machine.
            horovod: Version of Horovod that the master builds for the file's framework. Default: none is built.

        Raises:
            ValueError: The file does not exist, names something that nodes cannot fetch, has a line that pip does not
                accept, or lists Horovod beside `horovod`; or the version is not known.
        """
        return cls(kind="requirements", path=path, horovod=horovod or "")

    @classmethod
    @checked
    def from_conda(cls, path: CondaFile) -> "JobEnvironment":
        """
        Use an environment file of conda: the master creates the environment once, on the shared file system.

        The image must have conda.

        Args:
            path: The file, which ends with `.yml` or `.yaml`.

        Raises:
            ValueError: The file does not exist, is of another kind, or names something that nodes cannot fetch.
        """
        return cls(kind="conda", path=path)

    @classmethod
    @checked
    def from_container(cls, image: ContainerImage) -> "JobEnvironment":
        """
        Use a container image, which every node pulls; the machine image must have docker.

        Nodes log in to Amazon ECR with their role, and may pull an image that is named there. Grant one whose name is a
        token, such as that of an asset, yourself: `asset.repository.grant_pull(cluster)`.

        Args:
            image: Its name, with registry and tag or digest.

        Raises:
            ValueError: It is not the name of a container image.
        """
        return cls(kind="container", image=image)


DEFAULT_ENVIRONMENT = JobEnvironment.with_horovod()
"""Default environment."""
