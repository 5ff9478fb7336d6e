"""
How fast a job trains, as it says itself: rank 0 leaves a JSON line in the file that its environment names.

The file is the job's, so it is read as the login user, in a process that a hanging file system cannot hold for long;
what is in it is believed when it is a number.
"""

import json
from pathlib import Path

from deeplearning_contract.names import METRICS_PATH_VARIABLE, SAMPLES_PER_SECOND
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

PROC = "/proc"
READ_SECONDS = 5.0
MOST_BYTES = 4096
MOST_FILES = 8
"""Of jobs that run at the same time; more are not looked at."""
_LONGEST_PATH = 4096
_MOST = 1e15
"""CloudWatch takes larger numbers; nobody trains so fast."""


class TrainingThroughput:
    """Reads what the jobs of this node say."""

    def __init__(self, node: Node) -> None:
        """Bind the node; nothing is read yet."""
        self._node = node
        self._last: dict[str, str] = {}

    def read(self) -> float | None:
        """
        Return the samples a second of all jobs together that have said something new since the last look.

        None when no job runs, or none has said anything new: a job that hangs has no throughput.
        """
        said = {path: self._read_file(path) for path in find_metric_files(self._node.path(PROC))[:MOST_FILES]}
        news = [text for path, text in said.items() if text and text != self._last.get(path)]
        self._last = said
        values = [value for value in map(parse_throughput, news) if value is not None]
        return sum(values) if values else None

    def _read_file(self, path: str) -> str:
        """Return the end of a file with the time of its last change; empty when it cannot be read."""
        user = self._node.settings.login_user
        argv = ["runuser", "-u", user, "--", "tail", "--bytes", str(MOST_BYTES), "--", path]
        stat = ["runuser", "-u", user, "--", "stat", "--dereference", "--format=%F %Y", "--", path]
        try:
            changed = self._node.programs.run(stat, timeout_seconds=READ_SECONDS)
            if not changed.startswith("regular file"):  # Of a pipe or a device nobody knows when it ends.
                return ""
            return changed + self._node.programs.run(argv, timeout_seconds=READ_SECONDS)
        except ProgramError:
            return ""


def find_metric_files(proc: Path) -> list[str]:
    """Return the files that the environments of this node's processes name, in the order of their names."""
    found = set()
    prefix = f"{METRICS_PATH_VARIABLE}=".encode()
    try:
        processes = [folder for folder in proc.iterdir() if folder.name.isdigit()]
    except OSError:
        return []
    for folder in processes:
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # It has ended.
            continue
        found |= {word[len(prefix) :].decode("utf-8", "replace") for word in words if word.startswith(prefix)}
    return sorted(path for path in found if path.startswith("/") and path.isprintable() and len(path) < _LONGEST_PATH)


def parse_throughput(text: str) -> float | None:
    """Return the samples a second of the last line that says them; anything else is ignored."""
    for line in reversed(text.splitlines()):
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            continue
        value = document.get(SAMPLES_PER_SECOND) if isinstance(document, dict) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if 0 <= value <= _MOST:
            return float(value)
    return None
