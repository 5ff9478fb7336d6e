"""
How far a node is with what its jobs need: one file that everybody may read, written while it is provisioned.

The file belongs to one boot of one machine. An image that was made from a node carries that node's file, and a reboot
may empty a local disk: so a file of another boot says nothing.
"""

import contextlib
import fcntl
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from deeplearning_contract.document import ContractError, field, parse_object
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts

WAITING, RUNNING, DONE, FAILED = "waiting", "running", "done", "failed"
ENVIRONMENT_STEP = "environment"
BOOT_FILE = "/proc/sys/kernel/random/boot_id"
PROGRESS_SECONDS = 1.0
"""Between two writes of mere progress; a new state is written at once."""
NOT_STARTED = "provisioning has not come to it yet"


@dataclass(frozen=True)
class Step:
    """
    One thing that jobs need.

    Attributes:
        state: `waiting`, `running`, `done` or `failed`.
        detail: What is happening, or the cause of a failure with its remedy.
        done: How much of it is done.
        total: How much there is; 0 when that is not known.
        unit: Of what: `bytes`, `packages`, `%`, or empty.
        rate: Units a second since this part of it began; 0 when it is not known.
        is_final: Whether a failure stays one until somebody mends its cause.
    """

    state: str = WAITING
    detail: str = ""
    done: int = 0
    total: int = 0
    unit: str = ""
    rate: float = 0.0
    is_final: bool = False

    def to_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        counts = {"done": self.done, "total": self.total, "unit": self.unit, "rate": round(self.rate)}
        return {"state": self.state, "detail": self.detail, **counts, "final": self.is_final}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Step":
        """
        Read what `to_document` wrote.

        Raises:
            ContractError: A field does not have its shape.
        """
        found = {"rate": 0, "final": False, **document}
        return cls(
            state=field(found, "state", str, "step"),
            detail=field(found, "detail", str, "step"),
            done=field(found, "done", int, "step"),
            total=field(found, "total", int, "step"),
            unit=field(found, "unit", str, "step"),
            rate=field(found, "rate", int, "step"),
            is_final=field(found, "final", bool, "step"),
        )


def data_step(name: str) -> str:
    """Return the name of the step that brings one source of data."""
    return f"data:{name}"


def name_steps(needs: JobNeeds) -> list[str]:
    """Return the names of all steps that needs make."""
    return [data_step(source.name) for source in needs.data] + ([ENVIRONMENT_STEP] if needs.environment else [])


def read_boot(root: Path) -> str:
    """Return what the kernel calls this boot; empty where it does not say."""
    try:
        return (root / BOOT_FILE.lstrip("/")).read_text().strip()
    except OSError:
        return ""


def read_status(root: Path) -> Mapping[str, Step]:
    """
    Read how far this node is.

    Returns:
        A step for each thing that the node's settings ask for, in their order; empty when they ask for nothing.

    Raises:
        OSError: The agent has not described the node yet.
        ContractError: Its description does not have its shape.
    """
    found = load_steps(root)
    return {name: found.get(name, Step(detail=NOT_STARTED)) for name in name_steps(NodeFacts.read(root).needs)}


def is_ready(steps: Mapping[str, Step]) -> bool:
    """Tell whether everything is there."""
    return all(step.state == DONE for step in steps.values())


def is_settled(steps: Mapping[str, Step]) -> bool:
    """Tell whether nothing will change without somebody's help."""
    return all(step.state == DONE or (step.state == FAILED and step.is_final) for step in steps.values())


def load_steps(root: Path) -> dict[str, Step]:
    """Return what was written in this boot; half a file, which nobody writes, counts as none."""
    try:
        document = parse_object((root / PROVISION_FILE.lstrip("/")).read_text(encoding="utf-8"), "provision status")
        if document.get("boot") != read_boot(root):
            return {}
        return {name: Step.from_document(step) for name, step in field(document, "steps", dict, "status").items()}
    except (OSError, ContractError, AttributeError):
        return {}


class Status:
    """
    Writes the steps of one process; several may write the file at the same time, each its own steps.

    Any thread may call it.
    """

    def __init__(self, root: Path, clock: Clock, on_change: Callable[[str, Step], None] | None = None) -> None:
        """
        Write nothing yet.

        Args:
            root: Where the node's file tree begins.
            clock: Measures rates, and the time between two writes.
            on_change: Called with a step whenever it is written. Default: nobody is.
        """
        self.root = root
        self._clock = clock
        self._on_change = on_change
        self._steps: dict[str, Step] = {}
        self._began: dict[str, tuple[float, int]] = {}
        self._written = float("-inf")
        self._lock = threading.Lock()

    def get(self, name: str) -> Step:
        """Return a step as it is now."""
        return self._steps.get(name, Step())

    def wait(self, name: str, detail: str) -> None:
        """Say what a step waits for."""
        self._put(name, Step(WAITING, detail))

    def start(self, name: str, detail: str, total: int = 0, unit: str = "", done: int = 0) -> None:
        """
        Say that a step, or a further part of it, begins.

        Args:
            name: Of the step.
            detail: What it does now.
            total: How much there is to do. Default: not known.
            unit: Of what. Default: nothing is counted.
            done: How much an earlier attempt did. Default: nothing.
        """
        self._began[name] = (self._clock.read(), done)
        self._put(name, Step(RUNNING, detail, done, total, unit))

    def advance(self, name: str, done: int, detail: str = "") -> None:
        """
        Say how much is done; it is written at most once a second.

        Args:
            name: Of the step.
            done: How much.
            detail: What it does now, which is written at once. Default: the same as before.
        """
        now = self._clock.read()
        since, before = self._began.get(name, (now, done))
        rate = (done - before) / (now - since) if now > since else 0.0
        step = self.get(name)
        self._put(name, replace(step, state=RUNNING, detail=detail or step.detail, done=done, rate=max(0.0, rate)))

    def finish(self, name: str, detail: str) -> None:
        """Say that a step is done."""
        step = self.get(name)
        self._put(name, replace(step, state=DONE, detail=detail, done=step.total, rate=0.0, is_final=False))

    def fail(self, name: str, detail: str, *, is_final: bool) -> None:
        """Say why a step failed, and whether trying again is of no use."""
        self._put(name, replace(self.get(name), state=FAILED, detail=detail, rate=0.0, is_final=is_final))

    def _put(self, name: str, step: Step) -> None:
        with self._lock:
            old = self._steps.get(name)
            self._steps[name] = step
            is_news = old is None or (old.state, old.detail) != (step.state, step.detail)
            if not is_news and self._clock.read() - self._written < PROGRESS_SECONDS:
                return
            self._write()
            if self._on_change:
                self._on_change(name, step)

    def _write(self) -> None:
        with lock_file(self.root, "status"):
            steps = {**load_steps(self.root), **self._steps}
            document = {"boot": read_boot(self.root), "steps": {n: s.to_document() for n, s in steps.items()}}
            write_file(self.root / PROVISION_FILE.lstrip("/"), json.dumps(document, indent=2) + "\n")
        self._written = self._clock.read()


@contextlib.contextmanager
def lock_file(root: Path, name: str, *, is_patient: bool = True) -> Iterator[None]:
    """
    Hold a lock of this node, which the kernel gives back when its holder dies.

    Args:
        root: Where the node's file tree begins.
        name: Of the lock.
        is_patient: Whether to wait for another holder. Default: yes.

    Raises:
        BlockingIOError: Another process holds it and the caller does not wait.
    """
    path = (root / PROVISION_FILE.lstrip("/")).with_name(f".{name}.lock")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX if is_patient else fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
