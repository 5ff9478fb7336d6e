"""Creation policies: which signals complete a resource, and who may send them."""

import base64
import json

import pytest

from cdk_rehearsal.embedded_aws.base.signals import Outcome, ResourceSignals, read_duration
from cdk_rehearsal.errors import UnsupportedError
from cdk_rehearsal.identity_document import read_instance, sign_document
from cdk_rehearsal.referees.resource_support import require_support

GROUP = "AWS::AutoScaling::AutoScalingGroup"
WAITS = {"ResourceSignal": {"Count": 4, "Timeout": "PT10M"}}


def settle(policy, *statuses, is_group=True):
    """Return how a resource ended that each status was sent for, by an instance of its own."""
    signals = ResourceSignals(policy, is_group=is_group)
    for number, status in enumerate(statuses):
        signals.take(f"i-{number}", status)
    return signals.settle()


def test_a_resource_is_complete_with_as_many_signals_as_its_policy_counts():
    assert settle(WAITS, *["SUCCESS"] * 3) is None
    assert settle(WAITS, *["SUCCESS"] * 4) == Outcome()
    assert settle({}, "SUCCESS") == Outcome()


def test_an_instance_counts_once():
    signals = ResourceSignals(WAITS, is_group=True)
    for _ in range(4):
        signals.take("i-0", "SUCCESS")
    assert signals.settle() is None


def test_a_failure_ends_the_wait_when_the_percentage_cannot_be_reached_any_more():
    words = "Received {} FAILURE signal(s) out of 4. Unable to satisfy {}% MinSuccessfulInstancesPercent requirement"
    assert settle(WAITS, "FAILURE").reason == words.format(1, 100)
    half = WAITS | {"AutoScalingCreationPolicy": {"MinSuccessfulInstancesPercent": "50"}}
    assert settle(half, "FAILURE", "FAILURE", "SUCCESS") is None
    assert settle(half, "FAILURE", "FAILURE", "SUCCESS", "SUCCESS") == Outcome()
    assert settle(half, *["FAILURE"] * 3).reason == words.format(3, 50)


def test_signals_that_are_missing_at_the_time_out_count_as_failures(monkeypatch):
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    signals = ResourceSignals(WAITS, is_group=True)
    signals.take("i-0", "SUCCESS")
    now += 599
    assert signals.settle() is None
    now += 1
    assert signals.settle().reason.startswith("Received 1 SUCCESS signal(s) out of 4. Unable to satisfy 100%")


def test_one_failure_ends_the_wait_for_a_single_instance_and_so_does_the_time_out(monkeypatch):
    """The words: widdix/aws-ec2-ssh#137 and aws/aws-cli#7133."""
    policy = {"ResourceSignal": {"Count": 2, "Timeout": "PT10M"}}
    assert settle(policy, "SUCCESS", is_group=False) is None
    assert settle(policy, "SUCCESS", "SUCCESS", is_group=False) == Outcome()
    assert settle(policy, "SUCCESS", "FAILURE", is_group=False).reason == "Received FAILURE signal with UniqueId i-1"
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    signals = ResourceSignals(policy, is_group=False)
    signals.take("i-0", "SUCCESS")
    now += 600
    assert signals.settle().reason == "Failed to receive 1 resource signal(s) within the specified duration"


@pytest.mark.parametrize(("text", "seconds"), [("PT15M", 900), ("PT1H30M10S", 5410), ("PT12H", 43200), ("PT1S", 1)])
def test_a_duration_is_read(text, seconds):
    assert read_duration(text) == seconds


@pytest.mark.parametrize("text", ["PT", "15M", "PT12H1S", "PT0S", "P1D", ""])
def test_an_invalid_duration_is_refused(text):
    with pytest.raises(ValueError, match="Timeout must be a duration of at most 12 hours, such as PT15M, got "):
        read_duration(text)


def test_a_creation_policy_acts_on_groups_and_instances_and_is_refused_elsewhere():
    for kind, properties in ((GROUP, {}), ("AWS::EC2::Instance", {"SubnetId": "subnet-1"})):
        require_support({"Resources": {"Group": {"Type": kind, "CreationPolicy": WAITS, "Properties": properties}}})
    for kind, policy, path in (
        ("AWS::SQS::Queue", WAITS, "CreationPolicy"),
        (GROUP, {"StartFleet": True}, "CreationPolicy StartFleet"),
    ):
        with pytest.raises(UnsupportedError, match=f"Other: {kind} attribute {path}"):
            require_support({"Resources": {"Other": {"Type": kind, "CreationPolicy": policy}}})


def test_an_instance_is_known_by_its_signed_document_alone():
    document = json.dumps({"instanceId": "i-1"})
    encoded, forged = (base64.b64encode(text.encode()).decode() for text in (document, document.replace("1", "2")))
    assert read_instance(f"CFN_V1 {encoded}:{sign_document(document)}") == "i-1"
    for header in (f"CFN_V1 {forged}:{sign_document(document)}", f"CFN_V1 {encoded}:", "CFN_V1 %:x", "AWS4 x:y", ""):
        assert read_instance(header) is None
