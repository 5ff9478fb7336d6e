"""The machines of a rehearsal: boots them in the lab, remembers them, and reads what they log and bring."""

import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cdk_rehearsal.embedded_aws.base.observation import Observation
from cdk_rehearsal.embedded_aws.base.stack_record import StackEvent
from cdk_rehearsal.errors import PromiseError, RehearsalError
from cdk_rehearsal.lab import Lab
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.run.timeline import Timeline

_INTERVAL_SECONDS = 0.5
# Lines of a log may begin with a time and a level; the timeline has its own times, and only a warning's level tells.
_LOG_PREFIX = re.compile(r"^\S+Z (?:INFO )?")
_LANES = {"stack": "stack", "signal": "stack"}
USER_DATA_LOG = "/var/log/cloud-init-output.log"
USER_DATA_PART = re.compile(
    r"running 'modules:final'[^\n]*\n(.*?)(?:^Cloud-init v|^ci-info:|\Z)", re.DOTALL | re.MULTILINE
)
"""File of cloud-init with the output of user data, and the part of it that does not come from cloud-init."""
_TELLING_TYPES = (
    "AWS::AutoScaling::AutoScalingGroup",
    "AWS::CloudFormation::Stack",
    "AWS::CloudFormation::WaitCondition",
)


AGENT_ACTIONS = ("ssm:UpdateInstanceInformation", "ssmmessages:")
"""Calls of the agent of Session Manager, which runs on each image, whatever the role allows."""
SIGNAL = "signal with UniqueId"
"""Part of the events of signals to a resource."""


@dataclass
class Billed:
    """The time for which EC2 bills a machine: monotonic moments of its launch, its loss of power and its end."""

    since: float
    died: float = math.inf
    until: float = math.inf


