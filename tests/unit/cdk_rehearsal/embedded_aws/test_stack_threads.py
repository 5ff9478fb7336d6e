"""Defects of the rehearsal in the threads of stacks, which must end an operation and never leave it waiting."""

from types import SimpleNamespace

import pytest

from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions
from cdk_rehearsal.embedded_aws.cloudformation import stack as stacks
from cdk_rehearsal.embedded_aws.cloudformation.stack import Stack
from cdk_rehearsal.embedded_aws.cloudformation.stack_registry import StackRegistry
from cdk_rehearsal.embedded_aws.resources.creation import Created
from cdk_rehearsal.place import Place

HANDLE = "AWS::CloudFormation::WaitConditionHandle"
SECONDS = 10
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
    assert reasons == [f"InternalFailure: {type(error).__name__}: {error}"]


def test_an_error_beside_the_resources_fails_the_deletion_with_its_reason(create, monkeypatch):
    stack = create()
    monkeypatch.setattr(stacks, "draw_order", fail(LookupError("no order")))
    assert delete(stack)[:2] == ("DELETE_FAILED", "InternalFailure: LookupError: no order")


def test_an_error_beside_the_resources_fails_the_creation_with_its_reason(create, monkeypatch):
    monkeypatch.setattr(stacks, "draw_order", fail(LookupError("no order")))
    stack = create()
    assert (stack.status, stack.reason) == ("CREATE_FAILED", "InternalFailure: LookupError: no order")


def test_what_the_rehearsal_cannot_resolve_fails_a_resource_as_its_limit(create, monkeypatch):
    limit = stacks.AssemblyError("Fn::GetAZs must be of the stack's region in the rehearsal")
    monkeypatch.setattr(stacks.BoundTemplate, "properties", fail(limit))
    assert create().reason == str(limit)
