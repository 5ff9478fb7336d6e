"""Turns an archive into a folder: small files by many threads, and on from where an earlier run was interrupted."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from deeplearning_provision.archives.reader import Member, read_members
from deeplearning_provision.archives.safe_path import UnsafeNameError, split_name
from deeplearning_provision.archives.tree_writer import TreeWriter
from deeplearning_provision.resume_journal import Journal
from deeplearning_provision.s3.download import WrongContentError

SMALL_BYTES = 4 * 1024 * 1024
"""A file up to this size is read whole and written by a thread of its own: on a network each takes milliseconds."""
BATCH_BYTES = 64 * 1024 * 1024
BATCH_MEMBERS = 512


class Extraction:
    """
    One archive on its way to a folder.

    The journal holds how many members, from the first, are written. Batches overlap: while one is written, the next is
    read and decompressed.
    """

    def __init__(self, archive: Path, kind: str, folder: Path, journal: Journal, threads: int) -> None:
        """
        Prepare.

        Args:
            archive: Its file.
            kind: Its format.
            folder: Which is filled.
            journal: Of this archive and folder.
            threads: How many write.
        """
        self._archive = archive
        self._kind = kind
        self._writer = TreeWriter(folder)
        self._journal = journal
        self._threads = threads
        self._batch = _Batch()
        self._previous = _Batch()
        self._count = 0

    def run(self, on_position: Callable[[int], None]) -> int:
        """
        Extract what is missing.

        Args:
            on_position: Told how far into the archive one is, in bytes.

        Returns:
            How many members there are.

        Raises:
            WrongContentError: The archive is damaged, or a member must not be extracted.
            OSError: The disk refuses.
        """
        written = max((int(line) for line in self._journal.read() if line.isdigit()), default=0)
        with self._journal, ThreadPoolExecutor(self._threads, "extraction") as self._pool:
            try:
                for index, member in enumerate(read_members(self._archive, self._kind), 1):
                    if index > written:
                        self._extract(member)
                        self._count = index
                        if self._batch.is_full:
                            self._turn()
                    on_position(member.end)
                self._turn()
                self._turn()
            except BaseException:
                self._pool.shutdown(cancel_futures=True)
                raise
        return max(written, self._count)

    def _extract(self, member: Member) -> None:
        try:
            self._write(member, split_name(member.name))
        except UnsafeNameError as error:
            raise refuse_member(f"{error}") from error

    def _write(self, member: Member, parts: tuple[str, ...]) -> None:
        if member.kind == "device":
            raise UnsafeNameError(f"a member must be a file, a folder or a link, got {member.name!r}")
        if not parts:
            if member.kind != "folder":
                raise UnsafeNameError(f"a name must be a file's, got {member.name!r}")
            return
        if parts in self._batch.names or parts in self._previous.names or member.kind == "hard link":
            self._turn()  # What was said of a name last is what counts.
            self._turn()
        if member.kind == "folder":
            self._writer.make_folder(parts)
        elif member.kind == "link":
            self._writer.make_link(parts, member.target)
        elif member.kind == "hard link":
            self._writer.make_hard_link(parts, split_name(member.target))
        elif member.size > SMALL_BYTES:
            self._writer.write_file(parts, member.read_blocks(), member.mode)
            self._batch.size += member.size
        else:
            self._writer.make_folder(parts[:-1])
            content = b"".join(member.read_blocks())
            self._batch.add(parts, member.size, self._pool.submit(self._write_small, parts, content, member.mode))
        self._batch.members += 1

    def _write_small(self, parts: tuple[str, ...], content: bytes, mode: int) -> None:
        try:
            self._writer.write_file(parts, [content], mode)
        except UnsafeNameError as error:
            raise refuse_member(f"{error}") from error

    def _turn(self) -> None:
        """Wait for the batch before the last, and note it."""
        if self._previous.members:
            for future in self._previous.futures:
                future.result()
            self._journal.append([str(self._previous.last)])
        self._batch.last = self._count
        self._previous, self._batch = self._batch, _Batch()


class _Batch:
    def __init__(self) -> None:
        self.names: set[tuple[str, ...]] = set()
        self.futures: list[Future[None]] = []
        self.members = 0
        self.size = 0
        self.last = 0

    @property
    def is_full(self) -> bool:
        return self.members >= BATCH_MEMBERS or self.size >= BATCH_BYTES

    def add(self, name: tuple[str, ...], size: int, future: "Future[None]") -> None:
        self.names.add(name)
        self.size += size
        self.futures.append(future)


def refuse_member(cause: str) -> WrongContentError:
    """Return the failure of an archive or a listing that holds what must not be written."""
    return WrongContentError(cause, "make the source without it")
