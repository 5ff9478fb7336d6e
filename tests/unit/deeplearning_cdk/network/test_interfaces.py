"""The interfaces of a node follow EC2's rules for EFA."""

import pytest

from deeplearning_cdk.catalog.instance_catalog import has_efa, read_catalog
from deeplearning_cdk.network.interfaces import needs_private_subnet, plan_interfaces

ACCELERATED = [facts.name for facts in read_catalog().values() if facts.accelerator is not None]


def _plan(name, *, is_public=False):
    interfaces = plan_interfaces(read_catalog()[name], ["sg-1"], is_public=is_public)
    return [(each.network_card_index, each.device_index, each.interface_type) for each in interfaces]


def test_cpu_type_has_one_plain_interface():
    assert _plan("m5.large") == [(None, 0, None)]
    assert _plan("c6in.32xlarge") == [(None, 0, None)]


def test_small_gpu_type_without_efa_has_one_plain_interface():
    assert _plan("g5.xlarge") == [(None, 0, None)]


def test_single_card_type_has_one_efa_interface():
    assert _plan("p3dn.24xlarge") == [(None, 0, "efa")]
    assert _plan("p3dn.24xlarge", is_public=True) == [(None, 0, "efa")]


# EC2 user guide, efa-acc-inst-types, in its edition of 2026: "If the network card index 0 supports EFA, create an
# EFA-only network interface for network card index 0, device index 1. For each additional network interface, use the
# next unused network card index, device index 0, for EFA-only". It names P5, P5e, P5en, P6-B200 and P6-B300, and has no
# other rule for the rest. terraform-aws-eks#3653 says when the page changed: before, further cards took device index 1.
CARDS_WITH_EFA = {
    "g6e.24xlarge": 2,
    "g6e.48xlarge": 4,
    "g7.48xlarge": 2,
    "g7e.24xlarge": 2,
    "g7e.48xlarge": 4,
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p6-b200.48xlarge": 8,
    "trn1.32xlarge": 8,
    "trn1n.32xlarge": 16,
    "trn2.48xlarge": 16,
}


@pytest.mark.parametrize(("name", "cards"), CARDS_WITH_EFA.items())
def test_several_cards_have_a_plain_primary_and_an_efa_only_interface_each(name, cards):
    others = [(card, 0, "efa-only") for card in range(1, cards)]
    assert _plan(name) == [(0, 0, None), (0, 1, "efa-only"), *others]


def test_card_without_efa_has_the_primary_alone():
    """P6-B300: card 0 takes ENA only, cards 1 to 16 an EFA at device index 0 (aws-parallelcluster#7143)."""
    assert _plan("p6-b300.48xlarge") == [(0, 0, None), *((card, 0, "efa-only") for card in range(1, 17))]


def test_every_accelerated_type_with_several_cards_has_its_layout_here():
    several = {name for name in ACCELERATED if needs_private_subnet(read_catalog()[name])}
    assert several == {*CARDS_WITH_EFA, "p6-b300.48xlarge"}


@pytest.mark.parametrize("name", ACCELERATED)
def test_no_two_interfaces_share_a_place_and_efa_only_is_never_first(name):
    plan = _plan(name)
    places = [(card or 0, device) for card, device, _ in plan]
    assert len(set(places)) == len(places)
    assert plan[0][1] == 0
    assert plan[0][2] != "efa-only"
    assert len(plan) == 1 or needs_private_subnet(read_catalog()[name])
    assert sum(kind in {"efa", "efa-only"} for *_, kind in plan) == len(read_catalog()[name].efa_cards)


def test_every_interface_has_the_groups():
    interfaces = plan_interfaces(read_catalog()["p5.48xlarge"], ["sg-1", "sg-2"], is_public=False)
    assert len(interfaces) == 33
    assert all(interface.groups == ["sg-1", "sg-2"] for interface in interfaces)
    assert has_efa(read_catalog()["p5.48xlarge"])


@pytest.mark.parametrize("name", ["m5.large", "g5.12xlarge", "p3dn.24xlarge"])
def test_one_interface_has_a_public_address_only_when_asked_whatever_the_subnet_gives(name):
    for is_public in (True, False):
        (interface,) = plan_interfaces(read_catalog()[name], ["sg-1"], is_public=is_public)
        assert interface.associate_public_ip_address is is_public


def test_several_interfaces_leave_public_addresses_out_because_ec2_refuses_them():
    interfaces = plan_interfaces(read_catalog()["p5.48xlarge"], ["sg-1"], is_public=False)
    assert {interface.associate_public_ip_address for interface in interfaces} == {None}
