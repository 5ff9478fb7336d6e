"""Whether nodes use the EFA of their instance types, and whether its software can come to them."""

from dataclasses import replace

from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts, NodeInstanceType, describe_instance_type
from deeplearning_cdk.nodes.interfaces import has_efa

_STOCK_UBUNTU = "/aws/service/canonical/"
"""Images below it have no EFA software; AWS's deep-learning images have (DLAMI developer guide, "EFA")."""


def describe_types(
    workers: NodeInstanceType | None, master: NodeInstanceType | None, default: NodeInstanceType, *, efa: bool
) -> tuple[InstanceTypeFacts, InstanceTypeFacts]:
    """
    Find what is known of the types of workers and master.

    Args:
        workers: The workers' type; None for the default.
        master: The master's; None for the workers'.
        default: The type of workers whose user names none.
        efa: Whether nodes use EFA. Without, a type counts as one that has none: one plain interface, and NCCL over TCP.

    Raises:
        ValueError: A type is a token, or not in the catalogue.
    """
    found = describe_instance_type("worker_instance_type", workers, default)
    types = found, describe_instance_type("master_instance_type", master, found)
    return types if efa else (_without_efa(types[0]), _without_efa(types[1]))


def check_efa(workers: InstanceTypeFacts, master: InstanceTypeFacts, image: NodeImage, *, isolated: bool) -> None:
    """
    Check that nodes with EFA have its software or can fetch it.

    Of an image that is neither stock Ubuntu nor AWS's, nobody knows here: its nodes look, and their health says it.

    Args:
        workers: The workers' instance type.
        master: The master's instance type.
        image: What all nodes start from.
        isolated: Whether nodes have no route to the Internet.

    Raises:
        ValueError: Isolated nodes would have to download it.
    """
    if not isolated or not image.parameter.startswith(_STOCK_UBUNTU):
        return
    for facts in (workers, master):
        if has_efa(facts):
            raise ValueError(
                f"efa must be False with isolated and stock Ubuntu, got {facts.name}, whose nodes would download the "
                "EFA software; pass efa=False to train over TCP, or an image of your own that has it: "
                "NodeImage.from_ami_id with has_packages=True"
            )


def _without_efa(facts: InstanceTypeFacts) -> InstanceTypeFacts:
    return replace(facts, efa_cards=(), network_cards=1) if has_efa(facts) else facts
