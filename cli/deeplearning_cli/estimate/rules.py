"""Rules for each type of resource: what it costs, or why it costs nothing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

_PROVISIONED = "ProvisionedThroughputInMibps"
INCLUDED_MIBPS_PER_GIB = 50 / 1024
"""Throughput that the price of EFS Standard storage includes: 50 KiB/s for each GiB (Amazon EFS pricing)."""
_RETAINING = ("Retain", "RetainExceptOnCreate")


@dataclass(frozen=True)
class Need:
    """
    Amount of something that has a price.

    Attributes:
        subject: What it is, for the user.
        price: Name of its price.
        amount: How many units.
        is_retained: True if it stays when the stack is deleted.
    """

    subject: str
    price: str
    amount: float
    is_retained: bool = False


Resource = Mapping[str, Any]
Rule = Callable[[Resource, float], Iterator[Need]]
"""Resource and GiB of data on the shared file system -> what it needs."""


def is_retained(resource: Resource) -> bool:
    """Return True if a resource stays when the stack is deleted."""
    return resource.get("DeletionPolicy") in _RETAINING


def _fixed(subject: str, price: str) -> Rule:
    def rule(resource: Resource, _: float) -> Iterator[Need]:
        yield Need(subject, price, 1, is_retained=is_retained(resource))

    return rule


def _endpoint(resource: Resource, _: float) -> Iterator[Need]:
    properties = resource["Properties"]
    if properties.get("VpcEndpointType") == "Interface":
        yield Need("interface endpoints", "interface-endpoint", len(properties.get("SubnetIds", ())))


def _efs(resource: Resource, gib: float) -> Iterator[Need]:
    kept = is_retained(resource)
    yield Need("EFS storage", "efs-storage", gib, is_retained=kept)
    provisioned = float(resource["Properties"].get(_PROVISIONED, 0))
    if (excess := provisioned - gib * INCLUDED_MIBPS_PER_GIB) > 0:
        yield Need("EFS provisioned throughput", "efs-throughput", excess, is_retained=kept)


def _lustre(resource: Resource, _: float) -> Iterator[Need]:
    properties = resource["Properties"]
    settings = properties["LustreConfiguration"]
    kind = "scratch" if "SCRATCH" in settings["DeploymentType"] else "persistent"
    throughput = settings.get("PerUnitStorageThroughput")
    name = "-".join(str(part) for part in ("lustre", kind, throughput) if part)
    yield Need("FSx for Lustre", name, float(properties["StorageCapacity"]), is_retained=is_retained(resource))


PRICED: Mapping[str, Rule] = MappingProxyType(
    {
        "AWS::CloudWatch::Alarm": _fixed("alarms", "alarm"),
        "AWS::CloudWatch::Dashboard": _fixed("dashboard", "dashboard"),
        "AWS::EC2::EIP": _fixed("public IPv4 addresses", "public-ipv4"),
        "AWS::EC2::NatGateway": _fixed("NAT gateway", "nat-gateway"),
        "AWS::EC2::VPCEndpoint": _endpoint,
        "AWS::EFS::FileSystem": _efs,
        "AWS::FSx::FileSystem": _lustre,
        "AWS::KMS::Key": _fixed("KMS key", "kms-key"),
    }
)
BACKUP = Need("backup of EFS", "backup-efs", 1)
"""Backup of a GiB, once: the first one is full, and later ones have what changed (AWS Backup pricing)."""

WITH_NODES = frozenset({"AWS::AutoScaling::AutoScalingGroup", "AWS::EC2::LaunchTemplate"})
"""Types whose cost is that of the nodes of a candidate."""

BY_USE: Mapping[str, str] = MappingProxyType(
    {
        "AWS::Backup::BackupVault": "AWS Backup: the state table, a few KB",
        "AWS::DynamoDB::Table": "DynamoDB: on demand, a few requests a minute, cents a month",
        "AWS::EC2::FlowLog": "flow logs: by GB",
        "AWS::Events::Rule": "EventBridge: AWS's own events and a timer, cents a month",
        "AWS::Lambda::Function": "Lambda: a short call each minute and for each event, cents a month",
        "AWS::Logs::LogGroup": "CloudWatch: logs by GB, and the metrics in them by metric",
        "AWS::SNS::Topic": "SNS: a message for each launch and alarm, cents a month",
        "AWS::SQS::Queue": "SQS: requests of waiting nodes, cents a month",
        "AWS::FSx::DataRepositoryAssociation": "S3: requests of FSx for Lustre, for each object that is read",
    }
)
"""Type -> why its cost, which depends on use, is in no total."""

FREE: Mapping[str, str] = MappingProxyType(
    {
        "AWS::Backup::BackupPlan": "backups cost, not their plan",
        "AWS::Backup::BackupSelection": "backups cost, not their choice",
        "AWS::Budgets::Budget": "budgets that only notify cost nothing",
        "AWS::CDK::Metadata": "it is nothing but a description",
        "AWS::CloudFormation::Stack": "resources cost, not stacks of AWS's own types",
        "AWS::CloudFormation::WaitCondition": "it is a state of the stack",
        "AWS::CloudFormation::WaitConditionHandle": "it is a URL",
        "AWS::EC2::InternetGateway": "traffic costs, not the gateway",
        "AWS::EC2::PlacementGroup": "instances cost, not their placement",
        "AWS::EC2::Route": "part of a VPC",
        "AWS::EC2::RouteTable": "part of a VPC",
        "AWS::EC2::SecurityGroup": "part of a VPC",
        "AWS::EC2::SecurityGroupEgress": "part of a VPC",
        "AWS::EC2::SecurityGroupIngress": "part of a VPC",
        "AWS::EC2::Subnet": "part of a VPC",
        "AWS::EC2::SubnetRouteTableAssociation": "part of a VPC",
        "AWS::EC2::VPC": "traffic costs, not the VPC",
        "AWS::EC2::VPCGatewayAttachment": "part of a VPC",
        "AWS::EFS::AccessPoint": "storage costs, not the ways to it",
        "AWS::EFS::MountTarget": "storage costs, not the ways to it",
        "AWS::IAM::InstanceProfile": "IAM costs nothing",
        "AWS::IAM::ManagedPolicy": "IAM costs nothing",
        "AWS::IAM::Policy": "IAM costs nothing",
        "AWS::IAM::Role": "IAM costs nothing",
        "AWS::Lambda::Permission": "part of a function",
        "AWS::SNS::Subscription": "messages cost, not subscriptions",
        "AWS::SNS::TopicPolicy": "part of a topic",
        "AWS::SQS::QueuePolicy": "part of a queue",
        "AWS::SSM::Parameter": "standard parameters cost nothing",
    }
)
"""Type -> why it costs nothing."""


def is_known(kind: str) -> bool:
    """Return True if a type of resource has a rule; the stack's functions carry out custom resources."""
    return kind.startswith("Custom::") or any(kind in known for known in (PRICED, WITH_NODES, BY_USE, FREE))
