"""Watches nodes bring what jobs need, data and environment, through the file in which each says how far it is."""

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import PromiseError, RehearsalError
from deeplearning_contract.names import PROVISION_FILE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_view.log_lines import clean

_INTERVAL_SECONDS = 0.5
_RUNNING, _DONE, _FAILED = "running", "done", "failed"
_ENVIRONMENT = "environment"
_BUILD_LOG = f"{PROVISION_FILE.rpartition('/')[0]}/environment.log"
_FOLDERS = re.compile(r"\S*/(?=\S)")
_TAIL_BYTES = 4096
_MOST_LOG = 70
_NEWS_SECONDS = 9.0
"""Between two lines of one part; with the pause between two looks at a node it is ten at most."""
_SAME_SECONDS = 60.0
"""Between two lines that differ in nothing but how long it is so."""


def name_steps(needs: JobNeeds) -> tuple[str, ...]:
    """Return the steps that a node makes, as it names them in its file."""
    data = tuple(f"data:{source.name}" for source in needs.data)
    return (*data, _ENVIRONMENT) if needs.environment is not None else data


def count_done(step: Mapping[str, Any]) -> float:
    """Return which part of a step is done, from 0 to 1."""
    total = int(step["total"])
    return 1.0 if step["state"] == _DONE else int(step["done"]) / total if total else 0.0


@dataclass
class ProvisionWatch:
    """Waits until nodes have done the steps of provisioning; `read_file` returns a file of a node."""

    read_file: Callable[[str, str], bytes]
    steps: Sequence[str]

    def wait(self, nodes: Sequence[str], give_up: float) -> None:
        """
        Wait until every node has done every step.

        Raises PromiseError if a step failed for good, or did not end before the monotonic time `give_up`.
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
            if state == _FAILED and step.get("final"):
                raise PromiseError(f"{name} of {node} failed: {detail}")
            if state != _DONE:
                missing.append(f"{name} of {node} ({state}{f', {detail}' if detail else ''})")
        return missing

    def _read(self, node: str) -> Mapping[str, Any]:
        try:
            return _parse_steps(self.read_file(node, PROVISION_FILE))
        except RehearsalError:
            return {}  # it has not begun


@dataclass
class _Shown:
    """Last line that was shown of a step, its part and its time; the line of now, and when that was first seen."""

    part: tuple[str, str] = ("", "")
    line: str = ""
    at: float = 0.0
    now: str = ""
    since: float = 0.0


@dataclass
class ProvisionProgress:
    """Lines of progress: one when a node begins another part, every ten seconds with news, every minute without."""

    clock: Callable[[], float] = time.monotonic
    _shown: dict[tuple[str, str], _Shown] = field(default_factory=lambda: defaultdict(_Shown))

    def describe(self, node: str, root: Path) -> Iterator[str]:
        """Yield the lines of a node, whose files are under `root`; a node that waits for another has none."""
        for name, step in _parse_steps(_read(root / PROVISION_FILE.lstrip("/"))).items():
            if (state := str(step.get("state"))) in (_RUNNING, _DONE, _FAILED):
                yield from self._choose(self._shown[node, name], state, step, clean(_describe_step(name, step, root)))

    def _choose(self, shown: _Shown, state: str, step: Mapping[str, Any], line: str) -> Iterator[str]:
        now, detail = self.clock(), str(step.get("detail", ""))
        if line != shown.now:
            shown.now, shown.since = line, now
        # A part is known by its verb: packages change all the time.
        part = state, detail.partition(" ")[0] if state == _RUNNING else detail
        pause = _SAME_SECONDS if line == shown.line else _NEWS_SECONDS
        if part != shown.part or (state == _RUNNING and now - shown.at >= pause):
            minutes = int(now - shown.since) // 60
            yield f"{line}, for {minutes} min" if minutes else line
            shown.part, shown.line, shown.at = part, line, now


def _describe_step(name: str, step: Mapping[str, Any], root: Path) -> str:
    state, detail = str(step["state"]), str(step.get("detail", ""))
    if state != _RUNNING:
        return f"{name} is {state}{f': {detail}' if detail else ''}"
    done, total, unit = int(step.get("done", 0)), int(step.get("total", 0)), str(step.get("unit", ""))
    if not total:  # what apt, pip and CMake do then is in their output alone
        last = _read_last_line(root / _BUILD_LOG.lstrip("/")) if name == _ENVIRONMENT else ""
        return f"{name}: {detail}" + (f" ({last})" if last else "")
    count = f"{done} of {total} {unit}" if unit == "packages" else f"{100 * done // total} %"
    return f"{name}: {detail}: {count}"


def _parse_steps(text: bytes) -> Mapping[str, Any]:
    """Return the steps of a node's file; empty for half a file."""
    try:
        steps = json.loads(text).get("steps", {})
    except (ValueError, AttributeError):
        return {}
    return steps if isinstance(steps, dict) else {}


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""  # it is not there yet, or no more


def _read_last_line(path: Path) -> str:
    """Return the last line of a log with anything in it, shortened; of addresses and paths the last part counts."""
    lines = _read(path)[-_TAIL_BYTES:].decode(errors="replace").splitlines()
    last = next((_FOLDERS.sub("", line).strip() for line in reversed(lines) if line.strip()), "")
    return last if len(last) <= _MOST_LOG else f"{last[:_MOST_LOG]} ..."
