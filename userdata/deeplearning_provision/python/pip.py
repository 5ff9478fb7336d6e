"""pip, as an environment's Python runs it: which one, with what, and what its failures mean."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_node.programs import ProgramError, Programs
from deeplearning_provision.program_log import Transcript, ignore_line
from deeplearning_provision.steps import ProvisionFailure

STEP_SECONDS = 2 * 3600
"""What one run may take: the largest packages, or a compilation on few cores."""
LEAST_VERSION = (22, 2)
"""Of pip: the first that reports what it would install."""
TOLD_LINES = 3
_COMPILER_ERROR = re.compile(
    r"(:\d+(:\d+)?|\(\d+\)): (fatal |catastrophic )?error\b|^(nvcc|ld|collect2|CMake) ?.*\berror\b", re.IGNORECASE
)
"""As g++ (`a.cc:3:7: error:`), nvcc (`a.cu(3): error:`), the linker and CMake write it."""

# The user's own packages do not count, since only this node has them. Nobody answers a question.
VARIABLES = {
    "PYTHONNOUSERSITE": "1",
    "PIP_NO_INPUT": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_COLOR": "1",
    "PIP_PROGRESS_BAR": "off",
    "GIT_TERMINAL_PROMPT": "0",
}
_NETWORK_MARKS = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "NewConnectionError",
    "ConnectTimeoutError",
    "ConnectionResetError",
    "RemoteDisconnected",
    "ReadTimeoutError",
    "Read timed out",
    "ProtocolError",
    "IncompleteRead",
    "Connection refused",
    "Network is unreachable",
    "Could not resolve host",
    "Failed to connect to",
    "Server Error",
    "Too Many Requests",
    "i/o timeout",
    "TLS handshake timeout",
    "CondaHTTPError",
)
_COMPILER_MARKS = (
    "gcc' failed: No such file",
    "g++' failed: No such file",
    "No such file or directory: 'gcc'",
    "No such file or directory: 'g++'",
    "No such file or directory: 'cc'",
    "No such file or directory: 'c++'",
    "unable to execute 'gcc'",
    "Python.h: No such file",
    "No CMAKE_C_COMPILER could be found",
    "No CMAKE_CXX_COMPILER could be found",
)
MISSING_COMPILERS = "compilers are missing to build the requirements"
WRONG_DIGEST = "a package is not what its hash says"
COMPILER_REMEDY = (
    "install them in the set-up script or give an image that has them: g++ make python3-dev on Ubuntu and Debian, "
    "gcc-c++ make python3-devel on Amazon Linux"
)


@dataclass(frozen=True)
class Pip:
    """pip of one environment."""

    python: Path  # The environment's interpreter
    transcript: Transcript  # Where its output goes
    environment: Mapping[str, str]  # Further variables
    programs: Programs  # Where compilers are looked for

    def run(
        self,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        programs: Programs | None = None,
        on_line: Callable[[str], None] = ignore_line,
    ) -> str:
        """
        Run pip and return its output; ProvisionFailure with pip's own words.

        Further variables and other programs than the node's may be given. `on_line` gets each line.
        """
        try:
            return self.transcript.run(
                [str(self.python), "-m", "pip", *arguments],
                timeout_seconds=STEP_SECONDS,
                environment={**VARIABLES, **self.environment, **(environment or {})},
                programs=programs or self.programs,
                on_line=on_line,
            )
        except ProgramError as error:
            raise explain_failure(error, arguments[0], self.transcript.log) from error

    def prepare(self, version: str, *, is_builder: bool) -> None:
        """Ensure a pip, from the image or from Python itself; a builder's must not be too old."""
        if not version:
            try:
                self.transcript.run(
                    [str(self.python), "-m", "ensurepip"], timeout_seconds=STEP_SECONDS, environment=VARIABLES
                )
            except ProgramError as error:
                raise ProvisionFailure(
                    "the image's Python has neither pip nor ensurepip",
                    "install python3-pip in the set-up script, or give an image that has it",
                    output=error.output,
                ) from error
        elif is_builder and _read_version(version) < LEAST_VERSION:
            self.run("install", "--upgrade", f"pip>={'.'.join(map(str, LEAST_VERSION))}")


def explain_failure(error: ProgramError, what: str, log: Path) -> ProvisionFailure:
    """Return whether a failure of pip may pass, and pip's own words."""
    told = choose_lines(error.output)
    if "DO NOT MATCH THE HASHES" in error.output:
        return ProvisionFailure(WRONG_DIGEST, "correct the hashes of the requirements", output=told)
    if is_network_failure(error.output):
        return ProvisionFailure(
            f"pip {what} did not reach its index",
            "see the route to the package index, or pip's configuration; it is tried again",
            output=told,
            is_final=False,
        )
    if any(mark in error.output for mark in _COMPILER_MARKS):
        return ProvisionFailure(MISSING_COMPILERS, COMPILER_REMEDY, output=told)
    if "No space left on device" in error.output:
        return ProvisionFailure(f"the disk is full during pip {what}", "give a larger workers.volume_size", output=told)
    if error.is_late:
        return ProvisionFailure(f"pip {what} took longer than {STEP_SECONDS} s", f"read {log}", output=told)
    return ProvisionFailure(f"pip {what} failed", f"correct the requirements (all of it is in {log})", output=told)


def _read_version(text: str) -> tuple[int, ...]:
    found = re.match(r"(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def is_network_failure(output: str) -> bool:
    """Return whether what a program wrote speaks of a network, so that the same may succeed later."""
    return any(mark in output for mark in _NETWORK_MARKS)


def choose_lines(output: str) -> str:
    """Return the lines that say what is wrong: a compiler's first error, then pip's, else the last ones."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    compilers = [line for line in lines if _COMPILER_ERROR.search(line)][:1]
    errors = [line for line in lines if line.startswith(("ERROR:", "error:"))]
    return "\n".join(compilers + (errors or lines)[-TOLD_LINES + len(compilers) :])


@dataclass(frozen=True)
class Resolved:
    """A package that pip would install."""

    name: str  # In lower case
    version: str
    line: str  # The requirement that means exactly one archive or commit
    digest: str  # SHA-256 of the archive; empty where the index gives none

    @property
    def identity(self) -> str:
        """What names its content, whichever index it came from."""
        return f"{self.name}=={self.version} {self.digest or self.line}"


def read_report(report: Mapping[str, Any]) -> Sequence[Resolved]:
    """Return the packages of a report of pip (https://pip.pypa.io/en/stable/reference/installation-report/)."""
    return [_read_package(item["metadata"], item["download_info"]) for item in report["install"]]


def _read_package(metadata: Mapping[str, Any], info: Mapping[str, Any]) -> Resolved:
    """See https://packaging.python.org/en/latest/specifications/direct-url-data-structure/."""
    archive, repository = info.get("archive_info", {}), info.get("vcs_info")
    kind, _, digest = archive.get("hash", "").partition("=")
    digest = archive.get("hashes", {}).get("sha256", digest if kind == "sha256" else "")
    source = f"{repository['vcs']}+{info['url']}@{repository['commit_id']}" if repository else info["url"]
    parts = [f"sha256={digest}"] if digest else []
    parts += [f"subdirectory={info['subdirectory']}"] if info.get("subdirectory") else []
    line = f"{metadata['name']} @ {source}" + (f"#{'&'.join(parts)}" if parts else "")
    return Resolved(re.sub(r"[-_.]+", "-", metadata["name"]).lower(), metadata.get("version", ""), line, digest)
