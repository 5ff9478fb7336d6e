"""The disk of one node or container, in memory, and the root file system that is made of it."""

import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path

from cdk_rehearsal.errors import RehearsalError

_DEFAULT_SIZE = "50%"
"""Of this machine's memory; what is not written takes none."""
_ATTEMPTS = 10


class Disk:
    """Disk of one node or container, and the root file system that is made of it."""

    def __init__(self, folder: Path) -> None:
        self._disk = folder / "disk"
        self.root = folder / "root"

    def make(self, lower: Sequence[Path], files: Iterable[tuple[str, bytes]], size_bytes: int | None = None) -> None:
        """
        Mount the disk over the image's layers, the uppermost first.

        Args:
            lower: The layers.
            files: Path below the root, and content; a path that ends with `/` is a folder.
            size_bytes: Size of the disk. Default: half of this machine's memory.
        """
        for folder in (self._disk, self.root):
            folder.mkdir(parents=True)
        size = str(size_bytes or _DEFAULT_SIZE)
        check_run(["mount", "-t", "tmpfs", "-o", f"mode=755,size={size}", "disk", str(self._disk)])
        upper, scratch = self._disk / "upper", self._disk / "scratch"
        for folder in (upper, scratch):
            folder.mkdir()
        for path, content in files:
            place = upper / path.lstrip("/")
            (place if path.endswith("/") else place.parent).mkdir(parents=True, exist_ok=True)
            if not path.endswith("/"):
                place.write_bytes(content)
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

    def remove(self) -> None:
        """Unmount and forget the disk; its memory is free when the last process on it has ended."""
        for folder in (self.root, self._disk):
            subprocess.run(["umount", "--lazy", str(folder)], check=False, capture_output=True)

    def _resize(self, size: str) -> None:
        check_run(["mount", "-o", f"remount,size={size}", str(self._disk)])


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
