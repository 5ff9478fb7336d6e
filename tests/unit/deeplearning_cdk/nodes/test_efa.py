"""Nodes use the EFA of their types, unless the user disables it; where its software cannot come, synth fails."""

import pytest

from deeplearning_cdk import InstanceTypeFacts, JobEnvironment, Network, NodeImage, TrainingCluster
from deeplearning_cdk.catalog.instance_catalog import describe_types
from deeplearning_cdk.network.interfaces import plan_interfaces
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, plan, props_of

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
