"""Templates that the rehearsal refuses, and proof that its table of supported resources is true."""

import pytest

from cdk_rehearsal.embedded_aws.resources import CREATORS
from cdk_rehearsal.embedded_aws.resources.simple import Simple
from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.referees.resource_support import load_support, require_support


def find_gaps(template):
    """Return what is refused of a template."""
    with pytest.raises(UnsupportedError) as error:
        require_support(template)
    return error.value.findings


def test_has_a_creator_for_every_type_of_the_table_and_no_other():
    assert set(load_support()) == set(CREATORS)


@pytest.mark.parametrize("kind", sorted(load_support()))
def test_gives_a_reason_for_everything_that_has_no_effect(kind):
    support = load_support()[kind]
    assert all(len(reason.split()) >= 4 for reason in support.without_effect.values())
    assert not set(support.acts) & set(support.without_effect)


def test_types_of_a_single_call_have_no_property_without_effect():
    """`Simple` passes each property on."""
    rows = [kind for kind, creator in CREATORS.items() if isinstance(creator, Simple)]
    assert rows
    assert not any(load_support()[kind].without_effect for kind in rows)


def test_accepts_the_sample(sample_template):
    require_support(sample_template)


def test_lists_everything_that_it_lacks_at_once(sample_template):
    resources = sample_template["Resources"]
    resources["Bucket"] = {"Type": "AWS::ECR::Repository"}
    resources["Alien"] = {"Type": "AWS::Alien::Thing", "Properties": {"ServiceToken": "x"}}
    resources["Queue"]["Properties"]["RedriveAllowPolicy"] = {}
    resources["WorkerGroup"]["CreationPolicy"] = {"StartFleet": True}
    resources["WorkerTemplate"]["Properties"]["LaunchTemplateData"]["MetadataOptions"]["HttpProtocolIpv6"] = "enabled"
    resources["MasterTemplate"]["Properties"]["LaunchTemplateData"]["MetadataOptions"]["HttpTokens"] = "optional"
    sample_template["Transform"] = "AWS::LanguageExtensions"
    sample_template["Outputs"]["Arn"] = {"Value": {"Fn::GetAtt": ["Vpc", "Ipv6CidrBlocks"]}}
    sample_template["Outputs"]["Length"] = {"Value": {"Fn::Length": [1, 2]}}
    sample_template["Outputs"]["Nobody"] = {"Value": {"Ref": "Nobody"}}

    template = "AWS::EC2::LaunchTemplate property LaunchTemplateData.MetadataOptions"
    assert find_gaps(sample_template) == (
        "Alien: type AWS::Alien::Thing",
        "Bucket: type AWS::ECR::Repository",
        f"MasterTemplate: {template}.HttpTokens = 'optional' (only 'required')",
        "Queue: AWS::SQS::Queue property RedriveAllowPolicy",
        "Vpc: AWS::EC2::VPC attribute Fn::GetAtt Ipv6CidrBlocks",
        "WorkerGroup: AWS::AutoScaling::AutoScalingGroup attribute CreationPolicy StartFleet",
        f"WorkerTemplate: {template}.HttpProtocolIpv6",
        "function Fn::Length",
        "reference to Nobody, which the template does not define",
        "template section Transform",
    )


@pytest.mark.parametrize("kind", ["Custom::Thing", "AWS::CloudFormation::CustomResource"])
def test_a_custom_resource_of_any_name_has_the_properties_and_attributes_that_its_function_gives_it(kind):
    resources = {"Thing": {"Type": kind, "Properties": {"ServiceToken": "x", "Any": {"Nested": [1]}}}}
    require_support({"Resources": resources, "Outputs": {"Any": {"Value": {"Fn::GetAtt": ["Thing", "Some"]}}}})


def test_looks_into_both_branches_of_a_condition(sample_template):
    properties = sample_template["Resources"]["WorkerTemplate"]["Properties"]["LaunchTemplateData"]
    properties["MetadataOptions"] = {"Fn::If": ["Any", {"HttpTokens": "required"}, {"HttpProtocolIpv6": "enabled"}]}
    properties["KeyName"] = {"Fn::If": ["Any", "mine", {"Ref": "AWS::NoValue"}]}

    (gap,) = find_gaps(sample_template)
    assert gap.endswith("property LaunchTemplateData.MetadataOptions.HttpProtocolIpv6")


def test_refuses_more_resources_than_cloudformation_takes():
    resources = {f"Handle{number}": {"Type": "AWS::CloudFormation::WaitConditionHandle"} for number in range(501)}
    assert find_gaps({"Resources": resources}) == ("501 resources; CloudFormation takes at most 500",)


