"""The files by which everybody on the master knows whether the cluster's run script runs."""

import os
from pathlib import Path

from deeplearning_node.node import INSTANCES_DIRECTORY

STARTED_FILE = "/run/deeplearning/run-script-started"
"""Below /run, which a reboot empties: a script that a loss of power cut off is started again."""
STATUS_NAME = "run-script-status"
"""The file of this instance that says with what the script ended."""


def find_running_script(root: Path, instance_id: str) -> bool:
    """Return whether the run script runs on this node."""
    status = root / INSTANCES_DIRECTORY.lstrip("/") / instance_id / STATUS_NAME
    try:
        group = int((root / STARTED_FILE.lstrip("/")).read_text(encoding="ascii"))
        is_over = status.exists()
        os.killpg(group, 0)
    except PermissionError:
        return True  # It is root's shell that waits for it, and it is there.
    except (OSError, ValueError):
        return False
    return not is_over
