"""Facts of a host before a job starts: hardware, offers, and running jobs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from deeplearning_contract.document import parse_last_line, read_record
from deeplearning_node.provision_status import Step


@dataclass(frozen=True)
class HostFacts:
    """Facts of one host, as it reports them."""

    instance_id: str
    # GPUs that its driver shows, or with which it joined where the driver is late; None when that fails
    gpu_count: int | None
    gpu_detail: str  # Error of the driver; empty without one
    interface: str  # The network interface that carries the host's address; empty when none does
    address: str  # Its address in the cluster
    generation: int  # Of the installed membership; 0 for none
    instance_type: str  # Empty when unknown
    expected_gpu_count: int  # GPUs of the type
    network_cards: int
    efa_cards: int  # Network cards that take an EFA
    ports: tuple[int, ...]  # Free ports
    steps: Mapping[str, Step]  # Steps of the provisioning by name
    environment: str  # Digest of the installed environment; empty for none
    jobs: tuple[str, ...]  # Runs with processes on the host, `<job>/<k>`
    missing: Mapping[str, str]  # Paths and programs that the host lacks, of those required -> why
    efa_fault: str = ""  # Why traffic goes by TCP although the host has EFA; empty where it does not

    def to_line(self) -> str:
        """Return the facts as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_output(cls, output: str) -> "HostFacts":
        """
        Read the facts from a host's output, which shell start-up files may precede.

        Raises:
            ContractError: The output has none.
        """
        return read_record(cls, parse_last_line(output, "facts of a node"), "answer")
