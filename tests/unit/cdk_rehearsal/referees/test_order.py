"""Dependencies that a template must state itself, taken away one at a time."""

import copy

import pytest

from cdk_rehearsal.referees.order import find_usual_order, judge_order
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate
from tests.unit.cdk_rehearsal.referees.test_referees import judge


def make(kind, *waits_for, **properties):
    """Return a resource; a text with a leading @ refers to another."""
    resolved = {key: {"Ref": value[1:]} if str(value).startswith("@") else value for key, value in properties.items()}
    return {"Type": kind, "Properties": resolved, **({"DependsOn": list(waits_for)} if waits_for else {})}


ORDERED = {
    "Vpc": make("AWS::EC2::VPC", CidrBlock="10.0.0.0/16"),
    "Gateway": make("AWS::EC2::InternetGateway"),
    "Attachment": make("AWS::EC2::VPCGatewayAttachment", VpcId="@Vpc", InternetGatewayId="@Gateway"),
    "Subnet": make("AWS::EC2::Subnet", VpcId="@Vpc", CidrBlock="10.0.0.0/24"),
    "Inner": make("AWS::EC2::Subnet", VpcId="@Vpc", CidrBlock="10.0.1.0/24"),
    "Table": make("AWS::EC2::RouteTable", VpcId="@Vpc"),
    "Way": make("AWS::EC2::SubnetRouteTableAssociation", RouteTableId="@Table", SubnetId="@Subnet"),
    "Out": make(
        "AWS::EC2::Route", "Attachment", RouteTableId="@Table", DestinationCidrBlock="0.0.0.0/0", GatewayId="@Gateway"
    ),
    "Nat": make("AWS::EC2::NatGateway", "Out", "Way", SubnetId="@Subnet", AllocationId="eipalloc-1"),
    "InnerTable": make("AWS::EC2::RouteTable", VpcId="@Vpc"),
    "InnerWay": make("AWS::EC2::SubnetRouteTableAssociation", RouteTableId="@InnerTable", SubnetId="@Inner"),
    "InnerOut": make(
        "AWS::EC2::Route", RouteTableId="@InnerTable", DestinationCidrBlock="0.0.0.0/0", NatGatewayId="@Nat"
    ),
    "Nodes": make("AWS::EC2::LaunchTemplate", LaunchTemplateData={"UserData": {"Fn::Sub": "signal ${Handle}"}}),
    "Group": make(
        "AWS::AutoScaling::AutoScalingGroup",
        "InnerOut",
        "InnerWay",
        VPCZoneIdentifier=[{"Ref": "Inner"}],
        LaunchTemplate={"LaunchTemplateId": {"Ref": "Nodes"}},
    ),
    "Handle": make("AWS::CloudFormation::WaitConditionHandle"),
    "Formed": make("AWS::CloudFormation::WaitCondition", Handle="@Handle", Timeout="60"),
    "Role": make("AWS::IAM::Role"),
    "Policy": make("AWS::IAM::Policy", PolicyName="p", Roles=[{"Ref": "Role"}]),
    "Function": make("AWS::Lambda::Function", "Policy", Role={"Fn::GetAtt": ["Role", "Arn"]}),
    "Flows": make("AWS::EC2::FlowLog", "Policy", DeliverLogsPermissionArn={"Fn::GetAtt": ["Role", "Arn"]}),
    "Server": make("AWS::EC2::Instance", SubnetId="@Subnet"),
    "Address": make("AWS::EC2::EIP", "Attachment", InstanceId="@Server"),
    "Bound": make("AWS::EC2::EIPAssociation", "Attachment", InstanceId="@Server", AllocationId="eipalloc-1"),
}


def test_a_flow_log_waits_for_its_policy_in_the_usual_order_and_is_no_race():
    """AWS delivers minutes after the creation, the rehearsal at once."""
    resources = copy.deepcopy(ORDERED)
    resources["Flows"]["DependsOn"].remove("Policy")
    assert list(judge_order(ResolvedTemplate({"Resources": resources}, "us-east-1"))) == []
    assert find_usual_order({"Resources": resources}, "us-east-1") == {"Flows": {"Policy"}}


