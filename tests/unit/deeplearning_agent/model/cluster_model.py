"""
A cluster of real agents in virtual time: N instances, the groups that replace them, AWS, and a simple adjuster.

The agents run their duties as they are, from `run()` on. What a machine would do beside them is the model's: preparing
the node, answering others on the network, and writing the files of a membership (which is noted instead, so that a
thousand nodes cost seconds). Every write of the state item, every installation, signal and start of the run script is
checked when it happens; see `model_promises`.
"""

import contextlib
import functools
import logging
import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from model_adjuster import Adjuster
from model_aws import Cloud
from model_machine import Machine
from model_programs import Script
from model_promises import Promises
from model_settings import CLUSTER, RUN_SCRIPT, make_settings
from model_stand_ins import put_in_place

from deeplearning_contract.cluster_state import ClusterState, Phase, part_requests
from deeplearning_contract.messages import ClusterNotification
from deeplearning_contract.names import NodeRole
from tests.unit.virtual_time import Scheduler

HISTORY_LINES = 400
MEMORY = Path("/dev/shm")
"""Fastest place for disks, on a machine that has it."""
RETRY_SECONDS = 30
"""Time after which a group retries a failed launch."""
CALM_SECONDS = 180
"""Longest time in which a late message or a retried call may still have an effect."""


class World:
    """Everything outside of the agents' code."""

    def __init__(
        self, directory, seed=0, *, workers=3, minimum=1, setup_seconds=900, script_seconds=None, boot=(5, 40)
    ):
        self.directory = directory
        self.scheduler = Scheduler(seed)
        self.cloud = Cloud(self.scheduler)
        self.machines = {}
        self.signals = []
        self.history = []
        self.minimum = minimum
        self.setup_seconds = setup_seconds
        self.script_seconds = script_seconds
        """After how long the run script ends with status 0. Default: never."""
        self.boot_seconds = boot
        self.desired = {NodeRole.MASTER: 1, NodeRole.WORKER: workers}
        self.bad_weather = -CALM_SECONDS
        self.has_capacity = True
        """True if a lost instance can be replaced."""
        self.free_addresses = []
        """Addresses of the dead, which EC2 gives to others."""
        self.promises = Promises(self)
        self.adjuster = Adjuster(self)
        self.cloud.objects["scripts", "run"] = RUN_SCRIPT
        self.cloud.health_reports.append(self._take_health_report)
        for role, count in self.desired.items():
            for _ in range(count):
                self.launch(role)

    # What AWS does

    def launch(self, role):
        """Let a group launch an instance."""
        number = len(self.machines)
        address = f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}"
        if self.free_addresses and self.scheduler.random.random() < 0.5:
            address = self.free_addresses.pop()
        machine = Machine(self, role, number, address)
        self.machines[machine.instance_id] = machine
        machine.boot(self.scheduler.random.uniform(*self.boot_seconds))
        self.note(f"{role.value} {machine.instance_id} launches")
        return machine

    def live(self, role):
        """Return the instances of a group that are there."""
        return [machine for machine in self.machines.values() if machine.is_alive and machine.role is role]

    def show_host_key(self, address):
        """Return what ssh-keyscan prints of an address, nothing where nobody answers."""
        here = [machine for machine in self.machines.values() if machine.answers and machine.address == address]
        return "".join(f"{address} {machine.describe().host_key}\n" for machine in here)

    def terminate(self, machine, *, is_replaced=True):
        """Let an instance be gone; its group replaces it while there is capacity."""
        if not machine.is_alive:
            return
        self.note(f"{machine.role.value} {machine.instance_id} is gone")
        machine.die()
        self.free_addresses.append(machine.address)
        if is_replaced:
            self.scheduler.at(self.scheduler.random.uniform(20, 60), lambda: self._replace(machine.role))

    def _replace(self, role):
        if len(self.live(role)) >= self.desired[role]:
            return
        if self.has_capacity:
            self.launch(role)
        else:
            self.scheduler.at(RETRY_SECONDS, lambda: self._replace(role))

    def resize(self, change):
        """Let the user change the number of workers; a smaller group terminates its newest."""
        count = self.desired[NodeRole.WORKER] = max(self.minimum, self.desired[NodeRole.WORKER] + change)
        live = self.live(NodeRole.WORKER)
        for machine in live[count:]:
            self.terminate(machine, is_replaced=False)
        for _ in range(count - len(live)):
            self._replace(NodeRole.WORKER)

    def _take_health_report(self, caller, instance_id, status):
        self.note(f"{caller.instance_id} reports {instance_id} {status}")
        machine = self.machines[instance_id]
        self.promises.check_health_report(caller, machine, status)
        self.scheduler.at(5, lambda: self.terminate(machine))

    def ring(self, generation):
        """Let an old ring come to every queue that has rings."""
        for name in ("master", "worker"):
            self.cloud.send(name, ClusterNotification(CLUSTER, generation).to_body(), "AROAADJUSTERADJUSTER:adjuster")

    # What agents do to it

    def take_signal(self, body):
        """Stand for CloudFormation."""
        self.promises.check_signal(body)
        self.note(f"signal {body.decode()}")
        self.signals.append(body)

    def run_script(self, machine, status_file):
        """Let the user's run script run on a machine."""
        self.note(f"{machine.instance_id} starts the run script")
        self.promises.check_script_start(machine)
        machine.script = Script(machine, status_file)
        self.scheduler.at(self.script_seconds, functools.partial(machine.script.end, 0))

    # What the test looks at

    def settings(self, role):
        """Return the settings of a role's nodes."""
        return make_settings(role, setup_seconds=self.setup_seconds, has_script=self.script_seconds is not None)

    def read(self):
        """Return the state; None while there is no item."""
        item = self.cloud.items.get(CLUSTER)
        if item is None:
            return None
        keys = [request["Key"]["cluster"]["S"] for request in part_requests("state", item)]
        return ClusterState.from_item(item, [self.cloud.items[key] for key in keys])

    def note(self, line):
        """Keep a line for whoever reads why a promise was broken."""
        self.history.append(f"{self.scheduler.now:9.2f} {line}")

    def run(self, seconds):
        """
        Let time pass.

        Raises:
            AssertionError: A promise was broken; the history is in its notes.
        """
        try:
            self.scheduler.run(seconds)
        except BaseException as error:
            self.explain(error)
            raise

    def explain(self, error):
        """Add the history to an error."""
        error.add_note("\n".join(self.history[-HISTORY_LINES:]))

    @property
    def is_calm(self):
        """True if the weather has been good for so long that no node waits for anything."""
        return self.cloud.weather.is_good and self.scheduler.now - self.bad_weather >= CALM_SECONDS

    def set_weather(self, weather):
        """Let the weather change."""
        if not self.cloud.weather.is_good:
            self.bad_weather = self.scheduler.now
        self.cloud.weather = weather

    def run_until(self, condition, limit, step=5.0):
        """Let time pass until something holds; return whether it came to hold."""
        end = self.scheduler.now + limit
        while not condition() and self.scheduler.now < end:
            self.run(step)
        return condition()

    @property
    def is_decided(self):
        """True if the cluster formed or failed."""
        state = self.read()
        return state is not None and state.phase in (Phase.FORMED, Phase.FAILED)


