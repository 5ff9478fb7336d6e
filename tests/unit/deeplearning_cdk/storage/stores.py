"""Mounts of a cluster, without the cluster: its storage in a VPC of the user's."""

from typing import Any

from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from constructs import Construct

from deeplearning_cdk import Network, Storage
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.storage.cluster_storage import ClusterStorage

KEY_ARN = "arn:aws:kms:us-east-1:111122223333:key/0123abcd"
TABLE_ARN = "arn:aws:dynamodb:us-east-1:111122223333:table/state"


def import_vpc(scope: Construct, construct_id: str = "Vpc", zone: str = "us-east-1a") -> ec2.IVpc:
    """Return a VPC of the user's with one private subnet."""
    return ec2.Vpc.from_vpc_attributes(
        scope,
        construct_id,
        vpc_id=f"vpc-{construct_id}",
        availability_zones=[zone],
        private_subnet_ids=["subnet-0"],
        private_subnet_route_table_ids=["rtb-0"],
    )


def store(
    stack: Construct, vpc: ec2.IVpc | None, name: str = "Cluster", mode: Any = "nfs4", **values: Any
) -> ClusterStorage:
    """Return the storage that a cluster of a name would have in a VPC, or in one of its own."""
    scope = Construct(stack, name)
    return ClusterStorage(
        scope,
        Storage(**values),
        mode=mode,
        network=ClusterNetwork(scope, "Network", Network(vpc=vpc)),
        state_table=dynamodb.Table.from_table_arn(scope, "Table", TABLE_ARN),
        encryption_key=kms.Key.from_key_arn(scope, "Key", KEY_ARN),
    )
