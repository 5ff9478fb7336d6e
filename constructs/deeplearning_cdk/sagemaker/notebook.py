"""Notebook instance of SageMaker with the example notebook, the command and their packages."""

import hashlib
import json

from aws_cdk import Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sagemaker as sagemaker
from constructs import Construct

from deeplearning_cdk.coordination.node_permissions import allow, ec2_arn, read_statement
from deeplearning_cdk.coordination.payload import find_payload, pack_notebook
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.nodes.programs import FileAsset
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.sagemaker.roles import (
    interface_statements,
    make_execution_role,
    removal_statements,
    through_s3,
)

_INSTANCE_TYPE = "ml.t3.medium"
_PLATFORM = "notebook-al2023-v1"
"""Amazon Linux 2023 (SageMaker API reference, CreateNotebookInstance, PlatformIdentifier)."""
_GIBIBYTES = 100
"""Size of the volume: stage_data.sh needs 65 GB."""
MOST_CHARACTERS = 16_384
"""Longest script of a lifecycle configuration, in base64 (SageMaker API reference, NotebookInstanceLifecycleHook)."""
_LOG_GROUP = "/aws/sagemaker/NotebookInstances"


class TrainingNotebook(Construct):
    """
    Notebook instance in the subnet of the training jobs, whose user is not root.

    After each start a script of root installs the programs of the stack and their packages, which it downloads from S3
    and from pip's index, and puts the example notebook into the user's folder unless it is there. A failure is a
    message in that folder.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        name_prefix: Beginning of the instance's name, which no other live stack of the region has.
        network: Network of the training jobs.
        key_arn: KMS key of the volume and of the models.
        models: Bucket of the models.
        model_prefix: Beginning of the keys of the models.

    Attributes:
        role: Role of the instance and of the user's cells.
        security_group: Group of the instance, which admits nobody.
        instance: The instance.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        name_prefix: str,
        network: ClusterNetwork,
        key_arn: str,
        models: s3.IBucket,
        model_prefix: str,
    ) -> None:
        super().__init__(scope, construct_id)
        self.security_group = ec2.SecurityGroup(
            self, "SecurityGroup", vpc=network.vpc, description="Notebook instance of a deep-learning stack"
        )
        programs = FileAsset(self, "Programs", pack_notebook())
        subnet = network.worker_subnet
        # Whatever replaces the instance changes its name: two of one name cannot exist.
        fixed = json.dumps(Stack.of(self).resolve([subnet.subnet_id, self.security_group.security_group_id, key_arn]))
        name = f"{name_prefix}notebook-{hashlib.sha256(fixed.encode()).hexdigest()[:8]}"
        self.role = make_execution_role(
            self,
            "Role",
            [
                read_statement([programs.asset]),
                *interface_statements(subnet, [self.security_group]),
                *removal_statements("ec2:Subnet", ec2_arn("subnet", subnet.subnet_id)),
                allow(["s3:GetObject"], [models.arn_for_objects(f"{model_prefix}*")]),
                allow(["kms:Decrypt"], [key_arn], through_s3()),
                *_log_statements(name),
            ],
            description="Notebook instance of a deep-learning stack on SageMaker",
            is_for_jobs=False,
        )
        start = sagemaker.CfnNotebookInstanceLifecycleConfig.NotebookInstanceLifecycleHookProperty(
            content=Fn.base64(_render_script(Stack.of(self).region, programs))
        )
        lifecycle = sagemaker.CfnNotebookInstanceLifecycleConfig(self, "Lifecycle", on_start=[start])
        self.instance = sagemaker.CfnNotebookInstance(
            self,
            "Instance",
            notebook_instance_name=name,
            instance_type=_INSTANCE_TYPE,
            role_arn=self.role.role_arn,
            platform_identifier=_PLATFORM,
            lifecycle_config_name=lifecycle.attr_notebook_instance_lifecycle_config_name,
            subnet_id=subnet.subnet_id,
            security_group_ids=[self.security_group.security_group_id],
            direct_internet_access="Disabled",
            root_access="Disabled",
            instance_metadata_service_configuration={"minimumInstanceMetadataServiceVersion": "2"},
            kms_key_id=key_arn,
            volume_size_in_gb=_GIBIBYTES,
        )
        # The script of the start downloads at once.
        self.instance.node.add_dependency(network.connectivity, self.role)


def _render_script(region: str, programs: FileAsset) -> str:
    place = programs.settings
    arguments = f"set -- '{region}' '{place.bucket}' '{place.key}' '{place.sha256}'"
    return f"#!/bin/bash\n{arguments}\n{find_payload('notebook_start.sh').read_text(encoding='utf-8')}"


def _log_statements(name: str) -> list[iam.PolicyStatement]:
    """
    Return the permissions to write the logs of one notebook instance.

    Source of the names of streams: SageMaker developer guide, "Customization of a SageMaker notebook instance using an
    LCC script".
    """
    group = f"arn:{PARTITION}:logs:{REGION}:{ACCOUNT_ID}:log-group:{_LOG_GROUP}"
    return [
        allow(["logs:CreateLogGroup", "logs:DescribeLogStreams"], [f"{group}:*"]),
        allow(["logs:CreateLogStream", "logs:PutLogEvents"], [f"{group}:log-stream:{name}/*"]),
    ]
