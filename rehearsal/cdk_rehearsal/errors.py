"""
The errors of the rehearsal.

    RehearsalError
    ├── UnavailableError      this machine cannot rehearse; exit status 2
    ├── PromiseError          something was not as promised; the verdict is fail
    ├── PolicyError           a policy cannot be judged
    ├── UnknownOperationError the rights that a call needs are not listed
    ├── DefectError           the rehearsal itself failed, so that it says nothing of AWS; exit status 2
    ├── RefusedError          AWS would refuse the template; the verdict is fail
    └── AssemblyError         the cloud assembly cannot be rehearsed
        └── UnsupportedError  it holds what the rehearsal does not implement; all of it is listed
"""

from collections.abc import Sequence


class RehearsalError(Exception):
    """Base of the rehearsal's own errors; `exit_status` is that of a command which ends with it."""

    exit_status = 2


class UnavailableError(RehearsalError):
    """This machine lacks what a rehearsal needs; the message says what, and the remedy."""


class PromiseError(RehearsalError):
    """The cluster did not do what was promised."""


class RefusedError(RehearsalError):
    """AWS would refuse the template; the message lists every finding with its rule, source and remedy."""

    exit_status = 1

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        super().__init__(_list_refused(self.findings))


class DefectError(RehearsalError):
    """A rehearsal failed because of itself; the message lists what it could not do, and gives no verdict."""

    def __init__(self, defects: Sequence[str]) -> None:
        listing = "\n".join(f"  {defect}" for defect in dict.fromkeys(defects))
        super().__init__(f"no verdict: the rehearsal failed because of its own limits, AWS may not:\n{listing}")


class AssemblyError(RehearsalError):
    """The cloud assembly is incomplete, contradictory, or not one."""


class PolicyError(RehearsalError):
    """A policy says what AWS would refuse, or what this evaluator does not know; nothing of it is ignored."""


class UnknownOperationError(RehearsalError):
    """A call was made of which nobody has written down which rights it needs."""


class UnsupportedError(AssemblyError):
    """
    The template holds what the rehearsal does not implement: logical id, type and property of each finding.

    The message lists what AWS would refuse of it too.
    """

    def __init__(self, findings: Sequence[str], refused: Sequence[str] = ()) -> None:
        self.findings = tuple(findings)
        listing = "\n".join(f"  {finding}" for finding in self.findings)
        things = "1 thing" if len(self.findings) == 1 else f"{len(self.findings)} things"
        message = f"the rehearsal does not implement {things} of this template:\n{listing}"
        super().__init__(f"{message}\n{_list_refused(refused)}" if refused else message)


def _list_refused(findings: Sequence[str]) -> str:
    listing = "\n".join(f"  {finding}" for finding in findings)
    properties = "1 property" if len(findings) == 1 else f"{len(findings)} properties"
    return f"AWS would refuse {properties} of this template:\n{listing}"
