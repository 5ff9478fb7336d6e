"""Metrics of the cluster's capacity, from one invocation's observation."""

import logging
from collections.abc import Callable

from capacity_adjuster.aws.log_lines import line_fields
from capacity_adjuster.policy.decision import count_requested
from capacity_adjuster.policy.observation import ClusterObservation
from capacity_adjuster.policy.shrink_record import Adjustment
from capacity_adjuster.reconcile.observer import Observer
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.metrics import (
    CANDIDATES_TRIED,
    CAPACITY_ASKED,
    CAPACITY_LAUNCHED,
    FORMATION_PENDING_SECONDS,
    LAUNCH_FAILURES,
    Metric,
)

logger = logging.getLogger(__name__)
RECENT_SECONDS = 120
"""Age of a failed launch up to which it counts; the timer runs once a minute, so that each is counted."""
PATIENCE_SECONDS = 600
"""Age of groups from which on the state is read even while instances launch, to distinguish growth from formation."""


def log_capacity(observer: Observer, now: float, read_state: Callable[[], ClusterState | None]) -> None:
    """Log the metrics; raises nothing. Reads the state record if the invocation has not."""
    try:
        state, is_known = observer.state, observer.has_read_state
        workers = observer.cluster.workers
        if not is_known and workers is not None and now - workers.created >= PATIENCE_SECONDS:
            state, is_known = read_state(), True
        metrics = measure_capacity(observer.cluster, state, observer.adjustment, now, is_state_known=is_known)
        if observer.candidates_tried:
            metrics[CANDIDATES_TRIED] = observer.candidates_tried
    except Exception:
        logger.exception("could not measure the capacity")
        return
    if metrics:
        words = ", ".join(f"{metric.name} {value:.6g}" for metric, value in metrics.items())
        logger.info("measured: %s", words, extra=line_fields(state.generation if state else 0, metrics=metrics))


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

    `is_state_known` distinguishes an unread state from an absent one.
    """
    master, workers = observed.master, observed.workers
    if master is None or workers is None:
        return {}
    asked = master.desired + count_requested(workers, adjustment)
    if state is not None and state.reason:  # The reason explains the missing nodes.
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
