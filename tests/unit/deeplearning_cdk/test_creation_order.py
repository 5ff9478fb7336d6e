"""A resource waits for what it needs, and says it once."""

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from deeplearning_cdk.creation_order import prune_dependencies


@pytest.fixture
def stack():
    return cdk.Stack(cdk.App(analytics_reporting=False), "Stack")


def _depends_on(stack, kind):
    (resource,) = assertions.Template.from_stack(stack).find_resources(kind).values()
    return resource.get("DependsOn")


def _make_function(stack):
    code = lambda_.Code.from_inline("x")
    return lambda_.Function(stack, "Function", runtime=lambda_.Runtime.PYTHON_3_13, handler="index.x", code=code)


def test_the_cdk_repeats_what_is_referred_to(stack):
    _make_function(stack)
    assert _depends_on(stack, "AWS::Lambda::Function") == ["FunctionServiceRole675BB04A"]


def test_what_is_referred_to_is_not_repeated(stack):
    prune_dependencies(_make_function(stack))
    assert _depends_on(stack, "AWS::Lambda::Function") is None


def test_what_is_only_waited_for_stays_though_it_is_added_later(stack):
    function = _make_function(stack)
    prune_dependencies(function)
    queue = sqs.Queue(stack, "Queue")
    function.node.add_dependency(queue)
    assert _depends_on(stack, "AWS::Lambda::Function") == [stack.resolve(queue.node.default_child.logical_id)]
