"""Messages that come twice, in another order, or never."""

import json
import threading

import pytest

from cdk_rehearsal.embedded_aws.base.message_faults import MessageDisturbance, MessageFaults
from cdk_rehearsal.embedded_aws.base.observation import Observations
from tests.real_time import GENEROUS_SECONDS

LONG = 3600.0
"""Seconds for which a message is held in a test in which the next one must come first."""


@pytest.fixture
def disturb():
    """Return a function that makes a disturbance, and what was delivered and told."""
    delivered, told, made = [], [], []

    def start(**faults):
        made.append(MessageDisturbance(MessageFaults(**faults, hold_seconds=LONG), Observations(told.append)))
        return lambda channel, text: made[-1].pass_on(channel, lambda: delivered.append(text))

    yield start, delivered, told
    for disturbance in made:
        disturbance.close()


@pytest.mark.fault(17)
def test_delivers_each_message_twice(disturb):
    start, delivered, _ = disturb
    send = start(duplicate=True)
    send("queue", "a")
    send("queue", "b")
    assert delivered == ["a", "a", "b", "b"]


@pytest.mark.fault(18)
def test_lets_each_message_be_overtaken_by_the_next_one_of_its_queue(disturb):
    start, delivered, _ = disturb
    send = start(reorder=True)
    for channel, text in [("one", "a"), ("two", "x"), ("one", "b"), ("one", "c"), ("one", "d")]:
        send(channel, text)
    assert delivered == ["b", "a", "d", "c"]


@pytest.mark.fault(18)
def test_delivers_a_message_that_nothing_overtakes():
    delivered = threading.Event()
    faults = MessageFaults(reorder=True, hold_seconds=0.01)
    MessageDisturbance(faults, Observations(None)).pass_on("queue", delivered.set)
    assert delivered.wait(GENEROUS_SECONDS)


@pytest.mark.fault(19)
def test_loses_the_first_message_of_each_queue_and_says_so(disturb):
    start, delivered, told = disturb
    send = start(lose_first=True)
    for channel, text in [("one", "a"), ("two", "x"), ("one", "b"), ("two", "y")]:
        send(channel, text)
    assert delivered == ["b", "y"]
    assert [(entry.topic, entry.subject) for entry in told] == [("message", "one"), ("message", "two")]


def test_brings_an_older_message_again_after_a_newer_one(disturb):
    start, delivered, _ = disturb
    send = start(duplicate=True, reorder=True, lose_first=True)
    for text in "abc":
        send("queue", text)
    assert delivered == ["c", "b", "c", "b"]


def receive_all(cloud, url, count):
    """Receive a number of messages without deleting them: (body, sender, message id) in the order of arrival."""
    found = []
    while len(found) < count:
        (message,) = cloud.receive(url, MessageSystemAttributeNames=["SenderId"])
        found.append((message["Body"], message["Attributes"]["SenderId"], message["MessageId"], message))
    return found


@pytest.fixture(scope="module")
def disturbed(start_cloud, sample_assembly):
    """A stack whose every message comes twice, out of order, and the first one never."""
    faults = {"duplicate": True, "reorder": True, "lose_first": True, "hold_seconds": LONG}
    cloud = start_cloud(message_faults=faults, minute_seconds=LONG, retry_seconds=[])
    cloud.deploy(sample_assembly)
    cloud.boots = [cloud.machine("master"), *(cloud.machine("worker") for _ in range(2))]
    for _ in range(3):
        cloud.observation("in service")
    return cloud


@pytest.mark.fault(17, 18, 19)
def test_a_queue_keeps_the_senders_and_the_ids_of_messages_that_come_twice(disturbed):
    url = disturbed.physical_id("Queue")
    workers = disturbed.boots[1:]
    disturbed.client("sqs", workers[0]).send_message(QueueUrl=url, MessageBody="lost")
    for worker, body in zip(workers, ("first", "second"), strict=True):
        sent = disturbed.client("sqs", worker).send_message(QueueUrl=url, MessageBody=body)
        assert sent["MessageId"]

    found = receive_all(disturbed, url, 4)
    assert [body for body, *_ in found] == ["second", "first", "second", "first"]
    by_body = {"first": workers[0]["instance_id"], "second": workers[1]["instance_id"]}
    assert all(sender.endswith(f":{by_body[body]}") for body, sender, *_ in found)
    assert len({message_id for _, _, message_id, _ in found}) == 2
    sqs = disturbed.client("sqs")
    sqs.delete_message(QueueUrl=url, ReceiptHandle=found[0][3]["ReceiptHandle"])
    left = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["ApproximateNumberOfMessagesNotVisible"])
    assert left["Attributes"]["ApproximateNumberOfMessagesNotVisible"] == "3"


@pytest.mark.fault(17, 19)
def test_a_topic_delivers_to_its_function_twice_and_never_the_first_message(disturbed):
    topic = disturbed.client("sns").create_topic(Name="orders")["TopicArn"]
    function = disturbed.physical_id("Function")
    arn = disturbed.client("lambda").get_function(FunctionName=function)["Configuration"]["FunctionArn"]
    disturbed.client("sns").subscribe(TopicArn=topic, Protocol="lambda", Endpoint=arn)
    for name in ("lost", "first", "second"):
        disturbed.client("sns").publish(TopicArn=topic, Message=json.dumps({"Event": name}))

    # The function does not admit this topic, so that each delivery is told at once, as a refusal.
    disturbed.observation("the first message is lost")
    for _ in range(4):
        disturbed.observation(f"for {topic}")
    assert disturbed.seen(f"for {topic}") == []
    refused = [entry for entry in disturbed.command("report")["invocations"] if topic in entry["error"]]
    assert len(refused) == 4


@pytest.mark.fault(19)
def test_a_lost_first_message_is_not_a_test_notification(disturbed):
    def logs():
        return [entry["log"] for entry in disturbed.command("report")["invocations"]]

    # SNS invokes a function asynchronously: the end of an invocation is told, its begin is not.
    while not any("handling autoscaling:TEST_NOTIFICATION" in log for log in logs()):
        disturbed.observation("sns → ")
