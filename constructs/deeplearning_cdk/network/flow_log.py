"""The flow log of a cluster's own VPC: who spoke with whom, and what was refused."""

from aws_cdk import Fn
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deeplearning_cdk.operations.log_groups import make_log_group


class FlowLog(Construct):
    """
    Records all traffic of a VPC, accepted and refused, in a log group that outlives the stack.

    Traffic of EFA among nodes passes the operating system and is not recorded (VPC user guide, flow log limitations).

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        vpc: The VPC.
        log_key: Encrypts the log group. Default: CloudWatch's own key.

    Attributes:
        log_group: Where the records go.
    """

    def __init__(self, scope: Construct, construct_id: str, *, vpc: ec2.IVpc, log_key: kms.IKey | None = None) -> None:
        super().__init__(scope, construct_id)
        self.log_group = make_log_group(self, "Log", key=log_key)
        role = self._make_role()
        # The group is there already, so the role need not make groups; the ARN covers the group's streams.
        writing = iam.PolicyStatement(
            actions=["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
            resources=[self.log_group.log_group_arn],
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
            log_group_name=self.log_group.log_group_name,
            deliver_logs_permission_arn=role.role_arn,
        )
        log.node.add_dependency(policy)

    def _make_role(self) -> iam.Role:
        # The service could otherwise be made to write for another account (VPC user guide, IAM role for flow logs).
        logs_of_ours = Fn.sub("arn:${AWS::Partition}:ec2:${AWS::Region}:${AWS::AccountId}:vpc-flow-log/*")
        conditions = {
            "StringEquals": {"aws:SourceAccount": Fn.ref("AWS::AccountId")},
            "ArnLike": {"aws:SourceArn": logs_of_ours},
        }
        return iam.Role(
            self,
            "Role",
            description="Writes the flow log of a deep-learning cluster's VPC",
            assumed_by=iam.ServicePrincipal("vpc-flow-logs.amazonaws.com", conditions=conditions),
        )
