"""A pair of clusters that share all that clusters can share."""

from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import LustreFileSystem, NodeImage, TrainingCluster
from tests.unit.deeplearning_cdk.clusters import WITH_LUSTRE, props_of


@pytest.fixture(scope="session")
def pair(make_app: Any, read_stack: Any) -> Any:
    """Two clusters in one stack, the second with the file system and the Lustre of the first, mounted elsewhere."""
    stack = cdk.Stack(make_app(), "Stack")
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, restrict_default_security_group=False)
    shared = {
        **WITH_LUSTRE,
        "network.vpc": vpc,
        "software.image": NodeImage.deep_learning_amazon_linux(),
        "storage.lustre": LustreFileSystem(stack, "Lustre", vpc=vpc),
    }
    one = TrainingCluster(stack, "One", **props_of(shared))
    elsewhere = {"storage.file_system": one.file_system, "storage.mount_point": "/shared"}
    TrainingCluster(stack, "Two", **props_of({**shared, **elsewhere}))
    return read_stack(stack)
