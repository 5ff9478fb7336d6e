"""A function that tells a queue what invoked it, where it has one, and fails when the event asks for it."""

import json
import os
import sys
from pathlib import Path


def handle(event, context):
    """Send a description of the event and of this environment to the queue."""
    record = event.get("Records", [{}])[0]
    message = json.loads(record["Sns"]["Message"]) if "Sns" in record else {}
    print("handling", event.get("detail-type", message.get("Event", "a direct event")))
    if message.get("Fail"):
        raise RuntimeError("asked to fail")
    if url := os.environ.get("QUEUE_URL"):
        body = {
            "kind": event.get("detail-type") or message.get("Event"),
            "group": message.get("AutoScalingGroupName"),
            "status": message.get("StatusMessage"),
            "remaining": context.get_remaining_time_in_millis(),
            "checkout": any(Path(path, "deeplearning_rehearsal").exists() for path in sys.path),
        }
        import boto3  # noqa: PLC0415 - four fifths of an invocation's CPU time, and most tests read no queue

        boto3.client("sqs").send_message(QueueUrl=url, MessageBody=json.dumps(body))
    return {"sent": bool(url)}
