"""A resource waits for what it needs, and says it once."""

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs

from deeplearning_cdk import JobEnvironment, NodeImage, Spending, TrainingCluster
from deeplearning_cdk.creation_order import prune_dependencies
from tests.foreign_dependencies import find_foreign_dependencies


@pytest.fixture
def stack(make_stack):
    return make_stack()


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


def _make_two_stacks(app):
    first = TrainingCluster(cdk.Stack(app, "First"), "Cluster", worker_instance_type="m5.large")
    TrainingCluster(
        cdk.Stack(app, "Second"),
        "Cluster",
        worker_instance_type="m5.large",
        vpc=first.network.vpc,
        file_system=first.file_system,
    )
    return {artifact.stack_name: artifact for artifact in app.synth().stacks}


def test_what_another_stack_has_is_waited_for_by_the_stack_and_never_by_a_resource(make_app):
    stacks = _make_two_stacks(make_app())
    for artifact in stacks.values():
        assert find_foreign_dependencies(artifact.template) == []
    assert "First" in {dependency.id for dependency in stacks["Second"].dependencies}


def test_a_cluster_in_a_nested_stack_waits_for_what_its_parent_has(make_app):
    parent = cdk.Stack(make_app(), "Parent")
    vpc = ec2.Vpc(parent, "Vpc", max_azs=1, restrict_default_security_group=False)
    nested = cdk.NestedStack(parent, "Nested")
    TrainingCluster(nested, "Cluster", worker_instance_type="m5.large", vpc=vpc)
    inner = assertions.Template.from_stack(nested).to_json()
    assert find_foreign_dependencies(inner) == []
    outer = assertions.Template.from_stack(parent)
    assert find_foreign_dependencies(outer.to_json()) == []
    (resource,) = outer.find_resources("AWS::CloudFormation::Stack").values()
    assert set(outer.find_resources("AWS::EC2::Route")) <= set(resource["DependsOn"])


AFTER_THE_GROUPS = {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "Custom::RequestedCapacity"}
"""What asks the groups for nodes, and what watches them by name; all else is made before the groups."""
PROPS = {
    "default": {},
    "isolated": {
        "isolated": True,
        "environment": JobEnvironment.none(),
        "efa": False,
        "image": NodeImage.ubuntu(has_packages=True),
    },
    "guarded": {"spending": Spending(stop_after=cdk.Duration.hours(8), monthly_budget_usd=100)},
}


@pytest.mark.parametrize("props", PROPS.values(), ids=PROPS)
def test_nothing_comes_after_the_formation_so_nothing_can_undo_it(synthesize, props):
    synthesis = synthesize(worker_instance_type="m5.large", **props)
    (formation,) = synthesis.of_type("AWS::CloudFormation::WaitCondition")
    groups = set(synthesis.of_type("AWS::AutoScaling::AutoScalingGroup"))
    resources = synthesis.template["Resources"]
    assert [name for name in resources if formation in synthesis.before(name)] == []
    after = {entry["Type"] for name, entry in resources.items() if groups & synthesis.before(name)}
    assert after - {"AWS::AutoScaling::AutoScalingGroup"} <= AFTER_THE_GROUPS


@pytest.mark.parametrize("props", PROPS.values(), ids=PROPS)
def test_capacity_is_asked_for_when_nothing_is_left_that_can_fail(synthesize, props):
    """An alarm that CloudFormation refuses then costs no instance."""
    synthesis = synthesize(worker_instance_type="m5.large", **props)
    (request,) = synthesis.of_type("Custom::RequestedCapacity")
    left = set(synthesis.template["Resources"]) - synthesis.before(request) - {request}
    assert {synthesis.template["Resources"][name]["Type"] for name in left} == {"AWS::CloudFormation::WaitCondition"}
