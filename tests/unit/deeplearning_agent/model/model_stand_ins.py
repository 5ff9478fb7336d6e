"""Stand-ins for every effect that an agent's code has on its machine, and for its requests to the network."""

import functools
import sys

from model_programs import FIRST_GROUP

from deeplearning_agent.membership import liveness
from deeplearning_agent.membership.member_monitor import find_fewer_gpus
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_node.failure import StageFailure


class StandIns:
    """The functions that agents of the model call instead of the real ones."""

    def __init__(self, world):
        self.world = world

    def prepare(self, node, _clients, deadline):
        """Stand for `prepare_node`: take a while, and end as the machine is."""
        self.world.scheduler.sleep(self.world.scheduler.random.uniform(1, 20))
        machine = self.world.machines[node.identity.instance_id]
        if machine.is_stuck:
            self.world.scheduler.sleep(deadline.remaining)
        if machine.is_ruined or machine.is_stuck:
            raise StageFailure("the file system did not answer", "check it", stage="mount the file system")
        return machine.describe()

    def install(self, node, state, *_others):
        """Stand for `install_membership`: note the membership, on the machine's disk so to speak."""
        self.world.scheduler.check()
        machine = self.world.machines[node.identity.instance_id]
        self.world.promises.check_installation(machine, state)
        machine.membership = state
        self.world.note(f"{machine.instance_id} installs {state.phase.value}({state.generation})")

    def installed(self, node):
        """Stand for `installed_generation`."""
        membership = self.world.machines[node.identity.instance_id].membership
        return membership.generation if membership else 0

    def signal(self, _url, body):
        """Stand for CloudFormation."""
        self.world.scheduler.check()
        if self.world.signals and self.world.machines[self.world.scheduler.current.name].is_ruined:
            return  # It cannot know that the master before it has signalled success; CloudFormation ignores the second.
        self.world.take_signal(body)

    def probe(self, addresses, *_others):
        """Stand for `find_silent`: ask who answers, which takes as long as a silent one is given."""
        here = {machine.address: machine for machine in self.world.machines.values() if machine.answers}
        asking = self.world.machines[self.world.scheduler.current.name]
        is_deaf = asking.is_cut_off or asking.is_deaf
        silent = {address for address in addresses if is_deaf or address not in here}
        self.world.scheduler.sleep(2.5 if silent else 0.01)
        return silent

    def find_unhealthy(self, _node, members):
        """Stand for the inspection over SSH."""
        machines = {member: self.world.machines[member.instance_id] for member in members}
        strange = {
            m.instance_id: "ssh: another host key" for m, machine in machines.items() if machine.address != m.address
        }
        sick = {machine.instance_id: "gpu: one has gone" for machine in machines.values() if machine.is_sick}
        return find_fewer_gpus(members[1:]) | strange | sick

    def Thread(self, *, target, args, daemon):  # noqa: N802 - it stands for threading.Thread
        """Return a thread that does its work at once, three seconds after its start."""
        return Errand(self.world.scheduler, functools.partial(target, *args))

    def kill_group(self, group, _signal):
        """Stand for `os.killpg`: end the run script of a machine."""
        machine = list(self.world.machines.values())[group - FIRST_GROUP]
        self.world.note(f"the run script on {machine.instance_id} is stopped")
        if machine.script is not None:
            machine.script.kill()

    def read_notice(self, *_others):
        """Stand for what EC2 says of an interruption."""
        machine = self.world.machines[self.world.scheduler.current.name]
        return "EC2 will terminate this spot instance" if machine.is_interrupted else ""


class Errand:
    """A thread that waits for nothing."""

    def __init__(self, scheduler, work):
        self._scheduler = scheduler
        self._work = work
        self._is_over = False

    def start(self):
        self._scheduler.at(3, self._end)

    def is_alive(self):
        return not self._is_over

    def _end(self):
        self._work()
        self._is_over = True


def put_in_place(patch, world):
    """Put the model in the place of what agents do to machines."""
    model = StandIns(world)
    replacements = {
        "prepare_node": model.prepare,
        "install_membership": model.install,
        "installed_generation": model.installed,
        "send_signal": model.signal,
        "find_unhealthy": model.find_unhealthy,
    }
    for module in [
        module for name, module in sys.modules.items() if name.startswith(("deeplearning_agent.", "deeplearning_node."))
    ]:
        for name, replacement in replacements.items():
            if hasattr(module, name):
                patch.setattr(module, name, replacement)
    watch = functools.partial(liveness.Watch, model.probe)
    patch.setattr("deeplearning_agent.membership.member_monitor.Watch", watch)
    patch.setattr("deeplearning_agent.membership.member_monitor.threading", model)
    patch.setattr("deeplearning_agent.workload.interruption_notice.SpotNotices.read", model.read_notice)
    patch.setattr("os.killpg", model.kill_group)
    patch.setattr("deeplearning_node.deadline.random", world.scheduler.random)
    patch.setattr("deeplearning_node.atomic_file.os.fsync", lambda _handle: None)
    patch.setattr(ClusterState, "from_item", remember_states(ClusterState.from_item))


def remember_states(read):
    """Return `from_item` so that a document which a thousand nodes read is parsed once."""
    known = {}

    def from_item(item, parts=()):
        text = item["document"]["S"] if "document" in item else item["digest"]["S"]
        if text not in known:
            known[text] = read(item, parts)
        return known[text]

    return from_item
