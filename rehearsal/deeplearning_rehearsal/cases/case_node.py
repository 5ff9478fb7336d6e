"""A node of a case: what it does is waited for, and faults strike it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.node_faults import MetadataFault
from deeplearning_contract.names import NodeRole, find_role

if TYPE_CHECKING:
    from deeplearning_rehearsal.cases.case_parts import CaseParts

_USER_DATA = "/var/lib/cloud/instance/scripts/part-001"
_AGENT_RETURNS_SECONDS = 120.0
_COMMAND_SECONDS = 120.0
_INTERVAL_SECONDS = 0.2


@dataclass(frozen=True)
class CaseNode:
    """
    A machine by its role and the order of launches.

    Attributes:
        number: Counts from 1 and goes on with replacements. None: the last one launched.
    """

    run: "CaseParts"
    role: NodeRole
    number: int | None = None

    def __str__(self) -> str:
        return self.role.value if self.number is None else f"{self.role.value} {self.number}"

    @property
    def instance_id(self) -> str:
        """Its instance id; RehearsalError before it boots."""
        found = self._find()
        if found is None:
            raise RehearsalError(f"no {self} was launched")
        return found

    def _find(self) -> str | None:
        launched = self.run.fleet.launched()
        ids = [machine.instance_id for machine in launched if find_role(machine.tags) is self.role]
        number = len(ids) if self.number is None else self.number
        return ids[number - 1] if 0 < number <= len(ids) else None

    # --- What it does -------------------------------------------------------------------------------------

    def wait_for_boot(self) -> None:
        """Wait until it boots."""
        self.run.wait_for(f"boot {self}", lambda: self._find() is not None)

    def wait_for_line(self, text: str) -> None:
        """Wait until its agent logs a text."""
        self.wait_for_boot()
        self.run.wait_for(f"{self} says {text}", lambda: self.run.fleet.has_said(self.instance_id, text))

    def wait_for_step(self, step: str, part: float) -> None:
        """Wait until it has done a part, from 0 to 1, of a step of what jobs need."""
        self.wait_for_boot()
        self.run.wait_for(
            f"{self} has {part:.0%} of {step}", lambda: self.run.situation.provisioned(self.instance_id, step) >= part
        )

    def log_in(self, line: str) -> str:
        """Run a shell line in the login user's shell; return its status, and the last lines where that is not 0."""
        user = self.run.read_settings().login_user
        answer = self.run.lab.run(
            self.instance_id, ["bash", "-c", line], user=user, login_shell=True, timeout=_COMMAND_SECONDS
        )
        said = " | ".join((answer.stdout + answer.stderr).strip().splitlines()[-5:])
        return f"status {answer.returncode}" + (f": {said}" if answer.returncode else "")

    # --- Faults -------------------------------------------------------------------------------------------

    def execute(self, line: str) -> None:
        """Run a shell line as root; RehearsalError if it fails."""
        self._inject("run")
        self._execute(line)

    def power_off(self, found_dead_after: float | None = 20.0) -> None:
        """Cut the power; EC2 finds it dead so many seconds later, in truth after minutes, or never."""
        node = self._inject("power_off", stops_ranks=True)
        self.run.fleet.cut_power(node)
        if found_dead_after is not None:
            self.run.later(found_dead_after, lambda: self.run.declare_dead(node))

    def silence(self) -> None:
        """Drop all packets, while it goes on running."""
        node = self._inject("silence", stops_ranks=True)
        self.run.lab.node(node).link.set_up(up=False)

    def reboot(self) -> None:
        """Cut the power and start it again with its disk, and wait until its agent runs."""
        node = self._inject("reboot", stops_ranks=True)
        self._await_agent(node, lambda: self.run.lab.reboot(node))

    def run_user_data_again(self) -> None:
        """Run its user data a second time, and wait until its agent runs."""
        node = self._inject("run_user_data_again")
        self._await_agent(node, lambda: self._execute(_USER_DATA))

    def announce_interruption(self, seconds: float) -> None:
        """Announce that EC2 takes it back in so many seconds, two minutes as a rule, and take it back."""
        node = self._inject("announce_interruption", stops_ranks=True)
        self.run.lab.node(node).metadata.announce_interruption(seconds)

        def take_back() -> None:
            self.run.fleet.cut_power(node)
            self.run.declare_dead(node)

        self.run.later(seconds, take_back)

    def set_gpus(self, count: int, *, ecc_errors: int = 0, answer_seconds: float = 0.0) -> None:
        """Let nvidia-smi show so many GPUs and uncorrected ECC errors, so much later."""
        node = self._inject("set_gpus")
        self.run.lab.node(node).set_gpus(count=count, ecc_errors=ecc_errors, answer_seconds=answer_seconds)

    def set_driver(self, version: str, *, cuda: str) -> None:
        """Let its GPUs have a driver of a version, and its image a version of CUDA."""
        node = self._inject("set_driver")
        self.run.lab.node(node).set_driver(version, cuda=cuda)

    def break_mounts(self, trouble: Literal["hang", "unresolvable"], seconds: float) -> None:
        """Let mounts that begin now hang, or not resolve their server, for a time."""
        node = self._inject("break_mounts")
        self.run.lab.node(node).break_mounts(trouble, seconds)

    def fill_disk(self, free_mib: int = 0) -> None:
        """Fill the disk, but for a rest."""
        node = self._inject("fill_disk")
        self.run.lab.node(node).disk.fill(free_mib << 20)

    def slow_metadata(self, seconds: float) -> None:
        """Let its metadata service answer so much later."""
        node = self._inject("slow_metadata")
        self.run.lab.node(node).metadata.fault = MetadataFault(delay_seconds=seconds)

    def stop_sshd(self) -> None:
        """Stop its SSH server."""
        self.run.lab.node(self._inject("stop_sshd")).control_sshd("stop")

    def start_sshd(self) -> None:
        """Start its SSH server."""
        self.run.lab.node(self._inject("start_sshd")).control_sshd("start")

    def _inject(self, what: str, *, stops_ranks: bool = False) -> str:
        """Record an injection, and return the instance id."""
        self.run.inject(f"{what} {self}", self.instance_id, stops_ranks=stops_ranks)
        return self.instance_id

    def _execute(self, line: str) -> None:
        answer = self.run.lab.run(self.instance_id, ["bash", "-c", line])
        if answer.returncode != 0:
            raise RehearsalError(f"{line} ended with status {answer.returncode}: {answer.stderr.strip()[-300:]}")

    def _await_agent(self, node: str, action: Callable[[], None]) -> None:
        """Act, and wait until the agent has run again; RehearsalError if it does not."""
        self.run.files.remember(node)
        lines = self.run.fleet.count_lines(node)
        action()
        give_up = time.monotonic() + _AGENT_RETURNS_SECONDS
        while self.run.fleet.count_lines(node) == lines:
            if time.monotonic() > give_up:
                raise RehearsalError(f"the agent of {node} must run again, it has logged nothing")
            time.sleep(_INTERVAL_SECONDS)
