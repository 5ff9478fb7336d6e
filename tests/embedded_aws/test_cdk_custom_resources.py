"""The custom resources that the CDK makes by itself under the flags of `cdk init`, and the provider framework."""

import json
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as functions
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from aws_cdk import custom_resources as custom
from botocore.exceptions import ClientError

from cdk_rehearsal.assembly import read_stacks
from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.embedded_aws.functions.javascript_sdk import prepare_sdk
from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.referees.resource_support import require_support

FLAGS = {
    "@aws-cdk/aws-ec2:restrictDefaultSecurityGroup": True,
    "@aws-cdk/customresources:installLatestAwsSdkDefault": False,
}
"""Of those that `cdk init` writes, the ones by which custom resources differ."""
ON_EVENT = """
def handler(event, context):
    if event["RequestType"] == "Delete":
        return {}
    said = event["ResourceProperties"]["Say"]
    if said == "no":
        raise ValueError("said no")
    return {"PhysicalResourceId": "mine", "Data": {"Said": said}}
"""
SILENT = """
import cfnresponse
def handler(event, context):
    if event["RequestType"] == "Delete":
        reason = "has a name" if event.get("PhysicalResourceId") else "has no name"
        cfnresponse.send(event, context, "FAILED", {}, "any", reason=reason)
"""
"""It answers a deletion alone, with what the request has, in its reason."""


def make_app(folder):
    """Return an app, and the function that synthesizes it."""
    return cdk.App(
        outdir=str(folder), context=FLAGS, analytics_reporting=False, builtin_cloud_formation_validation=False
    )


def add_provider(stack, **more):
    """Add a provider with a function of its own, and return its token."""
    code = functions.Code.from_inline(ON_EVENT)
    on_event = functions.Function(
        stack, "OnEvent", runtime=functions.Runtime.PYTHON_3_13, handler="index.handler", code=code
    )
    return custom.Provider(stack, "Provider", on_event_handler=on_event, **more).service_token


@pytest.fixture(scope="module")
def assembly(tmp_path_factory):
    """An app with a custom resource of each kind."""
    app = make_app(tmp_path_factory.mktemp("custom") / "cdk.out")
    stack = cdk.Stack(app, "custom")
    ec2.Vpc(stack, "Vpc", max_azs=1, nat_gateways=0)
    bucket = s3.Bucket(
        stack, "Bucket", removal_policy=cdk.RemovalPolicy.DESTROY, auto_delete_objects=True, versioned=True
    )
    node = functions.Function(
        stack,
        "Node",
        runtime=functions.Runtime.NODEJS_22_X,
        handler="index.handler",
        code=functions.Code.from_inline("exports.handler = async (event) => ({ got: event });"),
    )
    # The property of functions that makes the same resource is deprecated, and says so on standard error.
    logs.LogRetention(stack, "Log", log_group_name=f"/of/{node.function_name}", retention=logs.RetentionDays.ONE_WEEK)
    queue = sqs.Queue(stack, "Queue")
    call = custom.AwsSdkCall(
        service="SQS",
        action="sendMessage",
        parameters={"QueueUrl": queue.queue_url, "MessageBody": "hello"},
        physical_resource_id=custom.PhysicalResourceId.from_response("MessageId"),
    )
    rights = custom.AwsCustomResourcePolicy.from_sdk_calls(resources=[queue.queue_arn])
    sent = custom.AwsCustomResource(stack, "Send", on_create=call, policy=rights)
    own = cdk.CustomResource(stack, "Own", service_token=add_provider(stack), properties={"Say": "hi"})
    outputs = {
        "Said": own.get_att_string("Said"),
        "Digest": sent.get_response_field("MD5OfMessageBody"),
        "BucketName": bucket.bucket_name,
        "QueueUrl": queue.queue_url,
        "OnEventArn": stack.node.find_child("OnEvent").function_arn,
        "NodeName": node.function_name,
    }
    for name, value in outputs.items():
        cdk.CfnOutput(stack, f"{name}Output", value=value).override_logical_id(name)
    return Path(app.synth().directory)


@pytest.fixture(scope="module")
def node_modules(assembly):
    """The packages that its functions name."""
    return prepare_sdk(read_stacks(assembly), find_cache(), print)


@pytest.fixture(scope="module")
def cloud(start_cloud, assembly, node_modules):
    """The deployed app."""
    cloud = start_cloud(node_modules=str(node_modules))
    cloud.deploy(assembly)
    outcome = cloud.end()
    assert outcome["status"] == "CREATE_COMPLETE", outcome["reason"]
    cloud.outputs = outcome["outputs"]
    return cloud


