"""What users import and what their templates are made of changes only on purpose."""

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest

import deeplearning_cdk
from deeplearning_cdk import JobEnvironment, NodeImage, Purchase, Spending, TrainingCluster

ROOT = Path(__file__).parents[3]
CLI_FLAGS = ROOT / "build/node/node_modules/aws-cdk/lib/init-templates/.recommended-feature-flags.json"
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "amazon-linux": {"image": NodeImage.deep_learning_amazon_linux(), "worker_instance_type": "g5.12xlarge"},
    "isolated": {
        "isolated": True,
        "environment": JobEnvironment.none(),
        "image": NodeImage.ubuntu(has_packages=True),
        "worker_instance_type": "m5.large",
    },
    "public-master": {"ssh_peer": "203.0.113.7/32", "key_pair": "mine", "worker_instance_type": "m5.large"},
    "guarded-spending": {
        "spending": Spending(monthly_budget_usd=5000, budget_stops=True),
        "worker_instance_type": "m5.large",
    },
    "capacity-block": {
        "worker_purchase": Purchase.capacity_block("cr-0123456789abcdef0"),
        "availability_zone": "us-east-1a",
        "spending": Spending(monthly_budget_usd=5000),
        "worker_instance_type": "p5.48xlarge",
    },
}


def test_all_is_sorted_and_complete() -> None:
    assert deeplearning_cdk.__all__ == sorted(deeplearning_cdk.__all__)
    assert all(inspect.isclass(getattr(deeplearning_cdk, name)) for name in deeplearning_cdk.__all__)


def test_every_prop_is_keyword_only_documented_and_has_a_default() -> None:
    documented = inspect.getdoc(TrainingCluster) or ""
    for parameter in list(inspect.signature(TrainingCluster.__init__).parameters.values())[3:]:
        assert parameter.kind is parameter.KEYWORD_ONLY
        assert parameter.default is not parameter.empty
        assert re.search(rf"(?m)^    {parameter.name}: (?s:.*?)Default: ", documented), parameter.name


@pytest.mark.parametrize("variant", VARIANTS)
def test_logical_ids_do_not_depend_on_the_stacks_name(synthesize: Any, variant: str) -> None:
    named = synthesize(stack_name="another", **VARIANTS[variant]).template["Resources"]
    assert set(named) == set(synthesize(**VARIANTS[variant]).template["Resources"])


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("region", [None, "eu-west-1"])
def test_feature_flags_of_the_users_app_change_nothing(
    make_stack: Callable[..., cdk.Stack], read_stack: Any, variant: str, region: str | None
) -> None:
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    props, templates = VARIANTS[variant], []
    if region and "availability_zone" in props:
        props = {**props, "availability_zone": f"{region}a"}
    for context in ({}, flags):
        stack = make_stack(region=region, **context)
        TrainingCluster(stack, "Cluster", **props)
        templates.append(read_stack(stack).template["Resources"])
    assert templates[0] == templates[1]


def test_flags_of_cdk_json_are_those_that_the_pinned_cli_recommends() -> None:
    assert json.loads((ROOT / "cdk.json").read_text())["context"] == json.loads(CLI_FLAGS.read_text())


def test_warnings_have_ids_that_users_can_acknowledge(make_stack: Callable[..., cdk.Stack], read_stack: Any) -> None:
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster")
    cdk.Annotations.of(cluster).acknowledge_warning("deeplearning_cdk:imageNotTried", "our own trial")
    cdk.Annotations.of(cluster).acknowledge_warning("deeplearning_cdk:neverStops", "somebody watches it")
    assert read_stack(stack).warnings == []
