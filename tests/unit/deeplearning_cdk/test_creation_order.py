"""A resource waits for what it needs, in its own stack and in others."""

import json
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam

from deeplearning_cdk import TrainingCluster
from tests.foreign_dependencies import find_foreign_dependencies
from tests.unit.deeplearning_cdk.clusters import props_of
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

# --- Several stacks -----------------------------------------------------------------------------------

CPU = {"workers.instance_type": "m5.large"}


@pytest.fixture(scope="module")
def stacks(make_app):
    """Two clusters that share a file system, each in a stack of its own, with storage and roles of two others."""
    app = make_app()
    storage, identities, first, second = (cdk.Stack(app, name) for name in ("Storage", "Identities", "First", "Second"))
    vpc = ec2.Vpc(storage, "Vpc", max_azs=1, restrict_default_security_group=False)
    ec2_service = iam.ServicePrincipal("ec2.amazonaws.com")
    props = {
        "network.vpc": vpc,
        "storage.file_system": efs.FileSystem(storage, "Mine", vpc=vpc, allow_anonymous_access=True),
        "master.role": iam.Role(identities, "Master", assumed_by=ec2_service),
        "workers.role": iam.Role(identities, "Worker", assumed_by=ec2_service),
    }
    one = TrainingCluster(first, "Cluster", **props_of({**CPU, **props}))
    shared = {"network.vpc": vpc, "storage.file_system": one.file_system}
    TrainingCluster(second, "Cluster", **props_of({**CPU, **shared}))
    return {artifact.stack_name: artifact for artifact in app.synth().stacks}


def test_a_resource_of_another_stack_is_a_dependency_of_the_stack_and_never_of_a_resource(stacks):
    for artifact in stacks.values():
        assert find_foreign_dependencies(artifact.template) == []
    for name, needed in (("First", {"Storage", "Identities"}), ("Second", {"Storage", "First"})):
        assert needed <= {dependency.id for dependency in stacks[name].dependencies}


def test_a_role_of_another_stack_gets_its_rights_in_the_stack_of_the_cluster(stacks):
    kinds = {entry["Type"] for entry in stacks["Identities"].template["Resources"].values()}
    assert kinds == {"AWS::IAM::Role"}


def test_a_cluster_in_a_nested_stack_waits_for_what_its_parent_has(make_app):
    parent = cdk.Stack(make_app(), "Parent")
    vpc = ec2.Vpc(parent, "Vpc", max_azs=1, restrict_default_security_group=False)
    nested = cdk.NestedStack(parent, "Nested")
    TrainingCluster(nested, "Cluster", **props_of({**CPU, "network.vpc": vpc}))
    folder = Path(parent.node.root.synth().directory)
    inner, outer = (json.loads((folder / each.template_file).read_text()) for each in (nested, parent))
    assert find_foreign_dependencies(inner) == []
    assert find_foreign_dependencies(outer) == []
    kinds = {name: entry["Type"] for name, entry in outer["Resources"].items()}
    (resource,) = (name for name, kind in kinds.items() if kind == "AWS::CloudFormation::Stack")
    routes = {name for name, kind in kinds.items() if kind == "AWS::EC2::Route"}
    assert routes <= set(outer["Resources"][resource]["DependsOn"])


# --- One cluster --------------------------------------------------------------------------------------

AFTER_THE_GROUPS = {"AWS::CloudWatch::Alarm", "AWS::CloudWatch::Dashboard", "Custom::RequestedCapacity"}
"""Resources that request nodes of the groups, or watch them by name; all others are made before the groups."""
every_variant = pytest.mark.parametrize("variant", ["default", "network.isolated", "guarded-spending", "fallbacks"])


@every_variant
def test_nothing_comes_after_the_formation_so_nothing_can_undo_it(synthesize, variant):
    synthesis = synthesize(**VARIANTS[variant])
    (formation,) = synthesis.of_type("AWS::CloudFormation::WaitCondition")
    groups = set(synthesis.of_type("AWS::AutoScaling::AutoScalingGroup"))
    resources = synthesis.template["Resources"]
    assert [name for name in resources if formation in synthesis.before(name)] == []
    after = {entry["Type"] for name, entry in resources.items() if groups & synthesis.before(name)}
    assert after - {"AWS::AutoScaling::AutoScalingGroup"} <= AFTER_THE_GROUPS


@every_variant
@pytest.mark.defect("D68")
def test_capacity_is_requested_after_every_resource_that_can_fail(synthesize, variant):
    """An alarm that CloudFormation refuses then costs no instance."""
    synthesis = synthesize(**VARIANTS[variant])
    (request,) = synthesis.of_type("Custom::RequestedCapacity")
    left = set(synthesis.template["Resources"]) - synthesis.before(request) - {request}
    assert {synthesis.template["Resources"][name]["Type"] for name in left} == {"AWS::CloudFormation::WaitCondition"}
