"""Warnings about choices that may not work on AWS; their ids are public, so that users can acknowledge them."""

from collections.abc import Iterable, Iterator

from aws_cdk import Annotations, Stack, Token
from constructs import Construct

from deeplearning_cdk.capacity.spending import Spending
from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, catalog_date
from deeplearning_cdk.nodes.image_choice import find_unsupported
from deeplearning_cdk.nodes.plan import NodePlan
from deeplearning_cdk.props.regions import check_region, find_partition, list_regions, suggest_regions
from deeplearning_cdk.storage.lustre import MOUNT_COMMAND
from deeplearning_contract.names import NodeRole

RETIRED = "deeplearning_cdk:retiredInstanceType"
NOT_OFFERED = "deeplearning_cdk:instanceTypeNotInRegion"
UNKNOWN_REGION = "deeplearning_cdk:unknownRegion"
NOT_TRIED = "deeplearning_cdk:imageNotTried"
NO_INDEX = "deeplearning_cdk:environmentWithoutInternet"
NO_LUSTRE_CLIENT = "deeplearning_cdk:lustreClientNotInstalled"
NEVER_STOPS = "deeplearning_cdk:neverStops"
NOT_RESERVED = "deeplearning_cdk:masterNotReserved"
NOT_BEGUN = "deeplearning_cdk:capacityBlockNotBegun"
KEPT_WARM = "deeplearning_cdk:instancesKeptWarm"
NO_ADMINISTRATOR = "deeplearning_cdk:nobodyPreparesTheCluster"

_Warning = tuple[str, str]
"""Id, with which users acknowledge it, and text."""


def add_warnings(scope: Construct, plan: NodePlan, spending: Spending, *, isolated: bool, has_lustre: bool) -> None:
    """
    Add warnings about doubtful choices to a cluster.

    Raises:
        ValueError: The stack's region is misspelt.
    """
    region = Stack.of(scope).region
    judge_region(scope)
    found = [
        *_list_types(_list_all_types(plan), "" if Token.is_unresolved(region) else region),
        *_list_costs(plan, spending),
        *_list_purchases(plan),
        *_list_software(plan, isolated=isolated, has_lustre=has_lustre),
    ]
    if found:
        annotations = Annotations.of(scope)
        for identity, text in found:
            annotations.add_warning_v2(identity, text)


def judge_types(scope: Construct, *types: InstanceTypeFacts) -> None:
    """Warn of instance types that AWS has retired, or does not offer in the region of a stack."""
    region = Stack.of(scope).region
    for identity, text in _list_types(types, "" if Token.is_unresolved(region) else region):
        Annotations.of(scope).add_warning_v2(identity, text)


def judge_region(scope: Construct) -> None:
    """
    Warn if this release does not know the region of a stack, which may be new.

    Raises:
        ValueError: The region is misspelt.
    """
    region = Stack.of(scope).region
    check_region("env.region", region)
    if not Token.is_unresolved(region) and region not in list_regions():
        text = (
            f"this release knows no region {region}, which may be newer; if it is misspelt, write "
            f"{suggest_regions(region)}"
        )
        Annotations.of(scope).add_warning_v2(UNKNOWN_REGION, text)


