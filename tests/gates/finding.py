"""One thing that a gate finds."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True, kw_only=True)
class Finding:
    """
    Something that must be mended.

    Attributes:
        gate: Which gate found it.
        preset: In which preset, or `sources`.
        rule: The rule's id, as the gate names it.
        place: Path of the construct, or file and line.
        what: What is wrong.
        more: Where to read on.
    """

    gate: str
    preset: str
    rule: str
    place: str
    what: str
    more: str
