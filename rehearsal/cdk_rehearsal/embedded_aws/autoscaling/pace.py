"""How fast Auto Scaling groups act."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class ScalingPace:
    """
    How fast groups act, in seconds.

    Attributes:
        reaction: From a change of capacity to the activities that follow.
        launch: Shortest time from an activity's start to an instance in service.
        failure: From an activity's start to its failure.
        termination: From the order to terminate to the end of the activity.
        retries: Pauses before a failed launch is tried again; the last one repeats for ever.
        notification_gap: From the creation of a group to the set-up of its notifications.
    """

    reaction: float = 0.3
    launch: float = 1.0
    failure: float = 0.1
    termination: float = 0.3
    retries: Sequence[float] = (20.0, 40.0, 80.0, 160.0, 300.0)
    notification_gap: float = 0.6
