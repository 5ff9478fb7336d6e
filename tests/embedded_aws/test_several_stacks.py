"""Stacks that use one another: references by exports and outputs, nested stacks, and stacks of Stages."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sqs as sqs

from cdk_rehearsal import try_orders
from cdk_rehearsal.assembly import read_stack, read_stacks
from cdk_rehearsal.errors import AssemblyError

STRENGTH = "@aws-cdk/core:defaultCrossStackReferences"
"""`weak` in the flags of `cdk init`: references become Fn::GetStackOutput; with `strong` Fn::ImportValue, or both."""


class Letters(cdk.NestedStack):
    """A queue with a tag that the parent gives: the ARN of its topic."""

    def __init__(self, scope, construct_id, topic):
        super().__init__(scope, construct_id)
        self.queue = sqs.Queue(self, "Queue")
        cdk.Tags.of(self.queue).add("topic", topic.topic_arn)


def make_pair(scope, places=(None, None)):
    """Add a stack with a topic, and one that names the topic and has a nested stack."""
    first, second = (cdk.Stack(scope, name, env=env) for name, env in zip(("first", "second"), places, strict=True))
    topic = sns.Topic(first, "Topic")
    letters = Letters(second, "Letters", sns.Topic(second, "Own"))
    cdk.CfnOutput(second, "TopicArn", value=topic.topic_arn)
    cdk.CfnOutput(second, "QueueArn", value=letters.queue.queue_arn)


@pytest.fixture
def synthesize(tmp_path):
    """Return the function that synthesizes an app with what a function adds to it."""

    def write(add, strength="weak"):
        app = cdk.App(
            outdir=str(tmp_path / "cdk.out"), context={STRENGTH: strength}, builtin_cloud_formation_validation=False
        )
        add(app)
        app.synth()
        return tmp_path / "cdk.out"

    return write


@pytest.mark.parametrize("strength", ["weak", "strong", "both"])
def test_a_stack_reads_the_one_before_and_its_nested_stack(synthesize, start_cloud, strength):
    assembly = synthesize(make_pair, strength)
    cloud = start_cloud()
    assert [stack.name for stack in read_stacks(assembly)] == ["first", "second"]
    for name in ("first", "second"):
        cloud.deploy(assembly, stack=name)
        assert cloud.end()["status"] == "CREATE_COMPLETE"
    outputs = cloud.end()["outputs"]
    topics = [each["TopicArn"] for each in cloud.client("sns").list_topics()["Topics"]]
    (queue,) = cloud.client("sqs").list_queues()["QueueUrls"]
    assert outputs["TopicArn"] in topics
    assert outputs["QueueArn"].rpartition(":")[2] == queue.rpartition("/")[2]
    assert cloud.client("sqs").list_queue_tags(QueueUrl=queue)["Tags"]["topic"] in topics


def test_a_stack_whose_reference_is_not_deployed_fails_with_the_reason(synthesize, start_cloud):
    """Words: "No export named ... found. Rollback requested by user." (aws/aws-cdk#3414)."""
    assembly = synthesize(make_pair, "strong")
    cloud = start_cloud()
    cloud.deploy(assembly, stack="second")
    outcome = cloud.end()
    assert outcome["status"] != "CREATE_COMPLETE"
    assert "No export named first:ExportsOutputRefTopic" in outcome["reason"]


def test_a_stack_whose_export_is_imported_is_not_deleted(synthesize, start_cloud):
    """CloudFormation user guide, "Get exported outputs from a deployed stack": neither deleted nor changed."""
    assembly = synthesize(make_pair, "strong")
    cloud = start_cloud()
    for name in ("first", "second"):
        cloud.deploy(assembly, stack=name)
        cloud.end()
    formation = cloud.client("cloudformation")
    formation.delete_stack(StackName="first")
    said = formation.describe_stack_events(StackName="first")["StackEvents"][0]
    assert said["ResourceStatus"] == "CREATE_COMPLETE"
    assert said["ResourceStatusReason"].startswith("Delete canceled. Cannot delete export first:ExportsOutput")
    for name in ("second", "first"):
        formation.delete_stack(StackName=name)
        assert cloud.end(name)["status"] == "DELETE_COMPLETE"


def test_a_nested_stack_that_fails_fails_its_parent_with_the_reason(synthesize, start_cloud):
    def add(app):
        stack = cdk.Stack(app, "parent")
        nested = cdk.NestedStack(stack, "Nested")
        for name in ("One", "Other"):
            sqs.CfnQueue(nested, name, queue_name="same", visibility_timeout=30 if name == "One" else 60)

    cloud = start_cloud()
    cloud.deploy(synthesize(add))
    outcome = cloud.end()
    assert outcome["status"] == "ROLLBACK_COMPLETE"
    assert "Embedded stack arn:aws:cloudformation:" in outcome["reason"]
    assert "was not successfully created: " in outcome["reason"]


def test_a_stack_of_a_stage_is_in_the_account_and_region_that_the_app_names(synthesize, start_cloud):
    def add(app):
        for name, region in (("Prod", "eu-west-1"), ("Dev", "us-west-2")):
            env = cdk.Environment(account="111122223333", region=region)
            make_pair(cdk.Stage(app, name, env=env), (env, env))

    assembly = synthesize(add)
    cloud = start_cloud()
    for name in ("Prod/first", "Prod/second"):
        cloud.deploy(assembly, stack=name)
        assert cloud.end()["status"] == "CREATE_COMPLETE"
    assert cloud.end()["outputs"]["TopicArn"].startswith("arn:aws:sns:eu-west-1:111122223333:Prod-first-")
    assert cloud.client("sts").get_caller_identity()["Account"] == "111122223333"
    assert try_orders(assembly, 2, stacks=["Dev/*"]) == ()


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        ((), ["Prod-first", "Prod-second", "first", "second"]),
        (["second"], ["first", "second"]),
        (["Prod/second"], ["Prod-first", "Prod-second"]),
        (["Prod/*"], ["Prod-first", "Prod-second"]),
        (["*"], ["first", "second"]),
        (["**"], ["Prod-first", "Prod-second", "first", "second"]),
        (["?irst"], ["first"]),
        (["Prod-second"], ["Prod-first", "Prod-second"]),
    ],
)
def test_patterns_choose_stacks_as_the_cdk_does_with_what_they_need(synthesize, patterns, names):
    """CDK CLI reference, "cdk deploy": names and wildcards of paths; upstream stacks are deployed too."""
    assembly = synthesize(lambda app: (make_pair(app), make_pair(cdk.Stage(app, "Prod"))))
    assert [stack.name for stack in read_stacks(assembly, patterns)] == names


