"""
Folders of a source, and their publication by one link.

| name below the file system's root | content |
|---|---|
| `data/<source>` | link to the published folder |
| `data/.<source>/<digest>` | folder during the download, and after its publication |
| `data/.<source>/<digest>.json` | marker: source of a complete folder |
| `data/.<source>/<digest>.archive` | archive, until its members are published |
| `data/.<source>/lease` | node that stages the source |
| `data/.<source>/refused.json`, `trouble.json` | cause of a refusal, or of a failure |
"""

import contextlib
import json
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_contract.document import ContractError, parse_object
from deeplearning_contract.setting_parts import DataSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_provision.disk import remove_tree, switch_link, sync_disk
from deeplearning_provision.steps import ProvisionFailure

DATA_FOLDER = "data"
LEASE, REFUSAL, TROUBLE = "lease", "refused.json", "trouble.json"
_REMOVED = ".removed."


def describe_source(source: DataSettings) -> dict[str, str]:
    return {"bucket": source.bucket, "key": source.key, "sha256": source.sha256}


@dataclass(frozen=True)
class DataTarget:
    base: Path  # Root of the shared file system, or of the node's local disk
    name: str
    # Id of this boot on a local disk, where a crash may lose writes: a later boot starts again; empty on a server
    boot: str = ""

    @property
    def path(self) -> Path:
        """Path of the data for jobs; it exists only when the data is complete."""
        return self.base / DATA_FOLDER / self.name

    @property
    def folder(self) -> Path:
        """Folder of all other files of the source."""
        return self.base / DATA_FOLDER / f".{self.name}"

    def filled(self, digest: str) -> Path:
        return self.folder / (f"{digest[:32]}.{self.boot}" if self.boot else digest[:32])

    def archive(self, digest: str) -> Path:
        return self.filled(digest).with_name(f"{self.filled(digest).name}.archive")

    def read_note(self, name: str) -> Mapping[str, Any]:
        try:
            return parse_object((self.folder / name).read_text(encoding="utf-8"), name)
        except (OSError, ContractError):
            return {}

    def write_note(self, name: str, note: Mapping[str, Any]) -> None:
        write_file(self.folder / name, json.dumps(note, indent=2) + "\n")

    def remove_note(self, name: str) -> None:
        (self.folder / name).unlink(missing_ok=True)

    def read_marker(self) -> Mapping[str, Any]:
        """Return the marker of the published folder; empty when nothing is published."""
        published = self._find_published()
        return self.read_note(f"{published}.json") if published and self.path.is_dir() else {}

    def is_complete(self, digest: str) -> bool:
        return self.read_marker().get("digest") == digest

    def refuse_foreign(self) -> None:
        if (self.path.exists() or self.path.is_symlink()) and not self._find_published():
            raise ProvisionFailure(
                f"{self.path} must not exist before the source is staged",
                "move it away, or give the source another name",
            )

    def publish(self, source: DataSettings, digest: str) -> None:
        """
        Publish a filled folder; the next run resumes after an OSError.

        Effects: the marker and the link; everything else of the source is removed, earlier data too.
        """
        filled = self.filled(digest)
        self.write_note(f"{filled.name}.json", {"digest": digest, **describe_source(source)})
        sync_disk(filled)
        switch_link(self.path, Path(self.folder.name, filled.name), self.folder)
        self.remove_rest()

    def remove_rest(self, kept: str = "") -> None:
        """
        Remove everything that is neither published nor of the content with the digest `kept`.

        Each folder is renamed first, so that another run cannot publish it during the removal.
        """
        for path in list(self._find_rest(kept)):
            gone = path
            if not path.name.startswith(_REMOVED):
                gone = path.with_name(f"{_REMOVED}{secrets.token_hex(4)}")
            with contextlib.suppress(FileNotFoundError):  # Another run removed it first.
                path.rename(gone)
            remove_tree(gone)

    def has_rest(self) -> bool:
        return any(self._find_rest(""))

    def _find_rest(self, kept: str) -> Iterator[Path]:
        names = {self._find_published(), self.filled(kept).name if kept else ""} - {""}
        notes = {LEASE, REFUSAL, TROUBLE, *(f"{name}.json" for name in names)}
        for path in self.folder.iterdir():
            if path.name.startswith(LEASE) or path.name in notes | names or (kept and path == self.archive(kept)):
                continue
            yield path

    def _find_published(self) -> str:
        """Return the name of the folder that the link points to; empty for a link that was not staged."""
        try:
            target = self.path.readlink()
        except OSError:
            return ""
        return target.name if target.parent == Path(self.folder.name) else ""
