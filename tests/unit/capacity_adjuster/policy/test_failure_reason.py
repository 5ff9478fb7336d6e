"""A failed launch becomes a reason that names the cause and the way out."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.failure_reason import Shortfall, explain_failure, explain_shrink, explain_wait
from deeplearning_contract.launch_failures import LAUNCH_FAILURE_KINDS, Scope, classify_failure
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import MAX_REASON

SHORTFALL = Shortfall(NodeRole.WORKER, launched=1, requested=4, minimum=2)
MESSAGES = json.loads((Path(__file__).parents[3] / "events" / "launch_failures.json").read_text())
"""
Kind of failure -> status messages in Auto Scaling's words.

A region's validation is that of skyplane#799, cloudlaunch#172 and openshift/installer#829, an account's that of
cloudlaunch#150; kops#3606 saw it among scaling activities. Throttling is cdk-github-runners#946's and toil#1445's, the
quota without a name layer0#273's. A Capacity Block that is not active is of the Amazon EC2 Auto Scaling User Guide,
"Troubleshoot instance launch failures".
"""

VCPUS = MESSAGES["VcpuLimitExceeded"][0]


def fail(message, zone=""):
    return Activity("a", "launch", "Failed", 0.0, 1.0, message, zone)


@pytest.mark.fault(5, 6, 7, 8)
@pytest.mark.parametrize(("name", "message"), [(name, text) for name, texts in MESSAGES.items() for text in texts])
def test_auto_scalings_words_are_understood(name, message):
    assert classify_failure(message).name == name


def test_every_kind_has_an_example():
    assert set(MESSAGES) == {kind.name for kind in LAUNCH_FAILURE_KINDS} | {"LaunchFailed"}


SCOPES = {
    Scope.CANDIDATE: {
        "SpotPriceTooLow",
        "InsufficientSpotCapacity",
        "InsufficientFreeAddressesInSubnet",
        "ReservationCapacityExceeded",
        "InsufficientInstanceCapacity",
        "Unsupported",
        "UnhealthyInstance",
        "LaunchFailed",
    },
    Scope.QUOTA: {"MaxSpotInstanceCountExceeded", "VcpuLimitExceeded", "InstanceLimitExceeded"},
    Scope.REGION: {"PendingVerification", "RequestLimitExceeded", "CapacityBlockNotActive"},
}


@pytest.mark.parametrize(("name", "message"), [(name, texts[0]) for name, texts in MESSAGES.items()])
def test_a_refusal_rules_out_what_shares_its_cause_and_no_more(name, message):
    """Every candidate has the same key pair, profile, image, keys and volumes, so that other kinds rule out all."""
    scope = next((scope for scope, names in SCOPES.items() if name in names), Scope.CLUSTER)
    assert classify_failure(message).scope is scope


@pytest.mark.parametrize("kind", LAUNCH_FAILURE_KINDS, ids=lambda kind: kind.name)
def test_a_code_alone_is_understood(kind):
    # Some names are ours, for what EC2 has several codes for, or none.
    codes = {
        "SpotPriceTooLow": "SpotMaxPriceTooLow",
        "CapacityBlockNotActive": "Capacity Block is not active",
        "InsufficientSpotCapacity": "UnfulfillableCapacity",
        "InvalidIamInstanceProfile": "Invalid IAM Instance Profile",
        "UnhealthyInstance": "InstanceFailure",
    }
    assert classify_failure(f"{codes.get(kind.name, kind.name)} - words.") is kind


def test_says_how_far_it_came_why_and_what_to_do():
    reason = str(explain_failure(SHORTFALL, fail(MESSAGES["InsufficientFreeAddressesInSubnet"][0], "us-east-1a")))
    assert reason == (
        "launched workers must be at least 2, got 1 of 4: InsufficientFreeAddressesInSubnet in us-east-1a: There are "
        "not enough free addresses in subnet 'subnet-1' to satisfy the requested number of instances; free addresses "
        "in the subnet, or use a larger one, or lower workers.min_capacity"
    )
    assert explain_failure(SHORTFALL, fail("no capacity for type X.")).cause.endswith(": no capacity for type X")
    unsupported = fail(MESSAGES["Unsupported"][1])
    smaller = explain_shrink(Shortfall(NodeRole.WORKER, 3, 4, 2), unsupported)
    assert smaller.remedy == explain_failure(SHORTFALL, unsupported).remedy != ""
    assert smaller.cause.startswith(
        "3 of 4 workers launched, at least 2 were required: Unsupported: The requested configuration"
    )


@pytest.mark.fault(5)
@pytest.mark.parametrize(
    ("instance_type", "quota", "message"),
    [
        ("p3dn.24xlarge", "Running On-Demand P instances", VCPUS),
        ("g5.xlarge", "Running On-Demand G and VT instances", VCPUS),
        ("trn1.32xlarge", "Running On-Demand Trn instances", VCPUS),
        ("c5.large", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances", VCPUS),
        ("u-6tb1.metal", "Running On-Demand High Memory instances", VCPUS),
        ("q9.large", "Running On-Demand instances of the type's family", VCPUS),
        ("c5.large", "Running On-Demand P instances", "VcpuLimitExceeded for p5.48xlarge"),
    ],
)
def test_names_the_quota_of_the_type_that_the_message_names_or_else_of_those_that_run(instance_type, quota, message):
    reason = str(explain_failure(SHORTFALL, fail(message), {instance_type}))
    assert f'request an increase of the EC2 quota "{quota}" in Service Quotas' in reason


@pytest.mark.parametrize(
    ("launched", "minimum", "least", "may_lower"),
    [(0, 0, 1, False), (0, 2, 2, False), (1, 2, 2, True), (2, 2, 2, False)],
)
def test_a_lower_minimum_is_a_remedy_only_where_some_workers_launched(launched, minimum, least, may_lower):
    reason = explain_failure(Shortfall(NodeRole.WORKER, launched, 4, minimum), fail("InsufficientInstanceCapacity"))
    assert f"must be at least {least}, got {launched} of 4" in reason.cause
    assert ("workers.min_capacity" in reason.remedy) is may_lower


def test_a_wait_says_who_retries():
    waited = explain_wait(NodeRole.MASTER, fail("RequestLimitExceeded"))
    assert waited.startswith("master has not launched yet: ")
    assert waited.endswith("; Auto Scaling retries")


def test_text_that_differs_at_each_attempt_is_left_out():
    texts = (
        f"You are not authorized. Encoded authorization failure message: {blob} Launching failed." for blob in "ab"
    )
    assert len({explain_failure(SHORTFALL, fail(text)) for text in texts}) == 1


@given(st.text(max_size=3000), st.text(max_size=60), st.integers(0, 5000), st.integers(0, 5000), st.integers(0, 5000))
def test_any_message_gives_a_reason_of_bounded_length(message, zone, launched, requested, minimum):
    for role in NodeRole:
        shortfall = Shortfall(role, launched, requested, minimum)
        for explain in (explain_failure, explain_shrink):
            reason = str(explain(shortfall, fail(message, zone)))
            assert reason
            assert len(reason) <= MAX_REASON


def test_a_long_message_keeps_the_remedy():
    reason = str(explain_failure(SHORTFALL, fail("The key pair 'x' does not exist. " * 100)))
    assert len(reason) == MAX_REASON
    assert reason.endswith("...; choose a key_pair that exists in this region, or none")
