"""The interfaces of a node follow EC2's rules for EFA, and its user may disable it."""

import pytest

from deeplearning_cdk import InstanceTypeFacts, JobEnvironment, Network, NodeImage, TrainingCluster
from deeplearning_cdk.catalog.instance_catalog import describe_types, has_efa, read_catalog
from deeplearning_cdk.network.interfaces import needs_private_subnet, plan_interfaces
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, plan, props_of

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


# --- Choice of the user ------------------------------------------------------------------------------


STOCK = NodeImage.ubuntu(has_packages=True)


def _kinds(dotted):
    interfaces = plan_interfaces(plan(dotted).workers, ["sg-1"], is_public=False)
    return [interface.interface_type or "plain" for interface in interfaces]


@pytest.mark.parametrize(
    ("name", "with_efa", "cards"),
    [
        ("p3dn.24xlarge", ["efa"], 1),
        ("p4d.24xlarge", ["plain", "efa-only", "efa-only", "efa-only", "efa-only"], 4),
        ("g5.xlarge", ["plain"], 0),
    ],
)
def test_without_efa_a_node_has_one_plain_interface_and_no_card_in_its_settings(name, with_efa, cards):
    for dotted, kinds, told in (({}, with_efa, cards), ({"network.efa": False}, ["plain"], 0)):
        found = {"workers.instance_type": name, **dotted}
        assert _kinds(found) == kinds
        assert {hardware.efa_cards for hardware in plan(found).hardware.values()} == {told}


def test_the_template_has_the_interfaces_and_the_settings_have_the_cards(synthesize):
    for props, kind, cards in (({}, "efa", 1), (EVERYTHING, None, 0)):
        synthesis = synthesize(**props)
        for role in NodeRole:
            (interface,) = synthesis.launch_data(role)["NetworkInterfaces"]
            assert interface.get("InterfaceType") == kind
            assert synthesis.settings(role).needs.hardware[role.value].efa_cards == cards


def test_a_master_with_several_cards_may_be_public_without_efa(make_stack):
    props = {"workers.instance_type": "p4d.24xlarge", "master.ssh_peer": "203.0.113.7/32"}
    with pytest.raises(ValueError, match=r"^master\.instance_type must have one network card in a public subnet"):
        TrainingCluster(make_stack(), "Cluster", **props_of(props))
    TrainingCluster(make_stack(), "Cluster", **props_of({**props, "network.efa": False}))


def test_the_rest_of_a_type_stays_as_it_is():
    workers, master = describe_types("p4d.24xlarge", "m5.large", "p3dn.24xlarge", efa=False)
    assert (workers.gpu_count, workers.efa_cards, workers.network_cards) == (8, (), 1)
    assert master == describe_types("m5.large", None, "", efa=True)[0]


@pytest.mark.parametrize("role", ["workers.instance_type", "master.instance_type"])
def test_isolated_nodes_with_efa_that_would_have_to_download_its_software_are_refused(role):
    other = "master.instance_type" if role.startswith("worker") else "workers.instance_type"
    with pytest.raises(
        ValueError, match=r"^network\.efa must be False with network\.isolated and stock Ubuntu, got p3dn\.24xlarge"
    ):
        plan({"network.isolated": True, "software.image": STOCK, role: "p3dn.24xlarge", other: "m5.large"})


@pytest.mark.parametrize(
    "props",
    [
        {"software.image": STOCK, "network.efa": False},
        {"software.image": STOCK, "workers.instance_type": "c6in.32xlarge"},
        {"software.image": NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu", has_packages=True)},
        {"software.image": NodeImage.deep_learning_ubuntu(has_packages=True), "workers.instance_type": "p5.48xlarge"},
        {"software.image": NodeImage.deep_learning_amazon_linux(), "workers.instance_type": "p5.48xlarge"},
    ],
    ids=["without efa", "no accelerator", "own image", "deep learning ubuntu", "deep learning amazon linux"],
)
def test_isolated_nodes_that_need_not_download_it_are_taken(props):
    assert plan({"network.isolated": True, "software.environment": JobEnvironment.none(), **props}).image


def test_a_type_of_the_users_own_loses_its_efa_too():
    facts = InstanceTypeFacts(name="p9.48xlarge", gpu_count=16, network_cards=2, efa_cards=(0, 1))
    found, _ = describe_types(facts, None, "p3dn.24xlarge", efa=False)
    assert (found.efa_cards, found.network_cards, found.gpu_count) == ((), 1, 16)


@pytest.mark.parametrize("value", ["none", 0, None, "False"])
def test_efa_is_true_or_false(value):
    with pytest.raises(ValueError, match=r"^network\.efa must be True or False, got "):
        Network(efa=value)
