"""AWS as the agents of the model share it, in memory and in virtual time: the table, the queues, and the weather."""

import itertools
from collections import Counter
from dataclasses import dataclass, field

from botocore.exceptions import ClientError

from tests.unit.virtual_time import require


@dataclass
class Weather:
    """Present faults of AWS and the network; probabilities."""

    throttled: float = 0.0
    unanswered: float = 0.0
    lost_rings: float = 0.0
    twice: float = 0.0
    late: float = 0.0
    latest: float = 90.0
    """Seconds by which a late message is late at most."""

    @property
    def is_good(self):
        """True if nothing fails."""
        return not (self.throttled or self.unanswered or self.lost_rings or self.twice or self.late)


@dataclass
class Message:
    """A message on a queue."""

    number: int
    body: str
    sender: str
    sent: float
    visible: float


@dataclass
class Queue:
    """A standard queue: any order, at least once."""

    visibility: float
    retention: float
    messages: dict[int, Message] = field(default_factory=dict)
    pollers: list = field(default_factory=list)


class Cloud:
    """State that all agents share."""

    def __init__(self, scheduler):
        self.scheduler = scheduler
        self.weather = Weather()
        self.items = {}
        self.objects = {}
        self.calls = Counter()
        """(instance, operation) -> calls."""
        self.writes = []
        """Called with (caller, key, item) after each successful write."""
        self.reports = []
        """Called with (caller, body) for each report that a node sends."""
        self.health_reports = []
        """Called with (caller, instance id, status)."""
        self.queues = {
            "master": Queue(visibility=30, retention=3600),
            "worker": Queue(visibility=0, retention=300),
            "report": Queue(visibility=30, retention=86400),
        }
        self._numbers = itertools.count()

    def total(self, *operations):
        """Count the calls of all agents, of all operations or some."""
        return sum(n for (_, operation), n in self.calls.items() if not operations or operation in operations)

    def put(self, writer, request):
        """Write an item if its condition holds."""
        key = request["Item"]["cluster"]["S"]
        if not is_met(self.items.get(key), request):
            error = make_error("ConditionalCheckFailedException", "PutItem", 400)
            if request.get("ReturnValuesOnConditionCheckFailure") == "ALL_OLD" and key in self.items:
                error.response["Item"] = self.items[key]
            raise error
        self.items[key] = request["Item"]
        for observe in self.writes:
            observe(writer, key, request["Item"])
        return {}

    def send(self, name, body, sender, *, is_ring=False):
        """Put a message on a queue, as the weather has it."""
        chance = self.scheduler.random.random
        if is_ring and chance() < self.weather.lost_rings:
            return
        for _ in range(2 if chance() < self.weather.twice else 1):
            is_late = chance() < self.weather.late
            delay = self.scheduler.random.uniform(0, self.weather.latest) if is_late else 0.0
            now, number = self.scheduler.now, next(self._numbers)
            queue = self.queues[name]
            queue.messages[number] = Message(number, body, sender, now, now + delay)
            for task in queue.pollers:
                self.scheduler.wake(task)

    def receive(self, name, most, until, task):
        """Take up to `most` messages, waiting for the first until a moment."""
        queue = self.queues[name]
        while True:
            now = self.scheduler.now
            for message in [m for m in queue.messages.values() if m.sent + queue.retention < now]:
                del queue.messages[message.number]
            found = [m for m in queue.messages.values() if m.visible <= now]
            if found or now >= until:
                chosen = self.scheduler.random.sample(found, min(most, len(found)))
                for message in chosen:
                    message.visible = now + queue.visibility
                return chosen
            due = min([until, *(m.visible for m in queue.messages.values())])
            queue.pollers.append(task)
            try:
                self.scheduler.sleep(due - now)
            finally:
                queue.pollers.remove(task)

    def forget_messages(self):
        """Let the retention of every message pass."""
        for queue in self.queues.values():
            queue.messages.clear()


def is_met(present, condition):
    """Return whether a condition of the contract holds for the present item."""
    expression = condition.get("ConditionExpression")
    if expression is None:
        return True
    if expression == "attribute_not_exists(#key)":
        return present is None
    require(expression == "#revision = :previous", f"the model knows no condition {expression}")
    return present is not None and present["revision"] == condition["ExpressionAttributeValues"][":previous"]


def make_error(code, operation, status):
    """Return the error that boto3 raises."""
    return ClientError(
        {"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, operation
    )
