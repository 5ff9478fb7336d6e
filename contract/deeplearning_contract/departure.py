"""A node that left a cluster, as the state item remembers it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_contract.document import field


@dataclass(frozen=True)
class Departure:
    """
    A node that is no member any more.

    Attributes:
        instance_id: Its EC2 instance id.
        generation: The first generation without it.
        reason: Why it left.
    """

    instance_id: str
    generation: int
    reason: str

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Departure":
        """
        Read a departure from its JSON object.

        Raises:
            ContractError: A field is absent or malformed.
        """
        return cls(
            instance_id=field(document, "instance_id", str, "departure"),
            generation=field(document, "generation", int, "departure"),
            reason=field(document, "reason", str, "departure"),
        )
