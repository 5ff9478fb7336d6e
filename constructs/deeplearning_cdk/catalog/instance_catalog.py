"""
Facts of EC2 instance types: GPUs, architecture, network cards, EFA and placement.

The facts are dated data beside this module, written by `constructs/write_instance_catalog.py`. AWS adds types faster
than this library is released, so a user can describe a newer one with `InstanceTypeFacts`.
"""

import difflib
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from aws_cdk import Token
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.props.check import check_fields, names_checked, show_value
from deeplearning_cdk.props.regions import RegionName
from deeplearning_cdk.props.rules import between, matching

Architecture = Literal["x86_64", "arm64"]
Accelerator = Literal["NVIDIA", "AMD", "AWS", "Habana", "other"]

_FOLDER = Path(__file__).parent
_SERVICES = ("ml", "db", "cache", "dax", "search", "elasticsearch")
_LOOK = "look it up with `aws ec2 describe-instance-types`"

InstanceTypeName = Annotated[
    str, matching(r"[a-z0-9-]{1,32}\.[a-z0-9-]{1,32}", "be an instance type", "write e.g. p5.48xlarge")
]
DriverBranch = Annotated[int, between(390, 999, "write e.g. 580")]
ComputeCapability = Annotated[
    str, matching(r"([0-9]{1,2}\.[0-9])?", "be a compute capability", "write that of the GPU, e.g. 9.0")
]
"""Compute capability of an NVIDIA GPU, which determines the code that it can run; empty if unknown."""


