"""Failures of programs: one table each for the output of pip, compilers, conda, docker, apt-get and dnf."""

import contextlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from deeplearning_node.programs import ProgramError
from deeplearning_provision.steps import ProvisionFailure

TOLD_LINES = 3
NETWORK = re.compile(
    # Messages of the system, and of Python's sockets, urllib3 and pip
    r"Temporary failure in name resolution|Name or service not known|Connection refused|Connection timed out"
    r"|Network is unreachable|Read timed out|\b5\d\d (Internal )?Server Error|Too Many Requests"
    r"|(NewConnection|ConnectTimeout|ReadTimeout|ConnectionReset|Protocol)Error[(:]"
    r"|(RemoteDisconnected|IncompleteRead)[(:]"
    # git, docker, and conda without a response or with one that may change
    r"|Could not resolve host|Failed to connect to|i/o timeout|TLS handshake timeout"
    r"|CondaHTTPError: HTTP (000|429|5\d\d)"
)
"""Temporary failures of a network or server, in words that no compiler or resolver writes."""
FULL_DISK = re.compile(r"No space left on device")
LATE = re.compile(r"^.* took longer than \d+ s$", re.MULTILINE)
"""Text of the error itself, see `Transcript.run`."""
NO_COMPILER = re.compile(
    r"g(cc|\+\+)' failed: No such file|No such file or directory: '(gcc|g\+\+|cc|c\+\+)'|unable to execute 'gcc'"
    r"|Python\.h: No such file|No CMAKE_C(XX)?_COMPILER could be found"
)
_COMPILER = r"(:\d+(:\d+)?|\(\d+\)): (fatal |catastrophic )?error\b|^\s*(nvcc|ld|collect2)\b.*\berror\b"
"""Errors of g++ (`a.cc:3:7: error:`), nvcc (`a.cu(3): error:`) and the linker."""
_BUILD_ERROR = re.compile(rf"{_COMPILER}|^CMake\b.*\berror\b", re.IGNORECASE)
_PERMANENT = re.compile(
    rf"{_COMPILER}|ResolutionImpossible|UnsatisfiableError|ResolvePackageNotFound", re.IGNORECASE | re.MULTILINE
)
"""A compiler's error, or a conflict that pip or conda found: a network that failed before it is not the cause."""
_ERRORS = ("ERROR:", "error:", "Error:", "E:", "Err:", "sudo:")


@dataclass(frozen=True)
class Meaning:
    """Row of a table: pattern in a program's error or output, and its cause and remedy."""

    pattern: re.Pattern[str]
    cause: str
    remedy: str
    may_pass: bool = False  # Whether a later run may succeed


def explain_failure(error: ProgramError, meanings: Iterable[Meaning], cause: str, remedy: str) -> ProvisionFailure:
    """
    Return the failure of the first row that matches, else a final one of `cause` and `remedy`.

    A row that may pass does not match the output of a permanent failure.
    """
    told = choose_lines(error.output)
    text = f"{error}\n{error.output}"
    is_permanent = _PERMANENT.search(text)
    for meaning in meanings:
        if meaning.pattern.search(text) and not (meaning.may_pass and is_permanent):
            return ProvisionFailure(meaning.cause, meaning.remedy, is_final=not meaning.may_pass, output=told)
    return ProvisionFailure(cause, remedy, output=told)


@contextlib.contextmanager
def explain_program_errors(cause: str, remedy: str) -> Iterator[None]:
    """Convert errors of programs to a final failure with the program's output."""
    try:
        yield
    except ProgramError as error:
        raise ProvisionFailure(cause, remedy, output=error.output) from error


def choose_lines(output: str) -> str:
    """Return a compiler's first error and the program's last ones; its last lines when it wrote no error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    compilers = [line for line in lines if _BUILD_ERROR.search(line)][:1]
    errors = [line for line in lines if line.startswith(_ERRORS)]
    return "\n".join(compilers + (errors or lines)[-TOLD_LINES + len(compilers) :])
