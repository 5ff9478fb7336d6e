"""A changed value for each prop of each platform, and the templates before and after the change."""

import inspect
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from aws_cdk import App, Duration, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from deeplearning_cdk import (
    Candidate,
    DataSource,
    EksTraining,
    EmrTraining,
    EnvironmentCache,
    JobEnvironment,
    Lustre,
    Master,
    Network,
    NodeImage,
    Purchase,
    SageMakerTraining,
    Software,
    Spending,
    Storage,
    TrainingCluster,
    Workers,
)

PLATFORMS: Mapping[str, Any] = {
    "EC2": TrainingCluster,
    "EMR": EmrTraining,
    "EKS": EksTraining,
    "SageMaker": SageMakerTraining,
}
_VALUES: Mapping[str, Any] = {
    "workers": Workers,
    "master": Master,
    "network": Network,
    "software": Software,
    "storage": Storage,
    "spending": Spending,
}
_EXAMPLES = Path(__file__).parents[1] / "examples"
_SCRIPT = str(_EXAMPLES / "tensorboard.sh")
_CUSTOM_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/train:1"
_ZONES = ["us-east-1a", "us-east-1b"]


@dataclass(frozen=True)
class Sample:
    """
    A change of one prop.

    Attributes:
        prop: The prop, as `network.cidr`.
        after: Its value, or a function from the stack to it.
        before: Its value before, in the same form. Default: the prop's default.
        given: Props of both templates. Default: none.
        label: What sets the change apart from another one of the same prop. Default: nothing.
        platforms: Platforms that the change is for. Default: each that has the prop.
    """

    prop: str
    after: Any
    before: Any = None
    given: Mapping[str, Any] = field(default_factory=dict)
    label: str = ""
    platforms: tuple[str, ...] = tuple(PLATFORMS)

    def list_props(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the props before and after the change."""
        name = "storage.lustre" if self.prop.startswith("storage.lustre.") else self.prop
        before = dict(self.given) if self.before is None else {**self.given, name: self.before}
        return before, {**before, name: self.after}


def _make_vpc(stack: Stack, construct_id: str = "Vpc") -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack,
        construct_id,
        vpc_id="vpc-0123456789abcdef0",
        availability_zones=_ZONES,
        private_subnet_ids=["subnet-0123456789abcdef0", "subnet-0123456789abcdef1"],
        private_subnet_route_table_ids=["rtb-0123456789abcdef0", "rtb-0123456789abcdef1"],
    )


def _find_subnet(stack: Stack) -> ec2.ISubnet:
    return ec2.Subnet.from_subnet_attributes(
        stack,
        "Subnet",
        subnet_id="subnet-0123456789abcdef2",
        availability_zone="us-east-1a",
        route_table_id="rtb-0123456789abcdef2",
    )


def _find_key(stack: Stack) -> kms.IKey:
    arn = "arn:aws:kms:us-east-1:111122223333:key/0a1b2c3d-0000-4444-8888-0123456789ab"
    return kms.Key.from_key_arn(stack, "Key", arn)


def _find_topic(stack: Stack) -> sns.ITopic:
    return sns.Topic.from_topic_arn(stack, "Topic", "arn:aws:sns:us-east-1:111122223333:mine")


def _find_group(stack: Stack) -> list[ec2.ISecurityGroup]:
    return [ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-0123456789abcdef0")]


def _make_role(stack: Stack) -> iam.Role:
    return iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))


_ZONE = {"network.availability_zone": "us-east-1a"}
_FALLBACKS = (Candidate(availability_zone="us-east-1b"),)
_OFFLINE = {
    "software.image": NodeImage.deep_learning_amazon_linux(),
    "software.environment": JobEnvironment.none(),
}
_IN_VPC = {"network.vpc": _make_vpc}
_LUSTRE = {"storage.lustre": Lustre()}
_LINKED = (DataSource("train", "team-data", "train/", target="lustre"),)
_DATA = (DataSource("train", "team-data", "train/", target="stream"),)

SAMPLES: tuple[Sample, ...] = (
    # TrainingCluster
    Sample("workers.instance_type", "p4d.24xlarge"),
    Sample("workers.min_capacity", 2),
    Sample("workers.desired_capacity", 4, given={"workers.max_capacity": 5}, label="more"),
    Sample("workers.desired_capacity", 2, given={"workers.max_capacity": 5}, label="fewer"),
    Sample("workers.max_capacity", 6, label="more"),
    Sample("workers.max_capacity", 2, label="fewer"),
    Sample("workers.purchase", Purchase.spot()),
    Sample("workers.fallbacks", _FALLBACKS, given=_ZONE, label="more"),
    Sample("workers.fallbacks", (), before=_FALLBACKS, given=_ZONE, label="fewer"),
    Sample("workers.patience", Duration.minutes(5), given={**_ZONE, "workers.fallbacks": _FALLBACKS}),
    Sample("workers.volume_size", 300),
    Sample("workers.setup_script", _SCRIPT),
    Sample("workers.role", _make_role),
    Sample("master.instance_type", "m5.2xlarge"),
    Sample("master.purchase", Purchase.spot()),
    Sample("master.volume_size", 300),
    Sample("master.setup_script", _SCRIPT),
    Sample("master.run_script", _SCRIPT),
    Sample("master.ssh_peer", "203.0.113.7/32"),
    Sample("master.role", _make_role),
    Sample("spending.stop_when_idle", Duration.minutes(30)),
    Sample("spending.stop_after", Duration.hours(48)),
    Sample("spending.monthly_budget_usd", 500),
    Sample("spending.budget_stops", after=True, given={"spending.monthly_budget_usd": 500}),
    Sample("key_pair", "mine"),
    Sample("setup_timeout", Duration.minutes(30)),
    # EmrTraining, EksTraining, SageMakerTraining
    Sample("instance_type", "g5.24xlarge"),
    Sample("members", 4, before=3, label="more"),
    Sample("members", 2, before=3, label="fewer"),
    Sample("members", 2, before=1, label="more than one", platforms=("EKS",)),
    Sample("members", 4, before=3, given={"initial_members": 0}, label="of none at first", platforms=("EKS",)),
    Sample("initial_members", 0),
    Sample("release", "emr-7.13.0"),
    Sample("image", "ami-0123456789abcdef0", platforms=("EMR",)),
    Sample("image", _CUSTOM_IMAGE, platforms=("EKS", "SageMaker")),
    Sample("applications", ("Hadoop", "Spark")),
    Sample("root_volume", 80),
    Sample("stop_when_idle", Duration.hours(1)),
    Sample("stop_after", Duration.hours(48)),
    Sample("restart", "1"),
    Sample("version", "1.35", before="1.34", label="next"),
    Sample("version", "1.34", before="1.35", label="former"),
    Sample("version", "1.35", before="1.33", label="two ahead"),
    Sample("node_image", "amazon-linux"),
    Sample("image_disk", 300),
    Sample("system_instance_type", "m7i.xlarge"),
    Sample("purchase", Purchase.spot()),
    Sample("administrators", ("arn:aws:iam::111122223333:role/Admin",)),
    Sample("api_from", ("52.94.76.7/32",)),
    Sample("namespace", "training"),
    Sample("shared_capacity", "100Gi"),
    Sample("claim_capacity", "50Gi"),
    Sample("queue", "training"),
    Sample("volume_size", 300, given={"instance_type": "m5.xlarge"}),
    Sample("max_run", Duration.hours(48)),
    Sample("spot_wait", Duration.hours(48)),
    Sample("max_pending", Duration.hours(2)),
    Sample("keep_warm", Duration.minutes(30)),
    Sample("notebook", after=True),
    Sample("notebook", after=False, before=True, label="none again"),
    # All platforms
    Sample("network.vpc", _make_vpc),
    Sample("network.cidr", "10.42.0.0/16"),
    Sample("network.availability_zone", "us-east-1b"),
    Sample("network.worker_subnet", _find_subnet, given=_IN_VPC),
    Sample("network.master_subnet", _find_subnet, given=_IN_VPC),
    Sample("network.isolated", after=True, given=_OFFLINE),
    Sample("network.efa", after=False),
    Sample("network.security_groups", _find_group, given=_IN_VPC),
    Sample("software.image", NodeImage.ubuntu()),
    Sample("software.image_release", "2026-11-22"),
    Sample("software.environment", JobEnvironment.from_requirements(str(_EXAMPLES / "environments" / "small.txt"))),
    Sample("software.environment_cache", EnvironmentCache("team-environments")),
    Sample("storage.file_system", "fs-0123456789abcdef0"),
    Sample("storage.mount_point", "/shared"),
    Sample("storage.throughput", "bursting"),
    Sample("storage.backup", after=False),
    Sample("storage.removal_policy", RemovalPolicy.DESTROY),
    Sample("storage.lustre", Lustre()),
    Sample("storage.lustre", None, before=Lustre(), label="none again"),
    Sample("storage.lustre.storage", Lustre(storage=2400), given=_LUSTRE, label="more"),
    Sample("storage.lustre.storage", Lustre(), given={"storage.lustre": Lustre(storage=2400)}, label="less"),
    Sample("storage.lustre.deployment", Lustre(deployment="scratch"), given=_LUSTRE),
    Sample("storage.lustre.throughput", Lustre(throughput=250), given=_LUSTRE),
    Sample("storage.lustre.export", Lustre(export=True), given={**_LUSTRE, "storage.data": _LINKED}),
    Sample("storage.lustre.mount_point", Lustre(mount_point="/scratch"), given=_LUSTRE),
    Sample("storage.data", _DATA, label="more"),
    Sample("storage.data", (), before=_DATA, label="fewer"),
    Sample("encryption_key", _find_key),
    Sample("alarm_topic", _find_topic),
)
"""Each prop with another value."""


def list_props(platform: str) -> list[str]:
    """Return the props of a platform, with those of its values by their dotted names."""
    made = PLATFORMS[platform].__init__
    found = []
    for name in list(inspect.signature(made).parameters)[3:]:
        inner = [each.name for each in fields(_VALUES[name])] if name in _VALUES else []
        found += [f"{name}.{each}" for each in inner] or [name]
    lustre = [f"storage.lustre.{each.name}" for each in fields(Lustre)]
    position = found.index("storage.lustre") + 1
    return [*found[:position], *lustre, *found[position:]]


def synthesize(platform: str, props: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template of a platform's construct with props by their dotted names."""
    app = App(
        context={"aws:cdk:disable-asset-staging": True},
        analytics_reporting=False,
        builtin_cloud_formation_validation=False,
    )
    stack = Stack(app, "Training", env=Environment(region="us-east-1"))
    taken = {name: value(stack) if inspect.isfunction(value) else value for name, value in props.items()}
    plain = {name: value for name, value in taken.items() if "." not in name}
    for name, make in _VALUES.items():
        inner = {each.partition(".")[2]: value for each, value in taken.items() if each.startswith(f"{name}.")}
        if inner:
            plain[name] = make(**inner)
    PLATFORMS[platform](stack, "Training", **plain)
    # From the file: `template` of the artifact would carry all of it through jsii.
    template: dict[str, Any] = json.loads((Path(app.synth().directory) / "Training.template.json").read_text())
    return template
