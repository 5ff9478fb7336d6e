"""Apps as the CDK's examples have them: functions with queues, topics, tables and layers; a web server."""

import aws_cdk as cdk
import pytest
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_lambda_event_sources as sources
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_s3_notifications as notifications
from aws_cdk import aws_sns as sns
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk import aws_sqs as sqs

from tests.real_time import wait_until

CODE = """
import os, boto3, shared

def handler(event, context):
    table = boto3.resource("dynamodb").Table(os.environ["TABLE"])
    if "Records" not in event:
        table.put_item(Item={"id": "scheduled", "text": event["text"]})
        return
    failures = [record["messageId"] for record in event["Records"] if "bad" in record["body"]]
    for record in event["Records"]:
        text = record["receiptHandle"] if record["messageId"] in failures else shared.TEXT
        table.put_item(Item={"id": record["body"], "text": text, "from": record["eventSourceARN"]})
    return {"batchItemFailures": [{"itemIdentifier": name} for name in failures]}
"""


def make_app(stack, layer):
    """Add a queue that a function reads, with dead letters, a table, a layer, topics and schedules."""
    python = lambda_.Runtime.PYTHON_3_12
    buried = sqs.Queue(stack, "Buried")
    queue = sqs.Queue(
        stack,
        "Queue",
        visibility_timeout=cdk.Duration.minutes(5),
        dead_letter_queue=sqs.DeadLetterQueue(queue=buried, max_receive_count=1),
    )
    table = dynamodb.Table(
        stack,
        "Table",
        partition_key=dynamodb.Attribute(name="id", type=dynamodb.AttributeType.STRING),
        billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
        time_to_live_attribute="expires",
        stream=dynamodb.StreamViewType.NEW_IMAGE,
    )
    table.add_global_secondary_index(
        index_name="texts", partition_key=dynamodb.Attribute(name="text", type=dynamodb.AttributeType.STRING)
    )
    function = lambda_.Function(
        stack,
        "Handler",
        runtime=python,
        handler="index.handler",
        code=lambda_.Code.from_inline(CODE),
        timeout=cdk.Duration.minutes(5),
        environment={"TABLE": table.table_name},
        layers=[lambda_.LayerVersion(stack, "Layer", code=lambda_.Code.from_asset(str(layer)))],
    )
    table.grant_write_data(function)
    function.add_event_source(sources.SqsEventSource(queue, report_batch_item_failures=True))
    admitted, refused = sns.Topic(stack, "Admitted"), sns.Topic(stack, "Refused")
    admitted.add_subscription(subscriptions.SqsSubscription(queue, raw_message_delivery=True))
    admitted.add_subscription(subscriptions.EmailSubscription("ops@example.com"))
    sns.CfnSubscription(stack, "Closed", topic_arn=refused.topic_arn, protocol="sqs", endpoint=buried.queue_arn)
    given = events.RuleTargetInput.from_object({"text": "ticked"})
    events.Rule(
        stack,
        "Minutely",
        schedule=events.Schedule.rate(cdk.Duration.minutes(1)),
        targets=[targets.LambdaFunction(function, event=given)],
    )
    events.Rule(stack, "Nightly", schedule=events.Schedule.cron(hour="3"), targets=[targets.LambdaFunction(function)])
    sqs.Queue(stack, "Ordered", fifo=True, content_based_deduplication=True)
    s3.Bucket(stack, "Bucket", cors=[s3.CorsRule(allowed_methods=[s3.HttpMethods.GET], allowed_origins=["*"])])
    names = {"Queue": queue.queue_url, "Buried": buried.queue_url, "Table": table.table_name}
    names |= {"Admitted": admitted.topic_arn, "Refused": refused.topic_arn, "Stream": table.table_stream_arn}
    for name, value in names.items():
        cdk.CfnOutput(stack, f"{name}Is", value=value)


