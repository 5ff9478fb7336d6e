"""
Policies of VPC endpoints decide the calls that go through them, beside those of the caller.

Sources: AWS PrivateLink guide, "Control access to VPC endpoints using endpoint policies" and "Gateway endpoints". The
words are those of the IAM user guide, "Troubleshoot access denied error messages".
"""

import pytest
from botocore.exceptions import ClientError

CALLER = "User: arn:aws:sts::123456789012:assumed-role/"
ASSETS = "cdk-hnb659fds-assets-123456789012-us-east-1"
OWN = {"StringEquals": {"aws:PrincipalAccount": {"Ref": "AWS::AccountId"}}}
EVERYTHING = {"Effect": "Allow", "Principal": "*", "Action": "*", "Resource": "*"}
NO_ZIPS = {**EVERYTHING, "Effect": "Deny", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::*.zip"}


def gateway(*statements, **properties):
    """Return a gateway endpoint of S3 on the nodes' route table."""
    policy = {"PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)}} if statements else {}
    service = {"Fn::Sub": "com.amazonaws.${AWS::Region}.s3"}
    routes = {"RouteTableIds": [{"Ref": "Routes"}]}
    return (
        {"ServiceName": service, "VpcId": {"Ref": "Vpc"}, "VpcEndpointType": "Gateway"} | routes | policy | properties
    )


def interface(service, *statements, private=True):
    """Return an interface endpoint in the nodes' VPC."""
    return {
        "ServiceName": {"Fn::Sub": f"com.amazonaws.${{AWS::Region}}.{service}"},
        "VpcId": {"Ref": "Vpc"},
        "VpcEndpointType": "Interface",
        "SubnetIds": [{"Ref": "Subnet"}],
        "PrivateDnsEnabled": private,
        "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)},
    }


@pytest.fixture
def refusal(deploy_template, sample_template):
    """Return a function that deploys the sample with endpoints, and returns how AWS refuses a worker's call."""

    def ask(*endpoints, service="s3", operation="get_object", **arguments):
        network = sample_template["Resources"]
        network["Routes"] = {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}}
        network["OtherRoutes"] = {"Type": "AWS::EC2::RouteTable", "Properties": {"VpcId": {"Ref": "Vpc"}}}
        network["RoutesOfNodes"] = {
            "Type": "AWS::EC2::SubnetRouteTableAssociation",
            "Properties": {"RouteTableId": {"Ref": "Routes"}, "SubnetId": {"Ref": "Subnet"}},
        }
        made = {f"Endpoint{number}": endpoint for number, endpoint in enumerate(endpoints)}
        network |= {name: {"Type": "AWS::EC2::VPCEndpoint", "Properties": made[name]} for name in made}
        for name in ("MasterGroup", "WorkerGroup"):
            network[name]["DependsOn"] += [*made, "RoutesOfNodes"]
        cloud = deploy_template(sample_template)
        worker = cloud.client(service, cloud.machine("worker"))
        given = arguments or {"Bucket": ASSETS, "Key": "sample-function.zip"}
        try:
            getattr(worker, operation)(**{k: v(cloud) if callable(v) else v for k, v in given.items()})
        except ClientError as error:
            return error.response["Error"]["Message"]
        return ""

    return ask


def test_an_endpoint_that_allows_other_actions_alone_keeps_nodes_from_their_zip(refusal):
    message = refusal(gateway({**EVERYTHING, "Action": ["s3:ListBucket", "s3:PutObject"]}))
    assert message.startswith(CALLER)
    assert message.endswith(
        f"is not authorized to perform: s3:GetObject on resource: arn:aws:s3:::{ASSETS}/sample-function.zip "
        "because no VPC endpoint policy allows the s3:GetObject action"
    )


def test_a_denial_of_an_endpoint_wins(refusal):
    assert refusal(gateway(EVERYTHING, NO_ZIPS)).endswith("with an explicit deny in a VPC endpoint policy")


def test_an_endpoint_for_other_buckets_alone_keeps_nodes_from_their_zip(refusal):
    elsewhere = {**EVERYTHING, "Resource": ["arn:aws:s3:::team-data", "arn:aws:s3:::team-data/*"]}
    assert refusal(gateway(elsewhere)).endswith("because no VPC endpoint policy allows the s3:GetObject action")


@pytest.mark.parametrize(
    "endpoint",
    [gateway(), gateway({**EVERYTHING, "Condition": OWN}), gateway({**EVERYTHING, "Principal": {"AWS": "*"}})],
    ids=["default", "account", "everybody"],
)
def test_an_endpoint_that_lets_a_call_through_refuses_nothing(refusal, endpoint):
    assert refusal(endpoint) == ""


def test_endpoints_that_a_call_does_not_pass_refuse_nothing(refusal):
    message = refusal(
        gateway(NO_ZIPS, RouteTableIds=[{"Ref": "OtherRoutes"}]),
        gateway(NO_ZIPS, ServiceName={"Fn::Sub": "com.amazonaws.${AWS::Region}.dynamodb"}),
        interface("sqs", NO_ZIPS),
        interface("s3", NO_ZIPS, private=False),
    )
    assert message == ""


def test_a_gateway_whose_policy_names_a_role_serves_nobody(refusal):
    """The guide of gateway endpoints: the principal must be `*`; `aws:PrincipalArn` names one."""
    named = {**EVERYTHING, "Principal": {"AWS": {"Fn::GetAtt": ["WorkerRole", "Arn"]}}}
    assert "Principal of a gateway endpoint's policy must be *" in refusal(gateway(named))


def send(refusal, *statements):
    url = {"QueueUrl": lambda cloud: cloud.client("sqs").get_queue_url(QueueName=name_queue(cloud))["QueueUrl"]}
    return refusal(interface("sqs", *statements), service="sqs", operation="send_message", MessageBody="x", **url)


def name_queue(cloud):
    return cloud.physical_id("Queue").rpartition("/")[2]


def test_an_interface_with_private_dns_decides_the_calls_of_its_vpc(refusal):
    message = send(refusal, {**EVERYTHING, "Action": "sqs:ReceiveMessage"})
    assert message.endswith("because no VPC endpoint policy allows the sqs:SendMessage action")


def test_an_interface_may_name_the_account(refusal):
    account = {"AWS": {"Fn::Sub": "arn:${AWS::Partition}:iam::${AWS::AccountId}:root"}}
    assert send(refusal, {**EVERYTHING, "Principal": account}) == ""
