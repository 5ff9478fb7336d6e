"""The stack's request for capacity, which the capacity adjuster carries out."""

from aws_cdk import CustomResource, Duration
from constructs import Construct, IDependable

from deeplearning_cdk.capacity.adjuster import CapacityAdjuster
from deeplearning_cdk.creation_order import prune_dependencies
from deeplearning_contract.names import FIRST_CANDIDATE

RESOURCE_TYPE = "Custom::RequestedCapacity"
_ANSWER_TIME = Duration.minutes(10)
"""Lambda tries twice more what fails, a minute and two minutes later; CloudFormation's own patience is an hour."""


class RequestedCapacity(Construct):
    """
    How many nodes the stack asks for.

    The groups are made without a desired capacity. A group is complete for CloudFormation "when the desired capacity is
    reached" (`AWS::AutoScaling::AutoScalingGroup`, `DesiredCapacity`), so that a cluster that goes on with the nodes
    that it got would fail there. Instead the adjuster raises the groups when CloudFormation makes this resource, and
    sets them again when a count changes, each time once: what a user sets by hand since stays.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        adjuster: Asks the groups for the capacity.
        worker_desired_capacity: Workers wanted.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, adjuster: CapacityAdjuster, worker_desired_capacity: int
    ) -> None:
        super().__init__(scope, construct_id)
        self._resource = CustomResource(
            self,
            "Resource",
            resource_type=RESOURCE_TYPE,
            service_token=adjuster.function.function_arn,
            service_timeout=_ANSWER_TIME,
            properties={"Master": "1", "Workers": str(worker_desired_capacity), "Candidate": FIRST_CANDIDATE},
        )

    def ask_after(self, *dependencies: IDependable) -> None:
        """Ask for no node before something is there."""
        self._resource.node.add_dependency(*dependencies)
        prune_dependencies(self._resource)
