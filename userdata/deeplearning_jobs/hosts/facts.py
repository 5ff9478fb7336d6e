"""What a host answers before a job starts: what it has, what it offers, and what runs on it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from deeplearning_contract.document import parse_last_line, read_record
from deeplearning_node.provision_status import Step


@dataclass(frozen=True)
class HostAnswer:
    """
    One host's answer.

    Attributes:
        instance_id: Who answers.
        gpu_count: GPUs that its driver shows, or with which it joined where the driver is late; None when the driver
            does not answer.
        gpu_detail: Why the driver does not answer.
        interface: Network interface that carries the host's address; empty when none does.
        address: By which the cluster knows the host.
        generation: Of the membership that is installed; 0 for none.
        instance_type: EC2 instance type; empty when it is not known.
        expected_gpu_count: GPUs of that type.
        network_cards: Its network cards.
        efa_cards: How many of them take an EFA.
        ports: Free ports.
        steps: The provisioning's steps by name.
        environment: Digest of the environment that is installed; empty for none.
        jobs: Runs that have processes on the host, `<job>/<k>`.
        missing: Of the paths and programs that were asked for, those that the host lacks, with why.
        efa_fault: Why its traffic goes by TCP though it has EFA; empty where it does not.
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
        """Return the answer as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def from_output(cls, output: str) -> "HostAnswer":
        """
        Read the answer from a host's output: its shell's start-up files may print other lines.

        Raises:
            ContractError: It is no answer.
        """
        return read_record(cls, parse_last_line(output, "facts of a node"), "answer")
