"""Starts a session on one node of each role, as who logs in through Session Manager does."""

import time
from collections.abc import Iterable
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.errors import PromiseError

_CONNECT_SECONDS = 15.0
_PAUSE_SECONDS = 0.5


def check_sessions(session_manager: Any, instance_ids: Iterable[str]) -> None:
    """
    Start a session on each node.

    Args:
        session_manager: The operator's client of `ssm`.
        instance_ids: The nodes.

    Raises:
        PromiseError: A node's agent does not answer.
    """
    for instance_id in instance_ids:
        _start(session_manager, instance_id, time.monotonic() + _CONNECT_SECONDS)


def _start(session_manager: Any, instance_id: str, deadline: float) -> None:
    """Start a session; the agent of a node that just booted may still be connecting."""
    try:
        session_manager.start_session(Target=instance_id)
    except ClientError as error:
        if time.monotonic() > deadline:
            raise PromiseError(f"{instance_id} must be reached through Session Manager: {error}") from error
    else:
        return
    time.sleep(_PAUSE_SECONDS)
    _start(session_manager, instance_id, deadline)