@contextlib.contextmanager
def run_world(**options):
    """Put a world in the place of everything that an agent's code reaches; end all agents afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="cluster-model-", dir=MEMORY if MEMORY.is_dir() else None))
    level = logging.root.manager.disable
    with pytest.MonkeyPatch.context() as patch:
        world = World(directory, **options)
        put_in_place(patch, world)
        logging.disable(logging.CRITICAL)
        try:
            yield world
        finally:
            world.scheduler.close()
            logging.disable(level)
            shutil.rmtree(directory)


@dataclass(frozen=True)
class Formed:
    """A cluster that has formed: its state item, and after how many seconds of the model and AWS calls."""

    state: ClusterState
    seconds: float
    calls: int


def form_world(nodes):
    """Let a cluster of N agents form."""
    with run_world(workers=nodes - 1, minimum=0) as world:
        if not world.run_until(lambda: world.signals, 600):
            raise AssertionError(f"{nodes} nodes must form in 600 s of the model, got {world.read()}")
        return Formed(world.read(), world.scheduler.now, world.cloud.total())


def count_allowed_calls(nodes, seconds):
    """Return how many calls N agents may make to form when they wait T s; one of each node's five fetches the agent."""
    return nodes * (4 + math.ceil(seconds / 20) + math.ceil(seconds / 60)) + math.ceil(nodes / 5) + 20