@dataclass(eq=False)
class Fleet:
    """
    Passes machines on to the lab and what happens to them on to the timeline.

    Attributes:
        prepare: Called with each machine before it boots. Default: nothing is done.
        follow: Returns further lines of a machine's track, by its instance id and its files. Default: none.
        log_file: The log of every machine that the timeline shows. Default: the output of user data.
        log_part: Matches the part of the log that it shows, in its first group. Default: shows all.
        name: Returns the track of a machine, in front of the end of its address. Default: `machine`.
        order: Returns the key by which machines are sorted. Default: their address.
        events_lane: The track of groups, topics and functions. Default: `aws`.
        on_end: Called with the id of a machine that ended by itself. Default: nothing is done.
    """

    lab: Lab
    timeline: Timeline
    prepare: Callable[[Machine], None] = lambda _machine: None
    follow: Callable[[str, Path], Iterable[str]] = lambda _id, _root: ()
    log_file: str = USER_DATA_LOG
    log_part: re.Pattern[str] | None = None
    name: Callable[[Machine], str] = lambda _machine: "machine"
    order: Callable[[Machine], Any] = lambda machine: machine.address
    events_lane: str = "aws"
    on_end: Callable[[str], object] = lambda _id: None

    def __post_init__(self) -> None:
        self._machines: dict[str, Machine] = {}
        self._launched: dict[str, Machine] = {}
        self._logs: dict[str, list[str]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.launched_at: float | None = None
        self.signalled_at: float | None = None
        self.last_signal_at: float | None = None
        self._reported_agent = False
        self.refused_at: float | None = None
        self.booted_at: dict[str, float] = {}
        self.billed: dict[str, Billed] = {}
        self.spoke_at = time.monotonic()
        self._reader = threading.Thread(target=self._follow_logs, name="logs", daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._reader.join()

    def boot(self, machine: Machine) -> None:
        """Start a machine in the lab; what is prepared for it costs it no time."""
        self.prepare(machine)
        with self._lock:
            self._machines[machine.instance_id] = self._launched[machine.instance_id] = machine
            self.launched_at = self.launched_at or time.monotonic()
            self.billed[machine.instance_id] = Billed(time.monotonic())
        self.timeline.report(self.lane(machine.instance_id), f"boots {machine.instance_type} at {machine.address}")
        self.lab.boot(machine)
        with self._lock:
            self.booted_at[machine.instance_id] = time.monotonic()

    def power_off(self, instance_id: str) -> None:
        """End a machine of the lab, which may have lost its power before, or never have booted."""
        if instance_id in self._machines:
            self._end(instance_id, "is powered off")
        if instance_id in self.billed:
            self.billed[instance_id].until = time.monotonic()

    def cut_power(self, instance_id: str) -> None:
        """End a machine of the lab, while EC2 goes on taking it for running; PromiseError when it does not run."""
        if instance_id not in self._machines:
            raise PromiseError(f"{instance_id} must run to lose its power, it does not")
        self._end(instance_id, "loses its power")
        self.billed[instance_id].died = time.monotonic()

    def observe(self, observation: Observation) -> None:
        """Put what the embedded AWS observed on the timeline."""
        if observation.topic == "signal" or SIGNAL in observation.text:
            self.last_signal_at = observation.at
        if observation.topic == "signal":
            self.signalled_at = self.signalled_at or observation.at
        if observation.topic == "scaling" and observation.text.startswith("launch failed"):
            self.refused_at = self.refused_at or observation.at
        if not _is_telling(observation) or self._is_repeated_denial(observation):
            return
        is_machine = observation.subject in self._launched
        lane = self.lane(observation.subject) if is_machine else _LANES.get(observation.topic, self.events_lane)
        self.timeline.report(lane, self._shorten(observation))

    def formation_seconds(self) -> float | None:
        """Return the time from the first launch to the first signal; None while one of them is missing."""
        if self.launched_at is None or self.signalled_at is None:
            return None
        return self.signalled_at - self.launched_at

    def machines(self) -> tuple[Machine, ...]:
        """Return the machines that run, sorted by the order of this fleet."""
        with self._lock:
            machines = tuple(self._machines.values())
        return tuple(sorted(machines, key=self.order))

    def launched(self) -> tuple[Machine, ...]:
        """Return every machine that has begun to run, whether it still does or not, in that order."""
        with self._lock:
            return tuple(self._launched[instance_id] for instance_id in self.booted_at)

    def disk(self, instance_id: str) -> Path:
        """Return the folder under which a machine's files can be read."""
        return self.lab.disk(instance_id)

    def count_lines(self, instance_id: str) -> int:
        """Return how many lines a machine has logged, as far as they were read."""
        return len(self._logs.get(instance_id, ()))

    def has_said(self, instance_id: str, text: str) -> bool:
        """Return whether a machine has logged a text."""
        return any(text in line for line in tuple(self._logs.get(instance_id, ())))

    def lane(self, instance_id: str) -> str:
        """Return the track of a machine in the timeline: its name and the end of its address."""
        machine = self._launched.get(instance_id)
        if machine is None:
            return instance_id
        return f"{self.name(machine)} {machine.address.rsplit('.', 1)[1]}"

    def _follow_logs(self) -> None:
        while not self._stop.wait(_INTERVAL_SECONDS):
            for machine in self.machines():
                lines = self._lines(machine.instance_id)
                for line in lines[self.count_lines(machine.instance_id) :]:
                    self.spoke_at = time.monotonic()
                    self.timeline.report(self.lane(machine.instance_id), _LOG_PREFIX.sub("", line))
                if lines:  # else it was powered off just now, and its disk is gone
                    self._logs[machine.instance_id] = lines
                with suppress(RehearsalError):  # powered off just now
                    self._notice_end(machine.instance_id)
                    for text in self.follow(machine.instance_id, self.disk(machine.instance_id)):
                        self.timeline.report(self.lane(machine.instance_id), text)

    def _notice_end(self, instance_id: str) -> None:
        """Start a machine again that reboots by itself; of one that ends otherwise, EC2 sees that it has stopped."""
        if (end := self.lab.node(instance_id).ended()) == "reboot":
            self.timeline.report(self.lane(instance_id), "reboots by itself")
            self.lab.reboot(instance_id)
        elif end:
            self._end(instance_id, "powers itself off" if end == "off" else f"its first process ended with {end}")
            self.billed[instance_id].until = time.monotonic()
            self.on_end(instance_id)

    def _end(self, instance_id: str, text: str) -> None:
        self.timeline.report(self.lane(instance_id), text)
        self.lab.power_off(instance_id)
        with self._lock:
            self._machines.pop(instance_id, None)

    def _shorten(self, observation: Observation) -> str:
        """Leave out what a track says already: the service's prefix, and a function's long generated name."""
        if observation.topic == "message":
            return f"event {observation.text.removeprefix('autoscaling:')}"
        if observation.topic == "invocation":
            return observation.text.replace(observation.subject, self.events_lane)
        return observation.text

    def lines(self, instance_id: str) -> tuple[str, ...]:
        """Return the lines that a machine has logged, as far as they were read."""
        return tuple(self._logs.get(instance_id, ()))

    def read_log(self, instance_id: str) -> str:
        """Return the log file of a machine as it is; empty where it is not there yet, or the machine no more."""
        try:
            return (self.lab.disk(instance_id) / self.log_file.lstrip("/")).read_text(errors="replace")
        except (OSError, RehearsalError):
            return ""

    def _is_repeated_denial(self, observation: Observation) -> bool:
        """Of the denials of the agent of Session Manager, which tries again and again, the first is reported."""
        if observation.topic != "refusal" or not any(action in observation.text for action in AGENT_ACTIONS):
            return False
        is_repeated, self._reported_agent = self._reported_agent, True
        return is_repeated

    def _lines(self, instance_id: str) -> list[str]:
        text = self.read_log(instance_id)
        if self.log_part is not None:
            part = self.log_part.search(text)
            text = part[1] if part else ""
        return text[: text.rfind("\n") + 1].splitlines()


def _is_telling(observation: Observation) -> bool:
    event = observation.detail.get("event")
    if isinstance(event, StackEvent):
        return event.resource_type in _TELLING_TYPES or event.status.endswith("_FAILED")
    return "machine" not in observation.detail  # that it boots is said by the one who boots it
