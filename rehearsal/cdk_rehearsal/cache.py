"""The cache of what is made or downloaded once; all rehearsals of a user share it, from whatever checkout."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cdk_rehearsal.errors import UnavailableError

CACHE_NAME = "deeplearning-cdk"
_REMEDY = "give --cache another folder, or set XDG_CACHE_HOME"


def find_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """
    Return where this user's caches are: below `XDG_CACHE_HOME`, or below `~/.cache`.

    A relative `XDG_CACHE_HOME` counts as none, as the XDG Base Directory Specification has it
    (https://specifications.freedesktop.org/basedir-spec/latest/).

    Args:
        environment: The variables of the process. Default: this one's.

    Raises:
        UnavailableError: The user has no home.
    """
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / CACHE_NAME
    home = Path(environment.get("HOME", ""))
    if not home.is_absolute():
        raise UnavailableError(f"HOME must be this user's home, got '{environment.get('HOME', '')}'; {_REMEDY}")
    return home / ".cache" / CACHE_NAME


def require_cache(cache: Path) -> None:
    """
    Make the cache when it is absent, and make sure that this process may write into it.

    Raises:
        UnavailableError: It may not.
    """
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise UnavailableError(f"cache must be a writable folder, got {cache} ({error.strerror}); {_REMEDY}") from error


def fill_once(cache: Path, key: str, fill: Callable[[Path], Path], tell: Callable[[str], None]) -> Path:
    """
    Return a folder of the cache, made first when it is not there.

    An interrupted attempt leaves nothing that a later one would take for a whole one.

    Args:
        cache: The cache; made when absent.
        key: Name of the folder.
        fill: Is given an empty folder, and returns the one in it that becomes the cache's; the rest is removed.
        tell: Told a line when another process makes the same folder and is waited for.

    Raises:
        UnavailableError: The cache cannot be written.
    """
    folder = cache.resolve() / key
    if folder.is_dir():
        return folder
    require_cache(cache)
    with lock_cache(cache, key, tell):
        if not folder.is_dir():
            with make_work_folder(cache, key) as work:
                fill(work).rename(folder)
    return folder


@contextmanager
def make_work_folder(cache: Path, key: str) -> Iterator[Path]:
    """
    Make an empty folder beside what is whole, and remove what is left of it; needs the lock of its key.

    What an interrupted process left of the same key is removed first.
    """
    for left in cache.glob(f"building-{key}-*"):
        shutil.rmtree(left)
    work = Path(tempfile.mkdtemp(prefix=f"building-{key}-", dir=cache.resolve()))
    yield work
    shutil.rmtree(work)


@contextmanager
def lock_cache(cache: Path, key: str, tell: Callable[[str], None], *, is_shared: bool = False) -> Iterator[None]:
    """
    Keep other processes from a part of the cache.

    Args:
        cache: The cache, which exists.
        key: The part; each has a lock of its own.
        tell: Told a line when another process has the part and is waited for.
        is_shared: Whether others may hold it at the same time, if they share it too: to read. Default: nobody may.
    """
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    with (cache / f".{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            tell(f"waiting for another process that uses {cache / key}")
            fcntl.flock(lock, kind)
        yield
