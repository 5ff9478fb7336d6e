"""pip of an environment: its runs, reports and failures."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.program_failure import (
    FULL_DISK,
    LATE,
    NETWORK,
    NO_COMPILER,
    Meaning,
    explain_failure,
    explain_program_errors,
)
from deeplearning_provision.program_log import Transcript, ignore_line
from deeplearning_provision.steps import ProvisionFailure

STEP_SECONDS = 2 * 3600
"""Limit of one run, for the largest packages, or a compilation on few cores."""
LEAST_VERSION = (22, 2)
"""First pip with `--report`."""
# Exclude the user's own packages, since only this node has them.
VARIABLES = {
    "PYTHONNOUSERSITE": "1",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "GIT_TERMINAL_PROMPT": "0",
}
MISSING_COMPILERS = "compilers are missing to build the requirements"
_WRONG_HASH = re.compile("DO NOT MATCH THE HASHES")
WRONG_DIGEST = "a package does not match its hash"
WITHOUT_HOROVOD = "pass JobEnvironment.none() and use torchrun"


@dataclass(frozen=True)
class Pip:
    python: Path
    transcript: Transcript
    environment: Mapping[str, str]  # Further variables
    programs: Programs  # Compilers among them
    version: str  # Of Python, such as `3.12.3`

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        programs: Programs | None = None,
        on_line: Callable[[str], None] = ignore_line,
    ) -> str:
        """Run pip and return its output; `on_line` receives each line."""
        try:
            return self.transcript.run(
                [str(self.python), "-m", "pip", *arguments],
                timeout_seconds=STEP_SECONDS,
                environment={**VARIABLES, **self.environment, **(environment or {})},
                programs=programs or self.programs,
                on_line=on_line,
            )
        except ProgramError as error:
            raise explain_pip(error, arguments[0], self.transcript.log, self.version) from error

    def prepare(self, version: str, *, is_builder: bool) -> None:
        """Ensure that there is a pip, the image's or Python's own; update a builder's outdated one."""
        if not version:
            amazon_linux = f"{name_python(self.version, has_namespaces=True)}-pip"
            with explain_program_errors(
                "the image's Python has neither pip nor ensurepip",
                f"install python3-pip (Amazon Linux: {amazon_linux}) in the set-up script or use an image that has it",
            ):
                self.transcript.run(
                    [str(self.python), "-m", "ensurepip"], timeout_seconds=STEP_SECONDS, environment=VARIABLES
                )
        elif is_builder and read_version(version) < LEAST_VERSION:
            self.run("install", "--upgrade", f"pip>={'.'.join(map(str, LEAST_VERSION))}")


def explain_pip(error: ProgramError, what: str, log: Path, version: str) -> ProvisionFailure:
    meanings = (
        Meaning(_WRONG_HASH, WRONG_DIGEST, "correct the hashes of the requirements"),
        Meaning(
            NETWORK,
            f"pip {what} did not reach its index",
            "check the route to the package index, or pip's configuration; retrying",
            may_pass=True,
        ),
        Meaning(NO_COMPILER, MISSING_COMPILERS, suggest_compilers(version)),
        Meaning(FULL_DISK, f"the disk is full during pip {what}", "give a larger workers.volume_size"),
        Meaning(LATE, f"pip {what} took longer than {STEP_SECONDS} s", f"read {log}"),
    )
    return explain_failure(error, meanings, f"pip {what} failed", f"correct the requirements (full log: {log})")


def suggest_compilers(version: str) -> str:
    """Return the remedy for missing compilers or headers of a Python such as `3.12.3`."""
    python = name_python(version)
    return (
        f"install them in the set-up script or use an image that has them: g++ make {python}-dev on Ubuntu and Debian, "
        f"gcc-c++ make {name_python(version, has_namespaces=True)}-devel on Amazon Linux; or {WITHOUT_HOROVOD}"
    )


def name_python(version: str, *, has_namespaces: bool = False) -> str:
    """
    Return the beginning of the names of a Python's packages, such as `python3.12`.

    In Amazon Linux 2023 each Python has a namespace of its own, and 3.9 that of the system: `python3` (AL2023 user
    guide, "Python in AL2023").
    """
    major, minor = read_version(version)
    return "python3" if has_namespaces and (major, minor) == (3, 9) else f"python{major}.{minor}"


def read_version(text: str, default: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    """Return the major and minor version at the beginning of a text."""
    found = re.match(r"(\d+)(?:\.(\d+))?", text)
    return (int(found[1]), int(found[2] or 0)) if found else default


@dataclass(frozen=True)
class Resolved:
    """A package that pip would install."""

    name: str  # In lower case
    version: str
    line: str  # Requirement of exactly one archive or commit
    digest: str  # SHA-256 of the archive; empty where the index gives none

    @property
    def identity(self) -> str:
        """Name of its content, the same from every index."""
        return f"{self.name}=={self.version} {self.digest or self.line}"


def read_report(report: Mapping[str, Any]) -> Sequence[Resolved]:
    """Return the packages of a report of pip (https://pip.pypa.io/en/stable/reference/installation-report/)."""
    return [_read_package(item["metadata"], item["download_info"]) for item in report["install"]]


def _read_package(metadata: Mapping[str, Any], info: Mapping[str, Any]) -> Resolved:
    """Return a package; see https://packaging.python.org/en/latest/specifications/direct-url-data-structure/."""
    archive, repository = info.get("archive_info", {}), info.get("vcs_info")
    kind, _, digest = archive.get("hash", "").partition("=")
    digest = archive.get("hashes", {}).get("sha256", digest if kind == "sha256" else "")
    source = f"{repository['vcs']}+{info['url']}@{repository['commit_id']}" if repository else info["url"]
    parts = [f"sha256={digest}"] if digest else []
    parts += [f"subdirectory={info['subdirectory']}"] if info.get("subdirectory") else []
    line = f"{metadata['name']} @ {source}" + (f"#{'&'.join(parts)}" if parts else "")
    return Resolved(re.sub(r"[-_.]+", "-", metadata["name"]).lower(), metadata.get("version", ""), line, digest)
