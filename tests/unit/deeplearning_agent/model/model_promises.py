"""
Promises of the cluster, as checks that run whenever the model changes.

| check | promise |
|---|---|
| M1 | revisions grow by one, generations never fall |
| M2 | a generation has one distinct membership, seen by everyone |
| M3 | no node installs a lower generation after a higher one |
| M4 | when nothing happens any more, every live node has the newest membership, which is the live nodes |
| M5 | the master is first, survivors keep their order, newcomers come last |
| M6 | no success is signalled, and nothing is formed, before every member has acknowledged |
| M7 | one distinct status is signalled at most |
| M8 | a failure has a reason that names a node or a cause |
| M9 | one master acts: a deposed one writes nothing, unless the one that followed has been gone for minutes |
| M10 | one run script at a time on a member that is the master, none after it ended well |
| M11 | nothing is written or sent while nothing changes |
| M12 | no node is reported unhealthy that answers and has not failed |
| M13 | no node is dropped that answers and has not failed, unless the set-up time is nearly over |
| M14 | the item says who left, and why |
| M15 | nobody spins |
| M18 | the cluster forms within the set-up time, or fails |
| M17 | the cluster fails of a node's trouble only: not of a throttled call, and not of an agent that died |
| M16 | who failed or leaves is not admitted again |
| M19 | nothing is published or formed with fewer workers than the minimum before the cluster has formed |
| M20 | no two members have one address |
| M21 | a stolen worker does not fail a cluster in which enough others are |
"""

import json
from collections import Counter

from model_settings import CLUSTER

from deeplearning_agent.membership.controller import VACANT_SECONDS
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole
from tests.unit.virtual_time import require

NEXT_PHASES = {
    None: {Phase.LAUNCHED, Phase.FAILED},
    Phase.LAUNCHED: {Phase.LAUNCHED, Phase.PUBLISHED, Phase.FAILED},
    Phase.PUBLISHED: {Phase.PUBLISHED, Phase.FORMED, Phase.FAILED},
    Phase.FORMED: {Phase.FORMED, Phase.PUBLISHED},
    Phase.FAILED: {Phase.FAILED},
}
HEARD_SECONDS = 10
"""By when a report has been heard."""
KEPT_SECONDS = 400
"""By when a report has been heard that waited for the next master."""
LATEST_SECONDS = 130
"""By when one has been heard that came as late as can be."""
READ_SECONDS = 15
"""By when a master knows that another has taken over."""
WRITING_CALLS = ("PutItem", "SendMessage", "SetInstanceHealth")


