"""Puts the elastic job's program on the shared file system, as a user would have before."""

import os
from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.lab import Lab
from cdk_rehearsal.machine import Machine
from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.run.synthesis import ELASTIC_PROGRAM
from deeplearning_rehearsal.checks.training import DATA_MODULE, example_folder

LOGIN_USER_ID = 1000
"""Of the first user of an image, which is its login user."""


def prepare_machines(case: Case | None, lab: Lab, digits: Callable[[], Path]) -> Callable[[Machine], None] | None:
    """
    Return what is done before a machine boots: for an elastic job its program goes to the shared file system.

    The file system then belongs to the login user, as it must where a user has put files on it before.

    Args:
        case: Which case; None for none.
        lab: Where machines boot.
        digits: Returns what the program trains on.
    """
    if case is None or not case.is_elastic:
        return None

    def copy_program(machine: Machine) -> None:
        for file_system in machine.mount_targets:
            folder = lab.file_system(file_system)
            for source in (*(example_folder() / name for name in (DATA_MODULE, ELASTIC_PROGRAM)), digits()):
                if not (folder / source.name).exists():
                    (folder / source.name).write_bytes(source.read_bytes())
                    for path in (folder, folder / source.name):
                        os.chown(path, LOGIN_USER_ID, LOGIN_USER_ID)

    return copy_program
