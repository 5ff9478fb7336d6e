"""One instance of the model: its disk, its boots, the agent that runs on it and the user's run script."""

import functools
import shutil

from model_clients import Caller
from model_programs import ModelPrograms
from model_settings import ROLE_IDS

from deeplearning_agent.master import Master
from deeplearning_agent.worker import Worker
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from tests.unit.virtual_time import Killed, VirtualClock

GPUS = 2
"""GPUs of the instance type."""
PATIENCE_SECONDS = 60
"""Longest silence of a node before it is replaced."""
RESTART_SECONDS = 5
"""Time that systemd waits before it restarts the agent."""
JUDGEMENT_SECONDS = 20
"""Greatest age of a finding on which the master acts: two silent rounds and the calls in between."""


class Machine:
    """One EC2 instance."""

    def __init__(self, world, role, number, address):
        self.world = world
        self.role = role
        self.number = number
        self.instance_id = f"i-{number:017x}"
        self.address = address
        self.sender = f"{ROLE_IDS[role]}:{self.instance_id}"
        self.is_alive = True
        self.is_silent = False
        """Nothing that others send reaches it; it goes on, and reaches AWS unless `is_cut_off`."""
        self.is_cut_off = False
        self.is_deaf = False
        """It hears no answer of other nodes; they and AWS are reached by everybody else."""
        self.is_ruined = False
        """Its preparation fails."""
        self.is_stuck = False
        """Its preparation takes all the time that there is."""
        self.died = None
        self.is_sick = False
        """It answers, and an inspection finds that it is of no use."""
        self.gpu_count = GPUS
        self.is_stolen = False
        """Somebody else reports in its name."""
        self.found_out = None
        """Time at which its owner found out and terminated it; None before."""
        self.is_interrupted = False
        """EC2 has said that it takes it."""
        self.membership = None
        """The state that is installed, where the files are only noted."""
        self.script = None
        self.task = None
        self.agent_role = None
        self._clock = None
        self._crash = None
        self._boots = 0
        self._unsound = self._booted = 0.0
        self._silent_since = None

    @property
    def answers(self):
        """True if other nodes reach it."""
        return self.is_alive and self._clock is not None and not self.is_silent and not self.is_cut_off

    @property
    def has_been_sound(self):
        """True if it has responded, and reached AWS, for as long as a judgement of it may be old."""
        return (
            self.answers
            and not self.is_sick
            and not self.is_useless
            and not self.is_deaf
            and self.world.scheduler.now - self._unsound >= JUDGEMENT_SECONDS
        )

    @property
    def root(self):
        """Folder of its disk."""
        return self.world.directory / self.instance_id

    def path(self, absolute):
        return self.root / str(absolute).removeprefix(str(self.root)).lstrip("/")

    @property
    def has_had_trouble(self):
        """True if it was lost, cut off or down for a time, or cannot do its work."""
        return bool(
            self.died
            or self._boots > 1
            or self._unsound > self._booted
            or self._silent_since
            or self.is_cut_off
            or self.is_deaf
            or self.is_ruined
            or self.is_stuck
            or self.is_sick
            or self.is_interrupted
            or self.is_useless
        )

    @property
    def is_useless(self):
        """True if it responds and cannot do its work, or does another's."""
        return self.is_ruined or self.is_stolen or self.gpu_count < GPUS

    @property
    def is_silent_for_a_moment(self):
        """True if it is there, and was silent for too short a time to be given up."""
        since = self._silent_since
        return self.is_alive and since is not None and self.world.scheduler.now - since < PATIENCE_SECONDS

    @property
    def is_given_up(self):
        """True if it was silent for long enough to be given up."""
        return self._silent_since is not None and not self.is_silent_for_a_moment

    @property
    def uptime(self):
        """Seconds since it booted."""
        return self._clock.read()

    def silence(self, seconds):
        """Let nobody reach it for a while; it reaches AWS."""
        self.is_silent = True
        self._silent_since = self._silent_since or self.world.scheduler.now
        self.world.scheduler.at(seconds, self.heal)

    def cut_off(self, seconds):
        """Let it reach nobody and be reached by nobody for a while."""
        self.is_cut_off = True
        self._silent_since = self._silent_since or self.world.scheduler.now
        self.world.scheduler.at(seconds, self.heal)

    def deafen(self, seconds):
        """Let it hear no other node for a while."""
        self.is_deaf = True
        self.world.scheduler.at(seconds, self.heal)

    def heal(self):
        """Let it be as it should."""
        if self.is_silent or self.is_cut_off or self.is_deaf:
            self._unsound = self.world.scheduler.now
        self.is_silent = self.is_cut_off = self.is_deaf = False
        self._silent_since = None

    def calm(self):
        """Let nothing that was to happen to it happen any more."""
        self.heal()
        self._crash = None

    def boot(self, delay):
        """Let it boot: its clock starts anew and /run is empty."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        self._clock = None
        self._boots += 1
        self.world.scheduler.at(delay, functools.partial(self._start_up, self._boots))

    def reboot(self, delay):
        """Let it go down and come back with its disk."""
        self.stop()
        self.boot(delay)

    def stop(self):
        """End all of its processes."""
        self._clock = None
        if self.task is not None:
            self.world.scheduler.kill(self.task)
            self.task = None
        if self.script is not None:
            self.script.kill()
            self.script = None

    def die(self):
        """Let it be gone for good."""
        self.is_alive = False
        self.died = self.world.scheduler.now
        self.stop()

    def crash_at(self, call, moment):
        """Let its agent die before or after a call from now."""
        self._crash = (call, moment)

    def count_call(self):
        """Count down to the crash; return when it is to happen."""
        if self._crash is None:
            return ""
        left, moment = self._crash
        self._crash = (left - 1, moment) if left else None
        return "" if left else moment

    def crash(self):
        """Let the agent's process die at the present call; the service starts it again."""
        self.task.is_killed = True
        self.task = None
        self._start_later(self._clock)
        raise Killed

    def kill_agent(self):
        """Let the agent's process die where it is; the service starts it again."""
        if self.task is not None:
            self.world.scheduler.kill(self.task)
            self.task = None
            self._start_later(self._clock)

    def node(self):
        """Return the machine as the agent sees it."""
        identity = Identity(self.instance_id, self.address, ("10.0.0.0/8",))
        return Node(self.world.settings(self.role), identity, self.root, ModelPrograms(self), self._clock)

    def describe(self):
        """Return the member that its preparation ends with."""
        return Member(self.instance_id, self.address, self.gpu_count, f"ssh-ed25519 {self.number:020d}host")

    def _start_up(self, number):
        if self.is_alive and number == self._boots:
            self._clock = VirtualClock(self.world.scheduler)
            self._unsound = self._booted = self.world.scheduler.now
            self.start_agent()

    def _start_later(self, clock):
        def start():
            if self.is_alive and self.task is None and self._clock is clock:
                self.start_agent()

        self.world.scheduler.at(RESTART_SECONDS, start)

    def start_agent(self):
        """Start the agent's process."""
        self.task = self.world.scheduler.start(self.instance_id, self._run)

    def _run(self):
        make = Master if self.role is NodeRole.MASTER else Worker
        self.agent_role = make(self.node(), Caller(self.world.cloud, self))
        self.agent_role.run()
