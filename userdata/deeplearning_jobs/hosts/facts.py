"""Facts of a host before a job starts: hardware, offers, and running jobs."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from deeplearning_contract.document import parse_last_line, read_record
from deeplearning_node.provision_status import Step


@dataclass(frozen=True)
class HostFacts:
    """
    Facts of one host, as it reports them.

    Attributes:
        gpu_count: GPUs that its driver shows, or with which it joined where the driver is late; None when that fails.
        gpu_detail: Error of the driver; empty without one.
        interface: The network interface that carries the host's address; empty when none does.
        address: Its address in the cluster.
        generation: Of the installed membership; 0 for none.
        instance_type: Empty when unknown.
        expected_gpu_count: GPUs of the type.
        efa_cards: Network cards that take an EFA.
        ports: Free ports.
        steps: Steps of the provisioning by name.
        environment: Digest of the installed environment; empty for none.
        jobs: Runs with processes on the host, `<job>/<k>`.
        missing: Paths and programs that the host lacks, of those required -> why.
        efa_fault: Why traffic goes by TCP although the host has EFA; empty where it does not.
    """

    instance_id: str
    gpu_count: int | None
    gpu_detail: str
    interface: str
    address: str
    generation: int
    instance_type: str
    expected_gpu_count: int
    network_cards: int
    efa_cards: int
    ports: tuple[int, ...]
    steps: Mapping[str, Step]
    environment: str
    jobs: tuple[str, ...]
    missing: Mapping[str, str]
    efa_fault: str = ""

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
