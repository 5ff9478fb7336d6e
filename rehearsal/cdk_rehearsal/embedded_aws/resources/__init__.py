"""Creates resources: one creator a type, gathered from the modules of this package."""

from cdk_rehearsal.embedded_aws.resources import backups
from cdk_rehearsal.embedded_aws.resources import compute
from cdk_rehearsal.embedded_aws.resources import functions
from cdk_rehearsal.embedded_aws.resources import identity
from cdk_rehearsal.embedded_aws.resources import messaging
from cdk_rehearsal.embedded_aws.resources import network
from cdk_rehearsal.embedded_aws.resources import operations
from cdk_rehearsal.embedded_aws.resources import storage
from cdk_rehearsal.embedded_aws.cloudformation.creation import Creator

CREATORS: dict[str, Creator] = {
    **network.CREATORS,
    **compute.CREATORS,
    **identity.CREATORS,
    **storage.CREATORS,
    **backups.CREATORS,
    **messaging.CREATORS,
    **functions.CREATORS,
    **operations.CREATORS,
}
