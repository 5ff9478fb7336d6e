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
    Return the folder of this user's caches: below `XDG_CACHE_HOME`, or below `~/.cache`.

    A relative `XDG_CACHE_HOME` counts as none, as the XDG Base Directory Specification has it
    (https://specifications.freedesktop.org/basedir-spec/latest/). UnavailableError when the user has no home.
    """
    named = Path(environment.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named / CACHE_NAME
    home = Path(environment.get("HOME", ""))
    if not home.is_absolute():
        raise UnavailableError(f"HOME must be this user's home, got '{environment.get('HOME', '')}'; {_REMEDY}")
    return home / ".cache" / CACHE_NAME


def require_cache(cache: Path) -> None:
    """Make the cache when it is absent; UnavailableError when this process may not write into it."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=cache):
            pass
    except OSError as error:
        raise UnavailableError(f"cache must be a writable folder, got {cache} ({error.strerror}); {_REMEDY}") from error


def fill_once(cache: Path, key: str, fill: Callable[[Path], Path], report: Callable[[str], None]) -> Path:
    """
    Return a folder of the cache, made first when it is not there.

    `fill` gets an empty folder, and returns the one in it that becomes the cache's; the rest is removed. An interrupted
    attempt leaves nothing that a later one would take for a whole one. UnavailableError when the cache is not writable.
    """
    folder = cache.resolve() / key
    if folder.is_dir():
        return folder
    require_cache(cache)
    with lock_cache(cache, key, report):
        if not folder.is_dir():
            with make_work_folder(cache, key) as work:
                fill(work).rename(folder)
    return folder


@contextmanager
def make_work_folder(cache: Path, key: str) -> Iterator[Path]:
    """Make an empty folder without what an interrupted process left of it; needs the lock of its key."""
    for left in cache.glob(f"building-{key}-*"):
        shutil.rmtree(left)
    work = Path(tempfile.mkdtemp(prefix=f"building-{key}-", dir=cache.resolve()))
    yield work
    shutil.rmtree(work)


@contextmanager
def lock_cache(cache: Path, key: str, report: Callable[[str], None], *, is_shared: bool = False) -> Iterator[None]:
    """Keep other processes from a part of the cache; with `is_shared` those alone that do not share it, too."""
    kind = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
    with (cache / f".{key}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            report(f"waiting for another process that uses {cache / key}")
            fcntl.flock(lock, kind)
        yield
