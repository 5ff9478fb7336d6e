"""
The wheels of an environment: what they are made from, and the list that says that a folder of them is whole.

pip decides what is needed beside what the image has, then makes exactly that into wheels. It compiles at this one place
in the cluster; other nodes take the wheels and need neither an index nor a compiler.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from deeplearning_agent.atomic_file import write_file
from deeplearning_contract.document import field as read_field
from deeplearning_contract.document import object_list, parse_object
from deeplearning_contract.errors import ContractError
from deeplearning_provision.pip_program import Pip, read_report

COMPLETE = "complete.json"
LOCK = "lock.txt"
READ_BYTES = 1 << 20
_MADE = re.compile(r"\s*(Saved .*\.whl|Created wheel for )")


@dataclass(frozen=True)
class Wheel:
    """A wheel and its digest."""

    file: str
    sha256: str
    size: int

    @property
    def requirement(self) -> str:
        """The line of a requirements file that means this wheel and no other."""
        name, version = self.file.split("-")[:2]
        return f"{name}=={version} --hash=sha256:{self.sha256}"


@dataclass(frozen=True)
class Manifest:
    """
    What is in a whole folder of wheels.

    Attributes:
        recipe: What they were made from.
        wheels: All of them.
        built_by: Instance that made them.
        seconds: What it took.
        horovod: How Horovod was built; empty without it.
    """

    recipe: Mapping[str, Any]
    wheels: tuple[Wheel, ...]
    built_by: str
    seconds: float
    horovod: Mapping[str, Any] = field(default_factory=dict)

    def write(self, folder: Path) -> None:
        """Write the list and pip's lock into the folder, which is whole then."""
        write_file(folder / LOCK, "".join(f"{wheel.requirement}\n" for wheel in self.wheels))
        write_file(folder / COMPLETE, json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")

    @classmethod
    def read(cls, folder: Path) -> "Manifest | None":
        """
        Read the list.

        Returns:
            None when the folder is not whole.

        Raises:
            ContractError: The file is not what `write` writes.
            OSError: It cannot be read.
        """
        try:
            text = (folder / COMPLETE).read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return None
        document = parse_object(text, COMPLETE)
        wheels = tuple(
            Wheel(
                file=read_field(item, "file", str, "wheel"),
                sha256=read_field(item, "sha256", str, "wheel"),
                size=read_field(item, "size", int, "wheel"),
            )
            for item in object_list(document, "wheels", COMPLETE)
        )
        seconds = document.get("seconds")
        if not isinstance(seconds, (int, float)):
            raise ContractError(f"{COMPLETE}.seconds must be a number, got {seconds!r}")
        return cls(
            recipe=read_field(document, "recipe", dict, COMPLETE),
            wheels=wheels,
            built_by=read_field(document, "built_by", str, COMPLETE),
            seconds=seconds,
            horovod=read_field(document, "horovod", dict, COMPLETE),
        )

    def damage(self, folder: Path) -> list[str]:
        """Say which wheels are missing or not as long as they were; pip checks the digests of the others."""
        return [wheel.file for wheel in self.wheels if _size(folder / wheel.file) != wheel.size]


def make_wheels(
    pip: Pip, requirements: Sequence[Path], folder: Path, scratch: Path, on_count: Callable[[int, int], None]
) -> Sequence[str]:
    """
    Make wheels of what requirements need beside what the environment has.

    Args:
        pip: Of an environment that shows the image's packages.
        requirements: Files that are met together; with hashes in them pip checks them.
        folder: Where the wheels go.
        scratch: Where notes are kept.
        on_count: Told how many wheels are made, of how many.

    Returns:
        What they were made from, a line of a requirements file each.

    Raises:
        ProvisionFailure: pip failed.
    """
    report = scratch / "report.json"
    files = [word for file in requirements for word in ("--requirement", str(file))]
    pip.run("install", "--dry-run", "--report", str(report), *files)
    lines = read_report(json.loads(report.read_text(encoding="utf-8")))
    if not lines:
        return lines
    exact = scratch / "exact.txt"
    exact.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    made = 0
    on_count(made, len(lines))

    def count(line: str) -> None:
        nonlocal made
        if _MADE.match(line):
            made += 1
            on_count(made, len(lines))

    pip.run("wheel", "--no-deps", "--wheel-dir", str(folder), "--requirement", str(exact), on_line=count)
    return lines


def list_wheels(folder: Path) -> tuple[Wheel, ...]:
    """Return the wheels of a folder with their digests."""
    return tuple(Wheel(path.name, _digest(path), path.stat().st_size) for path in sorted(folder.glob("*.whl")))


def _digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(READ_BYTES), b""):
            found.update(block)
    return found.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
