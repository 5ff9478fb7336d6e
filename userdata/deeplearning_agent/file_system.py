"""Mounts the shared file system, so that the login user can write to it and a reboot mounts it again."""

import logging
import re

from deeplearning_agent.atomic_file import write_block
from deeplearning_agent.deadline import Deadline
from deeplearning_agent.failure import StageFailure
from deeplearning_agent.node import Node
from deeplearning_agent.programs import ProgramError

LOG = logging.getLogger(__name__)
LONGEST_SECONDS = 300
ATTEMPT_SECONDS = 30
"""A mount of a server that does not answer hangs; it is given up after this time and tried again."""
PROBE_SECONDS = 15

_MOUNT_POINT = re.compile(r"/[A-Za-z0-9._/-]+")
_WORD = re.compile(r"[^\s#]+")
_KINDS = ("nfs4", "efs")


def mount_file_system(node: Node, deadline: Deadline) -> None:
    """
    Mount the file system, unless it is mounted, and let the login user write to it.

    Everything that touches it runs in a child with a time limit, and all is tried again for five minutes, or a third
    of the time that is left if that is less: the failure still has to travel.

    Effects: the mount point; a block in /etc/fstab; the owner of a fresh file system's root.

    Raises:
        StageFailure: It could not be mounted, or is another's and closed to the login user.
    """
    settings = node.settings.file_system
    check_settings(node)
    mount_point = str(node.path(settings.mount_point))
    line = f"{settings.source} {settings.mount_point} {settings.kind} {settings.options},_netdev,nofail 0 0"
    write_block(node.path("/etc/fstab"), line)
    argv = ["mount", "-t", settings.kind, "-o", settings.options, settings.source, mount_point]
    limit = deadline.at_most(min(LONGEST_SECONDS, deadline.remaining / 3))
    last = ProgramError("no attempt was made")
    for attempt in limit.attempts():
        try:
            if not is_mounted(node):
                node.programs.run(["mkdir", "-p", mount_point], timeout_seconds=PROBE_SECONDS)
                node.programs.run(argv, timeout_seconds=min(ATTEMPT_SECONDS, max(1.0, deadline.remaining)))
            return open_to_login_user(node)
        except ProgramError as error:  # noqa: PERF203 - waiting dwarfs it
            if error.is_missing:
                raise
            last = error
            LOG.warning("attempt %d to mount %s: %s %s", attempt, settings.source, last, last.output.strip())
    raise StageFailure(
        f"{settings.source} could not be mounted on {settings.mount_point}: {last}",
        "check that port 2049 is open between the nodes and the file system and that its name resolves in the VPC",
        output=last.output,
    )


def check_settings(node: Node) -> None:
    """
    Refuse what could not be one line of /etc/fstab.

    Raises:
        StageFailure: A value of the settings is malformed.
    """
    settings = node.settings.file_system
    words = (settings.source, settings.options)
    if settings.kind in _KINDS and _MOUNT_POINT.fullmatch(settings.mount_point) and all(map(_WORD.fullmatch, words)):
        return
    raise StageFailure(
        f"file_system must be nfs4 or efs on a plain absolute path, got {settings}", "correct the mount point"
    )


def is_mounted(node: Node) -> bool:
    """Tell whether something is mounted on the mount point; a hanging one counts as not."""
    mount_point = str(node.path(node.settings.file_system.mount_point))
    try:
        node.programs.run(["mountpoint", "-q", mount_point], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.is_missing:
            raise
        return False
    return True


def open_to_login_user(node: Node) -> None:
    """
    Let the login user write to the root of the file system.

    A new EFS belongs to root and is empty: it is given to the login user. Nodes do this at the same time, so what is
    not writable is looked at once more before it is called another's.

    Raises:
        StageFailure: The file system holds files and the login user may not write to it.
    """
    mount_point = str(node.path(node.settings.file_system.mount_point))
    user = node.login_user()
    if _is_writable(node, user.name, mount_point):
        return
    is_fresh = not node.programs.run(["ls", "-A", mount_point], timeout_seconds=PROBE_SECONDS).strip()
    if is_fresh:
        node.programs.run(["chown", f"{user.user_id}:{user.group_id}", mount_point], timeout_seconds=PROBE_SECONDS)
    if not _is_writable(node, user.name, mount_point):
        raise StageFailure(
            f"{user.name} may not write to {node.settings.file_system.mount_point}, which already holds files",
            f"give its root to {user.name} or open it to them, or use an access point or a new file system",
        )


def _is_writable(node: Node, user: str, path: str) -> bool:
    try:
        node.programs.run(["runuser", "-u", user, "--", "test", "-w", path], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.status is None:  # A file system that hangs says nothing of permissions.
            raise
        return False
    return True
