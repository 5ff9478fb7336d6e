"""
The errors of the rehearsal.

    RehearsalError
    ├── UnavailableError      this machine cannot rehearse; exit status 2
    ├── PromiseError          something was not as promised; the verdict is fail
    └── AssemblyError         the cloud assembly cannot be rehearsed
"""


class RehearsalError(Exception):
    """Base of the rehearsal's own errors."""


class UnavailableError(RehearsalError):
    """This machine lacks what a rehearsal needs; the message says what, and the remedy."""


class PromiseError(RehearsalError):
    """The cluster did not do what was promised."""


class AssemblyError(RehearsalError):
    """The cloud assembly is incomplete, contradictory, or not one."""
