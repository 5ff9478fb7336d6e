# ruff: noqa: N803 - the arguments have boto3's names
"""
The AWS clients of one agent of the model, in boto3's shape.

What a call may do to its caller is drawn from the model's seed: it takes a while, during which others act; it is
throttled; it has its effect and the answer is lost; the agent dies before or after it.
"""

import io

from botocore.exceptions import ConnectionClosedError, EndpointConnectionError
from model_aws import make_error

from deeplearning_contract.names import NodeRole
from tests.unit.virtual_time import require

URL = "https://sqs.example/"
CONNECT_SECONDS = 11
"""Time that botocore spends on a host that does not respond: two attempts of five seconds, and a pause."""
RATE_SECONDS = 10
MOST_CALLS = 30
"""By one agent in so many seconds, where each call takes a twentieth of a second."""
PERMISSIONS = {
    NodeRole.MASTER: {
        ("GetItem", ""),
        ("PutItem", ""),
        ("GetObject", ""),
        ("SetInstanceHealth", ""),
        ("SendMessage", "worker"),
        *(
            (operation, queue)
            for operation in ("ReceiveMessage", "DeleteMessageBatch")
            for queue in ("master", "report")
        ),
    },
    NodeRole.WORKER: {("GetItem", ""), ("GetObject", ""), ("ReceiveMessage", "worker"), ("SendMessage", "report")},
}
"""Calls that the template allows each role."""


class Caller:
    """The clients of one agent, in the shape of `AwsClients`."""

    def __init__(self, cloud, machine):
        self.cloud = cloud
        self.machine = machine
        self._recent = []
        self.region = "eu-west-1"
        self.dynamodb = DynamoDb(self)
        self.sqs = Sqs(self)
        self.s3 = S3(self)
        self.autoscaling = AutoScaling(self)

    def check_rate(self, operation):
        """Only reports come in thousands; nobody has a reason to call for anything else again and again."""
        now = self.cloud.scheduler.now
        self._recent = [moment for moment in self._recent if moment > now - RATE_SECONDS] + [now]
        require(len(self._recent) <= MOST_CALLS, f"M15: {self.machine.instance_id} spins on {operation}")

    def wait_for_credentials(self, deadline):
        """Have them at once."""

    def call(self, operation, effect, queue=""):
        """Let one call happen, or not."""
        scheduler, weather, machine = self.cloud.scheduler, self.cloud.weather, self.machine
        require((operation, queue) in PERMISSIONS[machine.role], f"{machine.role.value} may not {operation} {queue}")
        scheduler.check()
        self.cloud.calls[machine.instance_id, operation] += 1
        if operation not in ("ReceiveMessage", "DeleteMessageBatch"):
            self.check_rate(operation)
        scheduler.sleep(scheduler.random.uniform(0.005, 0.1))
        if machine.is_cut_off:
            scheduler.sleep(CONNECT_SECONDS)
            raise EndpointConnectionError(endpoint_url=operation)
        if weather.throttled and scheduler.random.random() < weather.throttled:
            raise make_error("ThrottlingException", operation, 400)
        moment = machine.count_call()
        if moment == "before":
            machine.crash()
        answer = effect()
        if moment == "after":
            machine.crash()
        if machine.is_cut_off:
            raise EndpointConnectionError(endpoint_url=operation)
        if weather.unanswered and scheduler.random.random() < weather.unanswered:
            raise ConnectionClosedError(endpoint_url=operation)
        return answer


class DynamoDb:
    """A table."""

    def __init__(self, caller):
        self._caller = caller

    def get_item(self, *, TableName, Key, ConsistentRead=False):
        require(ConsistentRead, "the state item must be read consistently")
        key = Key["cluster"]["S"]
        item = self._caller.call("GetItem", lambda: self._caller.cloud.items.get(key))
        return {"Item": item} if item else {}

    def put_item(self, *, TableName, Item, **condition):
        request = {"TableName": TableName, "Item": Item, **condition}
        return self._caller.call("PutItem", lambda: self._caller.cloud.put(self._caller.machine, request))


class Sqs:
    """The queues."""

    def __init__(self, caller):
        self._caller = caller

    def send_message(self, *, QueueUrl, MessageBody):
        name, machine, cloud = QueueUrl.removeprefix(URL), self._caller.machine, self._caller.cloud

        def send():
            is_report = name == "report"
            for observe in cloud.reports if is_report else ():
                observe(machine, MessageBody)
            cloud.send(name, MessageBody, machine.sender, is_ring=not is_report)

        self._caller.call("SendMessage", send, name)
        return {"MessageId": "1"}

    def receive_message(self, *, QueueUrl, MaxNumberOfMessages=1, WaitTimeSeconds=20, MessageSystemAttributeNames=()):
        is_valid = 1 <= MaxNumberOfMessages <= 10 and WaitTimeSeconds in range(21)
        require(is_valid, f"SQS takes no {MaxNumberOfMessages} messages in {WaitTimeSeconds} s")
        cloud = self._caller.cloud
        task = cloud.scheduler.current
        name = QueueUrl.removeprefix(URL)
        until = cloud.scheduler.now + WaitTimeSeconds
        found = self._caller.call("ReceiveMessage", lambda: cloud.receive(name, MaxNumberOfMessages, until, task), name)
        if not found:
            self._caller.check_rate("ReceiveMessage")
        messages = [
            {
                "MessageId": str(message.number),
                "ReceiptHandle": str(message.number),
                "Body": message.body,
                "Attributes": {"SenderId": message.sender} if "SenderId" in MessageSystemAttributeNames else {},
            }
            for message in found
        ]
        return {"Messages": messages} if messages else {}

    def delete_message_batch(self, *, QueueUrl, Entries):
        require(1 <= len(Entries) <= 10, f"SQS deletes no {len(Entries)} messages")
        name = QueueUrl.removeprefix(URL)
        queue = self._caller.cloud.queues[name]

        def delete():
            for entry in Entries:
                queue.messages.pop(int(entry["ReceiptHandle"]), None)

        self._caller.call("DeleteMessageBatch", delete, name)
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries]}


class S3:
    """The user's scripts."""

    def __init__(self, caller):
        self._caller = caller

    def get_object(self, *, Bucket, Key):
        return self._caller.call("GetObject", lambda: {"Body": io.BytesIO(self._caller.cloud.objects[Bucket, Key])})


class AutoScaling:
    """Calls of an agent to Auto Scaling about its group."""

    def __init__(self, caller):
        self._caller = caller

    def set_instance_health(self, *, InstanceId, HealthStatus, ShouldRespectGracePeriod=True):
        def report():
            for observe in self._caller.cloud.health_reports:
                observe(self._caller.machine, InstanceId, HealthStatus)

        self._caller.call("SetInstanceHealth", report)
        return {}
