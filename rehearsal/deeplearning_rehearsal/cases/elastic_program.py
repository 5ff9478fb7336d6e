"""Puts the elastic job's program on the shared file system, as a user would have before."""

import os
from collections.abc import Callable

from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.cases.synthesis import ELASTIC_PROGRAM
from deeplearning_rehearsal.lab import Lab
from deeplearning_rehearsal.machine import Machine
from deeplearning_rehearsal.training import example_folder

LOGIN_USER_ID = 1000
"""Of the first user of an image, which is its login user."""


def prepare_machines(case: Case | None, lab: Lab) -> Callable[[Machine], None] | None:
    """
    Return what is done before a machine boots: for an elastic job its program goes to the shared file system.

    The file system then belongs to the login user, as it must where a user has put files on it before.
    """
    if case is None or not case.is_elastic:
        return None

    def copy_program(machine: Machine) -> None:
        for file_system in machine.mount_targets:
            folder = lab.file_system(file_system)
            program = folder / ELASTIC_PROGRAM
            if not program.exists():
                program.write_text((example_folder() / ELASTIC_PROGRAM).read_text(encoding="utf-8"), encoding="utf-8")
                for path in (folder, program):
                    os.chown(path, LOGIN_USER_ID, LOGIN_USER_ID)

    return copy_program
