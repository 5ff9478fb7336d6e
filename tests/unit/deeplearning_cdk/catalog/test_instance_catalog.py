"""The catalogue says what the constructs decide by, and refuses what it does not know."""

import gzip
import importlib.util
import json
from importlib.resources import files
from pathlib import Path

import pytest
from aws_cdk import Aws
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import InstanceTypeFacts
from deeplearning_cdk.catalog.instance_catalog import catalog_date, describe_instance_type, read_catalog
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.nodes.image_choice import DEEP_LEARNING_FAMILIES, find_image
from tests.unit.deeplearning_cdk.clusters import plan


# GPUs, network cards and EFA cards as EC2's pages on accelerated types give them.
@pytest.mark.parametrize(
    ("name", "gpus", "cards", "efa"),
    [
        ("p3dn.24xlarge", 8, 1, 1),
        ("p4d.24xlarge", 8, 4, 4),
        ("p4de.24xlarge", 8, 4, 4),
        ("p5.4xlarge", 1, 1, 1),
        ("p5.48xlarge", 8, 32, 32),
        ("p5e.48xlarge", 8, 32, 32),
        ("p5en.48xlarge", 8, 16, 16),
        ("p6-b200.48xlarge", 8, 8, 8),
        ("p6-b300.48xlarge", 8, 17, 16),
        ("g4dn.12xlarge", 4, 1, 1),
        ("g5.xlarge", 1, 1, 0),
        ("g5.48xlarge", 8, 1, 1),
        ("g6e.48xlarge", 8, 4, 4),
        ("m5.large", 0, 1, 0),
    ],
)
@pytest.mark.defect("D33")
def test_types_have_the_gpus_and_cards_of_ec2(name, gpus, cards, efa):
    facts = describe_instance_type("workers.instance_type", name)
    assert (facts.gpu_count, facts.network_cards, len(facts.efa_cards)) == (gpus, cards, efa)


# Of each GPU that the catalogue's source names, from NVIDIA's pages "CUDA GPU Compute Capability" and
# "Legacy CUDA GPU Compute Capability" (developer.nvidia.com), where the A10G stands as A10 and the T4G as T4.
CAPABILITIES = {
    "V100": "7.0",
    "T4": "7.5",
    "T4g": "7.5",
    "A100": "8.0",
    "A10G": "8.6",
    "L4": "8.9",
    "L40S": "8.9",
    "H100": "9.0",
    "H200": "9.0",
    "B200": "10.0",
    "B300": "10.3",
    "RTX PRO 4500": "12.0",
    "RTX PRO Server 6000": "12.0",
}


def test_every_type_has_the_compute_capability_of_the_gpus_that_ec2_names():
    described = json.loads(gzip.decompress((files("moto.ec2") / "resources" / "instance_types.json.gz").read_bytes()))
    for name, facts in read_catalog().items():
        gpus = described.get(name, {}).get("GpuInfo", {}).get("Gpus", [])
        if not facts.successor:
            nvidia = {CAPABILITIES[gpu["Name"]] for gpu in gpus if gpu["Manufacturer"] == "NVIDIA"}
            assert {facts.compute_capability} - {""} == nvidia, name


def test_retired_types_have_the_compute_capability_of_their_gpus_too():
    known = {facts.family: facts.compute_capability for facts in read_catalog().values() if facts.successor}
    assert known == {"g2": "3.0", "g3": "5.2", "g3s": "5.2", "p2": "3.7", "p3": "7.0"}


def test_settings_contain_the_compute_capability_of_nvidia_gpus():
    catalog = read_catalog()
    assert describe_hardware(catalog["p3dn.24xlarge"]).compute_capability == "7.0"
    assert describe_hardware(catalog["m5.large"]).compute_capability == ""
    described = InstanceTypeFacts(name="x.large", accelerator="AMD", compute_capability="9.0")
    assert describe_hardware(described).compute_capability == ""