def _list_software(plan: NodePlan, *, isolated: bool, has_lustre: bool) -> Iterator[_Warning]:
    if not plan.image.is_tried:
        unsupported = next((each for each in (plan.workers, plan.master) if each.driver_branch), plan.workers)
        text = (
            f"no current AWS image supports {unsupported.name}: nodes start from stock Ubuntu and install "
            f"{', '.join(plan.image.packages.get('nvidia-smi', ()))} at boot, which was not tried on AWS; "
            "pass an image of your own, or a type with a current Deep Learning AMI such as g5.12xlarge or p5.48xlarge"
        )
        yield NOT_TRIED, text
    elif facts := find_unsupported(plan.image, plan.workers, plan.master):
        reason = (
            f"no current AWS image supports {facts.name}: "
            if facts.driver_branch is not None
            else f"the image does not support {facts.name}: "
        )
        text = (
            f"{reason}nodes start from {plan.image.parameter}, which has no driver for its GPUs; leave software.image "
            "out, or pass an image of your own, or a type with a current Deep Learning AMI such as g5.12xlarge or "
            "p5.48xlarge"
        )
        yield NOT_TRIED, text
    if isolated and plan.environment is not None and plan.environment.kind == "horovod":
        text = (
            "isolated nodes take Horovod from software.environment_cache and cannot build it: a cluster with Internet "
            "access, the same image and the same instance types must have filled it"
        )
        yield NO_INDEX, text
    elif isolated and plan.environment is not None:
        text = (
            f"isolated nodes reach no public package index or registry for the environment ({plan.environment.kind}): "
            "pass an image that is configured for one in the VPC, such as pip's configuration for CodeArtifact"
        )
        yield NO_INDEX, text
    if has_lustre and MOUNT_COMMAND not in plan.image.packages:
        text = (
            f"nodes mount FSx for Lustre with {MOUNT_COMMAND}, which the image must already have for its kernel: on "
            "Ubuntu the client is in FSx's own repository, which nodes do not add; build an image with it as in the "
            "FSx for Lustre user guide, or take NodeImage.deep_learning_amazon_linux, whose nodes install it"
        )
        yield NO_LUSTRE_CLIENT, text


def _list_costs(plan: NodePlan, spending: Spending) -> Iterator[_Warning]:
    accelerated = [facts.name for facts in _list_all_types(plan) if facts.accelerator is not None]
    if accelerated and not spending.has_end:
        text = (
            f"nothing stops this cluster, and {accelerated[0]} costs by the second; "
            "set spending.stop_when_idle, such as to one hour"
        )
        yield NEVER_STOPS, text


def _list_purchases(plan: NodePlan) -> Iterator[_Warning]:
    workers = plan.roles[NodeRole.WORKER].purchase
    is_alike = plan.master.name == plan.workers.name and plan.master.accelerator is not None
    if workers.is_reserved and is_alike and not plan.roles[NodeRole.MASTER].purchase.is_reserved:
        text = (
            f"the master is a {plan.master.name} outside the workers' {workers.kind}, so it may not launch and "
            "costs as much as a worker; pass a master.instance_type without accelerators, or master.purchase with a "
            "reservation that has room for it"
        )
        yield NOT_RESERVED, text
    if block := plan.roles[NodeRole.MASTER].purchase.block_id:
        text = (
            f"the master in capacity block {block} launches only while it is active, and the stack fails before; pass "
            "master.purchase=on-demand, with which the cluster waits for the block of its workers"
        )
        yield NOT_BEGUN, text


def _list_all_types(plan: NodePlan) -> list[InstanceTypeFacts]:
    return [facts for each in plan.candidates for facts in (each.workers, each.master)]


def _list_types(types: Iterable[InstanceTypeFacts], region: str) -> Iterator[_Warning]:
    """Yield the warnings about the instance types; `region` is empty where it is known at deployment only."""
    for facts in {each.name: each for each in types}.values():
        if facts.successor:
            text = f"AWS has retired {facts.name}, so it may not launch; take {facts.successor}"
            yield f"{RETIRED}:{facts.name}", text
        elif facts.regions and region and region not in facts.regions:
            yield f"{NOT_OFFERED}:{facts.name}", _describe_offers(facts, region)


def _describe_offers(facts: InstanceTypeFacts, region: str) -> str:
    partition = find_partition(region)
    near = [each for each in facts.regions if find_partition(each) == partition]
    if near:
        return (
            f"{facts.name} was not offered in {region} on {catalog_date()}, so it may not launch; "
            f"take one of {', '.join(near)}, or another type"
        )
    return (
        f"{facts.name} may not be offered in {region}, and the catalogue of {catalog_date()} knows no region of the "
        f"partition {partition} with it; look it up with "
        f"`aws ec2 describe-instance-type-offerings --region {region}`"
    )
