"""Fetches all objects below a prefix into a folder, many at once, without those that are there already."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.archives.extraction import refuse_member
from deeplearning_provision.archives.safe_path import UnsafeNameError
from deeplearning_provision.archives.tree_writer import TreeWriter
from deeplearning_provision.data.listing import Listing
from deeplearning_provision.data.target import Place
from deeplearning_provision.data.workspace import (
    Workspace,
    adopt_workspace,
    claim_workspace,
    has_progress,
    read_progress,
)
from deeplearning_provision.disk import StatVfs, check_room, render_bytes
from deeplearning_provision.s3.download import Download, Pace
from deeplearning_provision.s3.object_store import ObjectStore, StoredObject
from deeplearning_provision.s3.verification import choose_check
from deeplearning_provision.step_progress import Meter
from deeplearning_provision.thread_pool import run_crew


class PrefixContent:
    """
    The objects below a prefix as S3 has them now.

    Attributes:
        digest: Names their contents, and what the settings ask of them.
        incoming: The folder that `fetch` has filled.
    """

    incoming: Path

    def __init__(self, source: DataSettings, store: ObjectStore, place: Place, pace: Pace, listing: Listing) -> None:
        """Prepare; nothing is written yet."""
        self._what = f"s3://{source.bucket}/{source.key}"
        self._store = store
        self._listing = listing
        self._place = place
        self._pace = pace
        self._others = f"files-{place.boot}-*"
        self._family = f"files-{place.boot}-{listing.digest[:16]}"
        self.digest = listing.digest

    def find_demand(self) -> str:
        """Return nothing: each object is compared with what S3 says of it."""
        return ""

    def check_room(self, read: StatVfs) -> None:
        """
        Refuse what cannot fit, before anything is fetched.

        Raises:
            ProvisionFailure: There is no room.
        """
        count, size = self._count_finished()
        files = self._listing.count - count + self._listing.folders
        check_room(self._what, self._place.staging, self._listing.size - size, files, read=read)

    def fetch(self, meter: Meter) -> str:
        """
        Fetch what is missing.

        Returns:
            What there is now, for people.

        Raises:
            SourceChangedError: An object is another one by now.
            WrongContentError: Two names collide.
            ProvisionFailure: An object cannot be read.
            OSError: The disk refuses.
        """
        found = f"{self._listing.count} objects of {self._what} ({render_bytes(self._listing.size)})"
        meter.start(f"fetching {found}", self._listing.size, self._count_finished()[1])
        self._fetch_all(meter.add)
        return found

    def _fetch_all(self, on_bytes: Callable[[int], None]) -> None:
        workspace, finished = self._claim()
        self.incoming = workspace.path
        writer = TreeWriter(workspace.path)
        for parts, item in self._listing.read():
            if item.key.endswith("/"):
                writer.make_folder(parts)
        with workspace.journal:
            missing = ((parts, item) for parts, item in self._files() if _name_content(item) not in finished)

            def fetch(entry: tuple[tuple[str, ...], StoredObject]) -> None:
                parts, item = entry
                try:
                    self._fetch(writer, parts, item, on_bytes)
                    workspace.journal.append([_name_content(item)], is_durable=False)
                except UnsafeNameError as error:
                    raise refuse_member(f"{error}") from error

            self._run(missing, fetch)

    def _run(
        self,
        missing: Iterator[tuple[tuple[str, ...], StoredObject]],
        fetch: Callable[[tuple[tuple[str, ...], StoredObject]], None],
    ) -> None:
        """Fetch small objects many at once; a large one by itself, its parts at once."""
        large: list[tuple[tuple[str, ...], StoredObject]] = []

        def pick() -> Iterator[tuple[tuple[str, ...], StoredObject]]:
            for parts, item in missing:
                if item.size > self._pace.part_bytes:
                    large.append((parts, item))
                else:
                    yield parts, item

        run_crew(pick(), fetch, self._pace.threads)
        for entry in large:
            fetch(entry)

    def _fetch(
        self, writer: TreeWriter, parts: tuple[str, ...], item: StoredObject, on_bytes: Callable[[int], None]
    ) -> None:
        if item.size > self._pace.part_bytes:
            download = Download(self._store, item, self._place.staging, self._pace)
            on_bytes(download.count_finished())
            download.run(choose_check(item, ""), on_bytes)
            writer.make_folder(parts[:-1])
            download.path.rename(writer.path(parts))
            download.remove()
        else:
            writer.write_file(parts, self._store.read_blocks(item, 0, item.size))
            on_bytes(item.size)

    def _claim(self) -> tuple[Workspace, set[str]]:
        """Take over what there is of this listing, or of another what both have."""
        if not has_progress(self._place, self._family):
            adopted = adopt_workspace(self._place, self._family, self._others)
            if adopted:
                workspace, finished = adopted
                finished &= {_name_content(item) for _, item in self._files()}
                self._remove_others(workspace.path)
                with workspace.journal:
                    workspace.journal.append(sorted(finished))
                return workspace, finished
        workspace = claim_workspace(self._place, self._family)
        return workspace, set(workspace.journal.read())

    def _count_finished(self) -> tuple[int, int]:
        finished = read_progress(self._place, self._others)
        found = [item.size for _, item in self._files() if _name_content(item) in finished]
        return len(found), sum(found)

    def _files(self) -> Iterator[tuple[tuple[str, ...], StoredObject]]:
        return (entry for entry in self._listing.read() if not entry[1].key.endswith("/"))

    def _remove_others(self, incoming: Path) -> None:
        """Remove files of another listing that an interrupted run left in the folder; one of the same name may stay."""
        kept = {"/".join(parts) for parts, _ in self._files()}
        for folder, folders, files in os.walk(incoming, topdown=False):
            for name in (*files, *folders):
                path = Path(folder, name)
                if path.is_file():
                    if path.relative_to(incoming).as_posix() not in kept:
                        path.unlink()
                elif not any(path.iterdir()):
                    path.rmdir()


def _name_content(item: StoredObject) -> str:
    return hashlib.sha256(f"{item.key}\n{item.size}\n{item.etag}".encode("utf-8", "surrogatepass")).hexdigest()[:20]
