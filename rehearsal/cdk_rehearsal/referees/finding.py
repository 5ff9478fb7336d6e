"""A finding of a referee."""

from dataclasses import dataclass

ORDER = "order"
"""Name of the rule of what fails in some orders of creation alone."""


@dataclass(frozen=True)
class Violation:
    """
    A property that AWS would refuse, or that fails in some orders of creation.

    Attributes:
        path: Where it is in the template, such as `Resources.Queue.Properties.DelaySeconds`.
        value: What it is there.
        rule: What must hold.
        source: The rule's origin: a page, or a service model.
        remedy: What to do; empty where the rule says it.
        name: Name of the rule, by which it is accepted, such as `E3030` or `keys`.
        construct: Path of the construct in the app; empty where it is not known.
    """

    path: str
    value: str
    rule: str
    source: str
    remedy: str = ""
    name: str = ""
    construct: str = ""

    def __str__(self) -> str:
        construct = f" ({self.construct})" if self.construct else ""
        remedy = f"; {self.remedy}" if self.remedy else ""
        value = f", got {self.value}" if self.value else ""
        name = "" if self.name in self.source else f"{self.name}, "
        return f"{self.path}{construct}: {self.rule}{value}{remedy} [{name}{self.source}]"
