"""System limits of jobs: locked memory, open files, and shared memory that outlives a login."""

from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node

LIMITS = "/etc/security/limits.d/deeplearning.conf"
LOGIND = "/etc/systemd/logind.conf.d/deeplearning.conf"
RESTART_SECONDS = 60
_LIMITS_TEXT = """* - memlock unlimited
* - nofile 1048576
"""
"""EFA needs unlimited locked memory (AWS's EFA guide); the number of files is that of the agent's unit."""


def prepare_job_limits(node: Node) -> None:
    """
    Raise the limits of logins, and keep logind from deleting the shared memory of jobs.

    With `RemoveIPC=yes`, its default, logind deletes all files of a user in /dev/shm some ten seconds after the last
    session of that user ends (logind.conf(5)). The master's health check logs in and out while jobs run, so their
    files (Open MPI, NCCL, data loaders) would go. The agent's service has its limits in its unit.

    Effects: both files; a restart of systemd-logind when its file has changed, which keeps the sessions.
    """
    write_file(node.path(LIMITS), _LIMITS_TEXT)
    if write_file(node.path(LOGIND), "[Login]\nRemoveIPC=no\n"):
        node.programs.run(["systemctl", "try-restart", "systemd-logind.service"], timeout_seconds=RESTART_SECONDS)
