"""Whether anything stops a cluster by itself, as adjuster and nodes were told at the deployment."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from deeplearning_contract.settings import adjuster_variable

LIMIT_VARIABLES = tuple(map(adjuster_variable, ("stop_after_seconds", "budget_topic_arn")))
"""Variables of the adjuster's environment."""
NO_END = (
    "nothing stops this cluster by itself, it costs money until you do; deploy it with stop_when_idle_minutes or "
    "stop_after_hours, or run on the master: sudo deeplearning end"
)
_IDLE = re.compile(rb'"stop_when_idle_seconds"\s*:\s*([1-9]\d*)')


def has_end(limits: Mapping[str, str], templates: Mapping[str, Mapping[str, Any]]) -> bool:
    """
    Tell whether the cluster ends at a deadline, by its budget, or when it is idle.

    Args:
        limits: Those of `LIMIT_VARIABLES` that the adjuster has.
        templates: Data of the launch templates, whose user data holds the nodes' settings.
    """
    if any(value not in ("", "0") for value in limits.values()):
        return True
    return any(_IDLE.search(decode_user_data(data)) for data in templates.values())


def decode_user_data(data: Mapping[str, Any]) -> bytes:
    """Return the user data of a launch template; empty when it is none."""
    try:
        return base64.b64decode(data.get("UserData", ""))
    except binascii.Error:
        return b""
