"""
The outer namespaces of the lab.

Everything of a rehearsal (embedded AWS, nodes, links, mounts) lives in one set of namespaces whose first process is the
lab. The kernel removes all of it when that process ends, and ends that process when its parent dies, however it dies.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.namespaces import CGROUP

_NAMESPACES = ("--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc")
_FIRST_PROCESS = "cdk_rehearsal.run.first_process"
_TERMINATED = 128 + signal.SIGTERM
_AGAIN_SECONDS = 1.0
_INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
_INOTIFY_INSTANCES = 8192
"""For 1,000 machines: systemd and its services take five each, and the kernel's default of 128 is for 28 of them."""


def require_namespaces() -> None:
    """Make sure that this process may create the lab's namespaces; UnavailableError says why it may not."""
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


def run_enclosed(entry: str, argument: str) -> int:
    """
    Call a function `module:function` in the first process of new namespaces, and return the status that it returns.

    The function takes the argument and the id of its process on this machine. The status is 143 after SIGTERM.

    Raises:
        UnavailableError: A limit of the kernel is too low for many machines, and cannot be raised.
    """
    raise_inotify_limit(_INOTIFY_LIMIT)
    host_proc = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY)
    # --pdeathsig covers this process, --kill-child covers unshare: SIGKILL of either ends the lab.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *_NAMESPACES, sys.executable, "-m", _FIRST_PROCESS]
    is_terminated = False
    process: subprocess.Popen[bytes] | None = None

    def end_lab(_number: int, _frame: FrameType | None) -> None:
        nonlocal is_terminated
        is_terminated = True
        if process is not None:
            process.kill()  # unshare ignores SIGTERM while it waits for its child

    previous = signal.signal(signal.SIGTERM, end_lab)
    try:
        process = subprocess.Popen([*command, entry, argument, str(host_proc)], pass_fds=[host_proc])
        if is_terminated:
            process.kill()
        status = _wait(process)
    finally:
        signal.signal(signal.SIGTERM, previous)
        os.close(host_proc)
        if process is not None:
            process.kill()
            process.wait()
            _remove_cgroups()
    return _TERMINATED if is_terminated else status


def raise_inotify_limit(limit: Path) -> None:
    """
    Raise the kernel's limit of inotify instances where it is low; no namespace has a limit of its own.

    It stays raised, because other rehearsals may run. Without it the systemd of the 29th machine does not start.

    Raises:
        UnavailableError: The limit cannot be raised.
    """
    if int(limit.read_text()) >= _INOTIFY_INSTANCES:
        return
    try:
        limit.write_text(str(_INOTIFY_INSTANCES))
    except OSError as error:
        raise UnavailableError(
            f"fs.inotify.max_user_instances must be {_INOTIFY_INSTANCES}, and cannot be raised here: {error}; "
            f"run on the host: sysctl -w fs.inotify.max_user_instances={_INOTIFY_INSTANCES}"
        ) from error


def end_enclosure(status: int) -> NoReturn:
    """
    End the first process of the namespaces with a status, and with it all that is in them.

    To close servers and mounts one by one would take seconds; the kernel removes them in any case.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _remove_cgroups() -> None:
    """
    Remove the cgroups of nodes and containers that ended, of earlier rehearsals too: they outlive their processes.

    Those of a node that runs are left alone, empty ones too: its systemd would fail to start what belongs there.
    """
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    tops = [Path(point) / CGROUP for _, point, kind, *_ in mounts if kind == "cgroup2"]
    for events in (path for top in tops[:1] for path in top.glob("*/cgroup.events")):
        with contextlib.suppress(OSError):  # Another rehearsal that ends removes it just now.
            if "populated 0" in events.read_text():
                for folder, _, _ in os.walk(events.parent, topdown=False):
                    Path(folder).rmdir()


def _wait(process: "subprocess.Popen[bytes]") -> int:
    pause = None
    while True:
        try:
            status = process.wait(pause)
        except (KeyboardInterrupt, subprocess.TimeoutExpired):
            # Again until it ends: the lab's first process does not exist yet, or has no handler and ignores it.
            pause = _AGAIN_SECONDS
            _interrupt(process.pid)
            continue
        return status if status >= 0 else 128 - status


def _interrupt(unshare: int) -> None:
    """Pass an interrupt on: a terminal's reaches the lab as well, another's does not, and unshare ignores both."""
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
        for child in children:
            os.kill(int(child), signal.SIGINT)
