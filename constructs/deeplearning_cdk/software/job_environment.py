"""The software that jobs run in: declared once, built once a cluster."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from deeplearning_cdk.props.check import Rule, check_fields, checked, show_value
from deeplearning_cdk.props.rules import is_file, matching
from deeplearning_contract.setting_parts import EnvironmentCacheSettings, EnvironmentSettings, ScriptSettings

HOROVOD_VERSIONS = ("0.28.1",)
"""What the master can build; the last release."""
NEWEST_TENSORFLOW = (2, 18)
"""Whose headers Horovod compiles against: 2.15.1, 2.16.2 and 2.18.1 were tried, 2.20.0 lacks `xla_builder.h`."""

# What pip reads beside the file itself; only the file goes to the nodes.
_ELSEWHERE = re.compile(r"(-r|--requirement|-c|--constraint|-e|--editable)\b|\.{0,2}/")


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


EnvironmentFile = Annotated[
    str,
    Rule(must="be a file", remedy="pass its path from the folder in which the app runs", is_kept=is_file),
    Rule(
        must="be a file of text that is not empty",
        remedy="leave the prop out to use the image's software",
        is_kept=lambda path: bool(_read_text(path).strip()),
    ),
]
"""Path of a file that declares software."""

CondaFile = Annotated[
    EnvironmentFile,
    Rule(
        must="be a .yml or .yaml file for conda",
        remedy="rename it, or take from_requirements for a file of pip",
        is_kept=lambda path: path.endswith((".yml", ".yaml")),
    ),
]
"""Path of an environment file of conda."""

Horovod = Annotated[
    str,
    Rule(
        must=f"be one of {', '.join(HOROVOD_VERSIONS)}",
        remedy="write one, or leave it out and name Horovod in the requirements file",
        is_kept=lambda version: version in HOROVOD_VERSIONS,
    ),
]
"""A version of Horovod."""

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
"""A framework that is installed, in one exact version."""

ContainerImage = Annotated[
    str,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}",
        "be the name of an image",
        "write e.g. registry.example.com/team/train:1.2",
        takes_tokens=True,
    ),
]
"""Name of a container's image."""


@dataclass(frozen=True, kw_only=True)
class JobEnvironment:
    """
    One environment for all jobs. Make it with one of the class methods.

    Attributes:
        kind: `horovod`, `requirements`, `conda`, `container` or `none`.
        path: The requirements or conda file; empty for the others.
        image: The container's image; empty for the others.
        horovod: Version of Horovod that is built into the environment; empty for none.
        framework: Of kind `horovod`: what is installed where the image has no framework; empty for what fits the GPUs.
    """

    kind: Literal["horovod", "requirements", "conda", "container", "none"]
    path: Literal[""] | EnvironmentFile = ""
    image: Literal[""] | ContainerImage = ""
    horovod: Literal[""] | Horovod = ""
    framework: Literal[""] | Framework = ""

    def __post_init__(self) -> None:
        """Check the values, which nodes are told as they are."""
        check_fields(self)

    @classmethod
    @checked
    def with_horovod(
        cls, version: Horovod = HOROVOD_VERSIONS[-1], *, framework: Framework | None = None
    ) -> "JobEnvironment":
        """
        Take Horovod, for the framework that the image has, or for one that is installed where it has none.

        The master builds it once, and every node installs what it built. An image with a framework and Horovod is left
        as it is.

        Args:
            version: Version of Horovod. Default: 0.28.1, the last release.
            framework: `torch==X.Y.Z` or `tensorflow==X.Y.Z`, installed where the image has no framework.
                Default: torch 2.7.1 where GPUs are older than Turing (P3), 2.13.0 elsewhere.

        Raises:
            ValueError: The version is not known, or the framework is none that Horovod compiles against.
        """
        return cls(kind="horovod", horovod=version, framework=framework or "")

    @classmethod
    def none(cls) -> "JobEnvironment":
        """Take the software of the image as it is; nothing is installed or built."""
        return cls(kind="none")

    @classmethod
    @checked
    def from_requirements(cls, path: EnvironmentFile, *, horovod: Horovod | None = None) -> "JobEnvironment":
        """
        Take a requirements file of pip: the master installs it once, and every node takes a copy.

        Args:
            path: The file, which must stand alone; without `-r` and local paths.
            horovod: Version of Horovod that the master builds for the file's framework. Default: none is built.

        Raises:
            ValueError: The file is not there or names other files, or the version is not known.
        """
        for number, line in enumerate(Path(path).read_text().splitlines(), start=1):
            if _ELSEWHERE.match(line.strip()):
                raise ValueError(
                    f"path must be one file that stands alone, got {show_value(line.strip())} in line {number} of "
                    f"{path!r}; write what it names into the file, or publish it to a package index"
                )
        return cls(kind="requirements", path=path, horovod=horovod or "")

    @classmethod
    @checked
    def from_conda(cls, path: CondaFile) -> "JobEnvironment":
        """
        Take an environment file of conda, made once by the master on the shared file system; the image must have conda.

        Args:
            path: The file, which ends with `.yml` or `.yaml`.

        Raises:
            ValueError: The file is not there, or is another kind.
        """
        return cls(kind="conda", path=path)

    @classmethod
    @checked
    def from_container(cls, image: ContainerImage) -> "JobEnvironment":
        """
        Take a container's image, which every node pulls; the node's image must have docker.

        Args:
            image: Its name, with registry and tag or digest.

        Raises:
            ValueError: It is not the name of an image.
        """
        return cls(kind="container", image=image)


DEFAULT_ENVIRONMENT = JobEnvironment.with_horovod()
"""That of a cluster whose user names none."""


class EnvironmentAsset(Construct):
    """
    An environment's file as an asset of the stack.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        environment: The environment.
        cache: Where it is kept for other clusters. Default: nowhere.

    Attributes:
        asset: The asset; None without a file.
        settings: What nodes are told.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: JobEnvironment,
        cache: EnvironmentCacheSettings | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self.asset = s3_assets.Asset(self, "Asset", path=environment.path) if environment.path else None
        file = None
        if self.asset is not None:
            digest = hashlib.sha256(Path(environment.path).read_bytes()).hexdigest()
            file = ScriptSettings(bucket=self.asset.s3_bucket_name, key=self.asset.s3_object_key, sha256=digest)
        self.settings = EnvironmentSettings(
            environment.kind, file, environment.image, environment.horovod, environment.framework, cache
        )
