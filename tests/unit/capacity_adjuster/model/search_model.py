"""
A world in which capacity may be requested from several candidates, each with a pool of its own that changes with time.

Promises `A` are those of the search; each is checked against the truth at the call that could break it.
"""

from dataclasses import dataclass, field, replace
from functools import partial

from model_invocation import Invocation, ask, invoke
from scaling_model import ModelGroup, World

from capacity_adjuster.policy.candidate_search import Stage
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.names import NodeRole

PATIENCE_SECONDS = 180
SEARCH_SECONDS = 1800
B, C = "us-east-1b-p4d.24xlarge-1f3a", "us-east-1c-p4d.24xlarge-spot-77aa"
GROWTH = ("Launch", "AZRebalance", "ReplaceUnhealthy")
WORKER, MASTER = NodeRole.WORKER, NodeRole.MASTER


@dataclass
class Pool:
    """Capacity of a candidate; `refusal` is how EC2 words that there is none, empty for launches that never end."""

    steps: list = field(default_factory=lambda: [(0, 99)])
    """Pairs of a time since the start in seconds and the workers that may live from then on."""
    refusal: str = "capacity"
    master: bool = True

    def most(self, elapsed):
        return next((count for begin, count in reversed(self.steps) if begin <= elapsed), 0)


class SearchWorld(World):
    """The world with a pair of groups for each candidate, keyed by role, and by role and tag for further ones."""

    def __init__(self, pools, *, minimum=2, workers=3, stop_after=0, order=None):
        super().__init__(minimum=minimum, workers=workers, spare=3, stop_after=stop_after)
        self.pools = dict(pools)
        self.lambda_seconds = 120
        self.begun = self.now
        self.raised = set()
        self.moves = []
        self.lowered = []
        self.left = set()
        """Rounds of the search whose departure has begun to change a group."""
        self.has_given_up = False
        self.set_order(order or pools)
        for tag in pools:
            if tag != "0":
                self.groups[WORKER, tag] = ModelGroup(WORKER, 0, workers + 3, candidate=tag)
                self.groups[MASTER, tag] = ModelGroup(MASTER, 0, 1, candidate=tag)
        self.wait_for_the_stack()

    def set_order(self, order):
        order = ",".join(order) if len(tuple(order)) > 1 else ""
        patience, search = (PATIENCE_SECONDS, SEARCH_SECONDS) if order else (0, 0)
        first = "eu-west-1a-g5.48xlarge-on-demand-0000" if order else ""
        self.settings = replace(
            self.settings, candidates=order, first_candidate=first, patience_seconds=patience, search_seconds=search
        )

    def pair(self, tag):
        return [group for group in self.groups.values() if group.candidate == tag]

    def named(self, name):
        return next(group for group in self.groups.values() if group.name == name)

    def occupied(self):
        """Return the candidates that have instances, or are asked for some."""
        return {group.candidate for group in self.groups.values() if group.desired or group.nodes}

    def holds_and_waits(self):
        """Return whether a candidate has its minimum, and further launches that never end."""
        return any(
            group.role is WORKER and len(group.live) >= self.settings.worker_min_capacity and group.running("launch")
            for group in self.groups.values()
        )

    def live_forth(self):
        """Let every group try what it lacks, as far as its pool goes, and end its terminations."""
        for key, group in self.groups.items():
            pool = self.pools[group.candidate]
            self.react(key)
            self.end_terminations(key)
            self.react(key)
            for _ in group.running("launch"):
                room = pool.most(self.now - self.begun) if group.role is WORKER else 99 * pool.master
                has_room = sum(node.lifecycle == "InService" for node in group.nodes) < room
                if has_room or pool.refusal:
                    self.end_launch(key, "" if has_room else pool.refusal)
                elif not group.desired:
                    self.cancel_launch(group)
            self.end_terminations(key)

    def cancel_launch(self, group):
        """End a launch that is not wanted any more (Auto Scaling user guide, status `Cancelled` of an activity)."""
        attempt = group.running("launch")[0]
        attempt.end, attempt.status = float(int(self.now)), "Cancelled"
        group.nodes = [node for node in group.nodes if node is not attempt.node]
        self.changed(group)

    def react_all(self):
        for key in self.groups:
            self.react(key)

    def end_one(self, tag, role, code):
        self.end_launch(role if tag == "0" else (role, tag), code)

    def user_gives_up(self):
        if self.requested is not None and not self.requested.is_open:
            for group in self.groups.values():
                self.has_given_up = self.has_given_up or bool(group.desired)
                group.desired = 0
                self.forget_old_answers(group)

    def master_publishes_in(self, tag):
        """Let the master of a candidate publish and form the cluster."""
        members = self.members(self.state.expected)
        assert members[0].instance_id in self.groups[MASTER, tag].live
        self.write_as_master(Phase.PUBLISHED, members=members)
        self.write_as_master(Phase.FORMED)

    def search_invoke(self, **options):
        search_invoke(self, **options)

    def wanted(self, role):
        request = self.requested.request
        return request.workers if role is WORKER else request.master


