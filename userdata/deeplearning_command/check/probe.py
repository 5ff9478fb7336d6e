"""How a check looks at this machine: as the login user, with nothing in its environment that would prove a thing."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.node import LoginUser
from deeplearning_node.programs import ProgramError, Programs

PROGRAM_SECONDS = 60


@dataclass(frozen=True)
class Check:
    """
    One thing that was looked at.

    Attributes:
        name: What was looked at.
        state: `ok`, `fault`, or `absent`: it is not there, or cannot be tried here, and nothing is wrong with that.
        detail: What was found, in one line.
        remedy: What the user can do; empty when nothing is to be done.
    """

    name: str
    state: Literal["ok", "fault", "absent"]
    detail: str
    remedy: str = ""


@dataclass(frozen=True)
class Probe:
    """
    This machine, as a check sees it.

    Attributes:
        root: Where its file tree begins; `/` but for tests.
        programs: Its programs.
        user: The login user, as whom everything runs.
        is_root: Whether the caller is root, who becomes the login user first.
    """

    root: Path
    programs: Programs
    user: LoginUser
    is_root: bool

    def path(self, absolute: str) -> Path:
        """Return where an absolute path of the machine lies."""
        return self.root / absolute.lstrip("/")

    def read(self, absolute: str) -> str:
        """
        Return a file's text.

        Raises:
            OSError: It cannot be read.
            ValueError: It is not text.
        """
        return self.path(absolute).read_text(encoding="utf-8")

    def run(self, argv: Sequence[str], seconds: float = PROGRAM_SECONDS) -> str:
        """
        Run a program as the login user with a clean environment; return what it wrote.

        Raises:
            ProgramError: It is missing, took too long, or its status is not 0.
        """
        become = ["runuser", "-u", self.user.name, "--"] if self.is_root else []
        environment = {
            "HOME": self.user.home,
            "USER": self.user.name,
            "LOGNAME": self.user.name,
            "SHELL": "/bin/bash",
            "LC_ALL": "C.UTF-8",
        }
        return self.programs.run([*become, *argv], timeout_seconds=seconds, environment=environment)

    def run_login(self, shell_text: str, seconds: float = PROGRAM_SECONDS) -> str:
        """
        Run a text in a login shell of the login user.

        Raises:
            ProgramError: As `run`.
        """
        return self.run(["bash", "-l", "-c", shell_text], seconds)


def explain(error: Exception) -> str:
    """Say in one line why a look failed; of a program its own last words."""
    if isinstance(error, ProgramError) and not (error.is_late or error.is_missing):
        return last_line(error.output) or clean(str(error))
    return clean(str(error))
