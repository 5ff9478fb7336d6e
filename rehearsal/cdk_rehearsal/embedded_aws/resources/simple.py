"""Creates resources by a single API call: a row each in the tables of this package."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation


def specify_tags(creation: Creation, kind: str) -> dict[str, Any]:
    """Return the tags of a resource as EC2's calls take them."""
    return {"TagSpecifications": [{"ResourceType": kind, "Tags": creation.tags()}]}


@dataclass(frozen=True)
class Simple:
    """
    A creator of resources by one call, which takes each property under the template's name.

    A property that `more` reads is left out of the call; `more` returns it in the API's form. boto3 refuses what the
    call does not take, so a type with properties without effect needs a creator of its own. `Fn::GetAtt` gives every
    argument and every value of the answer; the support table says which of them the type has.

    Attributes:
        id: Format of the physical id over the arguments and the answer.
        renamed: Attribute -> its name in the answer, where the two differ.
        tagged: EC2's type of the resource in tag specifications. Default: it is not tagged in this way.
        convert: Property -> what makes the API's type of it.
        more: Returns further arguments of the call.
        delete: Undoes the creation: a function of client and id, or a method that takes the id under the name that it
            has in `id`. Default: the resource ends with the lab.
    """

    service: str
    call: str
    id: str
    renamed: Mapping[str, str] = field(default_factory=dict)
    tagged: str = ""
    convert: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    more: Callable[[Creation], Mapping[str, Any]] = lambda _: {}
    delete: Callable[[Any, str], None] | str = ""

    def __call__(self, creation: Creation) -> Created:
        """Create a resource."""
        client, properties = creation.client(self.service), creation.properties
        request = {**self.more(creation), **(specify_tags(creation, self.tagged) if self.tagged else {})}
        for name in properties.unread:
            request[name] = self.convert.get(name, _unchanged)(properties[name])
        answer = getattr(client, self.call)(**request)
        values = request | answer
        for part in answer.values():  # most answers wrap the resource
            values |= part if isinstance(part, dict) else {}
        values |= {name: values[original] for name, original in self.renamed.items()}
        identity = self.id.format_map(values)
        delete = None
        if callable(self.delete):
            delete = partial(self.delete, client, identity)
        elif self.delete:
            delete = partial(getattr(client, self.delete), **{self.id.strip("{}"): identity})
        return Created(identity, values, delete=delete)


def is_true(value: Any) -> bool:
    """Return a truth value as the API's type; CloudFormation takes it as text too."""
    return str(value).lower() == "true"


def _unchanged(value: Any) -> Any:
    return value
