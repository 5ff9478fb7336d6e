"""
The errors of the embedded AWS.

    AssemblyError             the cloud assembly cannot be rehearsed
    └── UnsupportedError      it holds what the rehearsal does not implement; all of it is listed
"""

from collections.abc import Sequence

from cdk_rehearsal.errors import AssemblyError


class UnsupportedError(AssemblyError):
    """
    The template holds what the rehearsal does not implement.

    Attributes:
        findings: One line each: logical id, type and property.
    """

    def __init__(self, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        listing = "\n".join(f"  {finding}" for finding in self.findings)
        super().__init__(f"the rehearsal does not implement {len(self.findings)} things of this template:\n{listing}")
