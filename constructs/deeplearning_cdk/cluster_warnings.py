"""Warnings about choices that may not work on AWS; their ids are public, to be acknowledged."""

from aws_cdk import Annotations, Stack, Token
from constructs import Construct

from deeplearning_cdk.cluster_plan import ClusterPlan
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts, catalog_date
from deeplearning_cdk.storage.lustre_client import MOUNT_COMMAND, brings_lustre_client

RETIRED = "deeplearning_cdk:retiredInstanceType"
NOT_OFFERED = "deeplearning_cdk:instanceTypeNotInRegion"
NOT_TRIED = "deeplearning_cdk:imageNotTried"
NO_INDEX = "deeplearning_cdk:environmentWithoutInternet"
NO_LUSTRE_CLIENT = "deeplearning_cdk:lustreClientNotInstalled"
NEVER_STOPS = "deeplearning_cdk:neverStops"
NOT_RESERVED = "deeplearning_cdk:masterNotReserved"
NOT_BEGUN = "deeplearning_cdk:capacityBlockNotBegun"


def warn_about(scope: Construct, plan: ClusterPlan, *, isolated: bool) -> None:
    """
    Warn about a plan's doubtful choices.

    Args:
        scope: Where the warnings are attached.
        plan: The plan.
        isolated: Whether the nodes have no route to the Internet.
    """
    annotations = Annotations.of(scope)
    for facts in {plan.workers.name: plan.workers, plan.master.name: plan.master}.values():
        _warn_about_type(scope, facts)
    _warn_about_cost(scope, plan)
    _warn_about_purchase(scope, plan)
    if not plan.image.is_tried:
        annotations.add_warning_v2(
            NOT_TRIED,
            f"no current image of AWS drives {plan.workers.name}: nodes start from stock Ubuntu and install "
            f"{', '.join(plan.image.packages.get('nvidia-smi', ()))} at boot, which was not tried on AWS; "
            "pass an image of your own, or a type with a current Deep Learning AMI such as g5.12xlarge or p5.48xlarge",
        )
    if isolated and plan.environment is not None and plan.environment.kind == "horovod":
        annotations.add_warning_v2(
            NO_INDEX,
            "isolated nodes take Horovod from environment_cache and cannot build it: a cluster with Internet access, "
            "the same image and the same instance types must have filled it",
        )
    elif isolated and plan.environment is not None:
        annotations.add_warning_v2(
            NO_INDEX,
            f"isolated nodes reach no public package index or registry for the environment ({plan.environment.kind}): "
            "pass an image that is configured for one in the VPC, such as pip's configuration for CodeArtifact",
        )
    if plan.storage.lustre is not None and not brings_lustre_client(plan.image):
        annotations.add_warning_v2(
            NO_LUSTRE_CLIENT,
            f"nodes mount FSx for Lustre with {MOUNT_COMMAND}, which the image must already have for its kernel: on "
            "Ubuntu the client comes from FSx's own repository, which nodes do not add; make an image with it as the "
            "FSx for Lustre user guide says, or take NodeImage.deep_learning_amazon_linux, whose nodes install it",
        )


def _warn_about_cost(scope: Construct, plan: ClusterPlan) -> None:
    accelerated = [facts.name for facts in (plan.workers, plan.master) if facts.accelerator is not None]
    if accelerated and not plan.spending.has_end:
        Annotations.of(scope).add_warning_v2(
            NEVER_STOPS,
            f"nothing stops this cluster, and {accelerated[0]} costs by the second; pass "
            "spending=Spending(stop_when_idle=Duration.hours(1)), or -c stop_when_idle_minutes=60 to the app",
        )


def _warn_about_purchase(scope: Construct, plan: ClusterPlan) -> None:
    workers, desired = plan.purchase, plan.capacity.desired
    is_alike = plan.master.name == plan.workers.name and plan.master.accelerator is not None
    if workers.is_reserved and is_alike and not plan.master_purchase.is_reserved:
        Annotations.of(scope).add_warning_v2(
            NOT_RESERVED,
            f"the master is a {plan.master.name} outside the workers' {workers.kind}, so it may not launch and costs "
            "as much as a worker; pass a master_instance_type without accelerators, or master_purchase with a "
            "reservation that has room for it",
        )
    if workers.block_id and desired:
        Annotations.of(scope).add_warning_v2(
            NOT_BEGUN,
            f"the {desired} workers of capacity block {workers.block_id} launch only while it is active, and the stack "
            "fails before; until then pass worker_min_capacity=0, worker_desired_capacity=0 and "
            f"worker_max_capacity={plan.capacity.maximum}, and raise the group's desired capacity when it has begun",
        )


def _warn_about_type(scope: Construct, facts: InstanceTypeFacts) -> None:
    region = Stack.of(scope).region
    if facts.successor:
        Annotations.of(scope).add_warning_v2(
            f"{RETIRED}:{facts.name}", f"AWS has retired {facts.name}, so it may not launch; take {facts.successor}"
        )
    elif facts.regions and not Token.is_unresolved(region) and region not in facts.regions:
        Annotations.of(scope).add_warning_v2(
            f"{NOT_OFFERED}:{facts.name}",
            f"{facts.name} was not offered in {region} on {catalog_date()}, so it may not launch; "
            f"take one of {', '.join(facts.regions)}, or another type",
        )
