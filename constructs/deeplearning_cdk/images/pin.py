"""The pinned image: what its parameter names at the stack's creation, until the user asks for the current one."""

from aws_cdk import Aws, CustomResource, Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.creation_order import prune_dependencies
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.nodes.payload import pack_image_pin
from deeplearning_cdk.operations.dead_letters import keep_dead_letters
from deeplearning_cdk.operations.log_groups import make_log_group
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_cdk.security.encryption import ClusterEncryption
from deeplearning_cdk.security.node_roles import attach_rights

_ANSWER_TIME = Duration.minutes(5)
"""CloudFormation's own patience is an hour."""
_FUNCTION_TIME = Duration.minutes(3)
"""The function tries again for a minute while it is denied, and then has to answer."""


class PinnedImage(Construct):
    """
    The image that an SSM parameter names, read when the stack is created and when the release changes.

    A parameter of the template would be read at each deployment, and nodes launched later would differ from those that
    run. The function behind this resource remembers which image belongs to which release, so that neither an update of
    another property nor a rollback changes the image.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        parameter: Full name of the parameter.
        release: Another text than before reads the parameter again.
        coordination: Whose dead letters take an event that the function could not handle.
        encryption: The cluster's key.

    Attributes:
        image_id: The id of the AMI, a token.
        function: The function that reads the parameter.
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
        super().__init__(scope, construct_id)
        log_group = make_log_group(self, "Log", key=encryption.log_key)
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description="Reads which image the nodes of a deep-learning cluster start from",
        )
        rights = attach_rights(role, self._make_rights(parameter, log_group, coordination, encryption))
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_14,
            handler="image_pin.handler.handle",
            code=lambda_.Code.from_asset(pack_image_pin().path),
            role=role,
            timeout=_FUNCTION_TIME,
            memory_size=128,
            log_group=log_group,
            description="Reads which image the nodes of a deep-learning cluster start from",
        )
        keep_dead_letters(self.function, coordination.dead_letters)
        prune_dependencies(self.function)
        acknowledge(self.function, "function-concurrency")
        acknowledge(self.function, "function-outside-vpc")
        self.function.node.add_dependency(rights)
        image = CustomResource(
            self,
            "Image",
            resource_type="Custom::PinnedImage",
            service_token=self.function.function_arn,
            service_timeout=_ANSWER_TIME,
            # There is nothing to delete, so that a deletion need not wait for the function's answer.
            removal_policy=RemovalPolicy.RETAIN,
            properties={"Parameter": parameter, "Release": release},
        )
        self.image_id = image.get_att_string("ImageId")

    def _make_rights(
        self, parameter: str, log_group: logs.ILogGroup, coordination: Coordination, encryption: ClusterEncryption
    ) -> list[iam.PolicyStatement]:
        # Public parameters belong to no account (images/test_pin.py names the sources).
        account = "" if parameter.startswith("/aws/service/") else Aws.ACCOUNT_ID
        name = f"parameter/{parameter.removeprefix('/')}"
        return [
            iam.PolicyStatement(
                actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
            ),
            iam.PolicyStatement(
                actions=["ssm:GetParameter"],
                resources=[f"arn:{Aws.PARTITION}:ssm:{Aws.REGION}:{account}:{name}"],
            ),
            # Lambda itself sends there, as the function's role.
            iam.PolicyStatement(actions=["sqs:SendMessage"], resources=[coordination.dead_letters.queue_arn]),
            iam.PolicyStatement(
                actions=["kms:Decrypt", "kms:GenerateDataKey"],
                resources=[encryption.key.key_arn],
                conditions={"StringEquals": {"kms:ViaService": f"sqs.{Aws.REGION}.amazonaws.com"}},
            ),
        ]


def pin_image(
    scope: Construct, image: NodeImage, release: str, coordination: Coordination, encryption: ClusterEncryption
) -> str:
    """
    Return the id of an image that stays what it is when the stack is deployed again.

    Args:
        scope: The cluster.
        image: The image; one that is given by its id needs no pin.
        release: Another text than before reads the image's parameter again.
        coordination: Whose dead letters take an event that the function could not handle.
        encryption: The cluster's key.
    """
    if not image.parameter:
        return image.read_ami_id(scope)
    pin = PinnedImage(
        scope, "Image", parameter=image.parameter, release=release, coordination=coordination, encryption=encryption
    )
    return pin.image_id
