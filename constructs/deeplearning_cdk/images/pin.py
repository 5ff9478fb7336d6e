"""Pinned image: the AMI id that an SSM parameter had at the stack's creation, kept until `image_release` changes."""

from aws_cdk import CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from constructs import Construct

from deeplearning_cdk.coordination.cluster_function import ClusterFunction
from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.coordination.payload import pack_image_pin
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.pseudo_parameters import ACCOUNT_ID, PARTITION, REGION
from deeplearning_cdk.security.encryption import ClusterEncryption

_DESCRIPTION = "Reads the machine image of a deep-learning cluster's nodes"
_RESPONSE_TIME = Duration.minutes(5)
"""Time for CloudFormation to wait for the function; its default is an hour."""
_FUNCTION_TIME = Duration.minutes(3)
"""The function retries for a minute while it is denied access, and must then respond."""


class PinnedImage(ClusterFunction):
    """
    AMI id of an SSM parameter, read when the stack is created and when `release` changes.

    A parameter of the template would be read at each deployment, and nodes launched later would differ from the running
    ones. The function behind this resource stores which image belongs to which release, so that neither an update of
    another property nor a rollback changes the image.

    Attributes:
        image_id: Id of the AMI, a token.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        parameter: str,
        release: str,
        coordination: Coordination,
        encryption: ClusterEncryption,
    ) -> None:
        super().__init__(
            scope,
            construct_id,
            archive=pack_image_pin().path,
            handler="image_pin.handler.handle",
            description=_DESCRIPTION,
            role_description=_DESCRIPTION,
            statements=_pin_statements(parameter, coordination, encryption),
            coordination=coordination,
            encryption=encryption,
            timeout=_FUNCTION_TIME,
            memory_mib=128,
        )
        image = CustomResource(
            self,
            "Image",
            resource_type="Custom::PinnedImage",
            service_token=self.function.function_arn,
            service_timeout=_RESPONSE_TIME,
            # There is nothing to delete, so a deletion need not wait for the function's response.
            removal_policy=RemovalPolicy.RETAIN,
            properties={"Parameter": parameter, "Release": release},
        )
        self.image_id = image.get_att_string("ImageId")


def pin_image(
    scope: Construct, image: NodeImage, release: str, coordination: Coordination, encryption: ClusterEncryption
) -> str:
    """
    Return the id of an image that stays the same when the stack is deployed again.

    An image given by its id needs no pin; one named by a parameter is read again when `release` changes.
    """
    if not image.parameter:
        return image.read_ami_id(scope)
    pin = PinnedImage(
        scope, "Image", parameter=image.parameter, release=release, coordination=coordination, encryption=encryption
    )
    return pin.image_id


def _pin_statements(
    parameter: str, coordination: Coordination, encryption: ClusterEncryption
) -> list[iam.PolicyStatement]:
    # Public parameters belong to no account (images/test_pin.py names the sources).
    account = "" if parameter.startswith("/aws/service/") else ACCOUNT_ID
    name = f"parameter/{parameter.removeprefix('/')}"
    return [
        iam.PolicyStatement(actions=["ssm:GetParameter"], resources=[f"arn:{PARTITION}:ssm:{REGION}:{account}:{name}"]),
        iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.dead_letters.queue_arn]),
        iam.PolicyStatement(
            actions=["kms:Decrypt", "kms:GenerateDataKey"],
            resources=[encryption.key_arn],
            conditions={"StringEquals": {"kms:ViaService": f"sqs.{REGION}.amazonaws.com"}},
        ),
    ]
