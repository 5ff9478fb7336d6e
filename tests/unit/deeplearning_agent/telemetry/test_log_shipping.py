"""Shipping of a node's lines and events: in few calls, in order, and without harm when AWS takes none."""

import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, NoCredentialsError

from deeplearning_agent.telemetry import log_records
from deeplearning_agent.telemetry.log_records import MOST_BYTES, MOST_EVENTS, MOST_LINES, LogFields, LogQueue, is_local
from deeplearning_agent.telemetry.log_shipper import (
    EARLY_SECONDS,
    LONGEST_PAUSE_SECONDS,
    MOST_EARLY,
    MOST_EVENT_ATTEMPTS,
    PACE_SECONDS,
    EventSender,
    LogShipper,
    find_rejected,
)
from deeplearning_agent.telemetry.publisher import TelemetryPublisher
from deeplearning_contract.cluster_event import ClusterEvent, EventKind
from deeplearning_contract.log_record import MOST_LINE_BYTES, LogLine, Speaker
from deeplearning_contract.metrics import FORMATION_SECONDS, GPU_UTILIZATION
from deeplearning_node.aws_clients import AwsClients
from tests.depth import IS_DEEP
from tests.real_time import GENEROUS_SECONDS
from tests.unit.node_lab import REGION, StillClock

GROUP = "cats-nodes"
SPEAKER = Speaker("cats", "i-0123456789abcdef0", "worker")
DAY = 86_400
START = 1000.0
NOW = time.time()
"""CloudWatch Logs takes only what was said about now."""


class Channel:
    """A service's client that does what the test says before it does what it should."""

    def __init__(self, client, faults):
        self.client = client
        self.faults = faults
        self.calls = Counter()
        self.batches = []

    def __getattr__(self, operation):
        def call(**arguments):
            self.calls[operation] += 1
            fault = self.faults.pop(0) if self.faults else None
            if fault is not None:
                raise fault
            if operation == "put_log_events":
                self.batches.append(arguments["logEvents"])
            return getattr(self.client, operation)(**arguments)

        return call


class Outlet:
    """A queue with its shipper and sender, in front of moto."""

    def __init__(self):
        self.clock = StillClock()
        self.faults = []
        clients = AwsClients(REGION)
        clients.logs.create_log_group(logGroupName=GROUP)
        self.moto = clients.logs
        self.logs = clients.__dict__["logs"] = Channel(clients.logs, self.faults)
        self.events = clients.__dict__["events"] = Channel(clients.events, self.faults)
        self.queue = LogQueue(SPEAKER, generation=2)
        self.shipper = LogShipper(clients, self.queue, GROUP, self.clock)
        self.sender = EventSender(clients, self.queue, self.clock)

    def say(self, message="hello", *, at=None, level=logging.INFO, **fields):
        record = logging.LogRecord("deeplearning_agent.test", level, __file__, 1, message, (), None)
        record.__dict__.update(LogFields(**fields).extra)
        record.created = NOW + self.clock.now - START if at is None else at
        self.queue.handle(record)

    def run(self, seconds, step=1.0, *, is_urgent=False):
        """Let time pass as the shipping thread does."""
        for _ in range(math.ceil(seconds / step)):
            self.clock.now += step
            self.shipper.ship(is_urgent=is_urgent)
            self.sender.send()

    def arrived(self):
        answer = self.moto.get_log_events(logGroupName=GROUP, logStreamName=SPEAKER.stream, startFromHead=True)
        return [LogLine.from_text(event["message"]) for event in answer["events"]]


