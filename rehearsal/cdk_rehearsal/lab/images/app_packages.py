"""
The Debian packages that user data installs, downloaded before the lab is entered, whose machines reach no Internet.

This machine's own apt resolves them against the base root, so that nothing is downloaded that is there.
"""

import hashlib
import json
import re
import subprocess
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import ARCHIVE_KEYRING, ARCHIVE_PACKAGES, IMAGE_PACKAGES, BaseRoot
from cdk_rehearsal.lab.images.package_sources import SUITE, read_host_sources
from cdk_rehearsal.lab.packages import write_archive

_INSTALL = re.compile(r"\bapt(?:-get)?(?:\s+-\S+)*\s+install\b([^;&|\n\"<>()]*)")
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_DEBIAN = f"""Types: deb
URIs: https://deb.debian.org/debian
Suites: {SUITE} {SUITE}-updates
Components: main
Signed-By: {ARCHIVE_KEYRING}
"""
"""For a machine whose own sources are of another distribution."""
_MISSING = "missing"
"""File in an archive that lists the packages which Debian does not have."""


def find_app_packages(stacks: Iterable[AssemblyStack]) -> frozenset[str]:
    """Return the packages that texts of templates install with apt, as far as they name them literally."""
    texts = (json.dumps(template).replace("\\n", "\n") for stack in stacks for template in stack.templates)
    words = (word for text in texts for found in _INSTALL.findall(text) for word in found.replace("\\", " ").split())
    return frozenset(word for word in words if _NAME.fullmatch(word))


def add_packages(base: BaseRoot, names: Collection[str], cache: Path, report: Callable[[str], None]) -> BaseRoot:
    """
    Return the base root with an archive that has further packages, and what they need.

    What the cache has not is downloaded; what Debian does not have, or this machine does not reach, is reported.
    """
    wanted = sorted(set(names) - {*ARCHIVE_PACKAGES, *IMAGE_PACKAGES})
    if not wanted:
        return base
    recipe = (base.key, wanted, Path(__file__).read_text(encoding="utf-8"))
    key = f"archive-{hashlib.sha256(repr(recipe).encode()).hexdigest()[:16]}"
    try:
        archive = fill_once(cache, key, lambda work: _download(work, base, wanted, report), report)
    except UnavailableError as error:
        report(f"{error}; machines install {', '.join(wanted)} in vain")
        return base
    if missing := (archive / _MISSING).read_text(encoding="utf-8").split():
        report(f"Debian has no package {', '.join(missing)}; machines install it in vain")
    return replace(base, archive=archive)


def _download(work: Path, base: BaseRoot, names: Collection[str], report: Callable[[str], None]) -> Path:
    report(f"downloading for apt, once: {' '.join(names)}")
    for name in ("sources", "state", "cache/archives/partial", "archive"):
        (work / name).mkdir(parents=True)
    (work / "sources/host.sources").write_text(read_host_sources() or _DEBIAN, encoding="utf-8")
    options = {
        "Dir::Etc::SourceList": "/dev/null",
        "Dir::Etc::SourceParts": work / "sources",
        "Dir::State": work / "state",
        "Dir::State::status": base.root / "var/lib/dpkg/status",
        "Dir::Cache": work / "cache",
        "APT::Sandbox::User": "root",
    }
    words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]

    def run(program: str, *arguments: str) -> bool:
        return subprocess.run([program, *words, *arguments], capture_output=True, check=False).returncode == 0

    if not run("apt-get", "-o", "APT::Update::Error-Mode=any", "update"):
        raise UnavailableError("this machine does not reach Debian's archive")
    known = [name for name in names if run("apt-cache", "show", name)]
    install = ("install", "--yes", "--download-only", "--no-install-recommends")
    fetched = known
    if not run("apt-get", *install, *known):
        fetched = [name for name in known if run("apt-get", *install, name)]
    archive = work / "archive"
    for path in (work / "cache/archives").glob("*.deb"):
        path.rename(archive / path.name)
    for path in base.archive.glob("*.deb"):
        if not (archive / path.name).exists():
            (archive / path.name).hardlink_to(path)
    write_archive(archive)
    (archive / _MISSING).write_text("\n".join(name for name in names if name not in fetched), encoding="utf-8")
    return archive
