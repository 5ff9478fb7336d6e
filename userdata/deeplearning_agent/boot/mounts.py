"""Mounts of the shared file system and FSx for Lustre, for jobs, restored after a reboot."""

import logging
import re

from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_node.atomic_file import write_block
from deeplearning_node.deadline import Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
LONGEST_SECONDS = 300
ATTEMPT_SECONDS = 30
"""Time after which an attempt to mount is ended and retried; a mount hangs while its server does not respond."""
PROBE_SECONDS = 15

_MOUNT_POINT = re.compile(r"/[A-Za-z0-9._/-]+")
_WORD = re.compile(r"[^\s#]+")
LUSTRE_HELPER = "mount.lustre"
_NFS_REMEDY = "port 2049 is open between the nodes and the file system and that its name resolves in the VPC"
_LUSTRE_REMEDY = (
    "the image has a Lustre client for its kernel, and that ports 988 and 1018-1023 are open both ways between the "
    "nodes and the file system"
)
_REMEDIES = {"nfs4": _NFS_REMEDY, "efs": _NFS_REMEDY, "lustre": _LUSTRE_REMEDY}
"""Kind -> what to check when it cannot be mounted."""


def mount_file_systems(node: Node, deadline: Deadline) -> None:
    """
    Mount the shared file system, and FSx for Lustre where the node has one, unless they are mounted.

    Each access runs in a child process with a time limit. It is retried for five minutes, or a third of the remaining
    time if that is less, which leaves time to report the failure. The login user may write to the shared file system,
    and to an empty Lustre; a Lustre that shows a bucket keeps the permissions of its objects.

    Effects: the mount points; a block in /etc/fstab; the owner of a fresh file system's root.
    """
    shared, lustre = node.settings.file_system, node.settings.needs.lustre
    wanted = [shared, *([lustre] if lustre else [])]
    for settings in wanted:
        check_settings(settings)
    if lustre and not node.programs.has(LUSTRE_HELPER):
        # A retry cannot help.
        raise StageFailure(
            f"the image lacks {LUSTRE_HELPER}, which mounts {lustre.source}",
            "build an image with the Lustre client for its kernel; the FSx for Lustre user guide describes it",
        )
    lines = (f"{s.source} {s.mount_point} {s.kind} {s.options},_netdev,nofail 0 0" for s in wanted)
    write_block(node.path("/etc/fstab"), "\n".join(lines))
    for settings in wanted:
        _mount(node, settings, deadline)


def _mount(node: Node, settings: FileSystemSettings, deadline: Deadline) -> None:
    mount_point = str(node.path(settings.mount_point))
    argv = ["mount", "-t", settings.kind, "-o", settings.options, settings.source, mount_point]
    limit = deadline.at_most(min(LONGEST_SECONDS, deadline.remaining / 3))
    last = ProgramError("no attempt was made")
    for attempt in limit.attempts():
        try:
            if not is_mounted(node, settings.mount_point):
                node.programs.run(["mkdir", "-p", mount_point], timeout_seconds=PROBE_SECONDS)
                node.programs.run(argv, timeout_seconds=min(ATTEMPT_SECONDS, max(1.0, deadline.remaining)))
            return open_to_login_user(node, settings)
        except ProgramError as error:  # noqa: PERF203 - waiting dwarfs it
            if error.is_missing:
                raise
            last = error
            LOG.warning("attempt %d to mount %s: %s %s", attempt, settings.source, last, last.output.strip())
    raise StageFailure(
        f"{settings.source} could not be mounted on {settings.mount_point}: {last}",
        f"check that {_REMEDIES[settings.kind]}",
        output=last.output,
    )


def check_settings(settings: FileSystemSettings) -> None:
    """Refuse settings that cannot be one line of /etc/fstab."""
    words = (settings.source, settings.options)
    if settings.kind in _REMEDIES and _MOUNT_POINT.fullmatch(settings.mount_point) and all(map(_WORD.fullmatch, words)):
        return
    raise StageFailure(
        f"file_system must be {', '.join(_REMEDIES)} on a plain absolute path, got {settings}",
        "correct the mount point",
    )


def is_mounted(node: Node, mount_point: str) -> bool:
    """Return whether something is mounted on the mount point; a mount that hangs counts as none."""
    try:
        node.programs.run(["mountpoint", "-q", str(node.path(mount_point))], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.is_missing:
            raise
        return False
    return True


def open_to_login_user(node: Node, settings: FileSystemSettings) -> None:
    """
    Let the login user write to the root of a file system: an empty one gets that owner.

    Several nodes do this at the same time, so access is checked once more before the StageFailure.
    """
    mount_point = str(node.path(settings.mount_point))
    user = node.login_user()
    if _is_writable(node, user.name, mount_point):
        return
    is_fresh = not node.programs.run(["ls", "-A", mount_point], timeout_seconds=PROBE_SECONDS).strip()
    if is_fresh:
        node.programs.run(["chown", f"{user.user_id}:{user.group_id}", mount_point], timeout_seconds=PROBE_SECONDS)
    if _is_writable(node, user.name, mount_point):
        return
    if settings.kind == "lustre":
        LOG.info("%s may read %s, but not write to its root", user.name, settings.mount_point)
        return
    raise StageFailure(
        f"{user.name} may not write to {settings.mount_point}, which already contains files",
        f"make {user.name} its owner, let that user write to it, or use an access point or a new file system",
    )


def _is_writable(node: Node, user: str, path: str) -> bool:
    try:
        node.programs.run(["runuser", "-u", user, "--", "test", "-w", path], timeout_seconds=PROBE_SECONDS)
    except ProgramError as error:
        if error.status is None:  # The file system hangs, so its permissions are unknown.
            raise
        return False
    return True
