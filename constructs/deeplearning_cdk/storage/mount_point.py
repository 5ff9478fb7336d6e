"""Mount points that are allowed: none in a folder of the system or of this project."""

from pathlib import PurePosixPath
from typing import Annotated

from deeplearning_cdk.props.check import Rule
from deeplearning_cdk.props.rules import matching

_REMEDY = "write e.g. /efs or /mnt/efs"
# Folders of the system by the Filesystem Hierarchy Standard 3.0, and /snap of Ubuntu. Images keep frameworks, EFA and
# their own disks below /opt, and nodes keep the cluster's files there. /srv, /mnt, /media and new names are free.
_SYSTEM = frozenset(
    "bin boot dev etc lib lib32 lib64 libx32 lost+found opt proc root run sbin snap sys tmp usr var".split()  # noqa: SIM905
)


def _is_free(path: str) -> bool:
    first, *rest = PurePosixPath(path).parts[1:]
    # A home folder contains the login user's keys; folders inside it are free.
    return first not in _SYSTEM and (first != "home" or len(rest) > 1)


MountPoint = Annotated[
    str,
    matching(
        r"(?=.{2,128}$)(/[A-Za-z0-9][A-Za-z0-9._-]*)+",
        "be an absolute path of at most 128 letters, digits and ._- without '..' or a last slash",
        _REMEDY,
    ),
    Rule(must="not be or lie in a folder of the system, nor be a home", remedy=_REMEDY, is_kept=_is_free),
]
"""Mount point, written into user data and unit files unchanged."""
