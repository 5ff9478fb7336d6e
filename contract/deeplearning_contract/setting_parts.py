"""What the settings of a node are made of: scripts, file systems, hardware, data and the environment of jobs."""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any

from deeplearning_contract.document import ContractError, field, object_list


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

    @classmethod
    def read(cls, document: Mapping[str, Any], key: str) -> "FileSystemSettings":
        """
        Read a required field of the settings.

        Raises:
            ContractError: It does not have its shape.
        """
        return cls(**_strings(field(document, key, dict, "settings"), cls, f"settings.{key}"))


@dataclass(frozen=True)
class ScriptSettings:
    """A file of the user's, an object in S3 with its SHA-256 in hex."""

    bucket: str
    key: str
    sha256: str

    @classmethod
    def read(cls, document: Mapping[str, Any], key: str) -> "ScriptSettings | None":
        """
        Read a field that may be absent.

        Raises:
            ContractError: It does not have its shape.
        """
        if document.get(key) is None:
            return None
        return cls(**_strings(field(document, key, dict, "settings"), cls, f"settings.{key}"))


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

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "HardwareSettings":
        """
        Read what `asdict` wrote.

        Raises:
            ContractError: It does not have its shape.
        """
        counts = {name: field(document, name, int, "hardware") for name in ("gpu_count", "network_cards", "efa_cards")}
        capability = field({"compute_capability": "", **document}, "compute_capability", str, "hardware")
        instance_type = field(document, "instance_type", str, "hardware")
        return cls(instance_type=instance_type, compute_capability=capability, **counts)


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

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "DataSettings":
        """
        Read what `asdict` wrote.

        Raises:
            ContractError: It does not have its shape.
        """
        return cls(**_strings(document, cls, "data"))


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

    @classmethod
    def read(cls, document: Mapping[str, Any], key: str) -> "EnvironmentCacheSettings | None":
        """
        Read what `asdict` wrote below a key; None where it is absent.

        Raises:
            ContractError: It does not have its shape.
        """
        if document.get(key) is None:
            return None
        return cls(**_strings(field(document, key, dict, "settings"), cls, f"settings.{key}"))


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

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "EnvironmentSettings":
        """
        Read what `asdict` wrote.

        Raises:
            ContractError: It does not have its shape.
        """
        known = {"image": "", "horovod": "", "framework": "", **document}
        texts = {name: field(known, name, str, "environment") for name in ("kind", "image", "horovod", "framework")}
        cache = EnvironmentCacheSettings.read(document, "cache")
        return cls(file=ScriptSettings.read(document, "file"), cache=cache, **texts)


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

    hardware: Mapping[str, HardwareSettings]
    data: tuple[DataSettings, ...] = ()
    environment: EnvironmentSettings | None = None
    lustre: FileSystemSettings | None = None
    has_head_node: bool = False

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "JobNeeds":
        """
        Read what `asdict` wrote; absent fields ask for nothing.

        Raises:
            ContractError: A field does not have its shape.
        """
        hardware = field({"hardware": {}, **document}, "hardware", dict, "needs")
        if not all(isinstance(entry, dict) for entry in hardware.values()):
            raise ContractError("needs.hardware must hold objects")
        environment = document.get("environment")
        return cls(
            hardware={role: HardwareSettings.from_document(entry) for role, entry in hardware.items()},
            data=tuple(map(DataSettings.from_document, object_list({"data": [], **document}, "data", "needs"))),
            environment=None
            if environment is None
            else EnvironmentSettings.from_document(field(document, "environment", dict, "needs")),
            lustre=None if document.get("lustre") is None else FileSystemSettings.read(document, "lustre"),
            has_head_node=field({"has_head_node": False, **document}, "has_head_node", bool, "needs"),
        )


NO_NEEDS = JobNeeds({})


def _strings(document: Mapping[str, Any], cls: Any, what: str) -> dict[str, str]:
    known = {entry.name: entry.default for entry in fields(cls) if entry.default is not MISSING} | dict(document)
    return {entry.name: field(known, entry.name, str, what) for entry in fields(cls)}


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
