"""Props of `TrainingCluster` by their dotted names, as an app's context has them, with Python's own values."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from aws_cdk import Duration, RemovalPolicy, Size
from constructs import Construct

from deeplearning_cdk import (
    DataSource,
    EnvironmentCache,
    JobEnvironment,
    Lustre,
    Master,
    Network,
    NodeImage,
    Purchase,
    Software,
    Spending,
    Storage,
    Workers,
)
from deeplearning_cdk.nodes.plan import NodePlan, plan_nodes
from deeplearning_cdk.warnings import add_warnings

VALUES = {
    "workers": Workers,
    "master": Master,
    "network": Network,
    "software": Software,
    "storage": Storage,
    "spending": Spending,
}
WITH_LUSTRE: dict[str, Any] = {
    "workers.instance_type": "m5.large",
    "storage.lustre": Lustre(),
    "storage.data": [DataSource("train", "team-data", "coco/train/", "lustre")],
}


def props_of(dotted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of `TrainingCluster` for `{"workers.instance_type": "m5.large"}`."""
    props: dict[str, Any] = {name: value for name, value in dotted.items() if "." not in name}
    for value, make in VALUES.items():
        fields = {name.partition(".")[2]: each for name, each in dotted.items() if name.startswith(f"{value}.")}
        if fields:
            props[value] = make(**fields)
    return props


def plan(dotted: Mapping[str, Any] | None = None) -> NodePlan:
    """Return the plan of a cluster's nodes, for which nothing is synthesized."""
    props = props_of(dotted or {})
    values = (props.get(name, VALUES[name]()) for name in ("workers", "master", "network", "software", "storage"))
    return plan_nodes(*values)


def warn(scope: Construct, dotted: Mapping[str, Any]) -> list[str]:
    """Return what a cluster is warned about at a scope, without the cluster."""
    storage, spending = (props_of(dotted).get(name, VALUES[name]()) for name in ("storage", "spending"))
    isolated, has_lustre = dotted.get("network.isolated", False), storage.lustre is not None
    add_warnings(scope, plan(dotted), spending, isolated=isolated, has_lustre=has_lustre)
    return [str(entry.data) for entry in scope.node.metadata if entry.type == "aws:cdk:warning"]


_EXAMPLES = Path(__file__).parents[3] / "examples"
EVERYTHING: dict[str, Any] = {
    "workers.instance_type": "p4d.24xlarge",
    "workers.min_capacity": 2,
    "workers.desired_capacity": 4,
    "workers.max_capacity": 8,
    "workers.purchase": Purchase.spot(max_price=12.5),
    "workers.volume_size": 300,
    "workers.setup_script": str(_EXAMPLES / "run_elastic.sh"),
    "master.instance_type": "m5.2xlarge",
    "master.purchase": Purchase.reservation("cr-0123456789abcdef0"),
    "master.volume_size": 200,
    "master.setup_script": str(_EXAMPLES / "tensorboard.sh"),
    "master.run_script": str(_EXAMPLES / "run_horovod.sh"),
    "master.ssh_peer": "203.0.113.7/32",
    "network.cidr": "10.42.0.0/16",
    "network.availability_zone": "us-east-1b",
    "network.efa": False,
    "software.image": replace(
        NodeImage.ubuntu(), parameter="/team/ubuntu", packages={"nvidia-smi": ("nvidia-headless-580-server",)}
    ),
    "software.image_release": "2026-11-22",
    "software.environment": JobEnvironment.from_requirements(str(_EXAMPLES / "environments" / "small.txt")),
    "software.environment_cache": EnvironmentCache("team-environments"),
    "storage.mount_point": f"/{'m' * 100}",
    "storage.throughput": Size.mebibytes(128),
    "storage.backup": False,
    "storage.removal_policy": RemovalPolicy.DESTROY,
    "storage.lustre": Lustre(storage=2400, throughput=250, export=True, mount_point="/scratch"),
    "storage.data": (
        DataSource("train", "team-data", "coco/train.tar.gz"),
        DataSource("images", "team-data", "images/", target="local"),
        DataSource("all", "other-data", target="stream"),
        DataSource("linked", "linked-data", "train/", target="lustre"),
    ),
    "spending.stop_when_idle": Duration.minutes(30),
    "spending.stop_after": Duration.hours(1),
    "spending.monthly_budget_usd": 500,
    "spending.budget_stops": True,
    "key_pair": "mine",
    "setup_timeout": Duration.minutes(20),
}
"""All props that a cluster takes in a new VPC."""