def test_the_default_security_group_has_no_rules(cloud):
    """AWS CDK, flag `restrictDefaultSecurityGroup`."""
    groups = cloud.client("ec2").describe_security_groups()["SecurityGroups"]
    vpcs = cloud.client("ec2").describe_vpcs(Filters=[{"Name": "is-default", "Values": ["false"]}])["Vpcs"]
    own = [each for each in groups if each["GroupName"] == "default" and each["VpcId"] == vpcs[0]["VpcId"]]
    rules = [(each["IpPermissions"], each["IpPermissionsEgress"]) for each in own]
    assert rules == [([], [])]


def test_a_log_group_has_the_retention(cloud):
    name = f"/of/{cloud.outputs['NodeName']}"
    (group,) = cloud.client("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    assert group["retentionInDays"] == 7


def test_a_call_of_the_sdk_was_made_and_its_answer_read(cloud):
    assert cloud.outputs["Digest"] == "5d41402abc4b2a76b9719d911017c592"
    (message,) = cloud.receive(cloud.outputs["QueueUrl"])
    assert message["Body"] == "hello"


def test_the_provider_framework_calls_the_users_function(cloud):
    assert cloud.outputs["Said"] == "hi"


def test_a_client_invokes_a_function_and_waits(cloud):
    """Lambda API reference, "Invoke"."""
    client = cloud.client("lambda")
    answer = client.invoke(FunctionName=cloud.outputs["NodeName"], Payload=b'{"a": 1}', LogType="Tail")
    assert (answer["StatusCode"], answer["ExecutedVersion"]) == (200, "$LATEST")
    assert json.loads(answer["Payload"].read()) == {"got": {"a": 1}}
    arn = client.get_function(FunctionName=cloud.outputs["NodeName"])["Configuration"]["FunctionArn"]
    assert json.loads(client.invoke(FunctionName=f"{arn}:$LATEST")["Payload"].read()) == {"got": {}}
    assert client.invoke(FunctionName=arn, InvocationType="DryRun")["StatusCode"] == 204
    with pytest.raises(client.exceptions.ResourceNotFoundException, match="Function not found: "):
        client.invoke(FunctionName=arn, Qualifier="live")
    with pytest.raises(client.exceptions.InvalidRequestContentException, match="Could not parse request body"):
        client.invoke(FunctionName=arn, Payload=b"{")


def test_a_client_whose_role_lacks_the_right_invokes_nothing(cloud):
    resources = cloud.client("cloudformation").describe_stack_resources(StackName="custom")["StackResources"]
    roles = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}
    arn = cloud.outputs["OnEventArn"]

    def invoke(role):
        (name,) = (physical for logical, physical in roles.items() if logical.rstrip("0123456789ABCDEF") == role)
        role_arn = cloud.client("iam").get_role(RoleName=name)["Role"]["Arn"]
        client = cloud.client("lambda", cloud.command("mint", role=role_arn))
        return client.invoke(FunctionName=arn, Payload=b'{"RequestType": "Delete"}')

    assert json.loads(invoke("ProviderframeworkonEventServiceRole")["Payload"].read()) == {}
    with pytest.raises(ClientError, match="is not authorized to perform: lambda:InvokeFunction on resource: arn:aws:"):
        invoke("NodeServiceRole")


def test_the_stack_is_deleted_with_the_objects_of_its_bucket(cloud):
    """AWS CDK, `auto_delete_objects`; the last test of the deployed app, which ends it."""
    client = cloud.client("s3")
    for key in ("a/b", "c & d", "a/b"):
        client.put_object(Bucket=cloud.outputs["BucketName"], Key=key, Body=b"x")
    cloud.client("cloudformation").delete_stack(StackName="custom")
    outcome = cloud.end("custom")
    assert (outcome["status"], outcome["reason"]) == ("DELETE_COMPLETE", "")
    assert cloud.outputs["BucketName"] not in [each["Name"] for each in client.list_buckets()["Buckets"]]