def make_resource(kind, **properties):
    """Return a template of one resource, beside those that it may refer to."""
    return {
        "Parameters": {
            "Policy": {"Type": "String", "Default": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"},
            "Given": {"Type": "String"},
        },
        "Resources": {
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": {}},
            "Table": {
                "Type": "AWS::DynamoDB::Table",
                "Properties": {
                    "BillingMode": "PAY_PER_REQUEST",
                    "StreamSpecification": {"StreamViewType": "KEYS_ONLY"},
                },
            },
            "Topic": {"Type": "AWS::SNS::Topic", "Properties": {}},
            "Own": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {"LaunchTemplateData": {"ImageId": "ami-1"}},
            },
            "Thing": {"Type": kind, "Properties": properties},
        },
    }


NODES = {"LaunchTemplate": {"Name": "mine"}}
RULE = {"ScheduleExpression": "rate(1 day)"}
SOURCE, TABLE_STREAM = "AWS::Lambda::EventSourceMapping", {"Fn::GetAtt": ["Table", "StreamArn"]}
VIEW = {"Fn::Sub": "arn:${AWS::Partition}:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"}
MASTER = {"MasterInstanceGroup": {"InstanceType": "m5.xlarge", "InstanceCount": 3}}
STEP = {"Name": "a", "HadoopJarStep": {"Jar": "s3://mine/my.jar"}}
UNKNOWN = [
    ("AWS::EKS::Cluster", {"Name": "plain"}, "without property AccessConfig.AuthenticationMode"),
    ("AWS::EKS::Cluster", {"Name": "plain"}, "without property AccessConfig.BootstrapClusterCreatorAdminPermissions"),
    ("AWS::EKS::Cluster", {"Name": "plain"}, "without property BootstrapSelfManagedAddons"),
    ("AWS::EKS::Cluster", {"BootstrapSelfManagedAddons": "true"}, "property BootstrapSelfManagedAddons = 'true'"),
    ("AWS::EKS::Cluster", {"Version": "1.32"}, "property Version = '1.32' (only versions in standard support)"),
    (
        "AWS::EKS::Cluster",
        {"AccessConfig": {"Fn::If": ["Any", {"AuthenticationMode": "API"}, {"Ref": "AWS::NoValue"}]}},
        "without property AccessConfig.AuthenticationMode",
    ),
    ("AWS::EKS::Nodegroup", {"ClusterName": "c"}, "without property LaunchTemplate"),
    (
        "AWS::EKS::Nodegroup",
        {**NODES, "InstanceTypes": ["a", "b"]},
        "property InstanceTypes.1 = 'b' (only without)",
    ),
    ("AWS::EKS::Nodegroup", {**NODES, "AmiType": "AL2_x86_64"}, "property AmiType = 'AL2_x86_64' (only Bottlerocket"),
    ("AWS::EKS::Nodegroup", {"LaunchTemplate": {"Id": {"Ref": "Own"}}}, "whose LaunchTemplateData.ImageId is given"),
    ("AWS::EKS::Addon", {"AddonName": "metrics-server"}, "property AddonName = 'metrics-server'"),
    ("AWS::EKS::AccessEntry", {"AccessPolicies": [{"PolicyArn": VIEW}]}, "AmazonEKSViewPolicy' (only AmazonEKSCluster"),
    ("AWS::EKS::AccessEntry", {"AccessPolicies": [{"PolicyArn": {"Ref": "Policy"}}]}, "AmazonEKSViewPolicy' (only"),
    (SOURCE, {"EventSourceArn": TABLE_STREAM}, "'AWS::DynamoDB::Table.StreamArn' (only SQS queues)"),
    (SOURCE, {"EventSourceArn": "arn:aws:kinesis:us-east-1:123456789012:stream/s"}, "(only SQS queues)"),
    ("AWS::EC2::Instance", {"ImageId": "ami-1"}, "without property SubnetId or NetworkInterfaces.SubnetId"),
    ("AWS::Events::Rule", {"EventPattern": {"source": [{"anything-but": "x"}]}}, "(only plain values, prefix, suffix"),
    ("AWS::Events::Rule", {"EventPattern": {"a": ["b", {"exists": False}]}}, "(only plain values, prefix, suffix"),
    ("AWS::Events::Rule", {"EventPattern": {"$or": [{"a": ["b"]}]}}, "(only plain values, prefix, suffix"),
    ("AWS::Events::Rule", {"ScheduleExpression": "cron(0 8 L * ? *)"}, "without L, W, #"),
    ("AWS::Events::Rule", {"ScheduleExpression": "cron(0 8 ? * 2#1 *)"}, "without L, W, #"),
    (
        "AWS::Events::Rule",
        {**RULE, "Targets": [{"Id": "a", "Arn": "arn:aws:ecs:us-east-1:1:cluster/c"}]},
        "(only funct",
    ),
    (
        "AWS::Events::Rule",
        {**RULE, "Targets": [{"InputTransformer": {"InputTemplate": '{"a": <b>}'}}]},
        "(only JSON strings",
    ),
    (
        "AWS::AutoScaling::AutoScalingGroup",
        {"TerminationPolicies": ["ClosestToNextInstanceHour"]},
        "TerminationPolicies",
    ),
    ("AWS::Backup::BackupSelection", {"BackupSelection": {"Resources": ["arn:aws:s3:::b"]}}, "(only EFS file systems"),
    (
        "AWS::DynamoDB::GlobalTable",
        {"Replicas": [{"Region": "a"}, {"Region": "b"}]},
        "property Replicas.1 = {",
    ),
    ("Custom::Thing", {"ServiceToken": {"Ref": "Topic"}}, "(only functions)"),
    ("AWS::EMR::Cluster", {"Instances": MASTER}, "Instances.MasterInstanceGroup.InstanceCount = 3"),
    ("AWS::EMR::Cluster", {"Instances": MASTER}, "without property Instances.Ec2SubnetId"),
    ("AWS::EMR::Cluster", {"Steps": [STEP]}, "(only command-runner.jar and script-runner.jar)"),
    ("AWS::EMR::Cluster", {"ReleaseLabel": "emr-5.8.0"}, "(only releases from emr-5.30.0 on)"),
    ("AWS::SSM::Parameter", {"Value": "{{resolve:secretsmanager:a:SecretString:b}}"}, "{{resolve:secretsmanager:…}}"),
]
"""Type, properties, and words of the gap: settings that AWS takes and the rehearsal does not."""


