"""Creates queues, topics and subscriptions."""

import json
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.cloudformation.creation import Created, Creation, Creator

_NUMBERS = (
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "DelaySeconds",
    "MaximumMessageSize",
    "KmsDataKeyReusePeriodSeconds",
)


def _create_queue(creation: Creation) -> Created:
    sqs = creation.client("sqs")
    properties = creation.properties
    name = properties.get("QueueName") or creation.name(80)
    attributes = {attribute: str(int(properties[attribute])) for attribute in _NUMBERS if attribute in properties}
    if "RedrivePolicy" in properties:
        attributes["RedrivePolicy"] = json.dumps(properties["RedrivePolicy"])
    if "KmsMasterKeyId" in properties:
        attributes["KmsMasterKeyId"] = properties["KmsMasterKeyId"]
    if "SqsManagedSseEnabled" in properties:
        attributes["SqsManagedSseEnabled"] = str(properties["SqsManagedSseEnabled"]).lower()
    tags = {tag["Key"]: tag["Value"] for tag in creation.tags()}
    url = sqs.create_queue(QueueName=name, Attributes=attributes, tags=tags)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return Created(url, {"Arn": arn, "QueueName": name, "QueueUrl": url})


def _create_queue_policy(creation: Creation) -> Created:
    document = json.dumps(creation.properties["PolicyDocument"])
    for url in creation.properties["Queues"]:
        creation.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": document})
    return Created(creation.logical_id)


def _create_topic(creation: Creation) -> Created:
    properties = creation.properties
    name = properties.get("TopicName") or creation.name(256)
    attributes = properties.select("DisplayName", "KmsMasterKeyId")
    arn = creation.client("sns").create_topic(Name=name, Tags=creation.tags(), Attributes=attributes)["TopicArn"]
    return Created(arn, {"TopicArn": arn, "TopicName": name})


def _create_topic_policy(creation: Creation) -> Created:
    document = json.dumps(creation.properties["PolicyDocument"])
    for arn in creation.properties["Topics"]:
        creation.client("sns").set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=document)
    return Created(creation.logical_id)


def _create_subscription(creation: Creation) -> Created:
    sns: Any = creation.client("sns")
    properties = creation.properties
    redrive = {"RedrivePolicy": json.dumps(properties["RedrivePolicy"])} if "RedrivePolicy" in properties else {}
    arn = sns.subscribe(
        **properties.select("TopicArn", "Protocol", "Endpoint"), Attributes=redrive, ReturnSubscriptionArn=True
    )["SubscriptionArn"]
    return Created(arn, {"Arn": arn}, delete=partial(sns.unsubscribe, SubscriptionArn=arn))


CREATORS: dict[str, Creator] = {
    "AWS::SQS::Queue": _create_queue,
    "AWS::SQS::QueuePolicy": _create_queue_policy,
    "AWS::SNS::Topic": _create_topic,
    "AWS::SNS::TopicPolicy": _create_topic_policy,
    "AWS::SNS::Subscription": _create_subscription,
}
