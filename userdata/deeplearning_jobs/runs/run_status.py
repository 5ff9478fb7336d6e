"""Status of a run and liveness of its supervisor."""

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from deeplearning_contract.document import parse_record

PROC = Path("/proc")
START_FIELD = 19
"""Index of the start time, in ticks since the boot, behind the command's name in /proc/<pid>/stat (proc(5))."""
ENDED_STATES = frozenset("XZ")


@dataclass(frozen=True)
class Supervisor:
    """
    Process that supervises a run; boot id and start, in ticks since the boot, distinguish it from a later process.
    """

    instance_id: str
    boot: str
    process_id: int
    started: int

    @classmethod
    def of_process(cls, instance_id: str, process_id: int) -> "Supervisor":
        """Describe a process of this node; OSError where there is none of that id."""
        return cls(instance_id, _read_boot(), process_id, _read_start(process_id))

    def is_alive_on(self, instance_id: str) -> bool:
        """Return whether it runs on this node, which is the instance."""
        try:
            return self == Supervisor.of_process(instance_id, self.process_id)
        except OSError:
            return False


@dataclass(frozen=True)
class RunStatus:
    """Status of a run; status.json holds these fields."""

    job: str
    run: int
    launcher: str
    # `running` until the end is known; `retrying` after a failure while the supervisor waits to start the next run
    state: Literal["running", "retrying", "succeeded", "failed", "stopped"]
    status: int | None  # Exit status of the job; None while it runs
    started: str  # UTC
    ended: str  # UTC; empty while it runs
    hosts: tuple[str, ...]  # Names of the hosts that take part
    cause: str  # Cause of a failure or a stop, in one line
    resumed_from: str  # The checkpoint that the run resumed from; empty for none
    supervisor: Supervisor

    def to_text(self) -> str:
        """Return the JSON document."""
        return json.dumps(asdict(self), indent=2) + "\n"

    @classmethod
    def from_text(cls, text: str) -> "RunStatus":
        """Read the JSON document; ContractError where it has another shape."""
        return parse_record(cls, text, "status")

    def end(
        self,
        state: Literal["retrying", "succeeded", "failed", "stopped"],
        status: int | None,
        ended: str,
        cause: str = "",
    ) -> "RunStatus":
        """Return the status of the same run after its end."""
        return replace(self, state=state, status=status, ended=ended, cause=cause)

    def is_running_on(self, instance_id: str) -> bool:
        """Return whether it runs, or is to run again, and its supervisor is alive on this instance."""
        return self.state in ("running", "retrying") and self.supervisor.is_alive_on(instance_id)


def _read_boot() -> str:
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _read_start(process_id: int) -> int:
    # The command's name may contain blanks and parentheses; the fields follow its last one.
    fields = (PROC / str(process_id) / "stat").read_text().rpartition(")")[2].split()
    if fields[0] in ENDED_STATES:
        raise ProcessLookupError(f"process {process_id} has ended and was not waited for")
    return int(fields[START_FIELD])