def test_a_bucket_with_objects_is_not_deleted(start_cloud, tmp_path):
    """S3 API reference, "DeleteBucket": all objects, versions and delete markers must be deleted before."""
    app = make_app(tmp_path / "cdk.out")
    stack = cdk.Stack(app, "keeping")
    s3.Bucket(stack, "Bucket", bucket_name="keeping", removal_policy=cdk.RemovalPolicy.DESTROY)
    cloud = start_cloud()
    cloud.deploy(app.synth().directory)
    cloud.end()
    cloud.client("s3").put_object(Bucket="keeping", Key="key", Body=b"x")
    for status in ("DELETE_FAILED", "DELETE_COMPLETE"):
        cloud.client("cloudformation").delete_stack(StackName="keeping")
        outcome = cloud.end("keeping")
        assert outcome["status"] == status
        if status == "DELETE_FAILED":
            assert any("The bucket you tried to delete is not empty" in each["reason"] for each in outcome["events"])
            cloud.client("s3").delete_object(Bucket="keeping", Key="key")


def take_away(template, action):
    """Take an action out of every policy of a template, which allow another one instead; return how many did."""
    count = 0
    for resource in template["Resources"].values():
        policies = [each["PolicyDocument"] for each in resource.get("Properties", {}).get("Policies", [])]
        policies += [resource["Properties"]["PolicyDocument"]] if resource["Type"].endswith("Policy") else []
        for statement in (each for document in policies for each in document["Statement"] if action in each["Action"]):
            others = [each for each in statement["Action"] if each != action] if statement["Action"] != action else []
            statement["Action"] = [*others, "tag:GetResources"]
            count += 1
    return count


@pytest.mark.parametrize("action", ["ec2:RevokeSecurityGroupEgress", "sqs:SendMessage"])
def test_a_right_that_a_handlers_role_lacks_fails_the_stack_with_the_reason(
    start_cloud, assembly, node_modules, tmp_path, action
):
    template = json.loads((assembly / "custom.template.json").read_text())
    assert take_away(template, action) == 1
    copy = tmp_path / "cdk.out"
    copy.mkdir()
    for path in assembly.iterdir():
        (copy / path.name).symlink_to(path)
    (copy / "custom.template.json").unlink()
    (copy / "custom.template.json").write_text(json.dumps(template))
    cloud = start_cloud(node_modules=str(node_modules))
    cloud.deploy(copy)
    outcome = cloud.end()
    assert outcome["status"].startswith("ROLLBACK_")
    assert f"is not authorized to perform: {action} on resource:" in outcome["reason"]


def test_a_function_of_a_provider_that_fails_fails_the_stack_with_its_words(start_cloud, tmp_path):
    app = make_app(tmp_path / "cdk.out")
    stack = cdk.Stack(app, "failing")
    cdk.CustomResource(stack, "Own", service_token=add_provider(stack), properties={"Say": "no"})
    assembly = Path(app.synth().directory)
    cloud = start_cloud(node_modules=str(prepare_sdk(read_stacks(assembly), find_cache(), print)))
    cloud.deploy(assembly)
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert "Message returned: Error: said no" in outcome["reason"]


def test_the_deletion_names_a_resource_whose_function_never_answered(start_cloud, tmp_path):
    """CloudFormation user guide, "Delete" of custom resource requests: the request has a `PhysicalResourceId`."""
    app = make_app(tmp_path / "cdk.out")
    stack = cdk.Stack(app, "silent")
    code = functions.Code.from_inline(SILENT)
    silent = functions.Function(
        stack, "Silent", runtime=functions.Runtime.PYTHON_3_13, handler="index.handler", code=code
    )
    timeout = cdk.Duration.seconds(1)
    cdk.CustomResource(stack, "Own", service_token=silent.function_arn, service_timeout=timeout)
    cloud = start_cloud()
    cloud.deploy(app.synth().directory)
    outcome = cloud.end()
    assert outcome["reason"] == "CloudFormation did not receive a response from your Custom Resource."
    deleted = [each["reason"] for each in outcome["events"] if each["status"] == "DELETE_FAILED"]
    assert deleted == ["Received response status [FAILED] from custom resource. Message returned: has a name"]


def test_a_provider_that_waits_is_refused_by_name(tmp_path):
    """AWS CDK, `Provider`: `is_complete_handler` makes a state machine of Step Functions."""
    app = make_app(tmp_path / "cdk.out")
    stack = cdk.Stack(app, "waiting")
    code = functions.Code.from_inline("def handler(event, context): pass")
    is_complete = functions.Function(
        stack, "IsComplete", runtime=functions.Runtime.PYTHON_3_13, handler="index.handler", code=code
    )
    add_provider(stack, is_complete_handler=is_complete)
    template = json.loads((Path(app.synth().directory) / "waiting.template.json").read_text())
    with pytest.raises(UnsupportedError, match=r"type AWS::StepFunctions::StateMachine"):
        require_support(template)