class SearchInvocation(Invocation):
    """An invocation in that world."""

    is_departing = False
    """True while it leaves a candidate."""

    def set_desired(self, name, desired):
        def effect():
            world, group = self.world, self.world.named(name)
            if desired > group.desired:
                self.check_raise(group, desired)
            elif self.is_departing:
                self.check_departure(group)
            elif not (self.is_asking or self.is_stopping):
                assert group.desired == world.adjustment.before, "a shrink undoes what was set since its record"
            group.desired = desired
            world.changed(group)
            self.check_one_candidate()

        self.call("set_desired", effect)

    def check_raise(self, group, desired):
        world, request = self.world, self.world.requested.request
        assert self.is_asking, "A1: capacity was raised without a request"
        assert desired == world.wanted(group.role), "W1: another number was asked for than was requested"
        assert group.candidate == self.find_asked(), "A1: another candidate was raised"
        is_left = world.search is not None and world.search.asked in world.left
        assert not is_left, "A1: a candidate was raised after its departure had begun"
        raised = (request.request_id, group.name)
        assert raised not in world.raised, "A4: desired was raised twice for one request, round and candidate"
        world.raised.add(raised)
        is_over = world.is_deleted or any(each.is_deleting for each in world.groups.values())
        assert not is_over, "A5: capacity was asked for after a deletion"
        is_stopped = world.stop is not None and (world.stop.is_open or world.stop.is_stopped)
        assert not is_stopped, "A5: a stopped cluster was raised"
        assert world.state is None or world.state.phase is not Phase.FAILED, "A5: a failed cluster was raised"

    def find_asked(self):
        """Return the candidate that may be raised: the search's, unless its groups are no longer in the template."""
        search, order = self.world.search, self.world.settings.candidates.split(",")
        return search.candidate if search and search.candidate in order else "0"

    def check_departure(self, group):
        world = self.world
        assert world.state is None, "A3: a candidate was left after the verdict"
        assert set(GROWTH) <= group.suspended, "A1: a retry under way would launch after the departure"
        assert group.candidate == world.search.candidate, "A1: another candidate than the refused one was lowered"
        world.lowered.append(group.role)
        world.left.add(world.search.asked)

    def check_one_candidate(self):
        occupied = self.world.occupied()
        assert len(occupied) <= 1, f"A1: {sorted(occupied)} have capacity at a time"

    def is_leaving(self):
        return self.world.search is not None and self.world.search.stage is Stage.LEAVING

    def suspend(self, name, processes):
        def effect():
            world, group = self.world, self.world.named(name)
            is_recorded = self.is_departing and name in world.search.processes
            is_shrink = world.adjustment is not None and world.adjustment.is_open
            is_broken = world.breaker is not None and world.breaker.is_tripped
            assert is_recorded or is_shrink or is_broken, "nothing says whose suspension it is"
            if is_recorded:
                assert world.state is None, "A3: a candidate was left after the verdict"
                world.left.add(world.search.asked)
            group.suspended |= set(processes)
            world.changed(group)

        if processes:
            self.call("suspend", effect)

    def resume(self, name, processes):
        def effect():
            world, group = self.world, self.world.named(name)
            # A shrink that died is ended first; the departure suspends again before it lowers anything.
            shrink = world.adjustment
            is_shrink = shrink is not None and shrink.is_open and shrink.group == name
            if self.is_departing and name in world.search.processes and not is_shrink:
                is_empty = not group.desired and not group.nodes
                assert is_empty, "A1: resumed before it was empty"
                assert not group.running("launch"), "A1: resumed while a launch was in progress"
            assert not set(processes) & world.user_suspended, "a user's suspension was resumed"
            group.suspended -= set(processes)
            world.changed(group)

        if processes:
            self.call("resume", effect)

    def find(self):
        self.found = super().find()
        return self.found

    def read_activities(self, name, since=0.0):
        def effect():
            shot = next(each for each in self.found if each.name == name)
            beside = [each for each in self.found if each.role is shot.role and each.name != name]
            is_idle = not shot.desired and not shot.instances
            is_departure = self.is_leaving() and shot.candidate == self.world.search.candidate
            is_only = all(not each.desired and not each.instances for each in beside)
            assert not is_idle or is_departure or is_only, "the activities of an idle group were read"
            return self._shot(name).activities

        return self.call("read_activities", effect)

    def write_search(self, record):
        def effect():
            world, before = self.world, self.world.search
            is_written = self._write("search", record)
            self.is_departing = is_written and record.stage is Stage.LEAVING and record.lease_until > 0
            if not is_written:
                return False
            if before is not None and record.candidate != before.candidate:
                assert before.stage is not Stage.ASKING, "A6: another candidate was taken unasked"
                assert world.state is None, "A3: the candidate changed after the verdict"
                assert not world.occupied(), "A1: the next candidate was named before the last was empty"
                resting = before.resting.get(record.candidate)
                assert resting is None or resting.until <= world.now, "a candidate was asked in its rest"
            if before is not None and record.asked != before.asked:
                assert world.now < record.began + SEARCH_SECONDS, "A7: asked after the time of the search"
            return True

        return self.call("write_search", effect)

    def write_state(self, state):
        def effect():
            previous = self.world.state
            if state.revision != (previous.revision if previous else 0) + 1:
                return False
            if state.phase is Phase.LAUNCHED and previous is None:
                owners = {
                    group.candidate
                    for group in self.world.groups.values()
                    for node in group.nodes
                    if node.instance_id in state.expected
                }
                assert len(owners) == 1, f"A2: nodes of {sorted(owners)} are expected"
                assert state.candidate in owners or not self.world.search, "the verdict names another candidate"
            self.world.state = self.written = state
            self.world.writes.append(state)
            return True

        return self.call("write_state", effect)

    def send_event(self, event):
        def effect():
            if event.kind is EventKind.CAPACITY_MOVED:
                self.world.moves.append(event)
            else:
                self.world.events.append(event)

        self.call("send_event", effect)


search_invoke = partial(invoke, kind=SearchInvocation)
search_ask = partial(ask, kind=SearchInvocation)


def ask_for_four(world, **options):
    return search_ask(world, world.stack_request("Update", 4), **options)


def refuse_all(*tags, refusal="capacity"):
    return {tag: Pool([(0, 0)], refusal) for tag in tags}


def begin_search(pools, **options):
    """Return a world whose stack has asked the first candidate."""
    world = SearchWorld(pools, **options)
    search_ask(world, world.stack_request("Create", len(range(world.workers.max_size - 3))))
    return world


def run_minutes(world, minutes, **options):
    """Let time pass, a minute at a time: the groups live, and the timer invokes the adjuster."""
    for _ in range(minutes):
        world.live_forth()
        world.pass_time(60)
        search_invoke(world, **options)
        if world.state is not None:
            return
