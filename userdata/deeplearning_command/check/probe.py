"""A check of this machine, and its way to run programs: with an environment that proves nothing by itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from deeplearning_command.context import Context
from deeplearning_node.health.findings import clean, last_line
from deeplearning_node.programs import ProgramError

PROGRAM_SECONDS = 60


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    name: str
    # `absent` where it is not there, or cannot be tried here, and nothing is wrong with that
    state: Literal["ok", "fault", "absent"]
    detail: str  # In one line
    remedy: str = ""  # Empty when nothing is to be done


def run_clean(context: Context, argv: Sequence[str], seconds: float = PROGRAM_SECONDS) -> str:
    """Run a program as the login user with a clean environment; return its output, or raise ProgramError."""
    user = context.user
    become = ["runuser", "-u", user.name, "--"] if context.is_root else []
    environment = {
        "HOME": user.home,
        "USER": user.name,
        "LOGNAME": user.name,
        "SHELL": "/bin/bash",
        "LC_ALL": "C.UTF-8",
    }
    return context.programs.run([*become, *argv], timeout_seconds=seconds, environment=environment)


def run_login(context: Context, shell_text: str, seconds: float = PROGRAM_SECONDS) -> str:
    """Run a text in a login shell of the login user, as `run_clean` does."""
    return run_clean(context, ["bash", "-l", "-c", shell_text], seconds)


def explain(error: Exception) -> str:
    """Return in one line why a check failed; of a program its own last words."""
    if isinstance(error, ProgramError) and not (error.is_late or error.is_missing):
        return last_line(error.output) or clean(str(error))
    return clean(str(error))
