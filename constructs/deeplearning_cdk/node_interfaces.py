"""The network interfaces of a node: one plain one, or EFA by the type's network cards."""

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.instance_catalog import InstanceTypeFacts

Interface = ec2.CfnLaunchTemplate.NetworkInterfaceProperty


def has_efa(facts: InstanceTypeFacts) -> bool:
    """Tell whether nodes of a type get EFA: accelerated types with cards for it."""
    return facts.accelerator is not None and bool(facts.efa_cards)


def needs_private_subnet(facts: InstanceTypeFacts) -> bool:
    """Tell whether nodes of a type get several interfaces; EC2 gives such nodes no public address."""
    return has_efa(facts) and facts.network_cards > 1


def plan_interfaces(facts: InstanceTypeFacts, groups: Sequence[str], *, is_public: bool) -> list[Interface]:
    """
    Plan the interfaces of a node's launch template.

    One card takes one interface, which is an EFA where the card allows. With several cards the first interface is
    plain, because an EFA-only one cannot be primary, and every card that allows takes an EFA-only one, which needs
    no address (EC2 user guide, EFA on accelerated types).

    Args:
        facts: The instance type.
        groups: Ids of the security groups of every interface.
        is_public: Whether the node gets a public address; only with one interface.
    """
    first = {"device_index": 0, "groups": list(groups), "delete_on_termination": True}
    if is_public:
        first["associate_public_ip_address"] = True
    if not has_efa(facts):
        return [Interface(**first)]
    if facts.network_cards == 1:
        return [Interface(**first, interface_type="efa")]
    others = [
        Interface(
            network_card_index=card,
            device_index=1 if card == 0 else 0,
            interface_type="efa-only",
            groups=list(groups),
            delete_on_termination=True,
        )
        for card in facts.efa_cards
    ]
    return [Interface(**first, network_card_index=0), *others]
