"""Creates queues, topics and subscriptions."""

import json
from typing import Any

from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import Simple, is_true

_NUMBERS = (
    "VisibilityTimeout",
    "MessageRetentionPeriod",
    "ReceiveMessageWaitTimeSeconds",
    "DelaySeconds",
    "MaximumMessageSize",
    "KmsDataKeyReusePeriodSeconds",
)
_TRUTHS = ("SqsManagedSseEnabled", "FifoQueue", "ContentBasedDeduplication")


def _create_queue(creation: Creation) -> Created:
    sqs = creation.client("sqs")
    properties = creation.properties
    name = properties.get("QueueName") or creation.name(80)
    attributes = {attribute: str(int(properties[attribute])) for attribute in _NUMBERS if attribute in properties}
    if "RedrivePolicy" in properties:
        attributes["RedrivePolicy"] = json.dumps(properties["RedrivePolicy"])
    if "KmsMasterKeyId" in properties:
        attributes["KmsMasterKeyId"] = properties["KmsMasterKeyId"]
    attributes |= {attribute: str(properties[attribute]).lower() for attribute in _TRUTHS if attribute in properties}
    if attributes.get("FifoQueue") == "true" and "QueueName" not in properties:
        name = f"{creation.name(75)}.fifo"  # SQS API, "CreateQueue": the name of a FIFO queue ends so
    tags = {tag["Key"]: tag["Value"] for tag in creation.tags()}
    url = sqs.create_queue(QueueName=name, Attributes=attributes, tags=tags)["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    return Created(url, {"Arn": arn, "QueueName": name, "QueueUrl": url})


def _create_queue_policy(creation: Creation) -> Created:
    document = json.dumps(creation.properties["PolicyDocument"])
    for url in creation.properties["Queues"]:
        creation.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": document})
    return Created(creation.logical_id)


def _describe_topic(creation: Creation) -> dict[str, Any]:
    properties = creation.properties
    return {
        "Name": properties.get("TopicName") or creation.name(256),
        "Tags": creation.tags(),
        "Attributes": properties.select("DisplayName", "KmsMasterKeyId"),
    }


def _create_topic_policy(creation: Creation) -> Created:
    document = json.dumps(creation.properties["PolicyDocument"])
    for arn in creation.properties["Topics"]:
        if not str(arn).startswith("arn:"):
            raise ValueError(f"Invalid parameter: TopicArn Reason: an ARN must have at least 6 elements, not {arn}")
        creation.client("sns").set_topic_attributes(TopicArn=arn, AttributeName="Policy", AttributeValue=document)
    return Created(creation.logical_id)


def _describe_subscription(creation: Creation) -> dict[str, Any]:
    attributes = {name: json.dumps(value) for name, value in creation.properties.select("RedrivePolicy").items()}
    if is_true(creation.properties.get("RawMessageDelivery", False)):
        attributes["RawMessageDelivery"] = "true"  # moto takes any value for true
    return {"Attributes": attributes, "ReturnSubscriptionArn": True}


CREATORS: dict[str, Creator] = {
    "AWS::SQS::Queue": _create_queue,
    "AWS::SQS::QueuePolicy": _create_queue_policy,
    "AWS::SNS::Topic": Simple(
        "sns", "create_topic", id="{TopicArn}", renamed={"TopicName": "Name"}, more=_describe_topic
    ),
    "AWS::SNS::TopicPolicy": _create_topic_policy,
    "AWS::SNS::Subscription": Simple(
        "sns",
        "subscribe",
        id="{SubscriptionArn}",
        renamed={"Arn": "SubscriptionArn"},
        more=_describe_subscription,
        delete="unsubscribe",
    ),
}