def test_a_function_with_a_layer_reads_its_queue_and_what_fails_goes_to_dead_letters(deploy_app, tmp_path):
    (tmp_path / "layer" / "python").mkdir(parents=True)
    (tmp_path / "layer" / "python" / "shared.py").write_text("TEXT = 'of the layer'\n")
    cloud = deploy_app(lambda stack: make_app(stack, tmp_path / "layer"), minute_seconds=1.0)
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    outputs, queues, topics = outcome["outputs"], cloud.client("sqs"), cloud.client("sns")
    table = cloud.client("dynamodb")

    def find(key):
        return table.get_item(TableName=outputs["TableIs"], Key={"id": {"S": key}}).get("Item")

    queues.send_message(QueueUrl=outputs["QueueIs"], MessageBody="good")
    queues.send_message(QueueUrl=outputs["QueueIs"], MessageBody="bad")
    topics.publish(TopicArn=outputs["AdmittedIs"], Message="published")
    topics.publish(TopicArn=outputs["RefusedIs"], Message="refused")
    good = wait_until(lambda: find("good"))
    assert good["text"]["S"] == "of the layer"
    assert good["from"]["S"].startswith("arn:aws:sqs:us-east-1:")
    assert wait_until(lambda: find("published"))
    assert wait_until(lambda: find("scheduled"))["text"]["S"] == "ticked"
    # What failed is visible again at once, and has been received often enough.
    handle = wait_until(lambda: find("bad"))["text"]["S"]
    queues.change_message_visibility(QueueUrl=outputs["QueueIs"], ReceiptHandle=handle, VisibilityTimeout=0)
    # The queue has no policy for the other topic (SNS developer guide, "Fanout to Amazon SQS queues").
    (buried,) = cloud.receive(outputs["BuriedIs"])
    assert buried["Body"] == "bad"

    described = table.describe_table(TableName=outputs["TableIs"])["Table"]
    assert described["LatestStreamArn"] == outputs["StreamIs"]
    assert [each["IndexName"] for each in described["GlobalSecondaryIndexes"]] == ["texts"]
    ends = table.describe_time_to_live(TableName=outputs["TableIs"])["TimeToLiveDescription"]
    assert ends["AttributeName"] == "expires"
    (ordered,) = (url for url in queues.list_queues()["QueueUrls"] if url.endswith(".fifo"))
    assert queues.get_queue_attributes(QueueUrl=ordered, AttributeNames=["All"])["Attributes"]["FifoQueue"] == "true"
    cloud.client("cloudformation").delete_stack(StackName="sample")
    assert cloud.end()["status"] == "DELETE_COMPLETE"


def make_reader(stack, *, seconds, grants):
    """Add a function that reads a queue, with a timeout, and a role that may do so or not."""
    queue = sqs.Queue(stack, "Queue", visibility_timeout=cdk.Duration.seconds(30))
    code = lambda_.Code.from_inline("def handler(event, context):\n    pass\n")
    function = lambda_.Function(
        stack,
        "Reader",
        runtime=lambda_.Runtime.PYTHON_3_12,
        handler="index.handler",
        code=code,
        timeout=cdk.Duration.seconds(seconds),
    )
    if grants:
        queue.grant_consume_messages(function)
    lambda_.EventSourceMapping(stack, "Source", target=function, event_source_arn=queue.queue_arn)


@pytest.mark.parametrize(
    ("seconds", "grants", "words"),
    [
        # aws/aws-cdk issue 6770.
        (3, False, "The provided execution role does not have permissions to call ReceiveMessage on SQS"),
        # winglang/wing issue 1507.
        (60, True, "Queue visibility timeout: 30 seconds is less than Function timeout: 60 seconds"),
    ],
)
def test_lambda_refuses_to_read_a_queue_in_its_own_words(deploy_app, seconds, grants, words):
    cloud = deploy_app(lambda stack: make_reader(stack, seconds=seconds, grants=grants))
    assert words in cloud.end()["reason"]


DELETED = """
def handler(event, context):
    if event["RequestType"] == "Create":
        send(event, b"no answer")
    else:
        print("deletes", event.get("PhysicalResourceId"))
        send(event, b'{"Status": "SUCCESS", "PhysicalResourceId": "any"}')


def send(event, body):
    import urllib.request

    request = urllib.request.Request(event["ResponseURL"], data=body, headers={"Content-Type": ""}, method="PUT")
    urllib.request.urlopen(request).close()
"""


