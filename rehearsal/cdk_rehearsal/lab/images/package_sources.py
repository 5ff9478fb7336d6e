"""Finds the package sources of this machine that a Debian root file system can be made from."""

import re
from collections.abc import Mapping
from pathlib import Path

SUITE = "bookworm"
_SUITES = frozenset({SUITE, f"{SUITE}-updates", f"{SUITE}-security"})

_LINE = re.compile(r"deb\s+(?:\[(?P<options>[^]]*)\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)\s+(?P<components>[^#]+)(#.*)?")


def read_host_sources(etc: Path = Path("/etc")) -> str | None:
    """
    Return the host's own Debian sources, in apt's deb822 form.

    None when the host is another distribution or release, or has none that fit: mmdebstrap's default is right then.
    """
    if parse_os_release((etc / "os-release").read_text()).get("VERSION_CODENAME") != SUITE:
        return None
    folder = etc / "apt" / "sources.list.d"
    stanzas = [found for path in sorted(folder.glob("*.sources")) for found in pick_stanzas(path.read_text())]
    for path in (etc / "apt" / "sources.list", *sorted(folder.glob("*.list"))):
        stanzas += pick_lines(path.read_text()) if path.exists() else []
    return "\n\n".join(stanzas) + "\n" if stanzas else None


def parse_os_release(text: str) -> Mapping[str, str]:
    """Read `/etc/os-release`."""
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {name: value.strip("\"'") for name, value in pairs}


def pick_stanzas(text: str) -> list[str]:
    """Return the enabled stanzas of a `.sources` file that offer Debian's own packages of the suite."""
    picked = []
    for block in re.split(r"\n\s*\n", text):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        suites = [suite for suite in fields.get("suites", "").split() if suite in _SUITES]
        signed_by = fields.get("signed-by", "")
        if "deb" in fields.get("types", "").split() and suites and _is_debian(signed_by, fields):
            picked.append(_stanza(fields["uris"], suites, fields.get("components", "main"), signed_by))
    return picked


def pick_lines(text: str) -> list[str]:
    """Return, as stanzas, the `deb` lines of a `.list` file that offer Debian's own packages of the suite."""
    picked = []
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        if match and match["suite"] in _SUITES:
            options = dict(option.split("=", 1) for option in (match["options"] or "").split() if "=" in option)
            signed_by = options.get("signed-by", "")
            if _is_debian(signed_by, options):
                picked.append(_stanza(match["uri"], [match["suite"]], match["components"], signed_by))
    return picked


def _is_debian(signed_by: str, options: Mapping[str, str]) -> bool:
    """Tell Debian's archive from others that use its suite names: those bring a key of their own."""
    return options.get("enabled", "yes") != "no" and (not signed_by or "debian-archive" in signed_by)


def _stanza(uris: str, suites: list[str], components: str, signed_by: str) -> str:
    stanza = f"Types: deb\nURIs: {uris}\nSuites: {' '.join(suites)}\nComponents: {components.strip()}"
    return f"{stanza}\nSigned-By: {signed_by}" if signed_by else stanza
