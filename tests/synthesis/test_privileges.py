"""What the roles of synthesized stacks must never allow, and where they may say `*`."""

import json
from importlib import resources

import pytest

from deeplearning_rehearsal.privileges.grants import expand_roles
from deeplearning_rehearsal.privileges.must_deny import judge_forbidden_calls, list_forbidden_calls
from deeplearning_rehearsal.privileges.template_rights import read_template_rights
from tests.gates.presets import PRESETS

CHOSEN = ("default", "amazon-linux", "lustre-with-data", "guarded-spending")
"""Presets whose roles differ, and whose key is the cluster's own."""
LEAST_FORBIDDEN = 20
WITHOUT_RESOURCE = {
    "autoscaling:DescribeAutoScalingGroups": "describing takes no resource; the answer holds names and sizes only",
    "autoscaling:DescribeScalingActivities": "describing takes no resource; the answer says why launches failed",
    "ssmmessages:CreateControlChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "ssmmessages:CreateDataChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "ssmmessages:OpenControlChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "ssmmessages:OpenDataChannel": "a channel belongs to the caller; the condition asks for an instance of here",
}
"""Actions of which the Service Authorization Reference names no resource type, and why they are granted."""


TEMPLATES = {}
"""Templates by preset; each is synthesized once."""


@pytest.fixture
def template_of(synthesize):
    """Return a function from the name of a preset to its template, a fresh copy."""

    def make(preset):
        if preset not in TEMPLATES:
            (TEMPLATES[preset],) = synthesize(PRESETS[preset]).values()
        return json.loads(json.dumps(TEMPLATES[preset]))

    return make


@pytest.fixture
def grants_of(template_of):
    """Return a function from the name of a preset to the grants of its roles."""
    return lambda preset: [held.grant for held in expand_roles(read_template_rights(template_of(preset)))]


@pytest.fixture(scope="module")
def reference():
    """The Service Authorization Reference, as cfn-lint carries it."""
    file = resources.files("cfnlint").joinpath("data/AdditionalSpecs/Policies.json")
    return json.loads(file.read_text(encoding="utf-8"))


def list_allowed(rights):
    return {
        (verdict.call.name, verdict.role[:-8])
        for verdict in judge_forbidden_calls(rights)
        if verdict.decision.is_allowed
    }


@pytest.mark.parametrize("preset", CHOSEN)
def test_no_role_may_make_a_forbidden_call(template_of, preset):
    rights = read_template_rights(template_of(preset))
    tried = {verdict.call.name for verdict in judge_forbidden_calls(rights)}
    assert list_allowed(rights) == set()
    assert tried == {call.name for call in list_forbidden_calls()}
    assert len(tried) >= LEAST_FORBIDDEN
    assert all(call.reason for call in list_forbidden_calls())
    assert all(rights.roles.values()), "a role without a policy would be judged by nothing"


def test_a_right_that_is_too_wide_is_found_by_the_forbidden_calls(template_of):
    template = template_of("default")
    for name, resource in template["Resources"].items():
        if name.startswith("ClusterNodesWorkerRoleRights"):
            resource["Properties"]["PolicyDocument"]["Statement"].append(
                {"Effect": "Allow", "Action": ["kms:*", "s3:Get*", "sqs:SendMessage"], "Resource": "*"}
            )
    worker = "ClusterNodesWorkerRole"
    assert list_allowed(read_template_rights(template)) == {
        ("read another bucket", worker),
        ("send to another cluster's master", worker),
        ("schedule the key's deletion", worker),
        ("decrypt by itself", worker),
        ("decrypt through a service that it does not use", worker),
        ("give the key away", worker),
        ("use another key", worker),
    }, "and the queues' own policies still refuse all but their one sender"


def test_only_actions_without_a_resource_type_are_granted_on_everything(grants_of, reference):
    granted = {grant.action for preset in CHOSEN for grant in grants_of(preset) if grant.resource == "*"}
    assert granted == WITHOUT_RESOURCE.keys()
    for action in WITHOUT_RESOURCE:
        service, name = action.split(":")
        assert not reference[service]["Actions"][name.lower()].get("Resources"), action


def test_every_granted_action_exists_and_is_no_pattern(grants_of, reference):
    for grant in {grant for preset in CHOSEN for grant in grants_of(preset)}:
        service, name = grant.action.split(":")
        assert name.lower() in reference[service]["Actions"], grant
