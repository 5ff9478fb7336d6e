"""Boundaries, paths and policies of an organization in a deployed account: whom they refuse, and in whose name."""

import json

import aws_cdk as cdk
import jsii
import pytest
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from botocore.exceptions import ClientError

ACCOUNT = "123456789012"
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/corp/boundary"


def write(*statements):
    """Return the text of a policy."""
    return json.dumps({"Version": "2012-10-17", "Statement": list(statements)})


def allow(*actions, **rest):
    return {"Effect": "Allow", "Action": list(actions), "Resource": "*", **rest}


def deny(*actions, **rest):
    return {**allow(*actions, **rest), "Effect": "Deny"}


@jsii.implements(cdk.IAspect)
class _Paths:
    """Puts roles below a path, as companies do."""

    def visit(self, node):
        if isinstance(node, iam.CfnRole):
            node.path = "/corp/team/"


@pytest.fixture
def synthesize(tmp_path):
    """Return the function that synthesizes an app, to which a function adds stacks."""

    def make(add, **context):
        app = cdk.App(outdir=str(tmp_path / "cdk.out"), context=context)
        add(app)
        app.synth()
        return tmp_path / "cdk.out"

    return make


def add_node(app):
    """Add a role of nodes, with rights to a queue and a bucket that has a policy of its own."""
    stack = cdk.Stack(app, "sample")
    role = iam.Role(stack, "Node", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"), role_name="node")
    queue = sqs.Queue(stack, "Queue", queue_name="queue")
    queue.grant_send_messages(role)
    queue.grant_consume_messages(role)
    bucket = s3.Bucket(stack, "Bucket", bucket_name="the-bucket")
    bucket.add_to_resource_policy(
        iam.PolicyStatement(actions=["s3:GetObject"], principals=[role], resources=[bucket.arn_for_objects("*")])
    )
    cdk.Aspects.of(app).add(_Paths())


def sign_in(cloud, role):
    """Return the function that makes clients of a role."""
    credentials = cloud.command("mint", role=role)
    return lambda service: cloud.client(service, credentials)


def refusal(call, **arguments):
    """Return the message with which AWS refuses a call; empty when it does not."""
    try:
        call(**arguments)
    except ClientError as error:
        return error.response["Error"]["Message"]
    return ""


CONTEXT = {"@aws-cdk/core:permissionsBoundary": {"name": "corp/boundary"}}
LAUNCH_TEMPLATES = {"@aws-cdk/aws-autoscaling:generateLaunchTemplateInsteadOfLaunchConfig": True}


def test_a_boundary_and_a_service_control_policy_refuse_a_node_each_in_its_name(synthesize, start_cloud):
    guard = deny("sqs:ReceiveMessage", Condition={"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/corp/*"}})
    cloud = start_cloud(
        policies={
            "account": {"corp/boundary": write(allow("sqs:*"))},
            "organization": {"full.json": write(allow("*")), "guard.json": write(guard)},
        }
    )
    cloud.deploy(synthesize(add_node, **CONTEXT))
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    client = sign_in(cloud, f"arn:aws:iam::{ACCOUNT}:role/corp/team/node")
    url = cloud.client("sqs").get_queue_url(QueueName="queue")["QueueUrl"]
    assert refusal(client("sqs").send_message, QueueUrl=url, MessageBody="x") == ""
    user = f"User: arn:aws:sts::{ACCOUNT}:assumed-role/node/someone is not authorized to perform"
    queue = f"on resource: arn:aws:sqs:us-east-1:{ACCOUNT}:queue"
    assert refusal(client("sqs").receive_message, QueueUrl=url) == (
        f"{user}: sqs:ReceiveMessage {queue} with an explicit deny in a service control policy: guard.json"
    )
    # The policy of the bucket names the role, and not its session.
    assert refusal(client("s3").get_object, Bucket="the-bucket", Key="x") == (
        f"{user}: s3:GetObject on resource: arn:aws:s3:::the-bucket/x "
        f"because no permissions boundary allows the s3:GetObject action: {BOUNDARY}"
    )


def test_a_role_whose_boundary_the_account_lacks_is_refused_in_the_words_of_iam(synthesize, start_cloud):
    """Words: openshift/rosa, `create operator-roles --permissions-boundary` with a policy that is not there."""
    cloud = start_cloud()
    cloud.deploy(synthesize(add_node, **CONTEXT))
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert outcome["reason"] == (
        "An error occurred (NoSuchEntity) when calling the CreateRole operation: "
        f"Scope ARN: {BOUNDARY} does not exist or is not attachable."
    )


ONLY_WITH_BOUNDARY = deny("iam:CreateRole", Condition={"StringNotEquals": {"iam:PermissionsBoundary": BOUNDARY}})


