"""Members of a cluster, the source of hosts, workers file and hostfile."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deeplearning_contract.document import ContractError, excerpt, read_record
from deeplearning_contract.names import MASTER_HOST, host_name

_MOST_GPUS = 1024
_THIS_NETWORK = ipaddress.IPv4Network("0.0.0.0/8")
_INSTANCE_ID = re.compile(
    r"i-[0-9a-f]{8,17}|algo-[1-9][0-9]{0,3}|[a-z0-9](?:[a-z0-9-]{0,50}[a-z0-9])?-[0-9]{1,3}-[a-z0-9]{5}"
)
"""Of an instance, a container of a training job, or a pod: `<Job>-<index>-<5 letters>`."""
_PUBLIC_KEY = re.compile(r"(ssh-ed25519|ssh-rsa|ecdsa-sha2-nistp(?:256|384|521)) [A-Za-z0-9+/=]{16,1024}")


@dataclass(frozen=True)
class Member:
    """Node of the cluster, as it described itself."""

    # EC2 instance id, or the name of a container of a training job, such as `algo-1`, or that of a pod
    instance_id: str
    address: str  # Private IPv4 address
    gpu_count: int  # GPUs measured on the node; 0 on a CPU node
    host_key: str  # The node's SSH host public key, `<type> <base64>`
    trains: bool = True  # Whether ranks run on it; only a master may be without them (a head node)

    def __post_init__(self) -> None:
        if not _INSTANCE_ID.fullmatch(self.instance_id):
            raise ContractError(
                "member.instance_id must be like i-0123456789abcdef0, algo-1 or train-0-abcde, "
                f"got {excerpt(self.instance_id)}"
            )
        try:
            address = ipaddress.IPv4Address(self.address)
        except ValueError as error:
            raise ContractError(f"member.address must be an IPv4 address, got {excerpt(self.address)}") from error
        if not is_unicast(address):
            raise ContractError(f"member.address must be reachable by other nodes, got {self.address}")
        if not 0 <= self.gpu_count <= _MOST_GPUS:
            raise ContractError(f"member.gpu_count must be from 0 to {_MOST_GPUS}, got {self.gpu_count}")
        if not is_public_key(self.host_key):
            raise ContractError(f"member.host_key must be an SSH public key, got {excerpt(self.host_key)}")

    @property
    def slots(self) -> int:
        """Number of ranks of the node: one a GPU, and one on a CPU node."""
        return max(1, self.gpu_count)

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Member":
        """Read a member from its JSON object; ContractError for a malformed one."""
        return read_record(cls, document, "member")

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that `from_document` reads."""
        return asdict(self)


def is_unicast(address: ipaddress.IPv4Address) -> bool:
    """Return whether an address can belong to one node; any address of a VPC can."""
    is_special = address.is_loopback or address.is_link_local or address.is_multicast or address.is_reserved
    return not is_special and address not in _THIS_NETWORK


def is_public_key(text: str) -> bool:
    """Return whether a text is one SSH public key without options or comment."""
    return _PUBLIC_KEY.fullmatch(text) is not None


def has_head_node(members: tuple[Member, ...]) -> bool:
    """Return whether the first member, the master, does not train."""
    return bool(members) and not members[0].trains


def training_members(members: tuple[Member, ...]) -> tuple[Member, ...]:
    """Return the members on which ranks run, in rank order."""
    return members[1:] if has_head_node(members) else members


def named_members(members: tuple[Member, ...]) -> tuple[tuple[str, Member], ...]:
    """
    Pair each member with its host name, master first.

    Members that train are named by rank, from `deeplearning-worker1`; a master that does not is `deeplearning-master`.
    """
    head = ((MASTER_HOST, members[0]),) if has_head_node(members) else ()
    return head + tuple((host_name(rank), member) for rank, member in enumerate(training_members(members)))


def worker_gpu_count(members: tuple[Member, ...], own: Member) -> int:
    """Return the GPU count for scripts on a node: its own, or the first worker's on a head node."""
    if own.trains:
        return own.gpu_count
    return next((member.gpu_count for member in training_members(members)), 0)
