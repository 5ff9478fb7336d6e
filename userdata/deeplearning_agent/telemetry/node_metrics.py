"""Metrics that a node measures of itself once a minute: GPUs, the shared file system, and training throughput."""

import json
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from deeplearning_agent.telemetry.log_excerpts import log_provisioning
from deeplearning_agent.telemetry.log_records import LogFields
from deeplearning_contract.metrics import (
    FILE_SYSTEM_READ,
    FILE_SYSTEM_WRITE,
    GPU_UTILIZATION,
    TRAINING_THROUGHPUT,
    Metric,
)
from deeplearning_contract.names import METRICS_PATH_VARIABLE, SAMPLES_PER_SECOND
from deeplearning_node.health.gpus import GPU_SECONDS, read_utilization
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError

LOG = logging.getLogger(__name__)
MINUTE_SECONDS = 60.0
PROC = "/proc"
MOUNT_STATISTICS = "/proc/self/mountstats"
MIB = 1024 * 1024
READ_SECONDS = 5.0
MOST_BYTES = 4096
MOST_FILES = 8
"""Most jobs whose metrics are read at the same time; further ones are ignored."""
Source = Callable[[], dict[Metric, float]]

_MOUNT = re.compile(r"device (\S+) mounted on (\S+) with fstype nfs4?(?: |$)")
_BYTES = re.compile(r"\s*bytes:\s+([0-9]+(?: [0-9]+){7})\s*")
_SERVER_READ, _SERVER_WRITE = 4, 5
"""Positions of the bytes that went over the network, without those from the page cache, among eight numbers."""
_LONGEST_PATH = 4096
_MOST = 1e15
"""Above any real throughput, and below CloudWatch's limit."""


@dataclass(frozen=True)
class Traffic:
    """Bytes that were read and written since the file system was mounted, and the time of the count in seconds."""

    at: float
    read: int
    written: int

    def rates_since(self, before: "Traffic") -> tuple[float, float] | None:
        """Return MiB read and written a second since an earlier count; None after a new mount."""
        seconds = self.at - before.at
        read, written = self.read - before.read, self.written - before.written
        return None if seconds <= 0 or read < 0 or written < 0 else (read / MIB / seconds, written / MIB / seconds)


class NodeMetrics:
    """Metrics of one node; for one thread."""

    def __init__(self, node: Node, membership: Source | None = None) -> None:
        """Bind the node, and the master's source of cluster metrics; nothing is measured yet."""
        self._node = node
        self._membership = membership or dict
        self._provisioning: Mapping[str, Mapping[str, str]] = {}
        self._traffic: Traffic | None = None
        self._reports: Mapping[str, str] = {}
        """Path of each job's metrics file -> its text in the last round."""

    def wait(self) -> None:
        self._node.clock.wait(MINUTE_SECONDS)

    def log(self) -> None:
        """Log the progress of provisioning and one line of metrics; logs errors and raises nothing."""
        try:
            self._provisioning = log_provisioning(self._node, self._provisioning)
            metrics = self.measure()
        except Exception:
            LOG.exception("could not measure the node")
            return
        if metrics:
            words = ", ".join(f"{metric.name} {value:.6g}" for metric, value in metrics.items())
            LOG.info("measured: %s", words, extra=LogFields(metrics=metrics, is_local=False).extra)

    def measure(self) -> dict[Metric, float]:
        """Return the metrics that this node can measure."""
        metrics = dict(self._membership())
        utilization = read_utilization(self._node.programs, GPU_SECONDS)
        if utilization is not None:
            metrics[GPU_UTILIZATION] = utilization
        metrics |= self._measure_file_system()
        throughput = self._measure_throughput() if self._node.is_master else None
        if throughput is not None:
            metrics[TRAINING_THROUGHPUT] = throughput
        return metrics

    def _measure_file_system(self) -> dict[Metric, float]:
        before, self._traffic = self._traffic, read_traffic(self._node)
        rates = self._traffic.rates_since(before) if self._traffic and before else None
        return {FILE_SYSTEM_READ: rates[0], FILE_SYSTEM_WRITE: rates[1]} if rates else {}

    def _measure_throughput(self) -> float | None:
        """
        Return the samples a second of all jobs that have reported since the last round.

        None when no job runs, or none has reported: a job that hangs has no throughput.
        """
        before = self._reports
        paths = find_metric_files(self._node.path(PROC))[:MOST_FILES]
        self._reports = {path: read_metric_file(self._node, path) for path in paths}
        news = [text for path, text in self._reports.items() if text and text != before.get(path)]
        values = [value for value in map(parse_throughput, news) if value is not None]
        return sum(values) if values else None


def read_traffic(node: Node) -> Traffic | None:
    """
    Return the traffic of the shared file system since it was mounted; None without NFS, or while it is not mounted.

    efs-utils mounts NFS too, from a proxy on the node itself.
    """
    try:
        text = node.path(MOUNT_STATISTICS).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    counted = parse_mount_statistics(text).get(node.settings.file_system.mount_point)
    return Traffic(node.clock.read(), *counted) if counted else None


def parse_mount_statistics(text: str) -> dict[str, tuple[int, int]]:
    """Return the bytes that each mounted NFS has read from and written to its server, by mount point."""
    found: dict[str, tuple[int, int]] = {}
    mount_point = ""
    for line in text.splitlines():
        if line.startswith("device "):
            match = _MOUNT.match(line)
            mount_point = match[2] if match else ""
            continue
        counts = _BYTES.fullmatch(line) if mount_point else None
        if counts:
            numbers = [int(number) for number in counts[1].split()]
            found[mount_point] = numbers[_SERVER_READ], numbers[_SERVER_WRITE]
    return found


def read_metric_file(node: Node, path: str) -> str:
    """
    Return the time of a file's last change and its end; empty when it cannot be read.

    The job owns the file, so the login user reads it, in a process with a time limit: a file system may hang.
    """
    user = node.settings.login_user
    argv = ["runuser", "-u", user, "--", "tail", "--bytes", str(MOST_BYTES), "--", path]
    stat = ["runuser", "-u", user, "--", "stat", "--dereference", "--format=%F %Y", "--", path]
    try:
        changed = node.programs.run(stat, timeout_seconds=READ_SECONDS)
        if not changed.startswith("regular file"):  # Reading a pipe or a device may never end.
            return ""
        return changed + node.programs.run(argv, timeout_seconds=READ_SECONDS)
    except ProgramError:
        return ""


def find_metric_files(proc: Path) -> list[str]:
    """Return the files that the environments of this node's processes name, sorted."""
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
    """Return the samples a second of the last line that contains them; other lines are ignored."""
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
