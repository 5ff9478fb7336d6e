"""
Deleting a stack, and what somebody else put into its network.

GuardDuty's Runtime Monitoring puts an endpoint and a security group into VPCs with instances (GuardDuty user guide,
"How Runtime Monitoring works with Amazon EC2"); they hold subnet and VPC (hashicorp/terraform-provider-aws#46747).
"""

import json

import pytest
from botocore.exceptions import ClientError

MANAGED = [{"Key": "GuardDutyManaged", "Value": "true"}]
ROUTED = {"VpcId": {"Ref": "Vpc"}, "RouteTableIds": [{"Ref": "RouteTable"}]}
WITHIN = {"VpcId": {"Ref": "Vpc"}, "SubnetIds": [{"Ref": "Subnet"}], "VpcEndpointType": "Interface"}
REGION = "com.amazonaws.us-east-1"
NETWORK = {
    "RouteTable": ("RouteTable", {"VpcId": {"Ref": "Vpc"}}),
    "Association": (
        "SubnetRouteTableAssociation",
        {"RouteTableId": {"Ref": "RouteTable"}, "SubnetId": {"Ref": "Subnet"}},
    ),
    "Gateway": ("InternetGateway", {}),
    "Attachment": ("VPCGatewayAttachment", {"VpcId": {"Ref": "Vpc"}, "InternetGatewayId": {"Ref": "Gateway"}}),
    "Address": ("EIP", {"Domain": "vpc"}),
    "Nat": (
        "NatGateway",
        {"AllocationId": {"Fn::GetAtt": ["Address", "AllocationId"]}, "SubnetId": {"Ref": "Subnet"}},
    ),
    "Storage": ("VPCEndpoint", {"ServiceName": f"{REGION}.s3", "VpcEndpointType": "Gateway", **ROUTED}),
    "Queues": ("VPCEndpoint", {"ServiceName": f"{REGION}.sqs", **WITHIN}),
}
"""Resources of a cluster in its own network, in addition to the sample's."""


@pytest.fixture
def deploy(deploy_template, sample_template):
    """Return a function that deploys the sample with all that a network may have, beside its wait condition."""

    def start():
        resources = sample_template["Resources"]
        resources |= {name: {"Type": f"AWS::EC2::{kind}", "Properties": had} for name, (kind, had) in NETWORK.items()}
        resources["Nat"]["DependsOn"] = "Attachment"
        resources["Kept"] = {"Type": "AWS::Logs::LogGroup", "DeletionPolicy": "RetainExceptOnCreate", "Properties": {}}
        resources["Formation"]["DependsOn"] = [name for name in resources if name != "Formation"]
        return deploy_template(sample_template)

    return start


def add_guard(cloud):
    """Put into the network what GuardDuty does; return the endpoint and the group."""
    ec2 = cloud.client("ec2")
    vpc = cloud.physical_id("Vpc")
    group = ec2.create_security_group(
        GroupName=f"GuardDutyManagedSecurityGroup-{vpc}",
        Description="of somebody else",
        VpcId=vpc,
        TagSpecifications=[{"ResourceType": "security-group", "Tags": MANAGED}],
    )["GroupId"]
    endpoint = ec2.create_vpc_endpoint(
        VpcId=vpc,
        VpcEndpointType="Interface",
        ServiceName=f"{REGION}.guardduty-data",
        SubnetIds=[cloud.physical_id("Subnet")],
        SecurityGroupIds=[group],
        TagSpecifications=[{"ResourceType": "vpc-endpoint", "Tags": MANAGED}],
    )["VpcEndpoint"]["VpcEndpointId"]
    return endpoint, group


def await_condition(cloud):
    """Wait until all is created but the wait condition, which depends on everything else."""
    cloud.observation("Formation CREATE_IN_PROGRESS")


def form(cloud):
    """Let the stack become complete."""
    await_condition(cloud)
    cloud.complete()


def delete(cloud):
    """Delete the stack and return its status, why, and what could not be deleted with the reason."""
    cloud.client("cloudformation").delete_stack(StackName="sample")
    outcome = cloud.end()
    left = {row["logical_id"]: row["reason"] for row in outcome["resources"] if row["status"] == "DELETE_FAILED"}
    return outcome["status"], outcome["reason"], left


def list_networks(cloud, vpc):
    ec2 = cloud.client("ec2")
    here = [{"Name": "vpc-id", "Values": [vpc]}]
    return len(ec2.describe_vpcs(Filters=here)["Vpcs"]), len(ec2.describe_subnets(Filters=here)["Subnets"])


