"""The software that jobs run in: declared once, built once a cluster."""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from aws_cdk import Token
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from deeplearning_contract.setting_parts import EnvironmentSettings, ScriptSettings

HOROVOD_VERSIONS = ("0.28.1",)
"""What the master can build; the last release."""

_IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,499}")
_CONDA_ENDINGS = (".yml", ".yaml")
# What pip reads beside the file itself; only the file goes to the nodes.
_ELSEWHERE = re.compile(r"(-r|--requirement|-c|--constraint|-e|--editable)\b|\.{0,2}/")


@dataclass(frozen=True, kw_only=True)
class JobEnvironment:
    """
    One environment for all jobs. Make it with one of the class methods.

    Attributes:
        kind: `requirements`, `conda` or `container`.
        path: The requirements or conda file; empty for a container.
        image: The container's image; empty for the others.
        horovod: Version of Horovod that is built into the environment; empty for none.
    """

    kind: str
    path: str = ""
    image: str = ""
    horovod: str = ""

    @classmethod
    def from_requirements(cls, path: str, *, horovod: str | None = None) -> "JobEnvironment":
        """
        Take a requirements file of pip: the master builds its wheels once, and every node installs from those.

        Args:
            path: The file, which must stand alone; without `-r` and local paths.
            horovod: Version of Horovod that the master builds for the file's framework. Default: none is built.

        Raises:
            ValueError: The file is not there or names other files, or the version is not known.
        """
        _check_file(path)
        for number, line in enumerate(Path(path).read_text().splitlines(), start=1):
            if _ELSEWHERE.match(line.strip()):
                raise ValueError(
                    f"environment must be one file that stands alone, got {line.strip()!r} in line {number} of "
                    f"{path!r}; write what it names into the file, or publish it to a package index"
                )
        if horovod is not None and horovod not in HOROVOD_VERSIONS:
            raise ValueError(
                f"horovod must be one of {', '.join(HOROVOD_VERSIONS)}, got {horovod!r}; write one, or leave it out "
                "and name Horovod in the requirements file"
            )
        return cls(kind="requirements", path=path, horovod=horovod or "")

    @classmethod
    def from_conda(cls, path: str) -> "JobEnvironment":
        """
        Take an environment file of conda, made once by the master on the shared file system; the image must have conda.

        Args:
            path: The file, which ends with `.yml` or `.yaml`.

        Raises:
            ValueError: The file is not there, or is another kind.
        """
        _check_file(path)
        if not path.endswith(_CONDA_ENDINGS):
            raise ValueError(
                f"environment must be a .yml or .yaml file for conda, got {path!r}; rename it, "
                "or take from_requirements for a file of pip"
            )
        return cls(kind="conda", path=path)

    @classmethod
    def from_container(cls, image: str) -> "JobEnvironment":
        """
        Take a container's image, which every node pulls; the node's image must have docker.

        Args:
            image: Its name, with registry and tag or digest.

        Raises:
            ValueError: It is not the name of an image.
        """
        if not Token.is_unresolved(image) and not _IMAGE.fullmatch(image):
            raise ValueError(
                f"container must be the name of an image, got {image!r}; write e.g. registry.example.com/team/train:1.2"
            )
        return cls(kind="container", image=image)


class EnvironmentAsset(Construct):
    """
    An environment's file as an asset of the stack.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        environment: The environment.

    Attributes:
        asset: The asset; None for a container.
        settings: What nodes are told.
    """

    def __init__(self, scope: Construct, construct_id: str, *, environment: JobEnvironment) -> None:
        super().__init__(scope, construct_id)
        self.asset = s3_assets.Asset(self, "Asset", path=environment.path) if environment.path else None
        file = None
        if self.asset is not None:
            digest = hashlib.sha256(Path(environment.path).read_bytes()).hexdigest()
            file = ScriptSettings(bucket=self.asset.s3_bucket_name, key=self.asset.s3_object_key, sha256=digest)
        self.settings = EnvironmentSettings(environment.kind, file, environment.image, environment.horovod)


def _check_file(path: str) -> None:
    if not Path(path).is_file():
        raise ValueError(f"environment must be a file, got {path!r}; pass its path from {Path.cwd()}")
    if not Path(path).read_text().strip():
        raise ValueError(f"environment must not be empty, got {path!r}; leave the prop out to use the image's software")
