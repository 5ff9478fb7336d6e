"""A rehearsal as a check sees it: the machines, the stacks, and clients of the embedded AWS."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.errors import PromiseError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.fleet import Fleet

if TYPE_CHECKING:
    from subprocess import CompletedProcess

_PAUSE_SECONDS = 0.5
_CONNECT_SECONDS = 15.0


@dataclass(frozen=True)
class Run:
    """
    A rehearsal whose stacks have ended, and whose machines run.

    Attributes:
        stacks: How the stacks ended, by their names in the order of their deployment.
        lab: The machines' lab, with further faults.
        fleet: The machines as the timeline names them.
        aws: The embedded AWS.
    """

    stacks: Mapping[str, StackOutcome]
    lab: Lab
    fleet: Fleet
    aws: EmbeddedAws

    @property
    def stack(self) -> StackOutcome:
        """The end of the last stack."""
        return tuple(self.stacks.values())[-1]

    @property
    def machines(self) -> tuple[Machine, ...]:
        """The machines that run, by address; one that is launched is among them once a program can be started there."""
        return tuple(each for each in self.fleet.machines() if each.instance_id in self.fleet.booted_at)

    def client(self, service: str) -> Any:
        """Return a boto3 client of the embedded AWS, with the rights of the account's administrator."""
        return self.aws.place.client(service)

    def execute(
        self,
        machine: Machine,
        argv: Sequence[str],
        *,
        user: str | None = None,
        login_shell: bool = False,
        timeout: float = 60,
    ) -> "CompletedProcess[str]":
        """
        Run a program in a machine.

        Args:
            machine: Which machine.
            argv: The program and its arguments.
            user: As whom. Default: root.
            login_shell: Whether through a login shell. Default: with a bare environment.
            timeout: Seconds after which it is killed; its status is then 137. Default: 60.

        Raises:
            RehearsalError: The machine is off.
        """
        return self.lab.run(machine.instance_id, argv, user=user, login_shell=login_shell, timeout=timeout)

    def power_off(self, machine: Machine) -> None:
        """Cut the power of a machine, and let EC2 and its group find it dead at once."""
        self.fleet.cut_power(machine.instance_id)
        self.aws.fail_instance(machine.instance_id)

    def reboot(self, machine: Machine) -> None:
        """Cut the power of a machine and start it again; user data does not run again."""
        self.lab.reboot(machine.instance_id)

    def wait_until(self, condition: Callable[[], bool], seconds: float = 60) -> None:
        """
        Wait until a condition holds.

        Args:
            condition: Returns whether it holds.
            seconds: Longest wait. Default: 60.

        Raises:
            AssertionError: It did not hold in time.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() >= deadline:
                raise AssertionError(f"{getattr(condition, '__name__', 'the condition')} did not hold in {seconds:g} s")
            time.sleep(_PAUSE_SECONDS)


def check_sessions(session_manager: Any, instance_ids: Iterable[str]) -> None:
    """Start a session on each machine as people do who log in; PromiseError when its agent does not answer."""
    for instance_id in instance_ids:
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            try:
                session_manager.start_session(Target=instance_id)
                break
            except ClientError as error:  # the agent of a node that just booted may still be connecting
                if time.monotonic() > deadline:
                    raise PromiseError(f"{instance_id} must be reached through Session Manager: {error}") from error
            time.sleep(_PAUSE_SECONDS)
