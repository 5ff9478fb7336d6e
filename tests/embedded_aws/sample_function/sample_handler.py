"""A function that tells a queue what invoked it, and fails when the event asks for it."""

import json
import os
import sys
from pathlib import Path

import boto3

SQS = boto3.client("sqs")


def handle(event, context):
    """Send a description of the event and of this environment to the queue."""
    record = event.get("Records", [{}])[0]
    message = json.loads(record["Sns"]["Message"]) if "Sns" in record else {}
    print("handling", event.get("detail-type", message.get("Event", "a direct event")))
    if message.get("Fail"):
        raise RuntimeError("asked to fail")
    body = {
        "kind": event.get("detail-type") or message.get("Event"),
        "group": message.get("AutoScalingGroupName"),
        "status": message.get("StatusMessage"),
        "remaining": context.get_remaining_time_in_millis(),
        "checkout": any(Path(path, "deeplearning_rehearsal").exists() for path in sys.path),
    }
    SQS.send_message(QueueUrl=os.environ["QUEUE_URL"], MessageBody=json.dumps(body))
    return {"sent": True}
