"""Events of a cluster of the model, by name."""

from dataclasses import replace

from model_aws import Weather
from model_settings import CLUSTER

from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.names import NodeRole

STORMS = {
    "throttling": Weather(throttled=0.3),
    "lost answers": Weather(unanswered=0.2),
    "lost rings": Weather(lost_rings=1.0),
    "late and twice": Weather(twice=0.5, late=0.5),
    "everything": Weather(throttled=0.2, unanswered=0.1, lost_rings=0.5, twice=0.3, late=0.3),
}
POISON = (
    "no JSON",
    "[]",
    "{}",
    '{"kind": "report"}',
    '{"kind": "notification"}',
    '{"kind": "notification", "generation": "x"}',
)

STOLEN_SEQUENCE = 1_000_000


def choose(world, event, machines):
    """Return the machine that an event happens to; None when there is none."""
    return machines[event.pick % len(machines)] if machines else None


def on_machine(act, *roles):
    """Return a happening that concerns one live machine of some roles."""

    def happen(world, event):
        live = [machine for role in roles or NodeRole for machine in world.live(role)]
        machine = choose(world, event, live)
        if machine is not None:
            act(machine, event)

    return happen


def silence(machine, event):
    """Let nobody reach a machine for a while."""
    machine.silence(1 + event.value * 2)


def cut_off(machine, event):
    """Let a machine reach nobody and be reached by nobody for a while."""
    machine.cut_off(1 + event.value * 2)


def deafen(machine, event):
    """Let a machine hear no answer of others for a while."""
    machine.deafen(10 + event.value * 2)


def double_master(world, event):
    """Let the master's group launch another before it has terminated the one that it gave up."""
    masters = world.live(NodeRole.MASTER)
    if len(masters) == 1:
        world.launch(NodeRole.MASTER)
        world.scheduler.at(60 + event.value * 2, lambda: give_up(world, masters[0]))


def give_up(world, master):
    """Let the master's group end one that it has too many."""
    if len(world.live(NodeRole.MASTER)) > 1:
        world.terminate(master)


def crash(machine, event):
    """Let the agent die at one of its next calls, with or without the call's effect."""
    machine.crash_at(int(event.value) % 20, "after" if event.value % 2 < 1 else "before")


def leave(machine, event):
    """Let EC2 say that it takes a spot instance in two minutes, and take it."""
    machine.is_interrupted = True
    machine.world.scheduler.at(120, lambda: machine.world.terminate(machine))


def sicken(machine, event):
    """Let a GPU of a machine be gone."""
    machine.is_sick = True


def replay_report(world, event):
    """Let an old report come once more."""
    if world.promises.told:
        sender, body = world.promises.told[event.pick % len(world.promises.told)]
        world.cloud.send("report", body, sender)


def ring_again(world, event):
    """Let rings of an older generation come."""
    state = world.read()
    world.ring(max(0, (state.generation if state else 1) - 1 - event.pick % 3))


def poison(world, event):
    """Let something come to every queue that nobody can read."""
    for name in ("master", "worker", "report"):
        world.cloud.send(name, POISON[event.pick % len(POISON)], "AROAWORKERWORKERWORK:i-0")


def storm(world, event):
    """Let the weather be bad for a while."""
    names = sorted(STORMS)
    world.set_weather(STORMS[names[event.pick % len(names)]])
    world.scheduler.at(30 + event.value, lambda: world.set_weather(Weather()))


def lose_capacity(world, event):
    """Let the groups launch nothing for a while."""
    world.has_capacity = False
    world.scheduler.at(30 + event.value, lambda: setattr(world, "has_capacity", True))


def end_script(world, event):
    """Let the run script end, well or not."""
    for machine in world.live(NodeRole.MASTER):
        if machine.script is not None:
            machine.script.end(0 if event.pick % 2 else 1)


def fail_preparation(world, event):
    """Let a machine that is still booting fail its preparation."""
    machine = choose(world, event, [m for m in world.live(NodeRole.WORKER) if m.agent_role is None])
    if machine is not None:
        machine.is_ruined = True


def stick_in_preparation(world, event):
    """Let a machine that is still booting not get through its preparation."""
    machine = choose(world, event, [m for m in world.live(NodeRole.WORKER) if m.agent_role is None])
    if machine is not None:
        machine.is_stuck = True


def fail_masters_preparation(world, event):
    """Let a master that is still booting fail its preparation."""
    for machine in world.live(NodeRole.MASTER):
        if machine.agent_role is None:
            machine.is_ruined = True


def lack_gpu(world, event):
    """Let a worker that is still booting show one GPU less than its type has."""
    machine = choose(world, event, [m for m in world.live(NodeRole.WORKER) if m.agent_role is None])
    if machine is not None:
        machine.gpu_count -= 1


def forge(machine, member):
    """Let somebody report in a worker's name, and its owner find out a minute later."""
    machine.is_stolen = True
    report = NodeReport(CLUSTER, machine.instance_id, ReportStage.JOINED, member=member, sequence=STOLEN_SEQUENCE)
    machine.world.note(f"{machine.instance_id} is stolen and says {member}")
    machine.world.cloud.send("report", report.to_body(), machine.sender)
    machine.world.scheduler.at(60, lambda: find_out(machine))


def find_out(machine):
    """Let the owner of a stolen worker terminate it."""
    machine.found_out = machine.world.scheduler.now
    machine.world.terminate(machine)


def forge_gpus(machine, event):
    """Let a stolen worker say that it has more GPUs than the others."""
    forge(machine, replace(machine.describe(), gpu_count=99))


def forge_address(machine, event):
    """Let a stolen worker claim the address of another."""
    others = [other for other in machine.world.live(NodeRole.WORKER) if other is not machine]
    if others:
        forge(machine, replace(machine.describe(), address=others[int(event.value) % len(others)].address))


HAPPENINGS = {
    "die": on_machine(lambda machine, _: machine.world.terminate(machine)),
    "worker dies": on_machine(lambda machine, _: machine.world.terminate(machine), NodeRole.WORKER),
    "master dies": on_machine(lambda machine, _: machine.world.terminate(machine), NodeRole.MASTER),
    "reboot": on_machine(lambda machine, event: machine.reboot(2 + event.value / 2)),
    "agent dies": on_machine(lambda machine, _: machine.kill_agent()),
    "agent dies at a call": on_machine(crash),
    "master's agent dies at a call": on_machine(crash, NodeRole.MASTER),
    "worker is silent": on_machine(silence, NodeRole.WORKER),
    "cut off": on_machine(cut_off),
    "spot interruption": on_machine(leave, NodeRole.WORKER),
    "GPU fails": on_machine(sicken, NodeRole.WORKER),
    "master is deaf": on_machine(deafen, NodeRole.MASTER),
    "two masters": double_master,
    "preparation fails": fail_preparation,
    "GPU is missing": lack_gpu,
    "GPU count is forged": on_machine(forge_gpus, NodeRole.WORKER),
    "address is forged": on_machine(forge_address, NodeRole.WORKER),
    "master's preparation fails": fail_masters_preparation,
    "preparation hangs": stick_in_preparation,
    "grow": lambda world, _: world.resize(1),
    "shrink": lambda world, _: world.resize(-1),
    "old report": replay_report,
    "old ring": ring_again,
    "retention passes": lambda world, _: world.cloud.forget_messages(),
    "poison": poison,
    "storm": storm,
    "no capacity": lose_capacity,
    "script ends": end_script,
}
