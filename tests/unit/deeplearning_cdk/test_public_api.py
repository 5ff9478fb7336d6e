"""Names that users import and ids of their templates change only on purpose."""

import dataclasses
import inspect
import json
import re
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

import deeplearning_cdk
from deeplearning_cdk import Candidate, JobEnvironment, Lustre, NodeImage, Purchase, Spending, TrainingCluster
from tests.unit.deeplearning_cdk.clusters import VALUES, props_of, warn

ROOT = Path(__file__).parents[3]
FLAGS = json.loads((ROOT / "cdk.json").read_text())["context"]
CLI_FLAGS = ROOT / "build/node/node_modules/aws-cdk/lib/init-templates/.recommended-feature-flags.json"
MISLEADING_NAME = "master-WorkerAutoScalingGroup"
"""Name of a stack from which nobody may read a role."""
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "amazon-linux": {"software.image": NodeImage.deep_learning_amazon_linux(), "workers.instance_type": "g5.12xlarge"},
    "network.isolated": {
        "network.isolated": True,
        "software.environment": JobEnvironment.none(),
        "software.image": NodeImage.ubuntu(has_packages=True),
        "workers.instance_type": "m5.large",
    },
    "public-master": {"master.ssh_peer": "203.0.113.7/32", "key_pair": "mine", "workers.instance_type": "m5.large"},
    "guarded-spending": {
        "spending": Spending(monthly_budget_usd=5000, budget_stops=True),
        "workers.instance_type": "m5.large",
    },
    "fallbacks": {
        "workers.instance_type": "g5.12xlarge",
        "workers.fallbacks": (Candidate(availability_zone="us-east-1b"), Candidate(purchase=Purchase.spot())),
        "network.availability_zone": "us-east-1a",
    },
    "capacity-block": {
        "workers.purchase": Purchase.capacity_block("cr-0123456789abcdef0"),
        "network.availability_zone": "us-east-1a",
        "spending": Spending(monthly_budget_usd=5000),
        "workers.instance_type": "p5.48xlarge",
    },
}


def test_all_is_sorted_and_complete():
    assert deeplearning_cdk.__all__ == sorted(deeplearning_cdk.__all__)
    assert all(inspect.isclass(getattr(deeplearning_cdk, name)) for name in deeplearning_cdk.__all__)


@pytest.mark.parametrize("value", [*VALUES.values(), Lustre])
def test_every_field_of_a_value_is_keyword_only_documented_and_has_a_default(value):
    section = (inspect.getdoc(value) or "").partition("\nAttributes:\n")[2].partition("\n\n")[0]
    lines = re.split(r"(?m)^    (?=\w+: )", section)
    documented = {name: text for name, _, text in (line.partition(": ") for line in lines[1:])}
    assert list(documented) == [field.name for field in dataclasses.fields(value)]
    for field in dataclasses.fields(value):
        assert field.kw_only
        assert field.default is not dataclasses.MISSING
        assert "Default: " in re.sub(r"\s+", " ", documented[field.name]), field.name


@pytest.mark.parametrize("variant", ["default", "public-master"])
def test_logical_ids_do_not_depend_on_the_stacks_name(synthesize, variant):
    named = synthesize(stack_name=MISLEADING_NAME, **VARIANTS[variant]).template["Resources"]
    assert set(named) == set(synthesize(**VARIANTS[variant]).template["Resources"])


@pytest.mark.parametrize("variant", VARIANTS)
def test_feature_flags_of_the_users_app_change_nothing(synthesize, make_stack, read_stack, variant):
    stack = make_stack(**FLAGS)
    TrainingCluster(stack, "Cluster", **props_of(VARIANTS[variant]))
    assert read_stack(stack).template == synthesize(**VARIANTS[variant]).template


def test_flags_of_cdk_json_are_those_that_the_pinned_cli_recommends():
    assert json.loads(CLI_FLAGS.read_text()) == FLAGS


def test_warnings_have_ids_that_users_can_acknowledge(make_stack, synthesize):
    stack = make_stack()
    ids = ["deeplearning_cdk:imageNotTried", "deeplearning_cdk:neverStops"]
    assert [warning.rpartition("[ack: ")[2] for warning in sorted(synthesize().warnings)] == [
        f"{name}]" for name in ids
    ]
    for name in ids:
        cdk.Annotations.of(stack).acknowledge_warning(name, "our own trial")
    assert warn(stack, {}) == []
