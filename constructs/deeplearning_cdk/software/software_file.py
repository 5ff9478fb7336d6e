"""
Reader of the files that name the software of jobs: requirements files of pip and environment files of conda.

Nodes get the file alone. A line that names a file, a variable or a server of the machine that runs the app would fail
on the master, after the cluster has launched, so it is refused at synthesis.
"""

import optparse
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import yaml
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from deeplearning_cdk.props.check import show_value
from deeplearning_contract.setting_parts import decode_requirements

_COMMENT = re.compile(r"(^|\s+)#.*$")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")
_SINGLE_EQUALS = re.compile(r"(?<![=<>!~\s])\s*=\s*(?=[0-9])")
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://|file:", re.IGNORECASE)
_FETCHED = re.compile(r"https?|(git|hg|svn|bzr)(\+(https?|ssh|git|svn))?|ftp")
_HERE = re.compile(r"|localhost|.*\.localhost|127\..*|::1|0\.0\.0\.0|host\.docker\.internal")
_PATH = re.compile(r"[.~]|[^;\[]*[/\\]")
_ARCHIVE = re.compile(r"\.(whl|zip|tar|tar\.(gz|bz2|xz|lz|lzma)|tgz|tbz|txz|tlz)$", re.IGNORECASE)
_CONDA_PATH = re.compile(r"[.~/\\]|[A-Za-z]:\\|file:|local$|(?!https?:).*\.(conda|tar\.bz2)$", re.IGNORECASE)
_CONDA_LISTS = ("channels", "dependencies")


@dataclass(frozen=True)
class RequirementLine:
    """
    One requirement of a file.

    Attributes:
        where: Its line as an error shows it, such as `'torch==2.13.0' in line 3 of 'requirements.txt'`.
        name: Normalized name of the project; empty for a URL without a name.
        pin: Version of an exact pin without a marker, such as `2.13.0`; empty otherwise.
    """

    where: str
    name: str = ""
    pin: str = ""


@dataclass(frozen=True)
class RequirementsFile:
    """
    Requirements of a file.

    Attributes:
        lines: Its requirements.
        has_own_index: True if it names an index, or pages with packages.
    """

    lines: tuple[RequirementLine, ...]
    has_own_index: bool


def read_requirements(path: str) -> RequirementsFile:
    """
    Read a requirements file of pip.

    Source: pip documentation, "Requirements File Format".

    Raises:
        ValueError: It is in another encoding, has a line that pip does not accept, names something of this machine, or
            names no requirement.
    """
    lines: list[RequirementLine] = []
    has_own_index = False
    for number, line in _join_lines(_decode(path)):
        where = f"{show_value(line)} in line {number} of {path!r}"
        options = _read_options(line, where)
        has_own_index = has_own_index or any(options[name] for name in ("index_url", "extra_index_url", "find_links"))
        if options["requirement_text"]:
            lines.append(_read_requirement(options["requirement_text"], where))
    if not lines:
        raise ValueError(
            f"path must be a file with at least one requirement, got none in {path!r}; leave the prop out to use the "
            "image's software"
        )
    return RequirementsFile(tuple(lines), has_own_index)


def check_conda_file(path: str) -> None:
    """
    Check an environment file of conda.

    Source: conda documentation, "Managing environments", section "Creating an environment file manually".

    Raises:
        ValueError: It is no YAML of an environment, or names something of this machine.
    """
    try:
        content = yaml.safe_load(_decode(path))
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"path must be a file of YAML, got {path!r}; correct it: {reason}") from error
    if not isinstance(content, dict) or not all(isinstance(content.get(key) or [], list) for key in _CONDA_LISTS):
        raise ValueError(
            f"path must be an environment of conda, a map with lists of channels and dependencies, got {path!r}; write "
            "it as `conda env export --from-history` does"
        )
    for entry in (each for key in _CONDA_LISTS for each in content.get(key) or []):
        if isinstance(entry, dict):
            for text in entry.get("pip") or []:
                where = f"{show_value(text)} in {path!r}"
                if requirement := _read_options(str(text).strip(), where)["requirement_text"]:
                    _read_requirement(requirement, where)
        elif _CONDA_PATH.match(str(entry)):
            raise _refuse_reference(f"{show_value(entry)} in {path!r}")