@pytest.mark.parametrize(("kind", "properties", "words"), UNKNOWN)
def test_finds_before_any_creation(kind, properties, words):
    gaps = find_gaps(make_resource(kind, **properties))
    assert any(words in gap for gap in gaps), gaps


KNOWN = [
    (SOURCE, {"EventSourceArn": {"Fn::GetAtt": ["Queue", "Arn"]}}),
    (SOURCE, {"EventSourceArn": {"Fn::Sub": "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}:mine"}}),
    (SOURCE, {"EventSourceArn": {"Fn::ImportValue": "queue"}}),
    (SOURCE, {"EventSourceArn": {"Ref": "Given"}}),
    ("AWS::Events::Rule", {"ScheduleExpression": "cron(0 8 ? JUL WED *)"}),
    ("AWS::Events::Rule", {"EventPattern": {"detail": {"exists": ["b"], "name": [{"Ref": "Queue"}, {"prefix": "a"}]}}}),
    ("AWS::Events::Rule", {**RULE, "State": "DISABLED", "Targets": [{"Id": "a", "Arn": {"Ref": "Topic"}}]}),
    ("AWS::SNS::Subscription", {"Protocol": {"Fn::FindInMap": ["Any", "a", "b"]}}),
    ("AWS::SSM::Parameter", {"Value": "{{resolve:ssm:/mine}}"}),
]
"""Type and properties of neighbours that the rehearsal takes."""


@pytest.mark.parametrize(("kind", "properties"), KNOWN)
def test_takes_what_the_rehearsal_implements(kind, properties):
    template = make_resource(kind, **properties)
    require_support(template | {"Mappings": {"Any": {"a": {"b": "sqs"}}}})


def test_a_given_parameter_takes_the_place_of_its_default():
    template = make_resource("AWS::EKS::AccessEntry", AccessPolicies=[{"PolicyArn": {"Ref": "Policy"}}])
    require_support(template, {"Policy": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSEditPolicy"})


def test_a_mapping_gives_its_value_for_the_region():
    amis = {"us-east-1": {"type": "AL2023_x86_64_STANDARD"}, "eu-west-1": {"type": "AL2_x86_64"}}
    found = {"Fn::FindInMap": ["Amis", {"Ref": "AWS::Region"}, "type"]}
    template = make_resource("AWS::EKS::Nodegroup", **NODES, AmiType=found) | {"Mappings": {"Amis": amis}}
    require_support(template, region="us-east-1")
    with pytest.raises(UnsupportedError, match="property AmiType = 'AL2_x86_64'"):
        require_support(template, region="eu-west-1")
