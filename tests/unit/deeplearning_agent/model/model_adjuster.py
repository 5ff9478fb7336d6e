"""
A simple capacity adjuster: it says who launched, as long as no roster is published.

The real one has a model of its own beside its tests; here only what it writes matters.
"""

from dataclasses import replace

from model_settings import CLUSTER

from deeplearning_contract.cluster_state import ClusterState, Phase, put_request
from deeplearning_contract.messages import ClusterNotification
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_contract.web import signal_body

LOOK_SECONDS = 10
GRACE_SECONDS = 90
"""Time that it waits for a replacement before it gives the replacement up."""


class Adjuster:
    """Looks at the groups every ten seconds; two equal looks make a verdict."""

    def __init__(self, world):
        self.world = world
        self.requested = 1 + world.desired[NodeRole.WORKER]
        self._seen = None
        self._short_since = None
        world.scheduler.at(LOOK_SECONDS, self._tick)

    def _tick(self):
        self.world.scheduler.at(LOOK_SECONDS, self._tick)
        state = self.world.read()
        if state is not None and state.phase is not Phase.LAUNCHED:
            return
        look = tuple(m.instance_id for role in NodeRole for m in self.world.live(role))
        is_settled, self._seen = look == self._seen, look
        if is_settled and not self._waits() and (state is None or look != state.expected):
            self._give_verdict(state, look)

    def _waits(self):
        """Return whether instances are missing that may still come."""
        counts = {role: len(self.world.live(role)) for role in NodeRole}
        if counts == self.world.desired:
            self._short_since = None
            return False
        now = self.world.scheduler.now
        self._short_since = self._short_since or now
        return self.world.has_capacity or now - self._short_since < GRACE_SECONDS

    def _give_verdict(self, state, look):
        world = self.world
        workers = len(world.live(NodeRole.WORKER))
        revision, generation = (state.revision + 1, state.generation + 1) if state else (1, 1)
        following = ClusterState(
            CLUSTER, revision, generation, Phase.LAUNCHED, self.requested, look, worker_minimum=world.minimum
        )
        if not world.live(NodeRole.MASTER) or workers < world.minimum:
            reason = f"{workers} of at least {world.minimum} workers launched: insufficient capacity"
            following = replace(following, phase=Phase.FAILED, reason=Reason(reason), expected=())
            world.take_signal(signal_body(CLUSTER, "FAILURE", reason))
        elif workers < world.desired[NodeRole.WORKER]:
            world.desired[NodeRole.WORKER] = workers
            following = replace(following, reason=Reason("insufficient capacity"))
        world.cloud.put(None, put_request("state", following))
        world.cloud.send("master", ClusterNotification(CLUSTER, generation).to_body(), "adjuster", is_ring=True)
