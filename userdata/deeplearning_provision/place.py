"""Where a source of data is brought to, and where it is kept until it is whole."""

from dataclasses import dataclass
from pathlib import Path

from deeplearning_provision.disk import remove_tree
from deeplearning_provision.journal import Journal

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
    def incoming(self) -> Path:
        """What becomes the target by one rename."""
        return self.base / DATA_FOLDER / f".{self.name}.extracting"

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


def begin_incoming(place: Place, journal: Journal) -> None:
    """
    Empty what is being filled, unless the journal says that it is filled with just this.

    Effects: the incoming folder, and the journals of everything else that it was ever filled with.
    """
    if not place.incoming.is_dir() or not any(journal.read()):
        remove_tree(place.incoming)
        for kind in ("members", "files"):
            for path in place.staging.glob(f"{kind}*.journal"):
                path.unlink(missing_ok=True)
    place.incoming.mkdir(parents=True, exist_ok=True)
