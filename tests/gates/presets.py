"""The stacks that the gates look at: what users choose, as contexts of the app."""

from collections.abc import Mapping
from typing import Any

from aws_cdk import aws_iam as iam

from deeplearning_cdk import EksTraining

_CPU = {"workers.instance_type": "m5.large"}
_ISOLATED = {
    "network.isolated": True,
    "software.image": {"kind": "ubuntu", "has_packages": True},
    "software.environment": "none",
}
_VPC = {
    "vpc_id": "vpc-0123456789abcdef0",
    "availability_zones": ["us-east-1a"],
    "private_subnet_ids": ["subnet-0123456789abcdef0"],
    "private_subnet_route_table_ids": ["rtb-0123456789abcdef0"],
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "private": {**_ISOLATED, **_CPU},
    "public-master": {"master.ssh_peer": "203.0.113.7/32", "key_pair": "mine", **_CPU},
    "existing-vpc-and-efs": {
        "network.vpc": _VPC,
        "storage.file_system": "fs-0123456789abcdef0",
        "regions": "us-east-1",
        **_CPU,
    },
    "private-existing-vpc": {"network.vpc": _VPC, **_ISOLATED, "regions": "us-east-1", **_CPU},
    "cpu": _CPU,
    "lustre-with-data": {
        "storage.data": [
            {"name": "coco", "bucket": "team-data", "key": "coco/train.tar.gz"},
            {"name": "images", "bucket": "team-data", "key": "images/", "target": "lustre"},
            {"name": "more-data", "bucket": "more-data", "target": "lustre"},
        ],
        "software.environment_cache": "team-environments/horovod",
        "storage.lustre": {"storage": 2400},
        "storage.throughput": "256MiB",
        **_CPU,
    },
    "lustre-in-existing-vpc": {"network.vpc": _VPC, "storage.lustre": {}, "regions": "us-east-1", **_CPU},
    "capacity-block": {
        "workers.instance_type": "p5.48xlarge",
        "workers.purchase": "capacity-block:cr-0123456789abcdef0",
        "network.availability_zone": "us-east-1a",
        "regions": "us-east-1",
    },
    "fallbacks": {
        "workers.instance_type": "g5.12xlarge",
        "workers.fallbacks": [
            {"availability_zone": "us-east-1b"},
            {"availability_zone": "us-east-1b", "purchase": "spot"},
            {"availability_zone": "us-east-1c", "instance_type": "g5.24xlarge"},
        ],
        "network.availability_zone": "us-east-1a",
        "regions": "us-east-1",
    },
    "amazon-linux": {"software.image": "deep-learning-amazon-linux", "workers.instance_type": "g5.12xlarge"},
    "customer-key": {
        "encryption_key": "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        "alarm_topic": "arn:aws:sns:us-east-1:111122223333:on-call",
        "regions": "us-east-1",
        **_CPU,
    },
    "emr": {"platform": "emr", "stop_when_idle": "1h"},
    "sagemaker": {"platform": "sagemaker", "instance_type": "m5.xlarge", "notebook": True},
    "eks": {"platform": "eks", "instance_type": "m5.xlarge", "administrators": "arn:aws:iam::111122223333:role/Admin"},
    "eks-4x8": {"platform": "eks", "members": 4, "administrators": "arn:aws:iam::111122223333:role/Admin"},
    "guarded-spending": {
        "spending": {"stop_when_idle": "1h", "stop_after": "48h", "monthly_budget_usd": 5000, "budget_stops": True},
        "workers.max_capacity": 5,
        **_CPU,
    },
}


def grant_all(stack: Any) -> None:
    """Grant a role, and a managed policy where it can be, of the stack all that the cluster grants to people."""
    role = iam.Role(stack, "Engineer", assumed_by=iam.AccountRootPrincipal())
    cluster = stack.node.find_child("Cluster")
    # EKS admits roles and users, and no policy.
    people = (role,) if isinstance(cluster, EksTraining) else (role, iam.ManagedPolicy(stack, "People"))
    for name in dir(type(cluster)):
        if name.startswith("grant_") and name != "grant_principal":
            for person in people:
                getattr(cluster, name)(person)
