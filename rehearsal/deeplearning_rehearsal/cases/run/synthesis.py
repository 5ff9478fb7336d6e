"""The stack of a case, synthesized with the user's app as the CDK command line does, and its elastic job."""

import json
import os
import shlex
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.errors import PromiseError, UnavailableError
from deeplearning_rehearsal.cases.case import Case, Elastic, Redeployment
from deeplearning_rehearsal.checks.training import DATA_MODULE, example_folder

if TYPE_CHECKING:  # A command that only synthesizes needs no lab.
    from cdk_rehearsal.lab import Lab
    from cdk_rehearsal.machine import Machine

ELASTIC_LAUNCHER = "run_elastic.sh"
ELASTIC_PROGRAM = "train_elastic.py"
LOGIN_USER_ID = 1000
"""Of the first user of an image, which is its login user."""
_ENVIRONMENT = "software.environment"
_RELEASE = "next-release"
_NEXT_RELEASE = """
from pathlib import Path

from deeplearning_cdk.coordination import payload

pack = payload.zip_bytes
payload.zip_bytes = lambda sources: pack([*sources, Path(__file__)])
"""
"""Module that Python imports first: every zip of programs then has one file more, as those of another release."""
_WORDS = ("horovod", "none")
"""Values of an environment that name no file."""


def synthesize_case(case: Case, app: str, folder: Path) -> Path:
    """
    Run the app with the context of this folder's `cdk.json` and the case's on top; return the cloud assembly.

    Raises UnavailableError if the command does not exist, and PromiseError if the app fails.
    """
    return _synthesize(case, app, folder / "cdk.out")


def synthesize_second(case: Case, second: Redeployment, app: str, folder: Path) -> Path:
    """
    Run the app once more, with what the second deployment of a case changes; return the cloud assembly.

    Raises as `synthesize_case`.
    """
    variables = {}
    if second.is_release:
        (folder / _RELEASE).mkdir(parents=True, exist_ok=True)
        (folder / _RELEASE / "sitecustomize.py").write_text(_NEXT_RELEASE, encoding="utf-8")
        variables = {"PYTHONPATH": str(folder / _RELEASE)}
    changed = replace(case, context={**case.context, **second.context})
    return _synthesize(changed, app, find_second(folder), variables)


def find_second(folder: Path) -> Path:
    """Return where the assembly of the second deployment is, in the folder of a case."""
    return folder / "second.out"


def _synthesize(case: Case, app: str, assembly: Path, variables: Mapping[str, str] = MappingProxyType({})) -> Path:
    shutil.rmtree(assembly, ignore_errors=True)
    assembly.parent.mkdir(parents=True, exist_ok=True)
    context = _read_own_context(Path("cdk.json")) | dict(case.stack_context)
    if _ENVIRONMENT in case.stack_context:
        context[_ENVIRONMENT] = _find_environment(case.stack_context[_ENVIRONMENT])
    if isinstance(case.job, Elastic):
        context["master.run_script"] = str(_write_launcher(case.job, assembly.parent))
    own = {"CDK_OUTDIR": str(assembly), "CDK_CONTEXT_JSON": json.dumps(context)}
    environment = os.environ | own | dict(variables)
    try:
        answer = subprocess.run(shlex.split(app), env=environment, capture_output=True, text=True, check=False)
    except OSError as error:
        raise UnavailableError(f"--app must be a command that synthesizes, got {app!r}: {error}") from error
    if answer.returncode != 0:
        raise PromiseError(f"{case.name}: the app failed: {answer.stderr.strip()[-600:]}")
    return assembly


def prepare_machines(case: Case | None, lab: "Lab", digits: Callable[[], Path]) -> "Callable[[Machine], None] | None":
    """
    Return what an elastic job needs before a machine boots: its program on the shared file system.

    The file system then belongs to the login user, as it must where a user has put files on it before.
    """
    if case is None or not case.is_elastic:
        return None

    def copy_program(machine: "Machine") -> None:
        for file_system in machine.mount_targets:
            folder = lab.file_system(file_system)
            for source in (*(example_folder() / name for name in (DATA_MODULE, ELASTIC_PROGRAM)), digits()):
                if not (folder / source.name).exists():
                    (folder / source.name).write_bytes(source.read_bytes())
                    for path in (folder, folder / source.name):
                        os.chown(path, LOGIN_USER_ID, LOGIN_USER_ID)

    return copy_program


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


def _write_launcher(job: Elastic, folder: Path) -> Path:
    """Write the example launcher with the case's arguments: a cluster's run script is started without any."""
    first, _, rest = (example_folder() / ELASTIC_LAUNCHER).read_text(encoding="utf-8").partition("\n")
    program = f'set -- "$EFS_MOUNT/{ELASTIC_PROGRAM}" {shlex.join(job.arguments)}'
    launcher = folder / ELASTIC_LAUNCHER
    launcher.write_text(f"{first}\n{program}\n{rest}", encoding="utf-8")
    return launcher
