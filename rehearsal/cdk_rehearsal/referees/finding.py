"""A finding of a referee."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """
    A property that AWS would refuse.

    Attributes:
        path: Where it is in the template, such as `Resources.Queue.Properties.DelaySeconds`.
        value: What it is there.
        rule: What must hold.
        source: The rule's origin: a page, or a service model.
        remedy: What to do; empty where the rule says it.
    """

    path: str
    value: str
    rule: str
    source: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        value = f", got {self.value}" if self.value else ""
        return f"{self.path}: {self.rule}{value}{remedy} [{self.source}]"
