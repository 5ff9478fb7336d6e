"""What the settings of a node are made of: scripts, file systems, hardware, data and the environment of jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class FileSystemSettings:
    """
    How a node mounts a shared file system.

    Attributes:
        kind: `nfs4` (plain NFS 4.1 inside the security groups), `efs` (efs-utils: access point, IAM, TLS) or `lustre`.
        source: What `mount` mounts: `<id>.efs.<region>.<suffix>:/`, `<id>:/` for `efs`, `<dns name>@tcp:/<mount name>`
            for `lustre`.
        options: Mount options, comma-separated.
        mount_point: Absolute path; the value of `EFS_MOUNT`, or for `lustre` of its own.
    """

    kind: str
    source: str
    options: str
    mount_point: str


@dataclass(frozen=True)
class ScriptSettings:
    """A file of the user's, an object in S3 with its SHA-256 in hex."""

    bucket: str
    key: str
    sha256: str


@dataclass(frozen=True)
class HardwareSettings:
    """
    What the instance type of a role has, from the catalogue.

    Attributes:
        instance_type: EC2 instance type, such as `p5.48xlarge`.
        gpu_count: NVIDIA GPUs of an instance.
        network_cards: Its network cards.
        efa_cards: How many of them take an EFA.
        compute_capability: Of its GPUs, such as `7.0`; empty without GPUs, or where it is not known.
    """

    instance_type: str
    gpu_count: int
    network_cards: int
    efa_cards: int
    compute_capability: str = ""


@dataclass(frozen=True)
class DataSettings:
    """
    Data in S3 that jobs read, and where to it is brought.

    Attributes:
        name: The entry of /opt/deeplearning/data that shows it on every node.
        bucket: S3 bucket.
        key: An archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`), or a prefix that ends with `/`; empty for the whole bucket.
        target: `efs`, `lustre`, `local` (a disk of each node) or `stream` (it stays in S3).
        sha256: Of the archive, in hex; empty when it is not known.
    """

    name: str
    bucket: str
    key: str
    target: str
    sha256: str = ""


@dataclass(frozen=True)
class EnvironmentCacheSettings:
    """
    Where finished environments are kept for other clusters.

    Attributes:
        bucket: S3 bucket.
        prefix: Of the keys; empty, or ends with `/`.
    """

    bucket: str
    prefix: str = ""


@dataclass(frozen=True)
class EnvironmentSettings:
    """
    The software that jobs run in.

    Attributes:
        kind: `horovod` (the image's framework, or a pinned one), `requirements` (pip), `conda` or `container`.
        file: The requirements or conda file; None for the others.
        image: The container's image; empty for the others.
        horovod: Version of Horovod that is built for the environment's framework; empty for none.
        framework: Of kind `horovod`: the requirement that is installed where the image has no framework, such as
            `torch==2.7.1`; empty where the image must have one.
        cache: Where finished environments are kept for other clusters; None for nowhere but the shared file system.
    """

    kind: str
    file: ScriptSettings | None = None
    image: str = ""
    horovod: str = ""
    framework: str = ""
    cache: EnvironmentCacheSettings | None = None


@dataclass(frozen=True)
class JobNeeds:
    """
    What jobs find on a node beside its contract.

    Attributes:
        hardware: Role -> what its instance type has; empty where the type is not known.
        data: What is staged from S3.
        environment: The software that jobs run in; None for the image's own.
        lustre: How FSx for Lustre is mounted; None without one.
        has_head_node: Whether the master leads without training, because it lacks the workers' accelerators.
    """

    hardware: Mapping[str, HardwareSettings] = field(default_factory=dict)
    data: tuple[DataSettings, ...] = ()
    environment: EnvironmentSettings | None = None
    lustre: FileSystemSettings | None = None
    has_head_node: bool = False


NO_NEEDS = JobNeeds()


def compact(value: Any) -> Any:
    """Return settings as JSON without what they have by default: user data is short of bytes."""
    if is_dataclass(value):
        given = {entry.name: getattr(value, entry.name) for entry in fields(value)}
        return {entry.name: compact(given[entry.name]) for entry in fields(value) if given[entry.name] != entry.default}
    if isinstance(value, Mapping):
        return {name: compact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [compact(part) for part in value]
    return value.value if isinstance(value, Enum) else value
