"""Cases of messages between AWS, the function and the nodes."""

import json
from typing import TYPE_CHECKING

from deeplearning_rehearsal.cases.case import CloudFaults, case

if TYPE_CHECKING:  # Reading a case needs neither machines nor an embedded AWS.
    from deeplearning_rehearsal.cases.cluster_case import ClusterCase

POISON = (
    "not JSON",
    "[]",
    "null",
    "{}",
    '{"cluster": 7, "generation": "many", "stage": null}',
    json.dumps({"cluster": "another-cluster", "generation": 10**9, "stage": "failed", "instance_id": "i-0"}),
    json.dumps({"nested": [[[["deep"]]]] * 50}),
    "x" * 200_000,
    "\u2028\u0085 \U0001f4a3",
)
"""Messages that a queue may deliver: no JSON, the wrong shape, the wrong cluster, deep, long, and odd characters."""


@case(
    "Every event of Auto Scaling is lost: the timer forms the cluster",
    faults=[19],
    workers=2,
    cloud=CloudFaults(lose_notifications=True),
)
def events_lost(run: "ClusterCase") -> None:
    run.wait_for_line("EC2_INSTANCE_LAUNCH (lost)")
    seen = run.finish()
    assert seen.says("EC2_INSTANCE_LAUNCH (lost)")


@case(
    "A function's answer is lost each time after its work: it is tried again, the cluster forms, and events are kept",
    faults=[17, 35],
    expect="formed",
    workers=1,
    cloud=CloudFaults(lose_answers=True),
    proves_rights=True,
)
def function_answers_lost(run: "ClusterCase") -> None:
    run.wait_for_line("Runtime exited with error: signal: killed")
    seen = run.finish()
    assert seen.says("Runtime exited with error: signal: killed")


@case(
    "Every message comes twice and out of order, and the first one never: the cluster forms and runs a job",
    faults=[17, 18, 19, 26, 27],
    workers=3,
    minutes=10,
    cloud=CloudFaults(messages=["duplicate", "reorder", "lose_first"]),
)
def messages_disturbed(run: "ClusterCase") -> None:
    run.wait_for_line("the first message is lost")
    seen = run.finish()
    assert seen.requested == 4
    assert seen.says("the first message is lost")


@case(
    "Malformed messages come to every queue and topic: they are put away, and the cluster forms",
    faults=[21, 22, 23, 24],
    expect="formed",
    workers=2,
)
def poison_message(run: "ClusterCase") -> None:
    run.worker(1).wait_for_boot()
    _send_poison(run)
    run.wait_for_formation()
    _send_poison(run)
    run.wait_for_line("dropped a malformed report")
    run.wait_for_line("ignored a malformed notification")
    seen = run.finish()
    assert seen.says("dropped a malformed report")
    assert seen.says("ignored a malformed notification")


def _send_poison(run: "ClusterCase") -> None:
    """Send malformed messages to every queue and topic."""
    run.inject("malformed messages are sent")
    queues, topics = run.client("sqs"), run.client("sns")
    for resource in run.aws.wait(0).resources:
        for body in POISON:
            if resource.resource_type == "AWS::SQS::Queue":
                queues.send_message(QueueUrl=resource.physical_id, MessageBody=body)
            elif resource.resource_type == "AWS::SNS::Topic":
                topics.publish(TopicArn=resource.physical_id, Message=body)
