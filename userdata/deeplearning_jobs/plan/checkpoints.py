"""Checkpoints from which a job resumes."""

import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from deeplearning_jobs.plan.launch_plan import PlanError

PLACE = "{checkpoint}"
"""Placeholder of the newest checkpoint in a command line."""
_UNFINISHED = (".tmp", ".part")


def find_newest(folder: Path, pattern: str = "") -> str:
    """
    Return the absolute path of the newest checkpoint in a job's checkpoints folder; empty for none.

    `pattern` is a glob below the folder, such as `epoch-*/model.pt`. Default: every file and folder directly in it that
    is neither hidden nor named *.tmp or *.part.
    """
    if pattern and (pattern.startswith("/") or ".." in PurePosixPath(pattern).parts):
        raise PlanError(
            f"--checkpoint-pattern must be a pattern below the checkpoints folder, got {pattern!r}; "
            "leave the folder out, as in 'epoch-*/model.pt'"
        )
    newest, newest_key = "", (0, "")
    for path in folder.glob(pattern or "*"):
        if not pattern and (path.name.startswith(".") or path.name.endswith(_UNFINISHED)):
            continue
        try:
            key = (path.stat().st_mtime_ns, str(path))
        except OSError:  # Removed by the job, or a dangling link.
            continue
        if key > newest_key:
            newest, newest_key = str(path.absolute()), key
    return newest


def fill_arguments(program: Sequence[str], resume_arguments: str, newest: str) -> tuple[str, ...]:
    """Replace `{checkpoint}` by the newest checkpoint, or by nothing; append the resume arguments if there is one."""
    try:
        further = shlex.split(resume_arguments)
    except ValueError as error:
        raise PlanError(
            f"--resume-args must be words as a shell reads them, got {resume_arguments!r}: {error}"
        ) from error
    return tuple(word.replace(PLACE, newest) for word in (*program, *(further if newest else ())))


def set_aside(folder: Path, before_run: int) -> Path | None:
    """Replace a folder of checkpoints with an empty one; return the old one's new path, None where it was empty."""
    if not folder.is_dir() or not any(folder.iterdir()):
        folder.mkdir(parents=True, exist_ok=True)
        return None
    kept = folder.with_name(f"{folder.name}-before-run-{before_run}")
    folder.rename(kept)
    folder.mkdir()
    return kept
