"""One instance of the model: its disk, its boots, the agent that runs on it and the user's run script."""

import hashlib
import os
import pwd
import shutil

from model_clients import URL, Caller
from model_programs import ModelPrograms
from model_scheduler import Killed, VirtualClock

from deeplearning_agent.instance_metadata import Identity
from deeplearning_agent.master import Master
from deeplearning_agent.node import Node
from deeplearning_agent.worker import Worker
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_contract.settings import FileSystemSettings, NodeSettings, ScriptSettings

CLUSTER = "master-of-names"
ROLE_IDS = {NodeRole.MASTER: "AROAMASTERMASTERMAST", NodeRole.WORKER: "AROAWORKERWORKERWORK"}
RESTART_SECONDS = 5
"""What systemd waits before it starts the agent again."""
JUDGEMENT_SECONDS = 20
"""How old a finding may be by which the master acts: two silent rounds and the calls in between."""
RUN_SCRIPT = b"#!/bin/sh\ntrain\n"
SCRIPT = ScriptSettings("scripts", "run", hashlib.sha256(RUN_SCRIPT).hexdigest())
USER = pwd.getpwuid(os.getuid()).pw_name


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
        self.is_ruined = False
        """Its preparation fails."""
        self.is_sick = False
        """It answers, and an inspection finds that it is of no use."""
        self.is_interrupted = False
        """EC2 has said that it takes it."""
        self.membership = None
        """The state that is installed, where the files are only noted."""
        self.script = None
        self.task = None
        self.duty = None
        self._clock = None
        self._crash = None
        self._unsound = 0.0

    @property
    def answers(self):
        """Whether others reach it."""
        return self.is_alive and self._clock is not None and not self.is_silent and not self.is_cut_off

    @property
    def has_been_sound(self):
        """Whether it has answered, and reached AWS, for as long as a judgement of it may be old."""
        return self.answers and not self.is_sick and self.world.scheduler.now - self._unsound >= JUDGEMENT_SECONDS

    @property
    def root(self):
        """Where its disk lies."""
        return self.world.directory / self.instance_id

    def path(self, absolute):
        return self.root / str(absolute).removeprefix(str(self.root)).lstrip("/")

    @property
    def uptime(self):
        """Seconds since it booted."""
        return self._clock.read()

    def silence(self, seconds):
        """Let nobody reach it for a while; it reaches AWS."""
        self.is_silent = True
        self.world.scheduler.at(seconds, self.heal)

    def cut_off(self, seconds):
        """Let it reach nobody and be reached by nobody for a while."""
        self.is_cut_off = True
        self.world.scheduler.at(seconds, self.heal)

    def heal(self):
        """Let it be as it should."""
        if self.is_silent or self.is_cut_off:
            self._unsound = self.world.scheduler.now
        self.is_silent = self.is_cut_off = False

    def calm(self):
        """Let nothing that was to happen to it happen any more."""
        self.heal()
        self._crash = None

    def boot(self, delay):
        """Let it boot: its clock starts anew and /run is empty."""
        shutil.rmtree(self.root / "run", ignore_errors=True)
        self._clock = None
        self.world.scheduler.at(delay, self._start_up)

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
        identity = Identity(self.instance_id, self.address)
        return Node(self.world.settings(self.role), identity, self.root, ModelPrograms(self), self._clock)

    def describe(self):
        """Return the member that its preparation ends with."""
        return Member(self.instance_id, self.address, 2, f"ssh-ed25519 {self.number:020d}host")

    def _start_up(self):
        if self.is_alive and self._clock is None:
            self._clock = VirtualClock(self.world.scheduler)
            self._unsound = self.world.scheduler.now
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
        self.duty = make(self.node(), Caller(self.world.cloud, self))
        self.duty.run()


def make_settings(role, *, minimum, setup_seconds, has_script):
    """Return the settings of a role's nodes."""
    is_master = role is NodeRole.MASTER
    return NodeSettings(
        cluster=CLUSTER,
        role=role,
        region="eu-west-1",
        state_table="state",
        master_queue_url=f"{URL}master",
        worker_queue_url=f"{URL}worker",
        report_queue_url=f"{URL}report",
        report_sender=ROLE_IDS[NodeRole.WORKER] if is_master else "",
        signal_url="https://signal.example/" if is_master else "",
        login_user=USER,
        file_system=FileSystemSettings("nfs4", "fs-0123.efs.eu-west-1.amazonaws.com:/", "nfsvers=4.1", "/mnt/efs"),
        expected_gpu_count=2,
        packages={},
        worker_min_capacity=minimum,
        setup_seconds=setup_seconds,
        run_script=SCRIPT if has_script else None,
    )
