"""The agent's calls to AWS, each broken in every way that AWS or the way there can break it."""

import itertools

import botocore.exceptions
import pytest
from fault_proxy import (
    CUT_OFF,
    GARBLED,
    RESET_AFTER,
    RESET_BEFORE,
    CallerDiedError,
    die_after,
    refuse,
    replay_first,
    stall,
)

from deeplearning_agent.coordination.state_store import StateStore
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.reason import Reason
from deeplearning_node import aws_clients, aws_errors
from deeplearning_node.aws_clients import (
    ANSWER_SECONDS,
    ATTEMPTS,
    DENIED_SECONDS,
    LONGEST_CALL_SECONDS,
    AwsClients,
    AwsFailure,
    call_for,
    describe_aws_error,
)
from deeplearning_node.aws_errors import is_passing

AWS_SECONDS = 300
PASSING = [
    refuse("ThrottlingException"),
    refuse("RequestLimitExceeded"),
    refuse("ProvisionedThroughputExceededException"),
    refuse("OverLimit", 403),
    refuse("InternalFailure", 500),
    refuse("InternalServerError", 500),
    refuse("ServiceUnavailable", 503),
    refuse("RequestTimeout"),
    refuse("InvalidSignatureException", message="Signature expired: 1 is now earlier than 2"),
    RESET_BEFORE,
    RESET_AFTER,
    CUT_OFF,
    GARBLED,
]
PASSING_IDS = [
    "throttling", "limit", "throughput", "over-limit", "failure", "server-error", "unavailable", "time-out", "skewed",
    "reset-before", "reset-after", "cut-off", "garbled",
]  # fmt: skip
FIRST = ClusterState("training", 1, 1, Phase.LAUNCHED, 2, ("i-00000001", "i-00000002"))


def read_object(clients):
    return clients.s3.get_object(Bucket="bucket", Key="key")["Body"].read()


@pytest.fixture
def store(clients, table):
    return StateStore(clients, table, "training")


@pytest.mark.fault(30, 39, 41, 54)
@pytest.mark.parametrize("fault", PASSING, ids=PASSING_IDS)
def test_a_read_outlasts_what_passes(store, proxy, clock, fault):
    store.write(FIRST)
    proxy.clear()
    # More broken calls than a client makes by itself.
    proxy.inject(fault, "GetItem", on=tuple(range(1, 2 * ATTEMPTS + 2)))
    assert call_for(clock, AWS_SECONDS, store.read) == FIRST
    assert proxy.count("GetItem") == 2 * ATTEMPTS + 2


