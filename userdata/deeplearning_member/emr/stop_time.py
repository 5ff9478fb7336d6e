"""Stop of the cluster after the time of its prop `stop_after`: a timer on the primary node, and a notice before."""

import re
from datetime import datetime, timedelta, timezone

from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node

STOP_TIMER = "deeplearning-deadline.timer"
"""Ends the cluster, by the service of the same name."""
UNITS = "/etc/systemd/system"
NOTICE_SECONDS = 900
"""Time before the stop at which jobs get the notice, as on EC2."""
_TIMER = """[Unit]
Description=The time of this EMR cluster is over

[Timer]
OnCalendar={moment:%Y-%m-%d %H:%M:%S} UTC
Persistent=true
AccuracySec=1s

[Install]
WantedBy=timers.target
"""
_SERVICE = """[Unit]
Description=Ends this EMR cluster, which EMR terminates with its primary node

[Service]
Type=oneshot
ExecStart=/usr/bin/env systemctl poweroff
"""
_MOMENT = re.compile(r"^OnCalendar=([0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}) UTC$", re.MULTILINE)


def write_stop_timer(node: Node, seconds: int) -> None:
    """
    Write the timer that powers this node off in so many seconds, unless there is one.

    The timer needs neither AWS nor the shared file system. EMR terminates a cluster that has lost its primary node (EMR
    FAQs, "What happens if the primary node fails?").
    """
    timer = node.path(f"{UNITS}/{STOP_TIMER}")
    if not timer.exists():
        moment = datetime.now(timezone.utc) + timedelta(seconds=seconds)
        write_file(timer.with_suffix(".service"), _SERVICE)
        write_file(timer, _TIMER.format(moment=moment))


def plan_notice(node: Node) -> str:
    """Return the notice of the stop, from the timer of this node; empty long before the stop, or without a timer."""
    try:
        found = _MOMENT.search(node.path(f"{UNITS}/{STOP_TIMER}").read_text(encoding="utf-8"))
        moment = datetime.strptime(f"{found[1]}+0000", "%Y-%m-%d %H:%M:%S%z") if found else None
    except (OSError, ValueError):
        moment = None
    if moment is None or moment - datetime.now(timezone.utc) > timedelta(seconds=NOTICE_SECONDS):
        return ""
    return f"the cluster stops by itself at {moment:%Y-%m-%dT%H:%M:%SZ}, as long after its start as stop_after allows"
