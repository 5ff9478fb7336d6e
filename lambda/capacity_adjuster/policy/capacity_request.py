"""A request of the stack for capacity, as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_contract.document import field

RESOURCE_BEGIN = "capacity-"
"""By which an id that the adjuster gave to the stack's resource is known."""


@dataclass(frozen=True)
class CapacityRequest:
    """
    A request of the stack.

    Attributes:
        request_id: Id of the request; each is one wish.
        resource: Id of the stack's resource that makes it.
        master: Masters wanted.
        workers: Workers wanted.
        candidate: Value of the candidate tag of the groups that are asked.
        is_creation: Whether the resource is being created.
    """

    request_id: str
    resource: str
    master: int
    workers: int
    candidate: str
    is_creation: bool

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "CapacityRequest":
        """
        Read the request in the record of a wish.

        Raises:
            ContractError: It does not have this shape.
        """
        return cls(
            request_id=field(document, "request_id", str, "wish.request"),
            resource=field(document, "resource", str, "wish.request"),
            master=field(document, "master", int, "wish.request"),
            workers=field(document, "workers", int, "wish.request"),
            candidate=field(document, "candidate", str, "wish.request"),
            is_creation=field(document, "is_creation", bool, "wish.request"),
        )