@names_checked
@dataclass(frozen=True, kw_only=True)
class InstanceTypeFacts:
    """
    Facts of an instance type that the constructs use; pass them for a type that is newer than the catalogue.

    Attributes:
        name: The type, such as `p5.48xlarge`.
        architecture: Processor architecture. Default: x86_64.
        accelerator: Maker of the accelerators. Default: NVIDIA when it has GPUs, otherwise none.
        gpu_count: GPUs of an instance. Default: 0, a CPU type.
        network_cards: Network cards of an instance. Default: 1.
        efa_cards: Indexes of the network cards that take an EFA. Default: none, no EFA.
        is_clusterable: True if cluster placement groups support it. Default: they do.
        is_burstable: True if it is a burstable type. Default: it is not.
        has_local_disk: True if it has NVMe disks of its own. Default: it has none.
        regions: Regions that offer it, if known. Default: not known.
        driver_branch: NVIDIA driver branch to install on a stock image, where no deep-learning image supports the type.
            Default: none is needed.
        successor: Type that replaces one that AWS retired. Default: it is not retired.
        compute_capability: Compute capability of its NVIDIA GPUs, such as `9.0`, which determines the code that they
            can run. Default: not known; then only nodes check whether a framework runs on them.
        memory_mib: Memory in MiB. Default: not known; then it is enough, and pods on EKS have no limit of memory.
        local_gigabytes: Size of its own NVMe disks together, in GB. Default: not known; then pods on EKS have no limit
            of disk where it has such disks.
    """

    name: InstanceTypeName
    architecture: Architecture = "x86_64"
    accelerator: Accelerator | None = None
    gpu_count: Annotated[int, between(0, 1024, _LOOK)] = 0
    network_cards: Annotated[int, between(1, 1024, _LOOK)] = 1
    efa_cards: tuple[Annotated[int, between(0, 1023, _LOOK)], ...] = ()
    is_clusterable: bool = True
    is_burstable: bool = False
    has_local_disk: bool = False
    regions: tuple[RegionName, ...] = ()
    driver_branch: DriverBranch | None = None
    successor: InstanceTypeName | None = None
    compute_capability: ComputeCapability = ""
    memory_mib: Annotated[int, between(128, 1 << 26, _LOOK)] | None = None
    local_gigabytes: Annotated[int, between(1, 1 << 26, _LOOK)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if any(card >= self.network_cards for card in self.efa_cards):
            raise ValueError(
                f"efa_cards must be indexes below network_cards, got {max(self.efa_cards)} of {self.network_cards}; "
                "raise network_cards"
            )
        if self.gpu_count and self.accelerator is None:
            object.__setattr__(self, "accelerator", "NVIDIA")

    @property
    def family(self) -> str:
        """The part of the name before the dot."""
        return self.name.partition(".")[0]


NodeInstanceType = str | ec2.InstanceType | InstanceTypeFacts
"""Instance type: its name, an object of the CDK, or its facts."""


def has_efa(facts: InstanceTypeFacts) -> bool:
    """Return whether nodes of a type get EFA: an accelerated type with cards for it."""
    return facts.accelerator is not None and bool(facts.efa_cards)


def describe_types(
    workers: NodeInstanceType | None, master: NodeInstanceType | None, default: NodeInstanceType, *, efa: bool
) -> tuple[InstanceTypeFacts, InstanceTypeFacts]:
    """
    Return the facts of the workers' type and of the master's, which defaults to the workers'.

    Without `efa`, a type counts as one that has none: one plain interface, and NCCL over TCP.

    Raises:
        ValueError: A type is a token, or not in the catalogue.
    """
    found = describe_instance_type("workers.instance_type", workers, default)
    types = found, describe_instance_type("master.instance_type", master, found)
    return types if efa else (without_efa(types[0]), without_efa(types[1]))


def describe_instance_type(
    prop: str, instance_type: NodeInstanceType | None, default: NodeInstanceType = ""
) -> InstanceTypeFacts:
    """
    Return the facts of a type, or of the default if the user gives none; `prop` names it in errors.

    Raises:
        ValueError: The type is a token, or not in the catalogue.
    """
    chosen = default if instance_type is None else instance_type
    if isinstance(chosen, InstanceTypeFacts):
        return chosen
    name = chosen if isinstance(chosen, str) else chosen.to_string()
    if Token.is_unresolved(name):
        raise ValueError(
            f"{prop} must be known at synth, got a token; the constructs choose image, interfaces and placement by it"
        )
    if name in _read_entries():
        return _read_facts(name)
    known = read_catalog()
    raise ValueError(
        f"{prop} must be an instance type of the catalogue of {catalog_date()}, got {show_value(name)}; "
        f"take {_suggest(name, known)}, or describe a newer type with InstanceTypeFacts(name={show_value(name)}, …)"
    )


def _normalize(name: str) -> str:
    """Return a name as EC2 writes it: lower case, one dot, xlarge in full, and without the words of other services."""
    words = name.strip().lower().split(".")
    # SageMaker, RDS and ElastiCache put a word before a type, and OpenSearch one after it.
    words = words[1:] if words[0] in _SERVICES else words
    words = words[:-1] if words[-1] in _SERVICES else words
    text = ".".join(words)
    if "." not in text:
        text = re.sub(r"[-_\s/]+(?=[0-9]*[a-z]+$)", ".", text)
    return re.sub(r"\b([0-9]*)xl$", r"\1xlarge", text)


def _suggest(name: str, known: dict[str, InstanceTypeFacts]) -> str:
    meant = _normalize(name)
    if meant in known:
        return known[meant].successor or meant
    family = meant.partition(".")[0]
    sizes = [facts.name for facts in known.values() if facts.family == family and not facts.successor]
    close = difflib.get_close_matches(meant, known, n=3)
    return (
        "one of " + ", ".join(sizes or close) if sizes or close else "one that `aws ec2 describe-instance-types` lists"
    )


@cache
def read_catalog() -> dict[str, InstanceTypeFacts]:
    """Return every known type by name, retired ones with their successors."""
    return {name: _read_facts(name) for name in _read_entries()}


def list_families() -> set[str]:
    """Return the families of every known type."""
    return {name.partition(".")[0] for name in _read_entries()}


def catalog_date() -> str:
    """Return the date of the catalogue's data, as YYYY-MM-DD."""
    return str(_read_document()["date"])


@cache
def _read_document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads((_FOLDER / "instance_catalog.json").read_text())
    return document


@cache
def _read_entries() -> dict[str, dict[str, Any]]:
    retired = json.loads((_FOLDER / "retired_instance_types.json").read_text())
    return {**retired, **_read_document()["types"]}


def without_efa(facts: InstanceTypeFacts) -> InstanceTypeFacts:
    """Return the facts of a type as of one without EFA: one plain interface."""
    return replace(facts, efa_cards=(), network_cards=1) if has_efa(facts) else facts


@cache
def _read_facts(name: str) -> InstanceTypeFacts:
    entry = _read_entries()[name]
    first, _, last = entry.get("efa_cards", "").partition("-")
    return InstanceTypeFacts(
        name=name,
        architecture=entry.get("architecture", "x86_64"),
        accelerator=entry.get("accelerator"),
        gpu_count=entry.get("gpus", 0),
        network_cards=entry.get("network_cards", 1),
        efa_cards=tuple(range(int(first), int(last) + 1)) if first else (),
        is_clusterable=entry.get("cluster_placement", True),
        is_burstable=entry.get("burstable", False),
        has_local_disk="local_gigabytes" in entry,
        regions=tuple(entry.get("regions", ())),
        driver_branch=entry.get("driver_branch"),
        successor=entry.get("successor"),
        compute_capability=entry.get("compute_capability", ""),
        memory_mib=entry.get("memory_mib"),
        local_gigabytes=entry.get("local_gigabytes"),
    )


def require_nvidia(platform: str, facts: InstanceTypeFacts, remedy: str) -> None:
    """Raise ValueError for a type with accelerators that are not NVIDIA's, for a platform without software for them."""
    if facts.accelerator not in (None, "NVIDIA"):
        others = "others" if facts.accelerator == "other" else f"those of {facts.accelerator}"
        raise ValueError(
            f"instance_type must have NVIDIA GPUs or no accelerators on {platform}, got {facts.name} with {others}; "
            f"{remedy}"
        )
