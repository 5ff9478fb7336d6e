"""Nodes use the EFA of their types, unless the user says otherwise; where its software cannot come, synth refuses."""

import json
import re
from typing import Any

import pytest

from deeplearning_cdk import InstanceTypeFacts, JobEnvironment, NodeImage
from deeplearning_cdk.nodes.efa_choice import describe_types

STOCK = NodeImage.ubuntu(has_packages=True)


def _types_of_interfaces(synthesis: Any) -> list[list[str]]:
    templates = synthesis.of_type("AWS::EC2::LaunchTemplate").values()
    data = [template["Properties"]["LaunchTemplateData"] for template in templates]
    return [[card.get("InterfaceType", "plain") for card in each["NetworkInterfaces"]] for each in data]


@pytest.mark.parametrize(
    ("name", "with_efa", "without"),
    [
        ("p3dn.24xlarge", ["efa"], ["plain"]),
        ("p4d.24xlarge", ["plain", "efa-only", "efa-only", "efa-only", "efa-only"], ["plain"]),
        ("g5.xlarge", ["plain"], ["plain"]),
    ],
)
def test_without_efa_a_node_has_one_plain_interface(
    synthesize: Any, name: str, with_efa: list[str], without: list[str]
) -> None:
    assert _types_of_interfaces(synthesize(worker_instance_type=name)) == [with_efa] * 2
    assert _types_of_interfaces(synthesize(worker_instance_type=name, efa=False)) == [without] * 2


@pytest.mark.parametrize(("efa", "cards"), [(True, 4), (False, 0)])
def test_nodes_are_told_whether_there_is_efa(synthesize: Any, efa: bool, cards: int) -> None:  # noqa: FBT001
    text = json.dumps(synthesize(worker_instance_type="p4d.24xlarge", efa=efa).of_type("AWS::EC2::LaunchTemplate"))
    found = re.findall(r"efa_cards[^0-9]*([0-9]+)", text)
    assert found
    assert set(found) == {str(cards)}


def test_a_master_with_several_cards_may_be_public_without_efa(synthesize: Any) -> None:
    props = {"worker_instance_type": "p4d.24xlarge", "ssh_peer": "203.0.113.7/32"}
    with pytest.raises(ValueError, match="master_instance_type must have one network card in a public subnet"):
        synthesize(**props)
    assert _types_of_interfaces(synthesize(**props, efa=False)) == [["plain"]] * 2


def test_the_rest_of_a_type_stays_as_it_is() -> None:
    workers, master = describe_types("p4d.24xlarge", "m5.large", "p3dn.24xlarge", efa=False)
    assert (workers.gpu_count, workers.efa_cards, workers.network_cards) == (8, (), 1)
    assert master == describe_types("m5.large", None, "", efa=True)[0]


@pytest.mark.parametrize("role", ["worker_instance_type", "master_instance_type"])
def test_isolated_nodes_with_efa_that_would_have_to_download_its_software_are_refused(
    synthesize: Any, role: str
) -> None:
    other = "master_instance_type" if role.startswith("worker") else "worker_instance_type"
    with pytest.raises(ValueError, match=r"efa must be False with isolated and stock Ubuntu, got p3dn\.24xlarge"):
        synthesize(isolated=True, image=STOCK, **{role: "p3dn.24xlarge", other: "m5.large"})


@pytest.mark.parametrize(
    "props",
    [
        {"image": STOCK, "efa": False},
        {"image": STOCK, "worker_instance_type": "c6in.32xlarge"},
        {"image": NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu", has_packages=True)},
        {"image": NodeImage.deep_learning_ubuntu(has_packages=True), "worker_instance_type": "p5.48xlarge"},
        {"image": NodeImage.deep_learning_amazon_linux(), "worker_instance_type": "p5.48xlarge"},
    ],
    ids=["without efa", "no accelerator", "own image", "deep learning ubuntu", "deep learning amazon linux"],
)
def test_isolated_nodes_that_need_not_download_it_are_taken(synthesize: Any, props: dict[str, Any]) -> None:
    synthesize(isolated=True, environment=JobEnvironment.none(), **props)


def test_a_type_of_the_users_own_loses_its_efa_too() -> None:
    facts = InstanceTypeFacts(name="p9.48xlarge", gpu_count=16, network_cards=2, efa_cards=(0, 1))
    found, _ = describe_types(facts, None, "p3dn.24xlarge", efa=False)
    assert (found.efa_cards, found.network_cards, found.gpu_count) == ((), 1, 16)


@pytest.mark.parametrize("value", ["none", 0, None, "False"])
def test_efa_is_true_or_false(synthesize: Any, value: object) -> None:
    with pytest.raises(ValueError, match="efa must be True or False, got "):
        synthesize(efa=value)
