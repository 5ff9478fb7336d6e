"""Which machine of a rehearsal is meant: `master`, or `worker 2`, the second worker that was launched."""

import re
from dataclasses import dataclass

from deeplearning_contract.names import NodeRole

_WORDS = re.compile(r"(master|worker)(?: (\d+))?")


@dataclass(frozen=True)
class Target:
    """
    A machine, by its role and the order of launches.

    Attributes:
        role: Its role.
        number: How many of the role were launched before it, plus one. None: the one that was launched last, which
            only a master can mean, because replacements go on counting.
    """

    role: NodeRole
    number: int | None

    def __str__(self) -> str:
        return self.role.value if self.number is None else f"{self.role.value} {self.number}"


def parse_target(text: str) -> Target | None:
    """Read the words of a case file; None when they name no machine."""
    match = _WORDS.fullmatch(text)
    if match is None:
        return None
    role, number = NodeRole(match[1]), int(match[2]) if match[2] else None
    if number == 0 or (role is NodeRole.WORKER and number is None):
        return None
    return Target(role, number)
