"""Defects of the rehearsal in the threads of stacks, which must end an operation and never leave it waiting."""

import re
from types import SimpleNamespace

import pytest
from botocore.exceptions import ClientError, ParamValidationError

from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.cloudformation import stack as stacks
from cdk_rehearsal.embedded_aws.cloudformation.stack import Stack
from cdk_rehearsal.embedded_aws.cloudformation.stack_registry import StackRegistry
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, MissingPropertyError, Properties
from cdk_rehearsal.embedded_aws.server.call_log import CallLog
from cdk_rehearsal.errors import AssemblyError
from cdk_rehearsal.place import Place

HANDLE = "AWS::CloudFormation::WaitConditionHandle"
SECONDS = 10
INVALID = "Properties validation failed for resource Handle with message:"
OWN_FAULT = "the rehearsal could not end the operation of stack sample, AWS may: LookupError: no order"
ERRORS = [TypeError("no such argument"), KeyError("Ids"), ValueError("Ids must not be empty")]


def fail(error):
    """Return a function that raises an error whatever it is called with."""

    def raise_it(*_):
        raise error

    return raise_it


@pytest.fixture
def create(monkeypatch):
    """Return the function that creates a stack of one resource, which a function deletes."""

    def start(delete=None):
        monkeypatch.setitem(stacks.CREATORS, HANDLE, lambda _: Created("handle", delete=delete))
        observations = SimpleNamespace(report=lambda *_, **__: None)
        place = Place("123456789012", "us-east-1", "http://127.0.0.1:1")
        services = SimpleNamespace(place=place, images=None, options=CloudOptions(), observations=observations)
        template = {"Resources": {"Handle": {"Type": HANDLE}}}
        stack = Stack("sample", template, services, StackRegistry(), parameters={}, tags={})
        stack.start()
        assert stack.join(SECONDS)
        return stack

    return start


def delete(stack):
    """Delete a stack; return its status, the reason, and the reasons of its resources."""
    stack.delete()
    assert stack.join(SECONDS), "the deletion never ended"
    return stack.status, stack.reason, [entry.reason for entry in stack.resources()]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_of_a_resources_deletion_fails_the_deletion_with_its_reason(create, error):
    status, reason, reasons = delete(create(fail(error)))
    assert (status, reason) == ("DELETE_FAILED", "The following resource(s) failed to delete: [Handle].")
    assert reasons == [f"the rehearsal could not delete {HANDLE}, AWS may: {type(error).__name__}: {error}"]


def test_an_error_beside_the_resources_fails_the_deletion_with_its_reason(create, monkeypatch):
    stack = create()
    monkeypatch.setattr(stacks, "draw_order", fail(LookupError("no order")))
    assert delete(stack)[:2] == ("DELETE_FAILED", OWN_FAULT)


def test_an_error_beside_the_resources_fails_the_creation_with_its_reason(create, monkeypatch):
    monkeypatch.setattr(stacks, "draw_order", fail(LookupError("no order")))
    stack = create()
    assert (stack.status, stack.reason) == ("CREATE_FAILED", OWN_FAULT)


def test_what_the_rehearsal_cannot_resolve_fails_a_resource_as_its_limit(create, monkeypatch):
    limit = AssemblyError("Fn::GetAZs must be of the stack's region in the rehearsal")
    monkeypatch.setattr(stacks.BoundTemplate, "properties", fail(limit))
    assert create().reason == str(limit)


def _refuse(code, message):
    return ClientError({"Error": {"Code": code, "Message": message}}, "CreateQueue")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MissingPropertyError("QueueName"), f"{INVALID} #: required key [QueueName] not found"),
        (
            ParamValidationError(report="Invalid type\nfor Name"),
            f"{INVALID} Parameter validation failed: Invalid type for Name",
        ),
        (_refuse("InternalFailure", "the rehearsal could not carry out it"), "the rehearsal could not carry out it"),
        (_refuse("Taken", "a name"), "An error occurred (Taken) when calling the CreateQueue operation: a name"),
        (AttributeError("x"), f"the rehearsal could not create {HANDLE}, AWS may: AttributeError: x"),
        (KeyError("Key"), f"the rehearsal could not create {HANDLE}, AWS may: KeyError: 'Key'"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_refusal_is_told_as_one_and_a_defect_as_the_rehearsals_own(create, monkeypatch, error, reason):
    """CloudFormation user guide, "Troubleshooting CloudFormation": a reason names the resource and the property."""
    monkeypatch.setattr(stacks.BoundTemplate, "properties", fail(error))
    assert create().reason == reason


def test_a_property_that_is_missing_is_named():
    with pytest.raises(MissingPropertyError) as refused:
        Properties({})["QueueName"]
    assert refused.value.name == "QueueName"
    assert Properties({}).get("QueueName") is None


@pytest.mark.parametrize(
    ("kind", "properties", "reason"),
    [
        (
            "AWS::CloudFormation::Stack",
            {"TemplateURL": "s3://templates/network.json"},
            "TemplateURL must be a supported URL, got s3://templates/network.json",
        ),
        (
            "AWS::SNS::TopicPolicy",
            {"PolicyDocument": {}, "Topics": ["alarms"]},
            "Invalid parameter: TopicArn Reason: an ARN must have at least 6 elements, not alarms",
        ),
    ],
)
def test_an_address_of_another_form_is_refused_in_the_words_of_aws(kind, properties, reason):
    creation = Creation("Made", Properties(properties), "sample", "arn", None)
    with pytest.raises(ValueError, match=re.escape(reason)):
        stacks.CREATORS[kind](creation)


def test_calls_of_a_node_that_the_rehearsal_cannot_carry_out_are_its_defects_and_those_of_the_agent_are_not():
    log, node = CallLog(), Principal("instance", "", "i-1")
    for operation, status in (("ssm.ListOpsMetadata", 501), ("ssm.ListOpsMetadata", 501), ("ssm.GetParameter", 400)):
        log.record(0.0, operation, node, status)
    log.record(0.0, "ssm.UpdateInstanceInformation", node, 501)
    assert log.find_defects() == ["the rehearsal could not carry out ssm.ListOpsMetadata of instance i-1"]