@pytest.mark.fault(41)
@pytest.mark.parametrize("fault", PASSING, ids=PASSING_IDS)
def test_a_write_is_made_once_whatever_becomes_of_its_answer(store, proxy, clock, fault):
    proxy.inject(fault, "PutItem", on=(1, 2, 3))
    assert call_for(clock, AWS_SECONDS, lambda: store.write(FIRST)), "its own write is not a lost race"
    assert store.read() == FIRST
    following = FIRST.advance(Phase.PUBLISHED, user_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey1")
    proxy.clear()
    proxy.inject(fault, "PutItem", on=(1,))
    assert call_for(clock, AWS_SECONDS, lambda: store.write(following))
    assert store.read() == following


@pytest.mark.fault(36, 41)
def test_a_lost_answer_to_a_write_that_lost_its_race_is_a_lost_race(store, proxy, clock):
    store.write(FIRST)
    faster = FIRST.advance(Phase.FAILED, reason=Reason("another writer was faster"))
    store.write(faster)
    proxy.clear()
    proxy.inject(RESET_AFTER, "PutItem", on=(1,))
    assert not call_for(clock, AWS_SECONDS, lambda: store.write(FIRST.advance(Phase.PUBLISHED)))
    assert store.read() == faster


@pytest.mark.fault(33, 41)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_caller_that_dies_after_any_call_leaves_what_the_next_one_completes(proxy, table, clock, number):
    def publish(clients):
        store = StateStore(clients, table, "training")
        state = store.read()
        if state is None:
            store.write(FIRST)
            state = store.read()
        if state.phase is Phase.LAUNCHED:
            store.write(state.advance(Phase.PUBLISHED))
        return store.read()

    doomed = AwsClients("eu-west-1")
    die_after(doomed.session, number)
    with pytest.raises(CallerDiedError):
        publish(doomed)
    assert publish(AwsClients("eu-west-1")) == FIRST.advance(Phase.PUBLISHED)


@pytest.mark.fault(37)
def test_a_stale_read_cannot_overwrite_what_came_after_it(store, proxy):
    store.write(FIRST)
    proxy.clear()
    proxy.inject(replay_first(), "GetItem")
    old = store.read()
    store.write(old.advance(Phase.PUBLISHED))
    stale = store.read()
    assert stale == FIRST
    assert not store.write(stale.advance(Phase.FAILED, reason=Reason("decided on what was not so")))
    proxy.clear()
    assert store.read().phase is Phase.PUBLISHED


@pytest.mark.fault(39, 41, 63)
@pytest.mark.parametrize(
    "fault",
    [stall(ANSWER_SECONDS), refuse("ThrottlingException"), refuse("ServiceUnavailable", 503), RESET_BEFORE],
    ids=["stall", "throttling", "unavailable", "reset"],
)
def test_a_call_that_never_succeeds_ends_with_its_deadline(proxy, clock, fault):
    proxy.inject(fault)
    store = StateStore(AwsClients("eu-west-1"), "state", "training")
    began = clock.now
    with pytest.raises(AwsFailure) as raised:
        call_for(clock, 60, store.read)
    assert clock.now - began <= 60 + LONGEST_CALL_SECONDS
    assert "GetItem" in raised.value.cause or proxy.url in raised.value.cause
    assert proxy.count("GetItem") < 60, "tried with pauses, not as fast as it goes"


@pytest.mark.fault(42)
@pytest.mark.parametrize(
    ("operation", "call"),
    [
        ("GetItem", lambda clients: StateStore(clients, "state", "training").read()),
        ("PutItem", lambda clients: StateStore(clients, "state", "training").write(FIRST)),
        ("SendMessage", lambda clients: clients.sqs.send_message(QueueUrl="http://x/1/q", MessageBody="x")),
        ("ReceiveMessage", lambda clients: clients.sqs.receive_message(QueueUrl="http://x/1/q")),
        ("GetObject", lambda clients: clients.s3.get_object(Bucket="b", Key="k")["Body"].read()),
    ],
)
def test_a_denied_call_names_its_action_after_a_minute(clients, proxy, clock, operation, call):
    proxy.inject(refuse("AccessDenied" if operation == "GetObject" else "AccessDeniedException", 403), operation)
    began = clock.now
    with pytest.raises(AwsFailure, match=f"calling the {operation} operation") as raised:
        call_for(clock, 3000, lambda: call(clients))
    assert DENIED_SECONDS <= clock.now - began < 2 * DENIED_SECONDS
    assert raised.value.is_denied
    assert "policy of the node's role" in raised.value.remedy


@pytest.mark.fault(42)
def test_a_role_that_iam_has_not_spread_yet_is_waited_for(store, proxy, clock):
    proxy.inject(refuse("UnrecognizedClientException"), "GetItem", on=(1, 2, 3))
    assert call_for(clock, AWS_SECONDS, store.read) is None


@pytest.mark.fault(39)
def test_an_error_that_no_retry_mends_fails_at_once(store, proxy, clock):
    for code in ("ValidationException", "ResourceNotFoundException", "ItemCollectionSizeLimitExceededException"):
        proxy.clear()
        proxy.inject(refuse(code), "GetItem")
        with pytest.raises(AwsFailure, match=code):
            call_for(clock, 3000, store.read)
        assert proxy.count("GetItem") == 1
    with pytest.raises(AwsFailure, match="is the wrong type"):
        call_for(clock, 3000, lambda: store._clients.dynamodb.get_item(TableName=5))
    assert proxy.count("GetItem") == 1


@pytest.mark.fault(41)
@pytest.mark.parametrize("fault", [GARBLED, CUT_OFF], ids=["garbled", "cut-off"])
def test_half_a_response_is_an_error_in_every_protocol(clients, proxy, clock, fault):
    clients.s3.create_bucket(Bucket="bucket", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    clients.s3.put_object(Bucket="bucket", Key="key", Body=b"text")
    queue = clients.sqs.create_queue(QueueName="queue")["QueueUrl"]
    clients.sqs.send_message(QueueUrl=queue, MessageBody="a message that must not look like no message")
    proxy.clear()
    proxy.inject(CUT_OFF, "GetObject", on=(1, 2, 3))
    proxy.inject(fault, "ReceiveMessage", on=(1, 2, 3))
    data = call_for(clock, AWS_SECONDS, lambda: read_object(clients))
    assert data == b"text"
    receive = lambda: clients.sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0)  # noqa: E731
    assert len(call_for(clock, AWS_SECONDS, receive)["Messages"]) == 1
    assert (proxy.count("GetObject"), proxy.count("ReceiveMessage")) == (4, 4)


@pytest.mark.fault(54)
@pytest.mark.parametrize(
    ("ahead", "words"), [(600, "600 s ahead of AWS's"), (-600, "600 s behind AWS's"), (3, "wrong")]
)
def test_a_wrong_clock_is_waited_for_and_named(store, proxy, clock, ahead, words):
    proxy.inject(refuse("InvalidSignatureException"), "GetItem")
    with pytest.raises(AwsFailure, match="InvalidSignature") as raised:
        call_for(clock, AWS_SECONDS, store.read)
    error = raised.value.__cause__
    assert is_passing(error)
    sent = error.response["ResponseMetadata"]["HTTPHeaders"]["date"]
    assert sent
    at_aws = aws_errors.parsedate_to_datetime(sent).timestamp()
    assert words in describe_aws_error(error, lambda: at_aws + ahead).remedy


def test_an_error_without_a_date_has_no_known_skew():
    error = botocore.exceptions.ClientError({"Error": {"Code": "RequestExpired"}}, "GetItem")
    assert "which is wrong" in describe_aws_error(error).remedy


def test_every_fault_of_the_list_is_broken_for_real(store, proxy, clock, monkeypatch):
    """Without the agent's own repetition each of them reaches the caller."""
    monkeypatch.setattr(aws_clients.Deadline, "attempts", lambda self: iter([1]))
    for fault, number in zip(PASSING, itertools.count()):
        proxy.clear()
        proxy.inject(fault, "GetItem")
        with pytest.raises(AwsFailure):
            call_for(clock, AWS_SECONDS, store.read)
        assert 1 <= proxy.count("GetItem") <= ATTEMPTS, number
