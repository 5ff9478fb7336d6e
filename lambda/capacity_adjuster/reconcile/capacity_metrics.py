"""What an invocation has seen of the cluster's capacity, as metrics."""

import logging
from collections.abc import Callable

from capacity_adjuster.aws.log_lines import besides
from capacity_adjuster.policy.decision import count_requested
from capacity_adjuster.policy.observation import ClusterObservation
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.reconcile.confirmation import Confirmation
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.metrics import (
    CAPACITY_ASKED,
    CAPACITY_LAUNCHED,
    FORMATION_PENDING_SECONDS,
    LAUNCH_FAILURES,
    Metric,
)

logger = logging.getLogger(__name__)
RECENT_SECONDS = 120
"""A launch that failed longer ago is no news; the timer looks once a minute, so that each is seen."""
PATIENCE_SECONDS = 600
"""While instances come and go the state is not read; of older groups it is, to tell a formation from growth."""


def log_capacity(confirmation: Confirmation, now: float, read_state: Callable[[], ClusterState | None]) -> None:
    """Log what was seen, as metrics; raises nothing. Reads the state record where the invocation had no reason to."""
    try:
        state, is_known = confirmation.state, confirmation.has_read_state
        workers = confirmation.observed.workers
        if not is_known and workers is not None and now - workers.created >= PATIENCE_SECONDS:
            state, is_known = read_state(), True
        metrics = measure_capacity(confirmation.observed, state, confirmation.adjustment, now, is_state_known=is_known)
    except Exception:
        logger.exception("the capacity could not be measured")
        return
    if metrics:
        words = ", ".join(f"{metric.name} {value:.6g}" for metric, value in metrics.items())
        logger.info("measured: %s", words, extra=besides(state.generation if state else 0, metrics=metrics))


def measure_capacity(
    observed: ClusterObservation,
    state: ClusterState | None,
    adjustment: Adjustment | None,
    now: float,
    *,
    is_state_known: bool = True,
) -> dict[Metric, float]:
    """
    Return the metrics of an observation; none while the groups are absent.

    `is_state_known` tells a state that was not read from one that is not there.
    """
    master, workers = observed.master, observed.workers
    if master is None or workers is None:
        return {}
    asked = master.desired + count_requested(workers, adjustment)
    if state is not None and state.reason:  # It says why there are fewer than asked for.
        asked = max(asked, state.requested)
    metrics: dict[Metric, float] = {
        CAPACITY_ASKED: asked,
        CAPACITY_LAUNCHED: len(master.launched) + len(workers.launched),
    }
    if any(group.activities is not None for group in (master, workers)):
        failures = (*master.failed_launches, *workers.failed_launches)
        metrics[LAUNCH_FAILURES] = sum(now - failure.last_moment <= RECENT_SECONDS for failure in failures)
    if is_state_known:
        is_over = state is not None and (state.has_formed or state.phase in (Phase.FORMED, Phase.FAILED))
        metrics[FORMATION_PENDING_SECONDS] = 0 if is_over else max(0.0, now - workers.created)
    return metrics
