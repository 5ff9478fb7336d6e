"""Watches nodes bring what jobs need, data and environment, through the file in which each says how far it is."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_rehearsal.errors import PromiseError, RehearsalError

_INTERVAL_SECONDS = 0.5
_DONE, _FAILED = "done", "failed"


def name_steps(needs: JobNeeds) -> tuple[str, ...]:
    """Return the steps that a node makes, as it names them in its file."""
    data = tuple(f"data:{source.name}" for source in needs.data)
    return (*data, "environment") if needs.environment is not None else data


def count_done(step: Mapping[str, Any]) -> float:
    """Return which part of a step is done, from 0 to 1."""
    total = int(step["total"])
    return 1.0 if step["state"] == _DONE else int(step["done"]) / total if total else 0.0


@dataclass
class ProvisionWatch:
    """
    Waits for nodes.

    Attributes:
        read_file: Returns a file of a node.
        steps: What each node must do.
        tell: Told (instance id, text) when a step's state changes.
    """

    read_file: Callable[[str, str], bytes]
    steps: Sequence[str]
    tell: Callable[[str, str], None]
    _told: dict[tuple[str, str], str] = field(default_factory=dict)

    def wait(self, nodes: Sequence[str], give_up: float) -> None:
        """
        Wait until every node has done every step.

        Args:
            nodes: Their instance ids.
            give_up: Monotonic time after which they are not waited for.

        Raises:
            PromiseError: A step failed for good, or did not end in time.
        """
        while waiting := [text for node in nodes for text in self._look(node)]:
            if time.monotonic() > give_up:
                raise PromiseError(f"what jobs need must come in time, still waiting for {'; '.join(waiting)}")
            time.sleep(_INTERVAL_SECONDS)

    def _look(self, node: str) -> list[str]:
        """Return what a node has not done yet."""
        found = self._read(node)
        missing = []
        for name in self.steps:
            step = found.get(name, {})
            state, detail = str(step.get("state", "not begun")), str(step.get("detail", ""))
            if self._told.get((node, name)) != state:
                self._told[node, name] = state
                self.tell(node, f"{name} is {state}{f': {detail}' if detail else ''}")
            if state == _FAILED and step.get("final"):
                raise PromiseError(f"{name} of {node} failed: {detail}")
            if state != _DONE:
                missing.append(f"{name} of {node} ({state}{f', {detail}' if detail else ''})")
        return missing

    def _read(self, node: str) -> Mapping[str, Any]:
        try:
            document = json.loads(self.read_file(node, PROVISION_FILE))
        except (RehearsalError, ValueError):
            return {}  # it has not begun
        steps = document.get("steps", {})
        return steps if isinstance(steps, dict) else {}
