"""Source folder of a job: what is packed of it, what is left out, and what the nodes could not have."""

import contextlib
import os
import stat
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_cli.errors import UnavailableError
from deeplearning_contract.document import ContractError
from deeplearning_contract.names import check_link, split_name

MOST_PACKED_BYTES = 10_000_000
"""Most bytes of a packed source folder; data belongs to the stack's `data`, checkpoints to the job's folder."""
MOST_BYTES = 1_000_000_000
"""Most bytes before packing: the folder is refused before it is read, and the master unpacks all of them."""
LEFT_OUT = frozenset(
    {
        *(".git", ".hg", ".svn", ".jj", ".bzr"),
        *(".venv", "node_modules"),
        *("__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".nox", ".ipynb_checkpoints"),
        "cdk.out",
    }
)
"""Names of version control, installed packages, caches and the CDK's output; an environment has any name."""
_COMPILED = (".pyc", ".pyo")
_HEADER_BYTES = 512
_MOST_NAMED, _LARGEST, _MOST_LEFT_OUT = 100, 3, 5


@dataclass(frozen=True)
class SourceEntry:
    """File, folder or link to pack."""

    name: str  # Relative to the source folder, with `/`
    mode: int  # As lstat gives it
    size: int = 0  # In bytes
    target: str = ""  # Target of a link


@dataclass
class SourceFolder:
    """Entries to pack, in the order of their names, and the sizes of what is left out."""

    root: str  # Without links
    entries: list[SourceEntry] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # Name -> size in bytes

    def describe_too_large(self) -> str:
        """Return the refusal of a folder that is too large."""
        largest = sorted(self.entries, key=lambda entry: -entry.size)[:_LARGEST]
        named = ", ".join(f"{show(entry.name)} ({entry.size / 1e6:.1f} MB)" for entry in largest if entry.size)
        return (
            f"source must be at most {MOST_PACKED_BYTES / 1e6:.0f} MB when packed and {MOST_BYTES / 1e6:,.0f} MB "
            f"before, got more; its largest files are {named or 'empty, and too many'}; keep data and checkpoints "
            f"outside of {self.root}"
        )


def scan_source(folder: Path) -> SourceFolder:
    """
    List what is packed of a source folder, without reading a file.

    A link is kept if it leads to a part of the source, through whatever: then it works on the nodes as here. A link
    to nowhere, inside of the source, is kept too; editors lock files with them. Sockets are left out, as GNU tar does.

    Raises:
        UnavailableError: It is no folder of its own, is too large, or has entries that the nodes could not have; the
            message names all of them.
    """
    if not folder.is_dir():
        raise UnavailableError(f"source must be a folder, got {folder}")
    root = os.path.realpath(folder)
    _check_root(root)
    source = SourceFolder(root)
    faults = _Faults()
    _list_entries(source, faults)
    _settle_links(source, faults)
    faults.raise_all(root)
    return source


def describe_left_out(left_out: Mapping[str, int]) -> str:
    """Return what was left out with its sizes, the largest first; equal names count together."""
    names: defaultdict[str, list[str]] = defaultdict(list)
    for name in left_out:
        base = name.rpartition("/")[2]
        names[f"*{base[-4:]}" if base.endswith(_COMPILED) else base if base in LEFT_OUT else name].append(name)
    sizes = Counter({kind: sum(left_out[name] for name in found) for kind, found in names.items()})
    parts = []
    for kind, size in sizes.most_common(_MOST_LEFT_OUT):
        found = names[kind]
        parts.append(f"{show(found[0]) if len(found) == 1 else f'{len(found)} {kind}'} ({size / 1e6:.1f} MB)")
    more = len(sizes) - _MOST_LEFT_OUT
    return ", ".join([*parts, *([f"{more} more"] if more > 0 else [])])


def show(name: str) -> str:
    """Return a name for a message: letters as they are, and everything else escaped."""
    return name if name.isprintable() else repr(name)


def _check_root(root: str) -> None:
    home = os.path.expanduser("~")  # noqa: PTH111 - it stays "~" for a user without a home
    if root == "/" or (home != "~" and Path(os.path.realpath(home)).is_relative_to(root)):
        raise UnavailableError(
            f"source must be a folder of the job alone, got {root}, with the home folder of its user; "
            "move the job's files into a folder of their own"
        )
    if _is_environment(root):
        raise UnavailableError(
            f"source must have its virtual environment in a folder of its own, got one in {root} itself; "
            "create it again, e.g. by python3 -m venv .venv"
        )


def _is_environment(folder: str) -> bool:
    """Return whether venv, virtualenv, uv (PEP 405) or conda made the folder."""
    return os.path.isfile(f"{folder}/pyvenv.cfg") or os.path.isdir(f"{folder}/conda-meta")  # noqa: PTH112, PTH113


def _list_entries(source: SourceFolder, faults: "_Faults") -> None:
    waiting, total = [""], 0
    while waiting:
        above = waiting.pop()
        folders = []
        for name, status in _read_folder(source.root, above, faults):
            if _is_left_out(source.root, name, status.st_mode):
                source.left_out[name] = _measure(f"{source.root}/{name}", status)
                continue
            if not faults.check(source.root, name, status.st_mode):
                continue
            is_file, is_link = stat.S_ISREG(status.st_mode), stat.S_ISLNK(status.st_mode)
            target = _read_link(f"{source.root}/{name}") if is_link else ""
            source.entries.append(SourceEntry(name, status.st_mode, status.st_size if is_file else 0, target))
            total += _HEADER_BYTES + source.entries[-1].size
            if total > MOST_BYTES:
                raise UnavailableError(source.describe_too_large())
            if stat.S_ISDIR(status.st_mode):
                folders.append(name)
        waiting += reversed(folders)


def _read_folder(root: str, above: str, faults: "_Faults") -> list[tuple[str, os.stat_result]]:
    """Return the names of a folder with their states; without those that vanish meanwhile, as editors' files do."""
    found = []
    try:
        with os.scandir(f"{root}/{above}") as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    found.append((f"{above}/{entry.name}".lstrip("/"), entry.stat(follow_symlinks=False)))
    except FileNotFoundError:
        return []
    except OSError as error:
        faults.unreadable.append(f"{show(above) or root} ({error.strerror})")
        return []
    return sorted(found)


def _is_left_out(root: str, name: str, mode: int) -> bool:
    base = name.rpartition("/")[2]
    if base in LEFT_OUT or base.endswith(_COMPILED) or stat.S_ISSOCK(mode):
        return True
    return (stat.S_ISDIR(mode) or stat.S_ISLNK(mode)) and _is_environment(f"{root}/{name}")


def _measure(path: str, status: os.stat_result) -> int:
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(_measure_file(f"{folder}/{name}") for folder, _, names in os.walk(path) for name in names)


def _measure_file(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0


def _read_link(path: str) -> str:
    try:
        return os.readlink(path)  # noqa: PTH115 - a target as it is
    except OSError:  # It has become something else.
        return ""


def _settle_links(source: SourceFolder, faults: "_Faults") -> None:
    """Give each link a target that leads to the same part of the source on every machine."""
    for index, entry in enumerate(source.entries):
        if stat.S_ISLNK(entry.mode):
            target = _find_target(source, entry)
            if target is None:
                faults.links.append(_describe_link(source.root, entry))
            else:
                source.entries[index] = SourceEntry(entry.name, entry.mode, target=target)


def _find_target(source: SourceFolder, entry: SourceEntry) -> str | None:
    """Return the target with which a link works on the nodes; None without one."""
    path = f"{source.root}/{entry.name}"
    above = os.path.dirname(path)  # noqa: PTH120 - no path of this machine
    is_inside = _is_link_inside(entry.name, entry.target)
    if not os.path.exists(path):  # noqa: PTH110 - also for a loop
        return entry.target if is_inside else None
    real = os.path.realpath(path)
    if not _is_packed(source, real):
        return None
    if is_inside and _is_packed(source, os.path.normpath(f"{above}/{entry.target}")):
        return entry.target
    target = os.path.relpath(real, above)
    return target if _is_link_inside(entry.name, target) else None


def _is_link_inside(name: str, target: str) -> bool:
    try:
        check_link(split_name(name), target)
    except ContractError:
        return False
    return True


def _is_packed(source: SourceFolder, path: str) -> bool:
    """Return whether a path is the source folder or a part of it that is not left out."""
    if path == source.root:
        return True
    if not path.startswith(f"{source.root}/"):
        return False
    name = path.removeprefix(f"{source.root}/")
    return not any(folder in source.left_out for folder in _list_folders(name))


def _list_folders(name: str) -> Iterator[str]:
    while name:
        yield name
        name = name.rpartition("/")[0]


def _describe_link(root: str, entry: SourceEntry) -> str:
    path = f"{root}/{entry.name}"
    real = os.path.realpath(path)
    direct = os.path.normpath(Path(path).parent / entry.target)
    leads_on = os.path.exists(path) and real != direct  # noqa: PTH110 - a loop does not exist
    return f"{show(entry.name)} -> {show(entry.target)}{f' ({show(real)})' if leads_on else ''}"


_REFUSALS = {
    "links": "links in source must lead to what is packed with them, got {found}; replace each by a copy of its "
    "target, or move it out of {folder}; files that the nodes have already need no link: "
    "name their path in program or env",
    "kinds": "source must have only files, folders and links, got {found}; move each out of {folder}",
    "names": "paths in source must be UTF-8 of at most 255 bytes a name, 256 folders and 3,500 bytes, got {found}; "
    "rename each, because the shared file system may refuse it",
    "unreadable": "source must be readable, got {found}; change the permissions, or move each out of {folder}",
}


@dataclass
class _Faults:
    """Entries that the nodes could not have, of all kinds."""

    links: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)

    def check(self, root: str, name: str, mode: int) -> bool:
        """Return whether an entry's name, kind and permissions allow to pack it; its link is judged later."""
        try:
            name.encode()
            split_name(name)
        except (UnicodeEncodeError, ContractError):
            self.names.append(show(name))
            return False
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
            self.kinds.append(f"{show(name)} ({'a FIFO' if stat.S_ISFIFO(mode) else 'a device'})")
            return False
        if stat.S_ISREG(mode) and not os.access(f"{root}/{name}", os.R_OK):
            self.unreadable.append(f"{show(name)} (Permission denied)")
        return True

    def raise_all(self, root: str) -> None:
        """Raise UnavailableError if there are any, with a line for each kind."""
        lines = [
            refusal.format(found=_name(found), folder=root)
            for kind, refusal in _REFUSALS.items()
            if (found := getattr(self, kind))
        ]
        if lines:
            raise UnavailableError("\n".join(lines))


def _name(found: Sequence[str]) -> str:
    more = len(found) - _MOST_NAMED
    return ", ".join([*found[:_MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])
