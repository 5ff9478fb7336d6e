"""Parts of a node's settings: scripts, file systems, hardware, data and the environment of jobs."""

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Any


@dataclass(frozen=True)
class FileSystemSettings:
    """Mount of a shared file system on a node."""

    # `nfs4` (plain NFS 4.1 inside the security groups), `efs` (efs-utils: access point, IAM, TLS), `lustre`,
    # `channel` (SageMaker mounts it), or `claim` (Kubernetes mounts it)
    kind: str
    # Source for `mount`: `<id>.efs.<region>.<suffix>:/`, `<id>:/` for `efs`, `<dns name>@tcp:/<mount name>` for
    # `lustre`; for `channel` and `claim` its folder in the container
    source: str
    options: str  # Mount options, comma-separated
    mount_point: str  # Absolute path; the value of `EFS_MOUNT`, or for `lustre` another


@dataclass(frozen=True)
class ScriptSettings:
    """File of the user: an object in S3 with its SHA-256 in hex."""

    bucket: str
    key: str
    sha256: str


@dataclass(frozen=True)
class HardwareSettings:
    """Hardware of the instance type of a role, from the catalogue."""

    instance_type: str  # EC2 instance type, such as `p5.48xlarge`
    gpu_count: int  # NVIDIA GPUs of an instance
    network_cards: int
    efa_cards: int  # Number of network cards that support EFA
    compute_capability: str = ""  # Compute capability of its GPUs, such as `7.0`; empty without GPUs, or when unknown


@dataclass(frozen=True)
class DataSettings:
    """Data in S3 for jobs, and the target of its staging."""

    name: str  # Name of its entry in /opt/deeplearning/data on every node
    bucket: str
    # An archive (`.tar`, `.tar.gz`, `.tgz`, `.zip`), or a prefix that ends with `/`; empty for the whole bucket
    key: str
    target: str  # `efs`, `lustre`, `local` (a disk of each node) or `stream` (it stays in S3)
    sha256: str = ""  # SHA-256 of the archive in hex; empty when unknown


@dataclass(frozen=True)
class EnvironmentCacheSettings:
    """Cache of finished environments for other clusters."""

    bucket: str
    prefix: str = ""  # Prefix of the keys; empty, or ends with `/`


SYSTEM_PYTHON = "/usr/bin/python3"
"""Python of the distribution, which is 3.9 on Amazon Linux 2023 (its user guide, "Python in AL2023")."""
LEAST_PYTHON = (3, 10)
"""
First Python that runs the programs of nodes, and for which PyTorch 2.9 and later have wheels.

`Requires-Python` on PyPI is >=3.9 for torch 2.8.0, the newest for 3.9, and >=3.10 for 2.9.0 and later.
"""
_PIN = re.compile(r"tensorflow==([0-9]{1,4})\.([0-9]{1,4})\b")
_VERSION = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})\b")
# A UTF-16 mark is the start of the UTF-32 mark of the same byte order.
_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
)
_DECLARED_ENCODING = re.compile(rb"coding[:=]\s*([-\w.]+)")


@dataclass(frozen=True)
class EnvironmentSettings:
    """Software environment of jobs."""

    kind: str  # `horovod` (the image's framework, or a pinned one), `requirements` (pip), `conda` or `container`
    file: ScriptSettings | None = None  # Requirements or conda file; None for the other kinds
    image: str = ""  # Image of the container; empty for the other kinds
    horovod: str = ""  # Version of Horovod to build for the environment's framework; empty for none
    # Requirement of kind `horovod` for an image without a framework, such as `torch==2.7.1`; empty if the image must
    # have one
    framework: str = ""
    # Cache of finished environments for other clusters; None for only the shared file system
    cache: EnvironmentCacheSettings | None = None
    interpreter: str = SYSTEM_PYTHON  # The image's own Python, over which an environment is made


def find_wheel_conflict(framework: str, python: str) -> tuple[str, str] | None:
    """
    Return the versions of Python for which a pinned framework has wheels, and a pin that has one for this Python.

    None when the pin, such as `tensorflow==2.16.2`, is not known to conflict with the Python, such as `3.12.3`. Source:
    the wheels of tensorflow 2.15.1 and 2.16.1 on PyPI. `LEAST_PYTHON` is the rule for PyTorch.
    """
    pin, found = _PIN.match(framework), _VERSION.match(python)
    if pin is None or found is None:
        return None
    version, own = (int(pin[1]), int(pin[2])), (int(found[1]), int(found[2]))
    return ("3.11 and earlier", "tensorflow==2.16.2") if version < (2, 16) and own >= (3, 12) else None


def decode_requirements(content: bytes) -> str:
    """
    Decode a requirements file: by its byte order mark, by an encoding declared in its first two lines, or as UTF-8.

    pip takes the locale's encoding where this takes UTF-8, which is that of the nodes.
    Source: pip documentation, "Requirements File Format", section "Encoding".

    Raises:
        ValueError: The content is of another encoding, or the declared one is unknown.
    """
    for mark, encoding in _BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return content[len(mark) :].decode(encoding)
    comments = (line for line in content.split(b"\n")[:2] if line.startswith(b"#"))
    declared = next((found[1].decode() for line in comments if (found := _DECLARED_ENCODING.search(line))), "utf-8")
    try:
        return content.decode(declared)
    except LookupError as error:
        raise ValueError(f"unknown encoding: {declared}") from error


@dataclass(frozen=True)
class JobNeeds:
    """Requirements of jobs in addition to the contract."""

    # Role -> hardware of its instance type; empty for an unknown type
    hardware: Mapping[str, HardwareSettings] = field(default_factory=dict)
    data: tuple[DataSettings, ...] = ()  # Data to stage from S3
    environment: EnvironmentSettings | None = None  # Software environment of jobs; None for the image's own
    lustre: FileSystemSettings | None = None  # Mount of FSx for Lustre; None without one
    has_head_node: bool = False  # Whether the master does not train, since it lacks the workers' accelerators


NO_NEEDS = JobNeeds()


def compact(value: Any) -> Any:
    """Return settings as JSON without defaults, since user data has a limited size."""
    if is_dataclass(value):
        given = {entry.name: getattr(value, entry.name) for entry in fields(value)}
        return {entry.name: compact(given[entry.name]) for entry in fields(value) if given[entry.name] != entry.default}
    if isinstance(value, Mapping):
        return {name: compact(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [compact(part) for part in value]
    return value.value if isinstance(value, Enum) else value
