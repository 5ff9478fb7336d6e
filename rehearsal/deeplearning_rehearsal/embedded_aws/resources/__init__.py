"""Creates resources: one creator a type, gathered from the modules of this package."""

from deeplearning_rehearsal.embedded_aws.resources import (
    backups,
    compute,
    functions,
    identity,
    messaging,
    network,
    operations,
    storage,
)
from deeplearning_rehearsal.embedded_aws.services import Creator

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
