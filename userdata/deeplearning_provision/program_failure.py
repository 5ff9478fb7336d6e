"""Failures of programs: the meaning of what pip, compilers, conda, docker, apt-get and dnf write, as one table each."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from deeplearning_node.programs import ProgramError
from deeplearning_provision.steps import ProvisionFailure

TOLD_LINES = 3
NETWORK = re.compile(
    # Python's sockets, urllib3 and pip
    r"Temporary failure in name resolution|Name or service not known|NewConnectionError|ConnectTimeoutError"
    r"|ConnectionResetError|RemoteDisconnected|ReadTimeoutError|Read timed out|ProtocolError|IncompleteRead"
    r"|Connection refused|Network is unreachable|Server Error|Too Many Requests"
    # git, docker and conda
    r"|Could not resolve host|Failed to connect to|i/o timeout|TLS handshake timeout|CondaHTTPError"
    # apt-get and dnf
    r"|Temporary failure resolving|Could not resolve '|Could not connect|Unable to connect|Connection failed"
    r"|Connection timed out|Failed to fetch|Failed to download|Curl error"
)
"""A network or a server that may be there later."""
LOCKED = re.compile(r"Could not get lock|Unable to acquire the dpkg frontend lock")
FULL_DISK = re.compile(r"No space left on device")
LATE = re.compile(r"^.* took longer than \d+ s$", re.MULTILINE)
"""Of the error itself, see `Transcript.run`."""
NO_COMPILER = re.compile(
    r"g(cc|\+\+)' failed: No such file|No such file or directory: '(gcc|g\+\+|cc|c\+\+)'|unable to execute 'gcc'"
    r"|Python\.h: No such file|No CMAKE_C(XX)?_COMPILER could be found"
)
_COMPILER_ERROR = re.compile(
    r"(:\d+(:\d+)?|\(\d+\)): (fatal |catastrophic )?error\b|^(nvcc|ld|collect2|CMake) ?.*\berror\b", re.IGNORECASE
)
"""As g++ (`a.cc:3:7: error:`), nvcc (`a.cu(3): error:`), the linker and CMake write it."""
_ERRORS = ("ERROR:", "error:", "Error:", "E:", "Err:", "sudo:")


@dataclass(frozen=True)
class Meaning:
    """A row of a table: what failed when a pattern is in a program's error or output."""

    pattern: re.Pattern[str]
    cause: str
    remedy: str
    may_pass: bool = False  # Whether a later run may succeed


def explain_failure(error: ProgramError, meanings: Iterable[Meaning], cause: str, remedy: str) -> ProvisionFailure:
    """Return the failure of the first row that fits, else a final one of `cause` and `remedy`; with the errors told."""
    told = choose_lines(error.output)
    text = f"{error}\n{error.output}"
    for meaning in meanings:
        if meaning.pattern.search(text):
            return ProvisionFailure(meaning.cause, meaning.remedy, is_final=not meaning.may_pass, output=told)
    return ProvisionFailure(cause, remedy, output=told)


def choose_lines(output: str) -> str:
    """Return the lines that say what is wrong: a compiler's first error, then a program's, else the last ones."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    compilers = [line for line in lines if _COMPILER_ERROR.search(line)][:1]
    errors = [line for line in lines if line.startswith(_ERRORS)]
    return "\n".join(compilers + (errors or lines)[-TOLD_LINES + len(compilers) :])