def test_arm_and_burstable_types_are_distinguished():
    catalog = read_catalog()
    assert catalog["c7g.large"].architecture == "arm64"
    assert catalog["t3.micro"].is_burstable
    assert not catalog["t3.micro"].is_clusterable
    assert catalog["m5.large"].is_clusterable


def test_types_may_be_objects_of_cdk_but_must_be_known_at_synth_and_not_empty():
    assert describe_instance_type("workers.instance_type", ec2.InstanceType("m5.large")).name == "m5.large"
    with pytest.raises(ValueError, match=r"workers\.instance_type must be known at synth, got a token"):
        describe_instance_type("workers.instance_type", Aws.STACK_NAME)
    for prop in ("workers.instance_type", "master.instance_type"):
        with pytest.raises(ValueError, match=f"^{prop} must be an instance type of the catalogue of .*, got ''; "):
            plan({prop: ""})


def test_retired_types_are_no_longer_current_and_name_a_current_successor():
    catalog = read_catalog()
    retired = [facts for facts in catalog.values() if facts.successor]
    assert {facts.family for facts in retired} == {"g2", "g3", "g3s", "p2", "p3"}
    assert all(catalog[facts.successor or ""].successor is None for facts in retired)


def test_every_family_with_a_deep_learning_image_is_in_the_catalogue():
    assert {facts.family for facts in read_catalog().values()} >= DEEP_LEARNING_FAMILIES


def test_no_type_with_gpus_gets_an_image_without_a_driver():
    for facts in read_catalog().values():
        if facts.gpu_count:
            try:
                image = find_image("workers.instance_type", facts)
            except ValueError as error:
                assert "software.image must be given" in str(error)  # noqa: PT017 - most types do get one
            else:
                assert "nvidia" in image.parameter or "nvidia-smi" in image.packages, facts.name


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"name": "P5"}, "name must be an instance type, got 'P5'; write e.g. p5.48xlarge"),
        ({"name": "x.large", "gpu_count": -1}, "gpu_count must be from 0 to 1024, got -1"),
        ({"name": "x.large", "efa_cards": (1,)}, "efa_cards must be indexes below network_cards, got 1 of 1"),
    ],
)
def test_described_type_must_make_sense_and_is_nvidias_by_default(facts, message):
    with pytest.raises(ValueError, match="must") as caught:
        InstanceTypeFacts(**facts)
    assert str(caught.value).startswith(message)
    assert InstanceTypeFacts(name="p9.48xlarge", gpu_count=8).accelerator == "NVIDIA"
    assert InstanceTypeFacts(name="c9.large").accelerator is None


def test_the_catalogue_is_the_output_of_its_script():
    path = Path(__file__).parents[4] / "constructs" / "write_instance_catalog.py"
    script = importlib.util.module_from_spec(importlib.util.spec_from_file_location("writer", path))
    script.__spec__.loader.exec_module(script)
    assert script.TARGET.read_text() == script.render(catalog_date())


@pytest.mark.parametrize(
    "name",
    [
        "ml.g5.12xlarge",
        "G5.12XLARGE",
        "cache.g5.12xlarge",
        "ML.G5.12xlarge",
        " g5.12xlarge",
        "g5.12xl",
        "g5-12xlarge",
        "g5_12xlarge",
        "db.g5.12xlarge",
        "g5.12xlarge.search",
    ],
)
def test_a_type_as_other_services_or_people_write_it_is_proposed_as_ec2_writes_it(name):
    with pytest.raises(ValueError, match=rf"got '{name}'; take g5\.12xlarge, or describe a newer type"):
        describe_instance_type("workers.instance_type", name)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("p6-b200-48xlarge", "p6-b200.48xlarge, or describe"),
        ("p2.xl", "g5.xlarge, or describe"),
        ("p55.48xlarge", "one of p5"),
    ],
)
def test_the_nearest_current_type_is_proposed_and_a_dash_of_its_family_stays(name, nearest):
    with pytest.raises(ValueError, match=rf"got '{name}'; take {nearest}"):
        describe_instance_type("workers.instance_type", name)
