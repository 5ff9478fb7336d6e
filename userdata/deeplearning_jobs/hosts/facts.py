"""What a host answers before a job starts: what it has, what it offers, and what runs on it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deeplearning_contract.document import ContractError, field, parse_object, text_list


@dataclass(frozen=True)
class StepAnswer:
    """
    How one step of the provisioning stands on a host.

    Attributes:
        state: `waiting`, `running`, `done` or `failed`.
        detail: In one line.
        done: How much of it is done.
        total: Of how much; 0 when it is not known.
        unit: `bytes`, `packages`, `%` or empty.
        is_final: Whether a failure stays one until somebody mends its cause.
    """

    state: str
    detail: str
    done: int
    total: int
    unit: str
    is_final: bool = False

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "StepAnswer":
        """
        Read a step.

        Raises:
            ContractError: It does not have its shape.
        """
        return cls(
            state=field(document, "state", str, "step"),
            detail=field(document, "detail", str, "step"),
            done=field(document, "done", int, "step"),
            total=field(document, "total", int, "step"),
            unit=field(document, "unit", str, "step"),
            is_final=field(document, "is_final", bool, "step"),
        )


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
    steps: Mapping[str, StepAnswer]
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
        Read the last line of what a host printed: its shell's start-up files may print others.

        Raises:
            ContractError: It is no answer.
        """
        lines = [line for line in output.splitlines() if line.startswith("{")]
        document = parse_object(lines[-1] if lines else output, "the answer")
        steps = field(document, "steps", dict, "answer")
        ports = field(document, "ports", list, "answer")
        missing = field(document, "missing", dict, "answer")
        if not all(isinstance(port, int) for port in ports):
            raise ContractError("answer.ports must be numbers")
        if not all(isinstance(step, dict) for step in steps.values()):
            raise ContractError("answer.steps must be objects")
        texts = ("instance_id", "gpu_detail", "interface", "address", "instance_type", "environment")
        counts = ("generation", "expected_gpu_count", "network_cards", "efa_cards")
        return cls(
            **{name: field(document, name, str, "answer") for name in texts},  # type: ignore[arg-type] # each is a str
            **{name: field(document, name, int, "answer") for name in counts},  # type: ignore[arg-type] # each is an int
            gpu_count=None if document.get("gpu_count") is None else field(document, "gpu_count", int, "answer"),
            ports=tuple(ports),
            steps={name: StepAnswer.from_document(step) for name, step in steps.items()},
            jobs=text_list(document, "jobs", "answer"),
            missing={str(name): str(why) for name, why in missing.items()},
            efa_fault=field({"efa_fault": "", **document}, "efa_fault", str, "answer"),
        )