@pytest.mark.fault(66)
def test_a_deleted_stack_leaves_what_is_retained_and_no_network(deploy):
    cloud = deploy()
    form(cloud)
    vpc, kept = cloud.physical_id("Vpc"), cloud.physical_id("Kept")
    cloudformation = cloud.client("cloudformation")
    arn = cloudformation.describe_stacks(StackName="sample")["Stacks"][0]["StackId"]
    assert delete(cloud) == ("DELETE_COMPLETE", "", {})

    assert list_networks(cloud, vpc) == (0, 0)
    assert [group["logGroupName"] for group in cloud.client("logs").describe_log_groups()["logGroups"]] == [kept]
    with pytest.raises(ClientError, match="Stack with id sample does not exist"):
        cloudformation.describe_stacks(StackName="sample")
    assert cloudformation.describe_stacks(StackName=arn)["Stacks"][0]["StackStatus"] == "DELETE_COMPLETE"


def test_an_endpoint_and_a_group_of_somebody_else_keep_subnet_and_vpc_until_they_are_deleted(deploy):
    cloud = deploy()
    form(cloud)
    ec2, vpc, subnet = cloud.client("ec2"), cloud.physical_id("Vpc"), cloud.physical_id("Subnet")
    endpoint, group = add_guard(cloud)

    status, reason, left = delete(cloud)
    assert (status, reason) == ("DELETE_FAILED", "The following resource(s) failed to delete: [Subnet].")
    assert left.keys() == {"Subnet"}
    assert f"The subnet '{subnet}' has dependencies and cannot be deleted." in left["Subnet"]
    assert list_networks(cloud, vpc) == (1, 1)
    events = cloud.client("cloudformation").describe_stack_events(StackName="sample")["StackEvents"]
    assert left["Subnet"] in [entry.get("ResourceStatusReason") for entry in events]

    ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint])
    status, reason, left = delete(cloud)
    assert (status, left.keys()) == ("DELETE_FAILED", {"Vpc"})
    assert f"The vpc '{vpc}' has dependencies and cannot be deleted." in left["Vpc"]
    assert list_networks(cloud, vpc) == (1, 0)

    ec2.delete_security_group(GroupId=group)
    assert delete(cloud) == ("DELETE_COMPLETE", "", {})
    assert list_networks(cloud, vpc) == (0, 0)


@pytest.mark.fault(65)
def test_a_rollback_that_a_foreign_endpoint_blocks_has_failed_and_a_deletion_ends_it(deploy):
    cloud = deploy()
    await_condition(cloud)
    vpc = cloud.physical_id("Vpc")
    endpoint, group = add_guard(cloud)
    body = {"Status": "FAILURE", "Reason": "too few workers", "UniqueId": "sample", "Data": ""}
    assert cloud.put_signal(cloud.physical_id("Handle"), json.dumps(body).encode()) == 200
    outcome = cloud.end()

    left = {row["logical_id"] for row in outcome["resources"] if row["status"] == "DELETE_FAILED"}
    assert (outcome["status"], left) == ("ROLLBACK_FAILED", {"Subnet"})
    assert outcome["reason"] == "WaitCondition received failed message: 'too few workers' for uniqueId: sample"
    assert list_networks(cloud, vpc) == (1, 1)
    cloud.client("ec2").delete_vpc_endpoints(VpcEndpointIds=[endpoint])
    cloud.client("ec2").delete_security_group(GroupId=group)
    assert delete(cloud) == ("DELETE_COMPLETE", "", {})


def test_a_custom_resource_whose_function_fails_the_deletion_stays_with_its_reason(deploy, sample_template):
    """
    The user guide: "To successfully delete a stack with a custom resource, the custom resource provider must respond
    successfully to a delete request." (docs.aws.amazon.com, crpg-ref-requesttypes-delete)
    """
    resources = sample_template["Resources"]
    provider = resources["Function"]["Properties"] | {"Handler": "custom_resource.handle"}
    resources["Provider"] = {"Type": "AWS::Lambda::Function", "Properties": provider}
    token = {"Fn::GetAtt": ["Provider", "Arn"]}
    resources["Thing"] = {"Type": "Custom::Thing", "Properties": {"ServiceToken": token}}
    cloud = deploy()
    form(cloud)
    status, reason, left = delete(cloud)
    assert (status, reason) == ("DELETE_FAILED", "The following resource(s) failed to delete: [Thing].")
    said = "Received response status [FAILED] from custom resource. Message returned: still in use"
    assert left == {"Thing": said}


RULE = {"Type": "AWS::Events::Rule", "Properties": {"Name": "quiet", "ScheduleExpression": "rate(1 day)"}}


def test_a_rule_without_targets_is_deleted_with_its_stack(deploy_template):
    cloud = deploy_template({"Resources": {"Rule": RULE}})
    assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert delete(cloud) == ("DELETE_COMPLETE", "", {})
    assert cloud.client("events").list_rules()["Rules"] == []