def test_stacks_of_two_regions_are_refused_by_name(synthesize):
    def add(app):
        for region in ("eu-west-1", "us-west-2"):
            cdk.Stack(app, region, env=cdk.Environment(account="111122223333", region=region))

    assembly = synthesize(add)
    with pytest.raises(AssemblyError, match=r"must be of one account and region, got eu-west-1 in 111122223333/eu-we"):
        read_stacks(assembly)
    assert read_stack(assembly, "us-west-2").region == "us-west-2"


def test_zones_that_nobody_has_looked_up_are_refused_by_name(synthesize):
    """The CDK writes dummy values for a context that it lacks (CDK guide, "Context values and the AWS CDK")."""

    def add(app):
        ec2.Vpc(cdk.Stack(app, "web", env=cdk.Environment(account="111122223333", region="eu-west-1")), "Vpc")

    with pytest.raises(AssemblyError, match="stack web must have the zones of its region, got dummy1a"):
        read_stacks(synthesize(add))


def test_of_several_stacks_one_must_be_named(synthesize):
    assembly = synthesize(make_pair)
    with pytest.raises(AssemblyError, match="stack must name one of first, second, got None"):
        read_stack(assembly, None)
    with pytest.raises(AssemblyError, match="stack must name one of first, second, got 'third'"):
        read_stack(assembly, "third")
