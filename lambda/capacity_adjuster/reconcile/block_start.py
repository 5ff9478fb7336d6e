"""
Wait of the workers for the start of their Capacity Block.

The stack's request gets the master alone while the block has not begun, and its record keeps what EC2 says of the
block. This reads the block again, about once a minute; at its start the same request continues, for the workers. A
block that never begins fails a cluster that has not formed. The record comes before each call, as for every request.
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import replace

from botocore.exceptions import BotoCoreError, ClientError

from capacity_adjuster.aws.capacity_blocks import BlockReader
from capacity_adjuster.policy.decision import Outcome, judge_block
from capacity_adjuster.policy.observation import GroupObservation
from capacity_adjuster.policy.requested_capacity import RequestedCapacity
from capacity_adjuster.reconcile.adapters import LOST_RACE, Adapters
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.observer import Observer
from deeplearning_contract.capacity_block import CapacityBlock
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.settings import AdjusterSettings

logger = logging.getLogger(__name__)
LOOK_SECONDS = 55
"""Time between two reads of the block: less than between two invocations by the timer, whose times vary."""
_LONGEST_ERROR = 200


class BlockStart:
    """Start of the workers of one cluster with their Capacity Block; without one it reads and does nothing."""

    def __init__(
        self, settings: AdjusterSettings, adapters: Adapters, observer: Observer, capacity_change: CapacityChange
    ) -> None:
        self._settings = settings
        self._adapters = adapters
        self._observer = observer
        self._capacity_change = capacity_change

    def run(self) -> str | Outcome:
        """
        Read the block if its workers wait and the last read is a minute old; request them once it is active.

        Returns the outcome for the log, empty while they wait, or the verdict on a cluster whose block never begins.
        """
        observer, reader = self._observer, self._adapters.block
        groups = (observer.cluster.master, observer.cluster.workers)
        if reader is None or any(group is None or group.is_deleting for group in groups):
            return ""
        requested = self._adapters.records.read(RequestedCapacity)
        if requested is None or requested.block is None or requested.is_open or requested.is_over:
            return ""
        observer.read_state()
        if requested.block.is_over and requested.block.reservation_id != reader.reservation_id:
            return self._continue(requested.renew(), observer.cluster.groups)
        if requested.block.is_over:
            return self._end(requested, requested.block)
        is_failed = observer.state is not None and observer.state.phase is Phase.FAILED
        if not requested.asks or is_failed:
            return ""
        observer.waits_for_block = True
        is_due = self._adapters.clock.now() - requested.block.looked >= LOOK_SECONDS
        return self._look(requested, requested.block, reader) if is_due else ""

    def _look(self, requested: RequestedCapacity, block: CapacityBlock, reader: BlockReader) -> str | Outcome:
        now, records = math.floor(self._adapters.clock.now()), self._adapters.records
        # First the record: of two invocations, one reads.
        claimed = requested.note(replace(block, looked=now))
        if not records.write(claimed):
            return LOST_RACE
        try:
            seen = reader.read(now)
        except (BotoCoreError, ClientError) as error:
            # A refused read must not keep the cluster from its stop, or from a verdict on its master.
            logger.warning("could not read the block; retrying: %s", error)
            seen = replace(block, looked=now, error=str(error)[:_LONGEST_ERROR])
        if seen.is_active:
            return self._continue(claimed.begin(self._observer.cluster.groups), self._observer.cluster.groups)
        if seen != claimed.block:
            logger.info("%s", seen.reason)
            if not records.write(claimed.note(seen)):
                return LOST_RACE
        return self._end(requested, seen) if seen.is_over else ""

    def _continue(self, following: RequestedCapacity, groups: Sequence[GroupObservation]) -> str:
        if not self._adapters.records.write(following):
            return LOST_RACE
        return self._capacity_change.run(groups) or "no worker is requested: the cluster has no master any more"

    def _end(self, requested: RequestedCapacity, block: CapacityBlock) -> str | Outcome:
        state, workers = self._observer.state, requested.request.workers
        return judge_block(state, block.reason, settings=self._settings, workers=workers) or ""
