"""Creates event source mappings of queues."""

import uuid
from typing import Any

from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.messaging.queue_pollers import QueueMapping
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_DEFAULT_BATCH = 10
_DEFAULT_VISIBILITY = "30"
_CALLS = ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes")


def create_mapping(creation: Creation) -> Created:
    """
    Create a mapping of a queue and a function, unless Lambda would refuse it.

    Words: for a role that lacks a right, aws/aws-cdk issue 6770;
    for a visibility that ends before the function, winglang/wing issue 1507.
    """
    services, properties = creation.services, creation.properties
    queue = str(properties["EventSourceArn"])
    if ":sqs:" not in queue:
        raise ValueError(f"EventSourceArn must be the ARN of an SQS queue in the rehearsal, got {queue}")
    creation.require("lambda.CreateEventSourceMapping", {"FunctionName": str(properties["FunctionName"])})
    function = creation.client("lambda").get_function_configuration(FunctionName=properties["FunctionName"])
    sqs = creation.client("sqs")
    url = sqs.get_queue_url(QueueName=queue.rpartition(":")[2])["QueueUrl"]
    caller = Principal("lambda", "", function["FunctionName"], function["Role"])
    for call in _CALLS:
        if services.authorizer.check_call(caller, f"sqs.{call}", {"QueueUrl": url}) is not None:
            raise ValueError(f"The provided execution role does not have permissions to call {call} on SQS")
    _require_visibility(sqs, url, function["Timeout"])
    mapping = QueueMapping(
        queue,
        function["FunctionArn"],
        services.principals.mint(
            services.place, role_arn=function["Role"], session=function["FunctionName"], kind="lambda"
        ),
        int(properties.get("BatchSize", _DEFAULT_BATCH)),
        "ReportBatchItemFailures" in properties.get("FunctionResponseTypes", ()),
    )
    identity = str(uuid.uuid4())
    if not is_true(properties.get("Enabled", True)):
        return Created(identity, {"Id": identity})
    return Created(identity, {"Id": identity}, delete=services.pollers.start(mapping).set)


def _require_visibility(sqs: Any, url: str, timeout: int) -> None:
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    visibility = int(attributes.get("VisibilityTimeout", _DEFAULT_VISIBILITY))
    if visibility < timeout:
        raise ValueError(
            f"Queue visibility timeout: {visibility} seconds is less than Function timeout: {timeout} seconds"
        )
