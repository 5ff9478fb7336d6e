"""AWS as moto, empty and on this machine."""

import contextlib
import json
import threading
from dataclasses import dataclass

import moto
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.compat import HTTPHeaders
from moto.core.botocore_stubber import BotocoreStubber
from moto.moto_api._internal.models import moto_api_backend

from deeplearning_contract.cluster_event import EVENT_SOURCE, ClusterEvent, EventKind
from deeplearning_contract.reason import Reason

NOBODY_LISTENS = "http://127.0.0.1:9"
_dispatch = BotocoreStubber.process_request
_turn = threading.RLock()


def _dispatch_alone(self, request):
    """Answer one call at a time: moto iterates over sets and dictionaries that other calls change."""
    with _turn:
        return _dispatch(self, request)


BotocoreStubber.process_request = _dispatch_alone


@contextlib.contextmanager
def empty_aws(endpoint=None):
    """
    Answer every AWS call by moto, with no trace of the last test and no way to a real account.

    Within this process without HTTP; with an endpoint over HTTP, for what a test starts in processes of its own.
    """
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as answering:
        for name, value in {
            "MOTO_EC2_LOAD_DEFAULT_AMIS": "false",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/nonexistent",
            "HTTPS_PROXY": NOBODY_LISTENS,  # for a process that a test starts: AWS's own address leads nowhere
        }.items():
            patch.setenv(name, value)
        if endpoint is None:
            patch.delenv("AWS_ENDPOINT_URL", raising=False)  # moto is asked for AWS's own addresses only
            answering.enter_context(moto.mock_aws())
        else:
            patch.setenv("AWS_ENDPOINT_URL", endpoint)
        moto_api_backend.reset()  # another lab may be open, and moto resets itself for the first one only
        yield


@dataclass(frozen=True)
class Answer:
    """An HTTP answer; with status 0 the body alone is sent, which is no HTTP."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def ask_moto(method, path, headers, body):
    """Hand a call to moto in this process, at the address of the service and region that it was signed for."""
    *_, region, service, _ = headers["Authorization"].partition("Credential=")[2].partition(",")[0].split("/")
    host = f"{service}.{region}.amazonaws.com"
    found = HTTPHeaders()
    for name, value in (headers | {"Host": host}).items():
        found[name] = value
    request = AWSPreparedRequest(method, f"https://{host}{path}", found, body, stream_output=False)
    status, answered, content = BotocoreStubber().process_request(request)
    content = content.encode() if isinstance(content, str) else content
    return Answer(int(status), tuple((name, str(value)) for name, value in answered.items()), content)


def create_state_table(dynamodb):
    dynamodb.create_table(
        TableName="state",
        KeySchema=[{"AttributeName": "cluster", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "cluster", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )


def read_event(kind, detail):
    """Return the event of a detail type and its detail, whose message must be the sentence of its reason."""
    fields = {**detail, "reason": Reason(**detail["reason"])}
    assert fields.pop("message") == str(fields["reason"])
    return ClusterEvent(kind=EventKind(kind), **fields)


def hear_events(sqs, events):
    """Subscribe to the cluster's events, as a rule of the user's does; return how to read them."""
    queue = sqs.create_queue(QueueName="heard")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(
        Name="heard", EventPattern=json.dumps({"source": [{"prefix": f"{EVENT_SOURCE}."}]}), State="ENABLED"
    )
    events.put_targets(Rule="heard", Targets=[{"Id": "heard", "Arn": arn}])

    def read():
        messages = sqs.receive_message(QueueUrl=queue, MaxNumberOfMessages=10).get("Messages", [])
        events = [json.loads(message["Body"]) for message in messages]
        return [read_event(event["detail-type"], event["detail"]) for event in events]

    return read