def test_the_deletion_of_a_resource_that_never_got_a_physical_id_has_one(deploy_app):
    """CloudFormation user guide, "Custom resource request objects": each request but that of creation has the id."""

    def add(stack):
        function = lambda_.Function(
            stack,
            "Maker",
            runtime=lambda_.Runtime.PYTHON_3_12,
            handler="index.handler",
            code=lambda_.Code.from_inline(DELETED),
        )
        cdk.CustomResource(stack, "Made", service_token=function.function_arn)

    cloud = deploy_app(add)
    assert cloud.end()["status"] == "ROLLBACK_COMPLETE"
    (log,) = (entry["log"] for entry in cloud.command("report")["invocations"] if "deletes" in entry["log"])
    assert log.startswith("deletes sample-Made-")


def make_server(stack):
    """Add a web server that all may reach, and two addresses for it: by the instance, and by an association."""
    public = ec2.SubnetConfiguration(name="public", subnet_type=ec2.SubnetType.PUBLIC)
    vpc = ec2.Vpc(
        stack,
        "Vpc",
        availability_zones=["us-east-1a"],
        nat_gateways=0,
        subnet_configuration=[public],
        restrict_default_security_group=False,
    )
    image = ec2.MachineImage.latest_amazon_linux2023()
    small = ec2.InstanceType("t3.nano")
    for name in ("First", "Second"):
        server = ec2.Instance(stack, name, vpc=vpc, instance_type=small, machine_image=image)
        server.connections.allow_from_any_ipv4(ec2.Port.tcp(80))
        server.connections.allow_from(ec2.Peer.any_ipv6(), ec2.Port.tcp(80))
        address = ec2.CfnEIP(stack, f"{name}Address", instance_id=server.instance_id if name == "First" else None)
        address.node.add_dependency(vpc.internet_connectivity_established)
        if name == "Second":
            ec2.CfnEIPAssociation(
                stack, "Association", allocation_id=address.attr_allocation_id, instance_id=server.instance_id
            ).node.add_dependency(vpc.internet_connectivity_established)
        cdk.CfnOutput(stack, f"{name}Is", value=cdk.Fn.join(" ", [server.instance_id, address.ref]))


def test_an_instance_has_the_address_that_is_associated_with_it(deploy_app):
    cloud = deploy_app(make_server)
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    for name in ("First", "Second"):
        instance, address = outcome["outputs"][f"{name}Is"].split(" ")
        (described,) = cloud.client("ec2").describe_instances(InstanceIds=[instance])["Reservations"][0]["Instances"]
        assert described["PublicIpAddress"] == address
    cloud.client("cloudformation").delete_stack(StackName="sample")
    assert cloud.end()["status"] == "DELETE_COMPLETE"


def make_bucket(stack):
    """Add a bucket that tells a function of its new objects and a queue of those removed."""
    code = lambda_.Code.from_inline(
        "def handler(event, context):\n    print(event['Records'][0]['s3']['object']['key'])\n"
    )
    reader = lambda_.Function(stack, "Reader", runtime=lambda_.Runtime.PYTHON_3_12, handler="index.handler", code=code)
    bucket, queue = s3.Bucket(stack, "Bucket"), sqs.Queue(stack, "Queue")
    bucket.add_event_notification(s3.EventType.OBJECT_CREATED, notifications.LambdaDestination(reader))
    bucket.add_event_notification(s3.EventType.OBJECT_REMOVED, notifications.SqsDestination(queue))
    for name, value in {"Bucket": bucket.bucket_name, "Queue": queue.queue_url}.items():
        cdk.CfnOutput(stack, f"{name}Is", value=value)


def test_a_bucket_tells_a_function_and_a_queue_of_its_objects(deploy_app):
    cloud = deploy_app(make_bucket)
    outcome = cloud.end()
    assert (outcome["status"], outcome["reason"]) == ("CREATE_COMPLETE", "")
    bucket, objects = outcome["outputs"]["BucketIs"], cloud.client("s3")
    objects.put_object(Bucket=bucket, Key="new.json", Body=b"{}")
    assert wait_until(lambda: [e for e in cloud.command("report")["invocations"] if "new.json" in e["log"]])
    objects.delete_object(Bucket=bucket, Key="new.json")
    (test,) = cloud.receive(outcome["outputs"]["QueueIs"])
    assert "s3:TestEvent" in test["Body"]
    (removed,) = cloud.receive(outcome["outputs"]["QueueIs"])
    assert "ObjectRemoved:Delete" in removed["Body"]
