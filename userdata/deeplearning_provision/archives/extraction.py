"""Extraction of an archive into a folder; concurrent threads write the small files."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from deeplearning_provision.archives.reader import Member, read_members
from deeplearning_provision.archives.tree_writer import TreeWriter, UnsafeNameError, split_name

SMALL_BYTES = 4 * 1024 * 1024
"""Files up to this size are read whole and written by other threads: on a network each takes milliseconds."""
PENDING_BYTES = 128 * 1024 * 1024
PENDING_FILES = 1024


def extract(archive: Path, kind: str, folder: Path, threads: int, on_position: Callable[[int], None]) -> int:
    """
    Extract an archive into a folder, which may already contain members, and return the number of members.

    `threads` write small files; `on_position` is called with the position in the archive's file, in bytes.
    WrongContentError when the archive is damaged, or a member must not be extracted.
    """
    members = 0
    with ThreadPoolExecutor(threads, "extraction") as pool:
        try:
            extraction = _Extraction(TreeWriter(folder), pool)
            for members, member in enumerate(read_members(archive, kind), 1):  # noqa: B007 - the last is their number
                extraction.add(member, split_name(member.name))
                on_position(member.end)
            extraction.finish()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return members


class _Extraction:
    def __init__(self, writer: TreeWriter, pool: ThreadPoolExecutor) -> None:
        self._writer = writer
        self._pool = pool
        self._pending: dict[tuple[str, ...], tuple[int, Future[None]]] = {}
        self._bytes = 0

    def add(self, member: Member, parts: tuple[str, ...]) -> None:
        if member.kind == "device":
            raise UnsafeNameError(f"a member must be a file, a folder or a link, got {member.name!r}")
        if not parts and member.kind != "folder":
            raise UnsafeNameError(f"a name must be a file's, got {member.name!r}")
        if parts in self._pending or member.kind == "hard link":
            self.finish()  # Of several members with one name, the last one counts.
        if member.kind == "folder":
            self._writer.make_folder(parts)
        elif member.kind == "link":
            self._writer.make_link(parts, member.target)
        elif member.kind == "hard link":
            self._writer.make_hard_link(parts, split_name(member.target))
        elif member.size > SMALL_BYTES:
            self._writer.write_file(parts, member.read_blocks(), member.mode)
        else:
            self._writer.make_folder(parts[:-1])
            content = [b"".join(member.read_blocks())]
            self._pending[parts] = member.size, self._pool.submit(self._writer.write_file, parts, content, member.mode)
            self._bytes += member.size
            self._wait(PENDING_FILES, PENDING_BYTES)

    def finish(self) -> None:
        self._wait(0, 0)

    def _wait(self, files: int, size: int) -> None:
        """Wait for the oldest files until at most `files` files and `size` bytes are pending."""
        while self._pending and (len(self._pending) > files or self._bytes > size):
            length, future = self._pending.pop(next(iter(self._pending)))
            self._bytes -= length
            future.result()
