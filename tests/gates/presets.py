"""The stacks that the gates look at: what users choose, as contexts of the app."""

from collections.abc import Mapping
from typing import Any

_CPU = {"worker_instance_type": "m5.large"}
_ISOLATED = {"isolated": True, "image": {"kind": "ubuntu", "has_packages": True}, "environment": "none"}
_VPC = {
    "vpc_id": "vpc-0123456789abcdef0",
    "availability_zone": "us-east-1a",
    "worker_subnet_id": "subnet-0123456789abcdef0",
    "worker_route_table_id": "rtb-0123456789abcdef0",
}

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "private": {**_ISOLATED, **_CPU},
    "public-master": {"ssh_peer": "203.0.113.7/32", "key_pair": "mine", **_CPU},
    "existing-vpc-and-efs": {"vpc": _VPC, "file_system_id": "fs-0123456789abcdef0", "regions": "us-east-1", **_CPU},
    "private-existing-vpc": {"vpc": _VPC, **_ISOLATED, "regions": "us-east-1", **_CPU},
    "cpu": _CPU,
    "lustre-with-data": {
        "data": [
            {"name": "coco", "bucket": "team-data", "key": "coco/train.tar.gz"},
            {"name": "images", "bucket": "team-data", "key": "images/", "target": "lustre"},
        ],
        "environment_cache": "team-environments/horovod",
        "lustre_storage_gib": 2400,
        "lustre_bucket": "more-data",
        "file_system_throughput": 256,
        **_CPU,
    },
    "lustre-in-existing-vpc": {"vpc": _VPC, "lustre_storage_gib": 1200, "regions": "us-east-1", **_CPU},
    "capacity-block": {
        "worker_instance_type": "p5.48xlarge",
        "worker_purchase": "capacity-block:cr-0123456789abcdef0",
        "availability_zone": "us-east-1a",
        "regions": "us-east-1",
    },
    "amazon-linux": {"image": "deep-learning-amazon-linux", "worker_instance_type": "g5.12xlarge"},
    "customer-key": {
        "encryption_key": "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        "alarm_topic": "arn:aws:sns:us-east-1:111122223333:on-call",
        "regions": "us-east-1",
        **_CPU,
    },
    "guarded-spending": {
        "stop_when_idle_minutes": 60,
        "stop_after_hours": 48,
        "monthly_budget_usd": 5000,
        "budget_stops": True,
        "worker_max_capacity": 5,
        **_CPU,
    },
}
