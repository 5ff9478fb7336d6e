"""Creates resources: one creator a type, gathered from the modules of this package."""

from functools import partial

from cdk_rehearsal.embedded_aws.cloudformation.creation import Creator
from cdk_rehearsal.embedded_aws.resources import (
    backups,
    compute,
    functions,
    identity,
    messaging,
    network,
    operations,
    storage,
)


class _Creators(dict[str, Creator]):
    """Creators by type; those of `Custom::*` are made at need."""

    def __missing__(self, resource_type: str) -> Creator:
        if resource_type.startswith("Custom::"):
            return partial(functions.create_custom_resource, resource_type)
        raise KeyError(resource_type)


CREATORS = _Creators(
    network.CREATORS
    | compute.CREATORS
    | identity.CREATORS
    | storage.CREATORS
    | backups.CREATORS
    | messaging.CREATORS
    | functions.CREATORS
    | operations.CREATORS
)