def test_finds_nothing_where_each_resource_waits():
    assert list(judge_order(ResolvedTemplate({"Resources": ORDERED}, "us-east-1"))) == []


@pytest.mark.parametrize(
    ("name", "forgotten"),
    [
        ("Out", "Attachment"),
        ("Nat", "Out"),
        ("Group", "InnerOut"),
        ("Group", "InnerWay"),
        ("Function", "Policy"),
        ("Address", "Attachment"),
        ("Bound", "Attachment"),
    ],
)
def test_names_what_a_resource_does_not_wait_for(name, forgotten):
    resources = copy.deepcopy(ORDERED)
    resources[name]["DependsOn"].remove(forgotten)
    found = [str(finding) for finding in judge_order(ResolvedTemplate({"Resources": resources}, "us-east-1"))]
    missed = "Attachment" if forgotten == "Out" else forgotten
    assert any(f"Resources.{name}.DependsOn: must wait for {missed}, because" in finding for finding in found), found


def test_a_nat_gateway_waits_for_the_gateway_of_its_own_vpc_and_a_private_one_for_none():
    resources = copy.deepcopy(ORDERED)
    resources |= {
        "Other": make("AWS::EC2::VPC", CidrBlock="10.1.0.0/16"),
        "OtherGateway": make("AWS::EC2::InternetGateway"),
        "OtherAttachment": make("AWS::EC2::VPCGatewayAttachment", VpcId="@Other", InternetGatewayId="@OtherGateway"),
        "Private": make("AWS::EC2::NatGateway", SubnetId="@Subnet", ConnectivityType="private"),
    }
    assert list(judge_order(ResolvedTemplate({"Resources": resources}, "us-east-1"))) == []


def test_a_group_that_nothing_waits_for_may_lack_a_network_at_first():
    resources = copy.deepcopy(ORDERED)
    del resources["Group"]["DependsOn"], resources["Nodes"]["Properties"]["LaunchTemplateData"]
    assert list(judge_order(ResolvedTemplate({"Resources": resources}, "us-east-1"))) == []
    resources["Group"]["CreationPolicy"] = {"ResourceSignal": {"Count": 1}}
    assert [
        each.rule.partition(", because")[0]
        for each in judge_order(ResolvedTemplate({"Resources": resources}, "us-east-1"))
    ] == ["must wait for InnerOut, InnerWay"]


def test_names_the_resources_of_a_circle():
    rule = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    first, second = (
        make(
            "AWS::EC2::SecurityGroup",
            GroupDescription="nodes",
            SecurityGroupIngress=[rule | {"SourceSecurityGroupId": {"Fn::GetAtt": [other, "GroupId"]}}],
        )
        for other in ("Second", "First")
    )
    found = judge({"First": first, "Second": second})
    assert any("Circular Dependencies" in finding and "Second" in finding for finding in found), found


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("is_called", [True, False])
def test_a_function_that_custom_resources_alone_call_waits_as_they_do(*, waits, is_called):
    """The CDK's AwsCustomResource waits for its policy itself, and its function does not."""
    resources = {
        "Role": make("AWS::IAM::Role"),
        "Policy": make("AWS::IAM::Policy", Roles=[{"Ref": "Role"}]),
        "Function": make("AWS::Lambda::Function", Role="@Role"),
        "Request": make("Custom::AWS", ServiceToken="@Function") | ({"DependsOn": ["Policy"]} if waits else {}),
    }
    if is_called:
        resources["Permission"] = make("AWS::Lambda::Permission", FunctionName="@Function")
    found = list(judge_order(ResolvedTemplate({"Resources": resources}, "us-east-1")))
    assert len(found) == (0 if waits and not is_called else 1)
