"""
The outer namespaces of the lab.

Everything of a rehearsal (embedded AWS, nodes, links, mounts) lives in one set of namespaces whose first process is the
lab. The kernel removes all of it when that process ends, and ends that process when its parent dies, however it dies.
"""

import os
import shutil
import signal
import subprocess
import sys
from types import FrameType

from deeplearning_rehearsal.errors import UnavailableError

_NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")


def require_namespaces() -> None:
    """
    Make sure that this process may create the lab's namespaces.

    Raises:
        UnavailableError: It may not; the message says why.
    """
    if not sys.platform.startswith("linux"):
        raise UnavailableError(f"a rehearsal needs Linux, this is {sys.platform}; run it in a Linux virtual machine")
    if os.geteuid() != 0:
        raise UnavailableError("a rehearsal needs root for network namespaces and mounts; run it with sudo")
    for program in ("unshare", "setpriv"):
        if shutil.which(program) is None:
            raise UnavailableError(f"missing: {program}; run: apt-get install util-linux")
    trial = subprocess.run(["unshare", *_NAMESPACES, "true"], capture_output=True, text=True, check=False)
    if trial.returncode != 0:
        raise UnavailableError(
            f"this machine refuses namespaces ({trial.stderr.strip()}); a container needs --privileged"
        )


def run_enclosed(module: str, argument: str) -> int:
    """
    Run a module of this package as the first process of new namespaces, and wait for it.

    Args:
        module: Name of the module, run with `python -m`.
        argument: Its one argument.

    Returns:
        The module's exit status.
    """
    # --pdeathsig covers this process, --kill-child covers unshare: SIGKILL of either ends the lab.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, sys.executable, "-m", module, argument]
    process = subprocess.Popen(command)

    def end_lab(_number: int, _frame: FrameType | None) -> None:
        process.kill()  # unshare ignores SIGTERM while it waits for its child

    previous = signal.signal(signal.SIGTERM, end_lab)
    try:
        return _wait(process)
    finally:
        signal.signal(signal.SIGTERM, previous)
        process.kill()
        process.wait()


def _wait(process: "subprocess.Popen[bytes]") -> int:
    while True:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            continue  # the lab got the same interrupt: it reports and ends by itself
        return status if status >= 0 else 128 - status
