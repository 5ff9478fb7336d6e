"""Malformed messages, as an operator with the rights for it could put them on the cluster's queues and topics."""

import json

from cdk_rehearsal.embedded_aws import EmbeddedAws

BODIES = (
    "not JSON",
    "[]",
    "null",
    "{}",
    '{"cluster": 7, "generation": "many", "stage": null}',
    json.dumps(
        {"cluster": "another-cluster", "generation": 10**9, "stage": "failed", "instance_id": "i-0", "reason": ""}
    ),
    json.dumps({"nested": [[[["deep"]]]] * 50}),
    "x" * 200_000,
    "\u2028\u0085 \U0001f4a3",
)
"""What a queue may bring: no JSON, the wrong shape, the wrong cluster, deep, long, and odd characters."""


def send_poison(aws: EmbeddedAws) -> None:
    """Put every malformed body on each queue and topic of the stack."""
    resources = aws.wait(0).resources
    queues, topics = aws.place.client("sqs"), aws.place.client("sns")
    for resource in resources:
        for body in BODIES:
            if resource.resource_type == "AWS::SQS::Queue":
                queues.send_message(QueueUrl=resource.physical_id, MessageBody=body)
            elif resource.resource_type == "AWS::SNS::Topic":
                topics.publish(TopicArn=resource.physical_id, Message=body)
