"""Synthesizes the stack of a case with the user's app, by the protocol between the CDK command line and apps."""

import json
import os
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

from cdk_rehearsal.errors import PromiseError, UnavailableError
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.checks.training import example_folder

ELASTIC_LAUNCHER = "run_elastic.sh"
ELASTIC_PROGRAM = "train_elastic.py"
_ENVIRONMENT = "software.environment"
_WORDS = ("horovod", "none")
"""What an environment may be without a file."""


def synthesize_case(case: Case, app: str, folder: Path) -> Path:
    """
    Run the app with the case's context.

    The app gets the context of this folder's `cdk.json`, as from the CDK command line, with the case's on top.

    Args:
        case: Which case.
        app: Command line of the app; no shell reads it.
        folder: Of the case's results; the assembly becomes its `cdk.out`.

    Returns:
        The cloud assembly.

    Raises:
        UnavailableError: The command does not exist.
        PromiseError: The app failed.
    """
    assembly = folder / "cdk.out"
    shutil.rmtree(assembly, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    context = _read_own_context(Path("cdk.json")) | dict(case.context)
    if _ENVIRONMENT in case.context:
        context[_ENVIRONMENT] = _find_environment(case.context[_ENVIRONMENT])
    if case.is_elastic:
        context["master.run_script"] = str(_write_launcher(case, folder))
    environment = os.environ | {"CDK_OUTDIR": str(assembly), "CDK_CONTEXT_JSON": json.dumps(context)}
    try:
        answer = subprocess.run(shlex.split(app), env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UnavailableError(f"--app must be a command that synthesizes, got {app!r}: {error}") from error
    if answer.returncode != 0:
        raise PromiseError(f"{case.name}: the app failed: {answer.stderr.strip()[-600:]}")
    return assembly


def _read_own_context(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    context: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")).get("context", {})
    return context


def _find_environment(value: str | dict[str, str]) -> str | dict[str, str]:
    """Name an environment's file as the user's shell would, or else the one of that name among the examples."""
    if value in _WORDS or (isinstance(value, dict) and "path" not in value):
        return value
    if isinstance(value, dict):
        return value | {"path": str(_find_environment(value["path"]))}
    own = Path(value).resolve()
    return str(own if own.exists() else example_folder() / value)


def _write_launcher(case: Case, folder: Path) -> Path:
    """Write the example launcher with the case's arguments: a cluster's run script is started without any."""
    first, _, rest = (example_folder() / ELASTIC_LAUNCHER).read_text(encoding="utf-8").partition("\n")
    program = f'set -- "$EFS_MOUNT/{ELASTIC_PROGRAM}" {shlex.join(case.arguments)}'
    launcher = folder / ELASTIC_LAUNCHER
    launcher.write_text(f"{first}\n{program}\n{rest}", encoding="utf-8")
    return launcher
