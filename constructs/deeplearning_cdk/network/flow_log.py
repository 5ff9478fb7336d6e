"""Flow log of a cluster's own VPC."""

from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deeplearning_cdk.coordination.messages import make_log_group


class FlowLog(Construct):
    """
    Flow log of all traffic of a VPC, accepted and rejected, in a log group that outlives the stack.

    EFA traffic among nodes bypasses the operating system and is not recorded (VPC user guide, flow log limitations).
    The resource is an L1: the CDK's `ec2.FlowLog` adds an inline policy to the role, and a Name tag (2.275.0).
    """

    def __init__(self, scope: Construct, construct_id: str, *, vpc: ec2.IVpc, log_key: kms.IKey | None = None) -> None:
        super().__init__(scope, construct_id)
        log_group = make_log_group(self, "Log", key=log_key)
        role = self._make_role()
        # The group exists already, so the role need not create groups; the ARN covers the group's streams.
        writing = iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[log_group.log_group_arn],
        )
        document = iam.PolicyDocument(statements=[writing], minimize=True)
        policy = iam.ManagedPolicy(self, "Policy", roles=[role], document=document)
        log = ec2.CfnFlowLog(
            self,
            "FlowLog",
            resource_type="VPC",
            resource_id=vpc.vpc_id,
            traffic_type="ALL",
            log_destination_type="cloud-watch-logs",
            log_group_name=log_group.log_group_name,
            deliver_logs_permission_arn=role.role_arn,
        )
        log.node.add_dependency(policy)

    def _make_role(self) -> iam.Role:
        # Without these, the service could write on behalf of another account (VPC user guide, IAM role for flow logs).
        own_logs = Fn.sub("arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:vpc-flow-log/*")
        conditions = {
            "StringEquals": {"aws:SourceAccount": Fn.ref("AWS::AccountId")},
            "ArnLike": {"aws:SourceArn": own_logs},
        }
        return iam.Role(
            self,
            "Role",
            description="Writes the flow log of a deep-learning cluster's VPC",
            assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com", conditions=conditions),
        )