def refuse(code, status=400):
    return ClientError({"Error": {"Code": code, "Message": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "x")


OUTAGES = {
    "no way to AWS": lambda: EndpointConnectionError(endpoint_url="https://logs"),
    "throttled": lambda: refuse("ThrottlingException"),
    "away": lambda: refuse("ServiceUnavailableException", 503),
    "a role that IAM still spreads": lambda: refuse("AccessDeniedException"),
    "no credentials yet": NoCredentialsError,
}


@pytest.fixture
def outlet(aws):
    return Outlet()


@pytest.mark.parametrize("has_stream", [False, True], ids=["first start", "restart"])
def test_a_line_arrives_in_the_nodes_stream_with_its_further_fields(outlet, has_stream):
    if has_stream:
        outlet.moto.create_log_stream(logGroupName=GROUP, logStreamName=SPEAKER.stream)
    outlet.say("mounted", details={"step": "mount", "seconds": 1.5}, metrics={GPU_UTILIZATION: 50.0})
    outlet.say(metrics={FORMATION_SECONDS: 3.0}, phase="boot")
    outlet.run(2)
    line, phase = outlet.arrived()
    assert phase.details["Phase"] == "boot"
    assert (line.message, line.speaker, line.generation, line.level) == ("mounted", SPEAKER, 2, "INFO")
    assert line.logger == "deeplearning_agent.test"
    assert line.details["step"] == "mount"
    assert (line.details["Cluster"], line.details["Node"]) == ("cats", SPEAKER.node)
    assert line.details["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["Cluster"], ["Cluster", "Node"]]
    (stream,) = outlet.moto.describe_log_streams(logGroupName=GROUP)["logStreams"]
    assert stream["logStreamName"] == "worker/i-0123456789abcdef0"


def test_a_new_generation_is_in_every_line_from_then_on(outlet):
    outlet.say("before")
    outlet.say("installed", generation=3)
    outlet.say("after")
    outlet.run(2)
    assert [line.generation for line in outlet.arrived()] == [2, 3, 3]


def test_an_exception_arrives_with_its_traceback_in_one_line(outlet):
    try:
        {}["cause"]
    except KeyError:
        record = logging.LogRecord("a", logging.ERROR, __file__, 1, "it failed", (), sys.exc_info())
    outlet.queue.handle(record)
    outlet.run(2)
    (line,) = outlet.arrived()
    assert line.message == "it failed"
    assert line.details["traceback"].startswith("Traceback")
    assert line.details["traceback"].endswith("KeyError: 'cause'")


def test_lines_of_a_call_are_ordered_by_time_whatever_the_clock_did(outlet):
    for at in (NOW + 30, NOW, NOW + 10):
        outlet.say(str(at), at=at)
    outlet.run(2)
    (batch,) = outlet.logs.batches
    assert [event["timestamp"] for event in batch] == [int((NOW + s) * 1000) for s in (0, 10, 30)]


def test_no_call_spans_a_day_though_the_clock_was_set_forward(outlet):
    outlet.say("before", at=NOW - 3 * DAY)
    outlet.say("after", at=NOW)
    outlet.run(30)
    assert [len(batch) for batch in outlet.logs.batches] == [1, 1]


@pytest.mark.parametrize("outage", OUTAGES)
def test_lines_wait_while_nobody_takes_them_and_nobody_hears_of_it_twice(outlet, outage, caplog):
    outlet.say("first")
    outlet.faults += [OUTAGES[outage]() for _ in range(5)]
    outlet.run(1000)
    assert outlet.arrived()[0].message == "first"
    assert sum("could not ship the log" in message for message in caplog.messages) == 1


def test_pauses_grow_while_nobody_takes_anything(outlet):
    outlet.faults += [refuse("ThrottlingException") for _ in range(1000)]
    outlet.say()
    outlet.run(3600)
    assert sum(outlet.logs.calls.values()) <= 5 + 3600 / LONGEST_PAUSE_SECONDS


def test_a_group_that_comes_late_gets_what_was_said_before(outlet):
    outlet.moto.delete_log_group(logGroupName=GROUP)
    outlet.say("early")
    outlet.run(30)
    outlet.moto.create_log_group(logGroupName=GROUP)
    outlet.run(120)
    assert [line.message for line in outlet.arrived()] == ["early"]


def test_a_deleted_stream_is_created_again(outlet):
    outlet.say("one")
    outlet.run(2)
    outlet.moto.delete_log_stream(logGroupName=GROUP, logStreamName=SPEAKER.stream)
    outlet.say("two")
    outlet.run(60)
    assert [line.message for line in outlet.arrived()] == ["two"]


def test_a_line_that_aws_refuses_is_dropped_and_the_next_line_reports_it(outlet):
    outlet.say("odd")
    outlet.faults += [None, refuse("InvalidParameterException")]
    outlet.run(60)
    outlet.say("even")
    outlet.run(60)
    told, line = outlet.arrived()
    assert told.message == "1 log lines before this one were dropped: CloudWatch Logs refused them"
    assert (told.level, told.details) == ("WARNING", {"dropped": 1})
    assert line.message == "even"


def test_a_line_of_a_megabyte_arrives_shortened(outlet):
    outlet.say("\U0001f408" * 1_000_000)
    outlet.run(2)
    ((event,),) = outlet.logs.batches
    assert len(event["message"]) <= MOST_LINE_BYTES
    assert outlet.arrived()[0].message.endswith("(1000000 characters)")


@pytest.mark.parametrize(("total", "size"), [(100_000 if IS_DEEP else 12_000, 1), (2_000, 5000)])
def test_many_lines_take_bounded_memory_and_are_reported(outlet, total, size):
    for number in range(total):
        outlet.say(f"{number} {'x' * size}", at=NOW)
    outlet.run(100)
    for batch in outlet.logs.batches:
        assert len(batch) <= 10_000
        assert sum(len(event["message"]) + 26 for event in batch) <= 1_048_576
    lines = [LogLine.from_text(event["message"]) for batch in outlet.logs.batches for event in batch]
    assert lines[0].details["dropped"] == total - (len(lines) - 1)
    assert len(lines) - 1 <= MOST_LINES
    assert sum(len(line.to_text()) + 26 for line in lines[1:]) <= MOST_BYTES
    assert lines[-1].message.startswith(f"{total - 1} ")


def test_an_outage_drops_the_oldest_lines_not_the_newest(outlet, monkeypatch):
    monkeypatch.setattr(log_records, "MOST_LINES", 10)
    outlet.faults += [refuse("ThrottlingException") for _ in range(3)]
    for number in range(40):
        outlet.say(str(number))
        outlet.run(1)
    outlet.run(200)
    told, *lines = outlet.arrived()
    assert [line.message for line in lines if line.message.isdigit()][-1] == "39"
    assert told.details["dropped"] == 40 - len(lines)


def test_a_node_that_always_has_something_to_say_calls_every_ten_seconds(outlet):
    for _ in range(600):
        outlet.say()
        outlet.run(1)
    assert outlet.logs.calls["create_log_stream"] == 1
    assert outlet.logs.calls["put_log_events"] <= 1 + math.ceil(600 / PACE_SECONDS)


def test_an_urgent_line_is_shipped_at_once_and_its_repetitions_are_not(outlet):
    outlet.say("first")
    outlet.run(2)
    outlet.say("it failed", is_urgent=True)
    assert outlet.queue.has_urgent.is_set()
    outlet.shipper.ship(is_urgent=True)
    assert [line.message for line in outlet.arrived()] == ["first", "it failed"]
    for _ in range(600):
        outlet.say(is_urgent=True)
        outlet.run(1, is_urgent=True)
    bound = 2 + math.ceil(600 / PACE_SECONDS) + MOST_EARLY + 600 / EARLY_SECONDS
    assert outlet.logs.calls["put_log_events"] <= bound


def test_an_error_rings_and_an_ordinary_line_does_not(outlet):
    for level in (logging.INFO, logging.ERROR):
        outlet.say(level=level)
        assert outlet.queue.has_urgent.is_set() is (level == logging.ERROR)


def test_silence_costs_no_call(outlet):
    outlet.run(600)
    assert not outlet.logs.calls


def test_a_record_that_cannot_be_written_ends_nothing(outlet, capsys):
    outlet.queue.handle(logging.LogRecord("a", logging.INFO, __file__, 1, "%d lines", ("no number",), None))
    assert "no number" in capsys.readouterr().err
    outlet.say("next")
    outlet.run(2)
    assert [line.message for line in outlet.arrived()] == ["next"]


def test_lines_that_cloudwatch_rejects_are_reported(outlet):
    rejected = {"rejectedLogEventsInfo": {"tooNewLogEventStartIndex": 0}}
    outlet.logs.client = SimpleNamespace(
        create_log_stream=outlet.moto.create_log_stream, put_log_events=lambda **_arguments: rejected
    )
    outlet.say("of a clock that is ahead")
    outlet.run(2)
    outlet.logs.client = outlet.moto
    outlet.run(60)
    assert outlet.arrived() == []
    outlet.say("later")
    outlet.run(60)
    assert [line.details.get("dropped") for line in outlet.arrived()] == [1, None]


@pytest.mark.parametrize(
    ("info", "rejected", "is_first_among"),
    [
        ({}, 0, False),
        ({"tooNewLogEventStartIndex": 3}, 2, False),
        ({"tooOldLogEventEndIndex": 2}, 2, True),
        ({"expiredLogEventEndIndex": 5, "tooOldLogEventEndIndex": 1}, 5, True),
        ({"tooOldLogEventEndIndex": 5, "tooNewLogEventStartIndex": 0}, 5, True),
    ],
)
def test_rejected_lines_are_counted_from_both_ends(info, rejected, is_first_among):
    assert find_rejected(info, 5) == (rejected, is_first_among)


# --- Events -----------------------------------------------------------------------------------------

FORMED = ClusterEvent(kind=EventKind.FORMED, cluster="cats", generation=1, nodes=3)


def test_an_event_waits_for_the_end_of_an_outage_while_lines_go_on(outlet):
    outlet.say("formed", event=FORMED)
    outlet.events.faults = [refuse("ThrottlingException") for _ in range(3)]
    outlet.run(5)
    assert [line.message for line in outlet.arrived()] == ["formed"]
    outlet.run(300)
    assert not outlet.queue.has_events
    assert outlet.events.calls == {"put_events": 4}
    for calls in (5, 6):
        outlet.say("formed again", event=FORMED)
        outlet.run(2)
        assert outlet.events.calls == {"put_events": calls}, "without an outage it is sent at once"
    assert not outlet.queue.has_events


def test_an_event_that_aws_does_not_accept_is_given_up(outlet, caplog):
    outlet.events.faults = [refuse("AccessDeniedException") for _ in range(1000)]
    outlet.say("formed", event=FORMED)
    outlet.run(3600, step=5)
    assert outlet.events.calls == {"put_events": MOST_EVENT_ATTEMPTS}
    assert sum("dropped 1 events" in message for message in caplog.messages) == 1


def test_an_event_that_the_bus_refuses_is_logged_with_the_reason(outlet, caplog):
    refused = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InvalidArgument", "ErrorMessage": "because"}]}
    outlet.events.client = SimpleNamespace(put_events=lambda **_arguments: refused)
    outlet.say("formed", event=FORMED)
    outlet.run(30)
    assert "EventBridge refused an event: InvalidArgument because" in caplog.messages
    assert outlet.events.calls == {"put_events": 1}


def test_more_events_than_a_call_takes_come_in_several(outlet):
    for generation in range(15):
        outlet.say(event=ClusterEvent(kind=EventKind.DEGRADED, cluster="cats", generation=generation, nodes=3))
    outlet.run(5)
    assert outlet.events.calls == {"put_events": 2}
    for generation in range(MOST_EVENTS + 5):
        outlet.say(event=ClusterEvent(kind=EventKind.DEGRADED, cluster="cats", generation=generation, nodes=3))
    kept = outlet.queue.take_events()
    assert [event.generation for event in kept] == list(range(5, MOST_EVENTS + 5))


# --- The threads ------------------------------------------------------------------------------------


def test_a_line_for_machines_is_not_in_the_log_for_people():
    record = logging.LogRecord("a", logging.INFO, __file__, 1, "b", (), None)
    assert is_local(record)
    record.__dict__.update(LogFields(is_local=False).extra)
    assert not is_local(record)


def test_the_end_waits_for_no_node_that_does_not_respond(lab):
    node = lab.node(0, log_group=GROUP)
    telemetry = TelemetryPublisher(node, lab.clients)
    gate = threading.Event()
    lab.clients.__dict__["logs"] = SimpleNamespace(
        create_log_stream=lambda **_arguments: gate.wait(GENEROUS_SECONDS), put_log_events=lambda **_arguments: {}
    )
    thread = threading.Thread(target=telemetry._ship, daemon=True)
    telemetry.queue.handle(logging.LogRecord("a", logging.ERROR, __file__, 1, "b", (), None))
    thread.start()
    telemetry.close(seconds=0.05)
    assert thread.is_alive()
    gate.set()
    thread.join(GENEROUS_SECONDS)
    assert not thread.is_alive()


PROGRAM = """
import json, logging, os, signal, sys
from pathlib import Path
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.node import Node
from deeplearning_agent.telemetry import publisher
from deeplearning_agent.telemetry.publisher import TelemetryPublisher
from deeplearning_contract.settings import NodeSettings

settings = NodeSettings.from_json(sys.stdin.read())
node = Node(settings, Identity("i-0123456789abcdef0", "10.0.0.9", ("10.0.0.0/16",)), Path(sys.argv[1]))
logging.getLogger().setLevel(logging.INFO)
logging.getLogger("botocore").setLevel(logging.WARNING)
publisher.END_SECONDS = 600.0  # so long the busiest machine takes
TelemetryPublisher.close.__defaults__ = (publisher.END_SECONDS,)
TelemetryPublisher(node, AwsClients(settings.region)).start()
for number in range(3):
    logging.info("line %d", number)
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_the_last_lines_of_an_agent_that_is_ended_arrive(served_lab):
    served_lab.clients.logs.create_log_group(logGroupName=GROUP)
    node = served_lab.node(0, log_group=GROUP)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(node.root)],
        input=json.dumps(node.settings.to_document()),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == -signal.SIGTERM, done.stderr
    answer = served_lab.clients.logs.get_log_events(
        logGroupName=GROUP, logStreamName="master/i-0123456789abcdef0", startFromHead=True
    )
    found = [LogLine.from_text(event["message"]).message for event in answer["events"]]
    assert found == ["line 0", "line 1", "line 2", "received a signal to end"]
