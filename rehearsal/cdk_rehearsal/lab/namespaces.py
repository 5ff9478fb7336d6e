"""What nodes and containers share: a disk over the layers of an image, namespaces, and programs inside them."""

import os
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdk_rehearsal.errors import RehearsalError

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NAMESPACES = ("--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child")
"""Options of `unshare`."""
_DEFAULT_SIZE = "50%"
"""Of this machine's memory; what is not written takes none."""
_ATTEMPTS = 10


class NodeDisk:
    """Disk of one node or container, and the root file system that is made of it."""

    def __init__(self, folder: Path) -> None:
        self._disk = folder / "disk"
        self.root = folder / "root"

    def make(self, lower: Sequence[Path], files: Mapping[str, str], size_bytes: int | None) -> None:
        """Mount the disk over the image's layers, the uppermost first. Default size: half of this machine's memory."""
        for folder in (self._disk, self.root):
            folder.mkdir(parents=True)
        size = str(size_bytes or _DEFAULT_SIZE)
        check_run(["mount", "-t", "tmpfs", "-o", f"mode=755,size={size}", "disk", str(self._disk)])
        upper, scratch = self._disk / "upper", self._disk / "scratch"
        for folder in (upper, scratch):
            folder.mkdir()
        for path, text in files.items():
            (upper / path).parent.mkdir(parents=True, exist_ok=True)
            (upper / path).write_text(text)
        layers = ":".join(str(layer) for layer in lower)
        options = f"lowerdir={layers},upperdir={upper},workdir={scratch}"
        check_run(["mount", "-t", "overlay", "overlay", "-o", options, str(self.root)])

    def fill(self, free_bytes: int = 0) -> None:
        """
        Shrink the disk around what it holds, but for some bytes; less than a page counts as nothing.

        RehearsalError when the kernel refused, or the node wrote faster than its disk could shrink.
        """
        for attempt in range(_ATTEMPTS):
            status = os.statvfs(self._disk)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            try:
                self._resize(str(used + free_bytes))
            except RehearsalError:
                if attempt + 1 == _ATTEMPTS:  # the node has written meanwhile
                    raise
            else:
                return

    def free(self) -> None:
        """Let the disk have its usual size again."""
        self._resize(_DEFAULT_SIZE)

    def close(self) -> None:
        """Unmount the root file system; what was written stays."""
        check_run(["umount", "--lazy", str(self.root)])

    def remove(self) -> None:
        """Unmount and forget the disk; its memory is free when the node's last process has ended."""
        for folder in (self.root, self._disk):
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)

    def _resize(self, size: str) -> None:
        check_run(["mount", "-o", f"remount,size={size}", str(self._disk)])


def enter(first: int) -> list[str]:
    """Return the arguments with which `nsenter` enters the namespaces of a first process."""
    return ["--target", str(first), "--mount", "--uts", "--ipc", "--net", "--pid"]


def run_inside(
    entry: Sequence[str],
    argv: Sequence[str],
    *,
    user: str | None = None,
    login_shell: bool = False,
    timeout: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """
    Run a program in namespaces.

    Args:
        entry: Arguments of `enter`.
        argv: The program and its arguments.
        user: Its user. Default: root.
        login_shell: Whether through a login shell. Default: with a bare environment, which nothing has filled.
        timeout: Seconds after which it is killed; its status is then 137. Default: 60.
    """
    limited = ["timeout", "--signal=KILL", str(timeout), *_as_user(argv, user or "root", login_shell=login_shell)]
    return subprocess.run(
        ["nsenter", *entry, "--", *limited],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={"PATH": SYSTEM_PATH, "LANG": "C.UTF-8"},
        encoding="utf-8",
        errors="replace",
        check=False,
    )


def _as_user(argv: Sequence[str], user: str, *, login_shell: bool) -> list[str]:
    if login_shell:
        return ["su", "--login", user, "--command", shlex.join(argv)]
    if user == "root":
        return list(argv)
    home = f"/home/{user}"
    bare = {"HOME": home, "USER": user, "LOGNAME": user, "SHELL": "/bin/bash", "PATH": SYSTEM_PATH, "LANG": "C.UTF-8"}
    assignments = [f"{name}={value}" for name, value in bare.items()]
    become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
    return [*become, "env", "--ignore-environment", f"--chdir={home}", *assignments, *argv]


def first_child(pid: int) -> int | None:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def kill_process(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def check_run(command: list[str]) -> None:
    """
    Run a program; RehearsalError when it fails.

    From util-linux 2.39 on, mount passes each option by fsconfig(2), which takes at most 255 characters. They are too
    few for the layers of an overlay; with the variable, mount calls mount(2).
    """
    environment = os.environ | {"LIBMOUNT_FORCE_MOUNT2": "always"}
    answer = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if answer.returncode != 0:
        raise RehearsalError(f"{command[0]} failed: {answer.stderr.strip()}")
