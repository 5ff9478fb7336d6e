"""Events of the cluster that a command of its users sends: the end of the cluster, and the failure of a job."""

from deeplearning_contract.cluster_event import ClusterEvent, EventKind, put_events_request
from deeplearning_contract.reason import Reason
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import InstalledMembership, NodeFacts

EVENT_SECONDS = 30


def send_event(facts: NodeFacts, membership: InstalledMembership, kind: EventKind, reason: Reason) -> list[str]:
    """
    Send an event of the cluster; return a line on a failure, which stops nothing.

    Nothing is sent where `facts.event_cluster` is empty: EMR and SageMaker report the failure of a job themselves.
    """
    if not facts.event_cluster:
        return []
    from deeplearning_node.aws_clients import AwsClients, AwsFailure, call_for  # noqa: PLC0415 - botocore is heavy

    event = ClusterEvent(
        kind=kind,
        cluster=facts.event_cluster,
        generation=membership.generation,
        nodes=len(membership.members),
        reason=reason,
    )
    client = AwsClients(facts.region).events
    try:
        call_for(Clock(), EVENT_SECONDS, lambda: client.put_events(**put_events_request(event)))
    except AwsFailure as error:
        return [f"could not send the event {kind.value!r}: {error}"]
    return []