def _decode(path: str) -> str:
    try:
        return decode_requirements(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise ValueError(
            f"path must be a file of text in UTF-8, or in the encoding that its first line declares, got {path!r} "
            f"({error}); save it as UTF-8"
        ) from error


def _join_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the lines that are not empty without comments, continued ones joined, each with its first number."""
    begin, parts = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], start=1):
        begin = begin if parts else number
        is_comment = line.lstrip().startswith("#")
        parts.append(f" {line}" if is_comment else line.rstrip("\\"))
        if not line.endswith("\\") or is_comment:
            joined, parts = _COMMENT.sub("", "".join(parts)).strip(), []
            if joined:
                yield begin, joined


class _OptionParser(optparse.OptionParser):
    """Parser of pip's options in a line, abbreviated ones too."""

    def __init__(self) -> None:
        super().__init__(add_help_option=False)
        for name in ("--no-index", "--prefer-binary", "--require-hashes", "--pre"):
            self.add_option(name, action="store_true", default=False)
        for name in ("--no-binary", "--only-binary", "--trusted-host", "--use-feature", "--global-option", "--hash"):
            self.add_option(name)
        self.add_option("-C", "--config-settings", "--config-setting")
        for short, name in (
            ("-r", "--requirement"),
            ("-c", "--constraint"),
            ("-e", "--editable"),
            ("-f", "--find-links"),
        ):
            self.add_option(short, name, action="append", default=[])
        self.add_option("-i", "--index-url", "--pypi-url", action="append", default=[])
        self.add_option("--extra-index-url", action="append", default=[])

    def error(self, msg: str) -> NoReturn:
        raise ValueError(msg)


def _read_options(line: str, where: str) -> Mapping[str, Any]:
    """Return the options of a line by name, and its requirement as `requirement_text`."""
    if _VARIABLE.search(line):
        raise ValueError(
            f"path must be a file without environment variables, which nodes lack, got {where}; write the value"
        )
    words = line.split(" ")
    count = next((index for index, word in enumerate(words) if word.startswith("-")), len(words))
    text = " ".join(words[:count]).strip()
    try:
        options = vars(_OptionParser().parse_args(shlex.split(" ".join(words[count:])))[0])
    except ValueError as error:
        raise ValueError(f"path must be a file with options of pip, got {where}; correct them: {error}") from error
    pages = [*options["index_url"], *options["extra_index_url"], *options["find_links"]]
    files = [*options["requirement"], *options["constraint"], *options["editable"]]
    if files or not all(map(_is_fetched, pages)):
        raise _refuse_reference(where)
    if text and pages:
        raise ValueError(
            f"path must be a file with an index on a line of its own, got {where}, where pip ignores it; move it there"
        )
    return {**options, "requirement_text": text}


def _read_requirement(text: str, where: str) -> RequirementLine:
    if _URL.match(text):
        if not _is_fetched(text):
            raise _refuse_reference(where)
        return RequirementLine(where)
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        if _PATH.match(text):
            raise _refuse_reference(where) from error
        meant = _SINGLE_EQUALS.sub("==", text, count=1)
        remedy = f"write {meant}" if meant != text else f"correct it: {str(error).splitlines()[0]}"
        raise ValueError(f"path must be a file with one requirement of pip a line, got {where}; {remedy}") from error
    if not _is_fetched(requirement.url) if requirement.url else _ARCHIVE.search(requirement.name):
        raise _refuse_reference(where)
    exact = [each.version for each in requirement.specifier if each.operator in ("==", "===")]
    pin = exact[0] if len(exact) == 1 and not requirement.marker else ""
    return RequirementLine(where, canonicalize_name(requirement.name), pin)


def _is_fetched(url: str) -> bool:
    """Return whether nodes can fetch a URL: its scheme is one of pip's, and its host is not this machine."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").lower()
    except ValueError:
        return False
    return _FETCHED.fullmatch(parts.scheme.lower()) is not None and _HERE.fullmatch(host) is None


def _refuse_reference(where: str) -> ValueError:
    return ValueError(
        f"path must be one file that stands alone, got {where}; write what it names into the file, or publish it to a "
        "package index"
    )