class Promises:
    """The checks, and what they need to remember."""

    def __init__(self, world):
        self.world = world
        self.state = None
        self.rosters = {}
        """Generation -> its members."""
        self.ready = {}
        """Instance -> the highest generation that it has acknowledged."""
        self.complained = {}
        self.reinstated = set()
        """Instances that reported `failed` or `leaving`, and when they did first."""
        self.deposed = {}
        """Masters that were replaced, and when."""
        self.told = []
        """Every report that was sent, with its sender."""
        world.cloud.writes.append(self.check_write)
        world.cloud.reports.append(self.take_report)

    def take_report(self, machine, body):
        """Note what a worker said."""
        document = json.loads(body)
        self.told.append((machine.sender, body))
        self.world.note(f"{machine.instance_id} reports {document['stage']} {document['generation'] or ''}")
        if document["stage"] == "ready":
            known = self.ready.get(machine.instance_id, 0)
            self.ready[machine.instance_id] = max(known, document["generation"])
        elif document["stage"] in ("failed", "leaving"):
            self.complained.setdefault(machine.instance_id, self.world.scheduler.now)

    def check_write(self, writer, key, _item):
        """Check a write of the state item; `writer` is None for the adjuster."""
        if key != CLUSTER:
            return
        old, new = self.state, self.world.read()
        name = writer.instance_id if writer else "the adjuster"
        ids = " ".join(member.instance_id[-3:] for member in new.members)
        self.world.note(f"{name} writes {new.phase.value}({new.generation}) [{ids}] {new.reason}")
        phase = old.phase if old else None
        require(new.phase in NEXT_PHASES[phase], f"M1: {phase} became {new.phase}")
        require(new.revision == (old.revision if old else 0) + 1, "M1: a revision was skipped")
        require(old is None or new.generation >= old.generation, "M1: the generation fell")
        if new.phase is Phase.FAILED:
            require(is_telling(str(new.reason)), f"M8: the failure's reason names nothing: {new.reason!r}")
            is_fair = any(machine.has_had_trouble for machine in self.world.machines.values())
            require(is_fair, f"M17: the cluster failed, and nothing was wrong with any node: {new.reason}")
            self._check_theft(new)
        if new.members and new.phase is not Phase.FAILED:
            self._check_roster(name, old, new)
        self.state = new

    def _check_theft(self, new):
        machines = self.world.machines.values()
        # A stolen worker that dies by itself, before its owner finds out, is a trouble of its own.
        is_theft_alone = all(
            machine.is_stolen and machine.died in (None, machine.found_out)
            for machine in machines
            if machine.has_had_trouble
        )
        sound = [m for m in machines if m.role is NodeRole.WORKER and not m.has_had_trouble]
        is_fair = not is_theft_alone or len(sound) < self.world.minimum
        require(is_fair or not self.world.is_calm, f"M21: stolen workers failed the cluster: {new.reason}")

    def _check_roster(self, name, old, new):
        roster = self.rosters.setdefault(new.generation, new.members)
        require(roster == new.members, f"M2: generation {new.generation} has two memberships")
        require(len({m.instance_id for m in roster}) == len(roster), "M2: a member is there twice")
        require(len({m.address for m in roster}) == len(roster), "M20: two members have one address")
        is_enough = old.has_formed or len(roster) > self.world.minimum
        require(is_enough, f"M19: {len(roster) - 1} workers, where at least {self.world.minimum} must remain")
        master = self.world.machines[roster[0].instance_id]
        require(master.role is NodeRole.MASTER, "M5: the first member is no master")
        require(all(self.world.machines[m.instance_id].role is NodeRole.WORKER for m in roster[1:]), "M5: two masters")
        require(name == master.instance_id, f"M9: {name} wrote the roster of {master.instance_id}")
        if name in self.deposed and old.master not in ("", name) and self._is_vacant(old.master):
            del self.deposed[name]  # Nobody else has the place any more.
            self.reinstated.add(name)
        require(name not in self.deposed, f"M9: {name}, which was deposed, wrote")
        self._check_departures(master, old, new)
        before = name_workers(old)
        after = [member.instance_id for member in roster[1:]]
        survivors = [name for name in before if name in after]
        require(after[: len(survivors)] == survivors, "M5: the order of the survivors changed")
        since = self.world.scheduler.now - (HEARD_SECONDS if self.world.is_calm else LATEST_SECONDS)
        machines = self.world.machines
        # A stolen worker may take back that it leaves, and says what any other would.
        honest = [name for name in after if name not in before and not machines[name].is_stolen]
        useless = [name for name in honest if self.complained.get(name, since) < since]
        require(not useless, f"M16: {useless}, which failed or leaves, was admitted")
        deaths = {name: machines[name].died for name in after if name not in before}
        dead = [
            name for name, died in deaths.items() if died is not None and died < self.world.scheduler.now - KEPT_SECONDS
        ]
        require(not dead, f"M16: {dead}, long dead, was admitted")
        if old.members and old.master != new.master:
            self.deposed[old.master] = self.world.scheduler.now
            require(new.phase is Phase.PUBLISHED, "M9: a new master took over without asking for acknowledgements")
        if old.phase is Phase.PUBLISHED and new.phase is Phase.FORMED:
            is_timely = old.has_formed or name in self.reinstated or master.uptime <= self.world.setup_seconds + 10
            require(is_timely, f"M18: formed {master.uptime:.0f} s after the master booted")
            late = [name for name in after if self.ready.get(name, 0) < old.generation]
            require(not late, f"M6: formed without the acknowledgement of {late}")

    def _check_departures(self, master, old, new):
        gone = set(name_workers(old)) - {m.instance_id for m in new.members}
        told = {departure.instance_id for departure in new.departed}
        require(gone <= told, f"M14: nothing says why {sorted(gone - told)} left")
        for name in gone if self.world.is_calm else ():
            machine = self.world.machines[name]
            is_sound = machine.has_been_sound and name not in self.complained
            is_late = old.phase is not Phase.FORMED and master.uptime > 0.8 * self.world.setup_seconds
            is_excused = is_late or not master.has_been_sound
            if old.phase is Phase.LAUNCHED:  # Who still boots is waited for.
                is_sound = not machine.has_had_trouble and name not in self.complained
                is_excused = is_late or master.has_had_trouble
            require(is_excused or self._are_most_stolen(old) or not is_sound, f"M13: {name} is sound, and was dropped")

    def check_installation(self, machine, state):
        """Check what a node is about to install."""
        known = machine.membership.generation if machine.membership else 0
        require(state.generation >= known, f"M3: {machine.instance_id} went from {known} to {state.generation}")
        require(self.rosters[state.generation] == state.members, "M2: a node installs what was never written")
        require(state.has_member(machine.instance_id), f"M3: {machine.instance_id} installs what it is no member of")

    def check_signal(self, body):
        """Check a signal that is about to be sent."""
        document = json.loads(body)
        statuses = {json.loads(sent)["Status"] for sent in self.world.signals} | {document["Status"]}
        require(len(statuses) == 1, f"M7: two statuses were signalled: {sorted(statuses)}")
        if document["Status"] == "SUCCESS":
            late = [m.instance_id for m in self.state.members[1:] if m.instance_id not in self.ready]
            require(self.state.phase is Phase.FORMED, f"M6: success in phase {self.state.phase.value}")
            require(not late, f"M6: success without the acknowledgement of {late}")
        else:
            require(is_telling(document["Reason"]), f"M8: the signal's reason names nothing: {document['Reason']!r}")

    def check_script_start(self, machine):
        """Check that the run script may start here."""
        require(self.state.phase is Phase.FORMED, f"M10: the run script starts in phase {self.state.phase.value}")
        require(not self.state.run_ended, "M10: the run script starts although it has ended well")
        require(machine.instance_id == self.state.master, "M10: the run script starts where the master is not")
        scripts = {m.instance_id: m.script for m in self.world.machines.values() if m.script}
        running = [name for name, script in scripts.items() if script.returncode is None and self._is_informed(name)]
        require(not running, f"M10: the run script starts while it runs on {running}")

    def _is_vacant(self, name):
        """Return whether the master has been away for minutes, or nobody could hear it."""
        machine = self.world.machines[name]
        return not machine.answers and self.world.scheduler.now - (machine.died or 0.0) >= VACANT_SECONDS

    def _are_most_stolen(self, state):
        """Return whether most workers of a state are stolen, so that one which differs from them is taken for unfit."""
        workers = name_workers(state)
        return 2 * sum(self.world.machines[name].is_stolen for name in workers) > len(workers)

    def _is_informed(self, name):
        """Return whether a machine knows who the master is."""
        return self.world.scheduler.now - self.deposed.get(name, 0.0) > READ_SECONDS

    def check_health_report(self, caller, machine, status):
        """Check that a node which is reported deserves it."""
        require(status == "Unhealthy", f"M12: {caller.instance_id} reported {status}")
        is_deposed = caller.instance_id in self.deposed and self._is_informed(caller.instance_id)
        require(not is_deposed, f"M9: {caller.instance_id}, which was deposed, reports")
        is_sound = machine.has_been_sound and machine.instance_id not in self.complained and self.world.is_calm
        is_sound = is_sound and not self._are_most_stolen(self.state)
        workers = self.world.live(NodeRole.WORKER)
        is_useless = machine.is_sick or machine.is_useless or machine.instance_id in self.complained
        is_blamed_alone = not machine.is_alive or is_useless
        is_anybody_there = is_blamed_alone or any(not worker.is_given_up for worker in workers)
        require(is_anybody_there, f"M12: {machine.instance_id} was blamed, and nobody answers")
        is_excused = machine.is_silent_for_a_moment and not is_blamed_alone
        require(not is_excused, f"M12: {machine.instance_id} was silent for a moment only")
        require(not is_sound, f"M12: {machine.instance_id} is sound, and was reported unhealthy")

    def find_unrest(self):
        """Say what does not hold yet of all that must when nothing has happened for long enough; else nothing."""
        world, state = self.world, self.state
        if state is None:
            return "M4: nobody wrote anything"
        statuses = {json.loads(body)["Status"] for body in world.signals}
        if state.phase is Phase.FAILED:
            return "" if statuses == {"FAILURE"} else f"M7: the cluster failed, signalled was {statuses}"
        if state.phase is not Phase.FORMED or statuses != {"SUCCESS"}:
            return f"M4: at rest in phase {state.phase.value}, signalled was {statuses}"
        return self._find_wrong_member() or self._find_idle_script()

    def _find_wrong_member(self):
        """Say which live node is no member as it should be."""
        world, state = self.world, self.state
        live = {m.instance_id: m for m in world.machines.values() if m.is_alive}
        members = {member.instance_id for member in state.members}
        if members != set(live):
            return f"M4: lacks {sorted(set(live) - members)} and has {sorted(members - set(live))}"
        counts = Counter(machine.gpu_count for machine in world.live(NodeRole.WORKER))
        usual = next((count for count, holders in counts.items() if 2 * holders > counts.total()), 0)
        for name, machine in live.items():
            generation = machine.membership.generation if machine.membership else 0
            if generation != state.generation:
                return f"M4: {name} has {generation} of {state.generation}"
            is_unfit = machine.role is NodeRole.WORKER and (machine.is_sick or machine.gpu_count < usual)
            if machine.is_interrupted or is_unfit:
                return f"M4: {name} is of no use, and still there"
        return "" if len(live) == sum(world.desired.values()) else f"M4: {len(live)} nodes of {world.desired}"

    def _find_idle_script(self):
        """Say so when the run script should run and does not."""
        script = self.world.live(NodeRole.MASTER)[0].script
        has_ended = script is not None and script.returncode is not None
        if self.world.script_seconds is not None and script is None and not self.state.run_ended:
            return "M10: nobody runs the run script"
        if has_ended and script.returncode == 0 and not self.state.run_ended:
            return "M10: the run script has ended, and the item does not say so"
        return ""

    def check_quiet(self, seconds=200):
        """Let time pass in which nothing happens, and check that nothing is done."""
        # A node may still say that it failed when the cluster has failed already.
        calls = [name for name in WRITING_CALLS if name != "SendMessage" or self.state.phase is not Phase.FAILED]
        before = {name: self.world.cloud.total(name) for name in calls}
        revision = self.state.revision
        self.world.run(seconds)
        after = {name: self.world.cloud.total(name) for name in calls}
        assert after == before, f"M11: something was written or sent at rest: {before} became {after}"
        assert self.state.revision == revision, "M11: the item was written at rest"


def name_workers(state):
    """Return the workers of a state in their order: members, or before there are any those that launched."""
    return [*state.expected[1:]] if state.phase is Phase.LAUNCHED else [m.instance_id for m in state.members[1:]]


def is_telling(reason):
    """Return whether a reason names a node, or says more than that something failed."""
    return "i-0" in reason or len(reason.split()) >= 4
