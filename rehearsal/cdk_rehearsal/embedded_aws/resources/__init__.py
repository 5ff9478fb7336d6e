"""Creates resources: one creator a type, gathered from the modules of this package."""

from cdk_rehearsal.embedded_aws.resources import (
    backups,
    clusters,
    compute,
    custom_resource,
    functions,
    identity,
    kubernetes,
    load_balancers,
    messaging,
    nested_stacks,
    network,
    operations,
    storage,
)
from cdk_rehearsal.embedded_aws.resources.creation import Creator

CREATORS: dict[str, Creator] = (
    network.CREATORS
    | compute.CREATORS
    | clusters.CREATORS
    | identity.CREATORS
    | kubernetes.CREATORS
    | load_balancers.CREATORS
    | storage.CREATORS
    | backups.CREATORS
    | messaging.CREATORS
    | functions.CREATORS
    | custom_resource.CREATORS
    | operations.CREATORS
    | nested_stacks.CREATORS
)
