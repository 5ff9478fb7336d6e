"""What a job is called when nobody says it, and which file its command line runs."""

import re
from pathlib import Path

from deeplearning_jobs.runs.job_folder import NAME, JobNameError

_UNFIT = re.compile(r"[^A-Za-z0-9._-]+")
_INTERPRETERS = re.compile(r"(python|pypy)[0-9.]*|bash|sh|dash|zsh")
_PYTHON_OPTIONS = frozenset({"-W", "-X", "--check-hash-based-pycs"})
_SHELL_OPTIONS = frozenset({"-o", "-O"})
"""Those that take the next word."""


def name_job(program: tuple[str, ...]) -> str:
    """
    Return the name of a job that has none: its program file's stem, or its module.

    Raises:
        JobNameError: Nothing in the command line can name it.
    """
    name = program[0]
    file = find_program_file(program)
    if file:
        name = Path(file).stem
    elif "-m" in program[1:-1]:
        name = program[program.index("-m", 1) + 1].removesuffix(".__main__").rpartition(".")[2]
    name = _UNFIT.sub("-", Path(name).name)[:64].strip("-._")
    if not NAME.fullmatch(name):
        raise JobNameError(f"the program's name {program[0]!r} cannot name the job; add --name")
    return name


def find_program_file(program: tuple[str, ...]) -> str:
    """Return the file that a command line runs: the program itself, or what its interpreter reads; empty for none."""
    if not _INTERPRETERS.fullmatch(Path(program[0]).name):
        return program[0] if "/" in program[0] else ""
    options = _PYTHON_OPTIONS if "py" in Path(program[0]).name else _SHELL_OPTIONS
    words = iter(program[1:])
    for word in words:
        if word in options:
            next(words, "")
        elif word in {"-m", "-c", "-"}:
            return ""
        elif not word.startswith("-"):
            return word
    return ""
