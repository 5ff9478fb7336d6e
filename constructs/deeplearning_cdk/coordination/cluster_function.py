"""Lambda functions of a cluster, each with its log group, role and dead letters."""

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import Duration
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from deeplearning_cdk.coordination.coordination import Coordination
from deeplearning_cdk.coordination.messages import make_log_group
from deeplearning_cdk.security.acknowledged_rules import acknowledge
from deeplearning_cdk.security.encryption import ClusterEncryption
from deeplearning_cdk.security.node_roles import attach_rights


class ClusterFunction(Construct):
    """
    Base of the constructs that run a Lambda function of the cluster.

    Events that the function fails to process go to the cluster's dead-letter queue. Lambda sends them with the
    function's role, so `statements` must allow `sqs:SendMessage` to that queue, and the use of its key.

    Attributes:
        function: The function.
        role: Role of the function.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        archive: str,
        handler: str,
        description: str,
        role_description: str,
        statements: Sequence[iam.PolicyStatement],
        coordination: Coordination,
        encryption: ClusterEncryption,
        timeout: Duration,
        memory_mib: int,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        log_group = make_log_group(self, "Log", key=encryption.log_key)
        log_events = iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:PutLogEvents"], resources=[log_group.log_group_arn]
        )
        self.role = iam.Role(
            self, "Role", assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"), description=role_description
        )
        attach_rights(self.role, [log_events, *statements])
        self.function = lambda_.Function(
            self,
            "Function",
            runtime=lambda_.Runtime.PYTHON_3_14,
            handler=handler,
            code=lambda_.Code.from_asset(archive),
            role=self.role,
            environment=environment,
            environment_encryption=encryption.key if environment else None,
            timeout=timeout,
            memory_size=memory_mib,
            log_group=log_group,
            description=description,
        )
        # With the CDK's own prop, the permission to send would be in an inline policy.
        resource = cast("lambda_.CfnFunction", self.function.node.default_child)
        resource.dead_letter_config = lambda_.CfnFunction.DeadLetterConfigProperty(
            target_arn=coordination.dead_letters.queue_arn
        )
        acknowledge(resource, "function-concurrency", "function-outside-vpc")