def add_group(app):
    """Add a group of instances of a type that companies forbid."""
    stack = cdk.Stack(app, "sample")
    vpc = ec2.Vpc(stack, "Vpc", max_azs=1, nat_gateways=0)
    autoscaling.AutoScalingGroup(
        stack,
        "Group",
        vpc=vpc,
        vpc_subnets=ec2.SubnetSelection(subnet_type=ec2.SubnetType.PUBLIC),
        instance_type=ec2.InstanceType("p4d.24xlarge"),
        machine_image=ec2.MachineImage.latest_amazon_linux2023(),
    )


def add_network(app):
    """Add a network without roles."""
    ec2.CfnVPC(cdk.Stack(app, "sample"), "Vpc", cidr_block="10.0.0.0/16")


DEPLOYER = (
    f"User: arn:aws:sts::{ACCOUNT}:assumed-role/cdk-hnb659fds-cfn-exec-role-{ACCOUNT}-us-east-1/AWSCloudFormation"
)


@pytest.mark.parametrize(
    ("add", "policies", "cause"),
    [
        (
            add_group,
            {
                "organization": {
                    "types.json": write(
                        deny("ec2:RunInstances", Condition={"StringNotLike": {"ec2:InstanceType": ["t3.*", "m5.*"]}})
                        | {"Resource": "arn:aws:ec2:*:*:instance/*"}
                    )
                }
            },
            "ec2:us-east-1:123456789012:instance/* with an explicit deny in a service control policy: types.json",
        ),
        (
            add_node,
            {"organization": {"roles.json": write(ONLY_WITH_BOUNDARY)}},
            f"iam::{ACCOUNT}:role/corp/team/node with an explicit deny in a service control policy: roles.json",
        ),
        (
            add_group,
            {
                "organization": {
                    "tokens.json": write(
                        deny("ec2:RunInstances", Condition={"StringNotEquals": {"ec2:MetadataHttpTokens": "required"}})
                        | {"Resource": "arn:aws:ec2:*:*:instance/*"}
                    )
                }
            },
            "with an explicit deny in a service control policy: tokens.json",
        ),
        (
            add_network,
            {"deployment_boundary": ["deploy.json", write(allow("sqs:*"))]},
            "because no permissions boundary allows the ec2:CreateVpc action: deploy.json",
        ),
        (
            add_network,
            {
                "organization": {
                    "region.json": write(
                        deny("ec2:*", Condition={"StringNotEquals": {"aws:RequestedRegion": "eu-central-1"}})
                    )
                }
            },
            "with an explicit deny in a service control policy: region.json",
        ),
        (
            add_network,
            {"organization": {"tags.json": write(deny("ec2:*", Condition={"Null": {"aws:RequestTag/team": "true"}}))}},
            "with an explicit deny in a service control policy: tags.json",
        ),
        (
            add_network,
            {
                "organization": {
                    "tenancy.json": write(
                        deny("ec2:CreateVpc", Condition={"StringEquals": {"ec2:Tenancy": "dedicated"}})
                    )
                }
            },
            "tenancy.json must not decide ec2:CreateVpc by ec2:tenancy, which is not known here",
        ),
    ],
)
def test_cloudformation_is_refused_what_the_policies_do_not_leave_it(synthesize, start_cloud, add, policies, cause):
    cloud = start_cloud(policies=policies)
    cloud.deploy(synthesize(add, **LAUNCH_TEMPLATES))
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert cause in outcome["reason"]
    assert DEPLOYER in outcome["reason"] or "must not decide" in outcome["reason"]


def test_a_deployment_within_the_policies_is_complete(synthesize, start_cloud):
    """The commonest rule: roles only with the company's boundary, which the deploying role itself must not change."""
    given = allow(
        "iam:CreateRole", "iam:PutRolePolicy", Condition={"StringEquals": {"iam:PermissionsBoundary": BOUNDARY}}
    )
    cloud = start_cloud(
        policies={
            "account": {"corp/boundary": write(allow("*"))},
            "organization": {
                "roles.json": write(ONLY_WITH_BOUNDARY),
                # AWS Organizations user guide, "Service control policy examples": credentials of instances.
                "instances.json": write(
                    deny("*", Condition={"NumericLessThan": {"ec2:RoleDelivery": "2.0"}}),
                    deny("s3:*") | {"Resource": ["arn:aws:s3:::company-logs", "arn:aws:s3:::company-logs/*"]},
                ),
            },
            "deployment_boundary": ["deploy.json", write(allow("sqs:*", "s3:*"), given)],
        }
    )
    cloud.deploy(synthesize(add_node, **CONTEXT))
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
