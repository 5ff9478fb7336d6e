"""Carries the injections of a case out, on the machines of the lab and on the embedded AWS."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cdk_rehearsal.embedded_aws import EmbeddedAws
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.lab.node_faults import MetadataFault
from cdk_rehearsal.run.fleet import Fleet
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_rehearsal.cases.format.case import Injection
from deeplearning_rehearsal.cases.run.node_files import NodeFiles
from deeplearning_rehearsal.cases.run.poison import send_poison

_USER_DATA = "/var/lib/cloud/instance/scripts/part-001"
_AGENT_RETURNS_SECONDS = 120.0
_INTERVAL_SECONDS = 0.2
_LANE = "injected"


@dataclass
class Actions:
    """
    What injections do.

    Attributes:
        lab: The machines.
        fleet: The same, as the rehearsal remembers them.
        aws: The embedded AWS.
        timeline: Told each injection.
        files: Remembers the files of a target, as they were before.
    """

    lab: Lab
    fleet: Fleet
    aws: EmbeddedAws
    timeline: Timeline
    files: NodeFiles
    _timers: list[threading.Timer] = field(default_factory=list)

    def act(self, injection: Injection, instance_id: str) -> None:
        """
        Carry an injection out; returns when the fault has struck.

        Raises:
            RehearsalError: It could not be.
        """
        self.timeline.tell(_LANE, f"{injection} ({injection.when.text}) {self._name(instance_id)}".rstrip())
        self.carriers()[injection.do](self, injection, instance_id)

    @classmethod
    def carriers(cls) -> "Mapping[str, Callable[[Actions, Injection, str], None]]":
        """Return what carries out each action by its name."""
        return {
            "power_off": cls._power_off,
            "silence": lambda self, _, instance: self.lab.silence(instance),
            "restore": lambda self, _, instance: self.lab.restore(instance),
            "reboot": lambda self, _, instance: self._await_agent(instance, lambda: self.lab.reboot(instance)),
            "fail_instance": lambda self, _, instance: self._find_dead(instance),
            "run_user_data_again": cls._run_user_data_again,
            "spot_notice": cls._announce,
            "set_gpus": cls._set_gpus,
            "break_mounts": lambda self, asked, instance: self.lab.break_mounts(
                instance, asked.options["trouble"], asked.options["seconds"]
            ),
            "fill_disk": lambda self, asked, instance: self.lab.fill_disk(instance, asked.options["free_mib"] << 20),
            "slow_metadata": lambda self, asked, instance: self.lab.set_metadata_fault(
                instance, MetadataFault(delay_seconds=asked.options["seconds"])
            ),
            "stop_sshd": lambda self, _, instance: self.lab.stop_sshd(instance),
            "start_sshd": lambda self, _, instance: self.lab.start_sshd(instance),
            "run": lambda self, asked, instance: self._run(instance, asked.options["line"]),
            "send_poison": lambda self, _asked, _instance: send_poison(self.aws),
            "age_groups": lambda self, asked, _: self.aws.age_groups(asked.options["seconds"]),
            "set_workers": lambda self, asked, _: self._set_workers(asked.options["count"]),
        }

    def close(self) -> None:
        """Forget what was to happen later."""
        for timer in self._timers:
            timer.cancel()

    def _name(self, instance_id: str) -> str:
        return f"{self.fleet.lane(instance_id)} {instance_id}" if instance_id else ""

    def _power_off(self, injection: Injection, instance_id: str) -> None:
        self.fleet.cut_power(instance_id)
        seconds = injection.options["found_dead_after"]
        if seconds is not None:
            self._later(seconds, lambda: self._find_dead(instance_id))

    def _find_dead(self, instance_id: str) -> None:
        if self.aws.fail_instance(instance_id):
            self.timeline.tell(_LANE, f"EC2 finds {self._name(instance_id)} dead")

    def _announce(self, injection: Injection, instance_id: str) -> None:
        seconds = injection.options["seconds"]
        self.lab.announce_interruption(instance_id, seconds)
        self._later(seconds, lambda: self._take_back(instance_id))

    def _take_back(self, instance_id: str) -> None:
        self.fleet.cut_power(instance_id)
        self._find_dead(instance_id)

    def _set_gpus(self, injection: Injection, instance_id: str) -> None:
        self.lab.set_gpus(instance_id, **injection.options)

    def _set_workers(self, count: int) -> None:
        scaling = self.aws.place.client("autoscaling")
        role = {"Name": f"tag:{ROLE_TAG}", "Values": [NodeRole.WORKER.value]}
        for group in scaling.describe_auto_scaling_groups(Filters=[role])["AutoScalingGroups"]:
            scaling.set_desired_capacity(AutoScalingGroupName=group["AutoScalingGroupName"], DesiredCapacity=count)

    def _run_user_data_again(self, _injection: Injection, instance_id: str) -> None:
        self._await_agent(instance_id, lambda: self._run(instance_id, _USER_DATA))

    def _run(self, instance_id: str, line: str) -> None:
        answer = self.lab.run(instance_id, ["bash", "-c", line])
        if answer.returncode != 0:
            raise RehearsalError(f"{line} ended with status {answer.returncode}: {answer.stderr.strip()[-300:]}")

    def _await_agent(self, instance_id: str, action: Callable[[], None]) -> None:
        """Act, and wait until the node's agent has run again: before that nothing could have changed."""
        self.files.remember(instance_id)
        lines = self.fleet.count_lines(instance_id)
        action()
        give_up = time.monotonic() + _AGENT_RETURNS_SECONDS
        while self.fleet.count_lines(instance_id) == lines:
            if time.monotonic() > give_up:
                raise RehearsalError(f"the agent of {instance_id} must run again, it has logged nothing")
            time.sleep(_INTERVAL_SECONDS)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()
