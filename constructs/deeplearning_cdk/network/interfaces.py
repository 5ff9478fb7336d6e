"""Network interfaces of a node, plain or EFA by the type's network cards, and its hardware settings."""

from collections.abc import Sequence

from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, has_efa
from deeplearning_contract.setting_parts import HardwareSettings

Interface = ec2.CfnLaunchTemplate.NetworkInterfaceProperty


def needs_private_subnet(facts: InstanceTypeFacts) -> bool:
    """Return whether nodes of a type get several interfaces; EC2 gives such nodes no public address."""
    return has_efa(facts) and facts.network_cards > 1


def describe_hardware(facts: InstanceTypeFacts) -> HardwareSettings:
    """Return the hardware settings of a type's nodes; CPU types that could have EFA get a plain interface."""
    is_nvidia = facts.accelerator == "NVIDIA"
    return HardwareSettings(
        instance_type=facts.name,
        gpu_count=facts.gpu_count if is_nvidia else 0,
        compute_capability=facts.compute_capability if is_nvidia else "",
        network_cards=facts.network_cards,
        efa_cards=len(facts.efa_cards) if has_efa(facts) else 0,
    )


def plan_interfaces(facts: InstanceTypeFacts, groups: Sequence[str], *, is_public: bool) -> list[Interface]:
    """
    Plan the interfaces of a node's launch template.

    A single card gets one interface, an EFA if the card supports it. With several cards, the first interface is plain,
    because an EFA-only interface cannot be primary. Every card that supports EFA gets an EFA-only interface, which
    needs no address: at device index 1 on card 0, beside the plain one, and at 0 on the others.

    Source: EC2 user guide, "Maximize network bandwidth … with multiple network cards" (efa-acc-inst-types), as of 2026:
    one rule for all families. Its editions before 2026 put the EFAs of other cards at device index 1; EC2 accepts any
    index below a card's maximum of interfaces (eksctl#7520), which is 1 on some, so only 0 is valid under both
    editions.

    A public address is possible with one interface only.
    """
    is_multiple = needs_private_subnet(facts)
    first = Interface(
        device_index=0,
        network_card_index=0 if is_multiple else None,
        interface_type="efa" if has_efa(facts) and not is_multiple else None,
        groups=list(groups),
        # Set even when False, because a subnet may assign addresses by default; with several interfaces EC2 assigns
        # none, and refuses the setting.
        associate_public_ip_address=None if is_multiple else is_public,
        delete_on_termination=True,
    )
    others = [
        Interface(
            device_index=1 if card == 0 else 0,
            network_card_index=card,
            interface_type="efa-only",
            groups=list(groups),
            delete_on_termination=True,
        )
        for card in (facts.efa_cards if is_multiple else ())
    ]
    return [first, *others]
