"""
Reads systemd unit files.

Knows what the units of a cluster use. A section, key or value that it does not know is an error, so that nothing that
systemd would do is left out in silence.
"""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

ORDERING_KEYS = frozenset({"Description", "Documentation", "After", "Before", "Wants", "Requires"})
UNIT_KEYS = ORDERING_KEYS | {"ConditionPathExists", "StartLimitIntervalSec", "StartLimitBurst"}
SERVICE_KEYS = frozenset(
    {
        *("Type", "ExecStartPre", "ExecStart", "ExecReload", "Environment", "EnvironmentFile", "User"),
        *("WorkingDirectory",),
        *("Restart", "RestartSec", "RestartPreventExitStatus", "RemainAfterExit", "KillMode", "TimeoutStartSec"),
        *("TimeoutStopSec", "RuntimeDirectory", "RuntimeDirectoryMode", "StandardOutput", "StandardError"),
        *("SyslogIdentifier", "OOMScoreAdjust"),
    }
)
INSTALL_KEYS = frozenset({"WantedBy", "Alias"})
_KEYS = {"Unit": UNIT_KEYS, "Service": SERVICE_KEYS, "Install": INSTALL_KEYS}
_CHOICES = {
    "Type": ("simple", "exec", "notify", "oneshot"),
    "Restart": ("no", "always", "on-failure"),
    "KillMode": ("control-group", "process"),
    "RemainAfterExit": ("yes", "no", "true", "false"),
}
# User data runs in cloud-final.service: a unit that user data starts and that is ordered after it would wait for ever.
_AFTER_USER_DATA = frozenset({"cloud-final.service", "cloud-init.target", "multi-user.target", "graphical.target"})
_SECONDS = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 0.001, "min": 60.0, "m": 60.0, "h": 3600.0}


class UnitError(ValueError):
    """A unit file holds what this reader does not know, or what systemd would refuse."""


@dataclass(frozen=True)
class UnitFile:
    """
    A service unit with its drop-ins applied.

    Attributes:
        name: The unit's name, with its suffix.
        values: (section, key) -> values in order; an empty assignment has cleared what stood before it.
    """

    name: str
    values: Mapping[tuple[str, str], Sequence[str]]

    def all(self, section: str, key: str) -> tuple[str, ...]:
        """Return every value of a key."""
        return tuple(self.values.get((section, key), ()))

    def one(self, section: str, key: str, default: str) -> str:
        """Return the last value of a key, or the default."""
        values = self.all(section, key)
        return values[-1] if values else default

    def seconds(self, section: str, key: str, default: float) -> float:
        """
        Return a time span in seconds.

        Raises:
            UnitError: The value is not a time span.
        """
        text = self.one(section, key, str(default))
        return float("inf") if text == "infinity" else parse_seconds(text)

    def environment(self) -> dict[str, str]:
        """Return the variables of `Environment=`."""
        return parse_assignments(" ".join(self.all("Service", "Environment")))


def parse_unit(name: str, texts: Iterable[str]) -> UnitFile:
    """
    Read a unit file and its drop-ins.

    Args:
        name: The unit's name, for errors.
        texts: The file, then its drop-ins in order.

    Raises:
        UnitError: A section, key or value is not known here.
    """
    values: dict[tuple[str, str], list[str]] = {}
    for text in texts:
        section = ""
        for line in _join_lines(text):
            if line.startswith("["):
                section = line.strip("[]")
                if section not in _KEYS:
                    raise UnitError(f"{name}: section must be one of {sorted(_KEYS)}, got [{section}]")
                continue
            key, separator, value = (part.strip() for part in line.partition("="))
            if not separator or key not in _KEYS.get(section, ()):
                raise UnitError(f"{name}: [{section}] {line!r} is not implemented by the systemctl stand-in")
            _check(name, key, value)
            if value:
                values.setdefault((section, key), []).append(value)
            else:
                values.pop((section, key), None)
    if ("Service", "ExecStart") not in values:
        raise UnitError(f"{name}: a service must have ExecStart=")
    return UnitFile(name, values)


