"""Where a source of data is brought to, and where it is kept until it is whole."""

from dataclasses import dataclass
from pathlib import Path

DATA_FOLDER = "data"
STAGING_FOLDER = ".deeplearning/staging"


@dataclass(frozen=True)
class Place:
    """
    The folders of one source.

    Attributes:
        base: Root of the shared file system, or of this node's local disk.
        name: Of the source.
        boot: This boot's id where a reboot may lose what was not yet on the disk; empty where a server keeps it.
    """

    base: Path
    name: str
    boot: str = ""

    @property
    def target(self) -> Path:
        """Where jobs find the data; it is there only when it is whole."""
        return self.base / DATA_FOLDER / self.name

    @property
    def replaced(self) -> Path:
        """The target of before, while the new one takes its place."""
        return self.base / DATA_FOLDER / f".{self.name}.replaced"

    @property
    def staging(self) -> Path:
        """What is kept beside the data: the archive, journals, and the marker."""
        return self.base / STAGING_FOLDER / self.name

    def make_folders(self) -> None:
        """Make what must be there first."""
        self.staging.mkdir(parents=True, exist_ok=True)
        self.target.parent.mkdir(parents=True, exist_ok=True)
