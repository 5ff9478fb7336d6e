"""Virtual environments over the image's Python, whose packages stay visible."""

import shutil
from collections.abc import Container, Iterable
from pathlib import Path

from deeplearning_provision.program_failure import explain_program_errors
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.python.interpreter import Interpreter
from deeplearning_provision.python.pip import name_python
from deeplearning_provision.steps import ProvisionFailure

MAKE_SECONDS = 300
IMPORT_SECONDS = 300
_PIP = '#!/bin/sh\nexec {python} -m pip "$@"\n'


def make_venv(interpreter: Interpreter, folder: Path, transcript: Transcript) -> Path:
    """
    Replace a folder by an empty environment, and return its interpreter; its scripts contain its path.

    It uses the pip of the image, which saves seconds and needs no ensurepip, a separate package on Debian and Ubuntu.
    """
    if not interpreter.has_venv:
        raise ProvisionFailure(
            f"{interpreter.path} has no module venv",
            f"install {name_python(interpreter.version)}-venv in the set-up script, or use another image",
        )
    if folder.exists():
        shutil.rmtree(folder)
    options = ["--without-pip", *(["--system-site-packages"] if interpreter.has_system_packages else [])]
    with explain_program_errors(
        f"{interpreter.path} could not create an environment", "check the disk and the image's Python"
    ):
        transcript.run([str(interpreter.program), "-m", "venv", *options, str(folder)], timeout_seconds=MAKE_SECONDS)
    python = folder / "bin" / "python"
    if interpreter.is_virtual:
        _show_packages(interpreter, python)
    pip = folder / "bin" / "pip"
    pip.write_text(_PIP.format(python=python))
    pip.chmod(0o755)
    return python


def _show_packages(interpreter: Interpreter, python: Path) -> None:
    """
    Make the packages of another environment visible; venv shows only those of the system's Python.

    `addsitedir`, unlike bare paths, reads that environment's .pth files too.
    """
    (packages,) = (python.parents[1] / "lib").glob("python*/site-packages")
    calls = "; ".join(f"site.addsitedir({folder!r})" for folder in interpreter.packages)
    (packages / "image.pth").write_text(f"import site; {calls}\n")


def import_frameworks(python: Path, frameworks: Iterable[str], horovod: Container[str], transcript: Transcript) -> None:
    """Import each framework, and Horovod for it, in a separate process, since frameworks may conflict."""
    for module in frameworks:
        name = f"horovod.{module}" if module in horovod else module
        with explain_program_errors(f"could not import {name} in the environment", "correct the requirements"):
            transcript.run(
                [str(python), "-c", f"import {name}"],
                timeout_seconds=IMPORT_SECONDS,
                environment={"PYTHONNOUSERSITE": "1"},
            )
