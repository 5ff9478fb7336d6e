"""What the output of long programs says of how far they are."""

import re
from collections.abc import Callable

from deeplearning_node.deadline import Clock

LEAST_PERCENT = 5
"""Below it, the time that is left is a guess without worth."""
_PERCENT = re.compile(r"\[\s*(\d{1,3})%\]")
_COLLECTING = re.compile(r"(Collecting|Processing) ")
_DOWNLOADING = re.compile(r"\s*Downloading (\S+)(?: \(([^)]+)\))?")
_BUILDING = re.compile(r"\s*Building wheel for (\S+)")

Tell = Callable[[str, int, int, str], None]
"""Takes what happens now, how much of it is done, of how much, and the unit."""


def follow_pip(tell: Tell, total: int) -> Callable[[str], None]:
    """
    Return a reader for the lines of a pip that installs `total` packages, which reports progress through `tell`.

    pip names a package when it comes to it, and a download with its size when it begins; it counts no bytes unless it
    writes to a terminal.
    """
    seen, last = 0, ""

    def read(line: str) -> None:
        nonlocal seen, last
        before = seen, last
        if _COLLECTING.match(line):
            seen = min(seen + 1, total)
        elif found := _DOWNLOADING.match(line):
            name = found[1].rpartition("/")[2].partition("-")[0]
            last = f"downloading {name}" + (f" ({found[2]})" if found[2] else "")
        elif found := _BUILDING.match(line):
            last = f"building {found[1]}"
        elif line.startswith("Installing collected packages"):
            seen, last = total, "installing packages"
        if (seen, last) != before:
            tell(last or "collecting packages", max(0, seen - 1) if seen < total else seen, total, "packages")

    return read


def follow_compiler(tell: Tell, what: str, clock: Clock) -> Callable[[str], None]:
    """Return a reader for the lines of a build by make, whose Makefiles of CMake write `[ 42%]`."""
    begin, most = clock.read(), 0

    def read(line: str) -> None:
        nonlocal most
        found = _PERCENT.search(line)
        if not found or not most < int(found[1]) <= 100:  # noqa: PLR2004 - percent
            return
        most = int(found[1])
        # In minutes, since every second would be news otherwise.
        minutes = max(1, round((clock.read() - begin) * (100 - most) / most / 60))
        tell(f"{what}, about {minutes} min left" if most >= LEAST_PERCENT else what, most, 100, "%")

    return read
