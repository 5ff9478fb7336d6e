"""What the settings of a node are made of: scripts, file systems, hardware, data and the environment of jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class FileSystemSettings:
    """How a node mounts a shared file system."""

    # `nfs4` (plain NFS 4.1 inside the security groups), `efs` (efs-utils: access point, IAM, TLS) or `lustre`
    kind: str
    # What `mount` mounts: `<id>.efs.<region>.<suffix>:/`, `<id>:/` for `efs`, `<dns name>@tcp:/<mount name>` for
    # `lustre`
    source: str
    options: str  # Mount options, comma-separated
    mount_point: str  # Absolute path; the value of `EFS_MOUNT`, or for `lustre` of its own


@dataclass(frozen=True)
class ScriptSettings:
    """A file of the user's, an object in S3 with its SHA-256 in hex."""

    bucket: str
    key: str
    sha256: str


@dataclass(frozen=True)
class HardwareSettings:
    """What the instance type of a role has, from the catalogue."""

    instance_type: str  # EC2 instance type, such as `p5.48xlarge`
    gpu_count: int  # NVIDIA GPUs of an instance
    network_cards: int
    efa_cards: int  # How many of them take an EFA
    compute_capability: str = ""  # Of its GPUs, such as `7.0`; empty without GPUs, or where it is not known


@dataclass(frozen=True)
class DataSettings:
    """Data in S3 that jobs read, and where to it is brought."""

    name: str  # The entry of /opt/deeplearning/data that shows it on every node
    bucket: str
    # An archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`), or a prefix that ends with `/`; empty for the whole bucket
    key: str
    target: str  # `efs`, `lustre`, `local` (a disk of each node) or `stream` (it stays in S3)
    sha256: str = ""  # Of the archive, in hex; empty when it is not known


@dataclass(frozen=True)
class EnvironmentCacheSettings:
    """Where finished environments are kept for other clusters."""

    bucket: str
    prefix: str = ""  # Of the keys; empty, or ends with `/`


@dataclass(frozen=True)
class EnvironmentSettings:
    """The software that jobs run in."""

    kind: str  # `horovod` (the image's framework, or a pinned one), `requirements` (pip), `conda` or `container`
    file: ScriptSettings | None = None  # The requirements or conda file; None for the others
    image: str = ""  # The container's image; empty for the others
    horovod: str = ""  # Version of Horovod that is built for the environment's framework; empty for none
    # Of kind `horovod`: the requirement that is installed where the image has no framework, such as `torch==2.7.1`;
    # empty where the image must have one
    framework: str = ""
    # Where finished environments are kept for other clusters; None for nowhere but the shared file system
    cache: EnvironmentCacheSettings | None = None


@dataclass(frozen=True)
class JobNeeds:
    """What jobs find on a node beside its contract."""

    # Role -> what its instance type has; empty where the type is not known
    hardware: Mapping[str, HardwareSettings] = field(default_factory=dict)
    data: tuple[DataSettings, ...] = ()  # What is staged from S3
    environment: EnvironmentSettings | None = None  # The software that jobs run in; None for the image's own
    lustre: FileSystemSettings | None = None  # How FSx for Lustre is mounted; None without one
    has_head_node: bool = False  # Whether the master leads without training, because it lacks the workers' accelerators


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