def parse_assignments(text: str) -> dict[str, str]:
    """
    Read `NAME=value` words with systemd's quoting, as in `Environment=` and `DefaultEnvironment=`.

    Raises:
        UnitError: A word is not an assignment.
    """
    variables = {}
    for word in shlex.split(text):
        name, separator, value = word.partition("=")
        if not separator or not name.isidentifier():
            raise UnitError(f"environment must be NAME=value words, got {word!r}")
        variables[name] = value.replace("%%", "%")
    return variables


def parse_environment_file(text: str) -> dict[str, str]:
    """Read an `EnvironmentFile=`: lines of assignments, comments and blank lines apart."""
    lines = [line for line in text.splitlines() if line.strip() and line.lstrip()[0] not in "#;"]
    variables = {}
    for line in lines:
        name, separator, value = line.strip().partition("=")
        if not separator:
            raise UnitError(f"environment file must hold NAME=value lines, got {line!r}")
        variables[name] = " ".join(shlex.split(value))
    return variables


def parse_default_environment(texts: Iterable[str]) -> dict[str, str]:
    """Read `DefaultEnvironment=` of `system.conf` and its drop-ins, in order."""
    variables: dict[str, str] = {}
    for text in texts:
        for line in _join_lines(text):
            key, _, value = (part.strip() for part in line.partition("="))
            if key == "DefaultEnvironment":
                variables = variables | parse_assignments(value) if value else {}
    return variables


def parse_seconds(text: str) -> float:
    """
    Read a time span such as `5`, `100ms` or `1min 30s`.

    Raises:
        UnitError: The text is not a time span.
    """
    if not re.fullmatch(r"(\s*\d+(\.\d+)?\s*[a-z]*)+", text):
        raise UnitError(f"a time span must be like 5, 100ms or 1min 30s, got {text!r}")
    parts = re.findall(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text)
    if any(unit not in _SECONDS for _, unit in parts):
        raise UnitError(f"a time span must use {sorted(filter(None, _SECONDS))}, got {text!r}")
    return sum(float(number) * _SECONDS[unit] for number, unit in parts)


def split_command(command: str, variables: Mapping[str, str]) -> tuple[bool, list[str]]:
    """
    Split an `Exec…=` line as systemd does: `$NAME` alone becomes words, `${NAME}` is replaced within a word.

    Returns:
        Whether a failure is forgiven (`-` before the program), and the words.

    Raises:
        UnitError: The line has a prefix or a specifier that is not known here, or its program has no absolute path.
    """
    forgiven = command.startswith("-")
    words: list[str] = []
    for word in shlex.split(command.lstrip("-")):
        if re.fullmatch(r"\$[A-Za-z_]\w*", word):
            words += variables.get(word[1:], "").split()
        else:
            expanded = re.sub(r"\$\{(\w+)\}", lambda match: variables.get(match[1], ""), word)
            words.append(expanded.replace("$$", "$").replace("%%", "%"))
    if not words or not words[0].startswith("/"):
        raise UnitError(f"a command must begin with an absolute path, got {command!r}")
    return forgiven, words


def _check(name: str, key: str, value: str) -> None:
    if key in _CHOICES and value and value not in _CHOICES[key]:
        raise UnitError(f"{name}: {key} must be one of {_CHOICES[key]}, got {value!r}")
    if key == "After" and _AFTER_USER_DATA & set(value.split()):
        raise UnitError(f"{name}: After={value} would wait for the user data that starts the unit")
    if key in {"Wants", "Requires"} and not all(unit.endswith(".target") for unit in value.split()):
        raise UnitError(f"{name}: {key}= of other than targets is not implemented by the stand-in, got {value}")
    if key not in ORDERING_KEYS and re.search(r"%[^%]", value.replace("%%", "")):
        raise UnitError(f"{name}: specifiers are not implemented by the systemctl stand-in, got {key}={value}")


def _join_lines(text: str) -> list[str]:
    joined = re.sub(r"\\\n", " ", text)
    return [line.strip() for line in joined.splitlines() if line.strip() and line.strip()[0] not in "#;"]
