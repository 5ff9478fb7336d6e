"""The cache of what is made or downloaded once; several rehearsals may share it."""

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def fill_once(cache: Path, key: str, fill: Callable[[Path], Path]) -> Path:
    """
    Return a folder of the cache, made first when it is not there.

    An interrupted attempt leaves nothing that a later one would take for a whole one.

    Args:
        cache: The cache; made when absent.
        key: Name of the folder.
        fill: Is given an empty folder, and returns the one in it that becomes the cache's; the rest is removed.
    """
    folder = cache.resolve() / key
    if folder.is_dir():
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(cache):
        if not folder.is_dir():
            for left in cache.glob("building-*"):
                shutil.rmtree(left)
            work = Path(tempfile.mkdtemp(prefix="building-", dir=folder.parent))
            fill(work).rename(folder)
            shutil.rmtree(work)
    return folder


@contextmanager
def _lock(cache: Path) -> Iterator[None]:
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
