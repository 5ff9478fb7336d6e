"""Orders to create resources, and the resources that creators return."""

import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.services import Services


class MissingPropertyError(KeyError):
    """A property that a creator needs and the template does not give."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Properties(Mapping[str, Any]):
    """Evaluated properties that remember which of them were read; MissingPropertyError for one that is not given."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self._read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self._read.add(name)
        if name not in self._values:
            raise MissingPropertyError(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def unread(self) -> frozenset[str]:
        """Properties that the template gives and no creator has read."""
        return frozenset(self._values) - self._read

    def select(self, *names: str, **renamed: str) -> dict[str, Any]:
        """Return those of the properties that are given: `names` as they are, `renamed` under the API's name."""
        chosen = dict(zip(names, names, strict=True)) | renamed
        return {api: self[name] for api, name in chosen.items() if name in self._values}


@dataclass(frozen=True)
class Creation:
    """An order to create a resource of a stack with its evaluated properties."""

    logical_id: str
    properties: Properties
    stack_name: str
    stack_arn: str
    services: Services
    resource_type: str = ""
    stack_tags: Mapping[str, str] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        """Return the client of a service with which CloudFormation creates resources."""
        return self.services.deployer.client(service)

    def require(self, operation: str, parameters: Mapping[str, Any]) -> None:
        """Raise ClientError unless CloudFormation may make a call, `service.Operation`, that no client makes."""
        self.services.deployer.require(operation, parameters)

    def name(self, limit: int, *, lower: bool = False) -> str:
        """Make up a physical name, as CloudFormation does: stack, logical id and a random ending."""
        ending = "".join(secrets.choice(string.ascii_uppercase + string.digits) for _ in range(12))
        room = limit - len(ending) - 2
        stack = self.stack_name[: max(room // 2, room - len(self.logical_id))]
        name = f"{stack}-{self.logical_id[: room - len(stack)]}-{ending}"
        return name.lower() if lower else name

    def tags(self, name: str = "Tags") -> list[dict[str, Any]]:
        """
        Return the resource's tags with the stack's: those that it was given, and those that name it.

        A tag of the resource takes the place of one of the stack (CloudFormation user guide, "Resource tag").
        """
        given = self.properties.get(name, [])
        own = {
            **self.stack_tags,
            "aws:cloudformation:stack-name": self.stack_name,
            "aws:cloudformation:logical-id": self.logical_id,
        }
        named = {tag["Key"] for tag in given}
        return [*given, *({"Key": key, "Value": value} for key, value in own.items() if key not in named)]


Update = Callable[[Mapping[str, Any], Mapping[str, Any]], Outcome]
"""Updates a resource from its former to its new properties, in the order new, former."""


@dataclass(frozen=True)
class Created:
    """
    A created resource: what `Ref` and `Fn::GetAtt` return; a function among the attributes is called at each use.

    Attributes:
        settle: Returns the outcome of the creation, None while it lasts. Default: it has succeeded.
        delete: Undoes the creation; raises ClientError or RuntimeError where it cannot. Default: it ends with the lab.
        update: Takes new and old properties and returns the outcome. Default: the rehearsal cannot update it.
    """

    physical_id: str
    attributes: Mapping[str, Any | Callable[[], Any]] = field(default_factory=dict)
    settle: Callable[[], Outcome | None] | None = None
    delete: Callable[[], None] | None = None
    update: Update | None = None


Creator = Callable[[Creation], Created]


def update_alone(*names: str, change: Callable[[Mapping[str, Any]], Any]) -> Update:
    """
    Return an update of some properties of a resource.

    Args:
        names: The properties that the update acts upon; a change of another one is refused by name.
        change: Makes the calls, from the new properties.
    """

    def update(new: Mapping[str, Any], former: Mapping[str, Any]) -> Outcome:
        changed = {name for name in {*new, *former} if new.get(name) != former.get(name)}
        if others := sorted(changed - set(names)):
            return Outcome(f"the rehearsal updates {', '.join(names)} of this resource alone, got {', '.join(others)}")
        try:
            change(new)
        except (ClientError, ValueError) as error:
            return Outcome(str(error))
        return Outcome()

    return update
