"""Rights that the roles of synthesized stacks must never have, and the places where they may have `*`."""

import json
from importlib import resources

import pytest

from cdk_rehearsal.iam.evaluation import evaluate
from cdk_rehearsal.iam.policy import read_policy
from cdk_rehearsal.iam.request import Caller, Request, make_context
from cdk_rehearsal.intrinsics import evaluate as resolve_intrinsics
from deeplearning_rehearsal.privileges.grants import expand_roles
from deeplearning_rehearsal.privileges.must_deny import (
    ForbiddenCall,
    judge_call,
    judge_forbidden_calls,
    list_forbidden_calls,
)
from deeplearning_rehearsal.privileges.template_rights import TemplateScope, read_template_rights
from tests.gates.presets import PRESETS
from tests.submitting_app import add_submitter

CHOSEN = ("default", "amazon-linux", "lustre-with-data", "guarded-spending", "emr", "sagemaker", "eks")
"""Presets whose roles differ, and whose key is the cluster's own."""
LEAST_FORBIDDEN = 20
WITHOUT_RESOURCE = {
    "autoscaling:DescribeAutoScalingGroups": "describing takes no resource; the answer holds names and sizes only",
    "autoscaling:DescribeScalingActivities": "describing takes no resource; the answer says why launches failed",
    "cloudwatch:PutMetricData": "a metric here is in no dataset, the only resource; the condition has a namespace",
    "sagemaker:ListTrainingJobs": "listing takes no resource; the answer holds names and states only",
    "ecr:GetAuthorizationToken": "a token is for the registry; the repository is named where it is pulled from",
    "ssmmessages:CreateControlChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "ssmmessages:CreateDataChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "ssmmessages:OpenControlChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "ssmmessages:OpenDataChannel": "a channel belongs to the caller; the condition asks for an instance of here",
    "tag:GetResources": "looking resources up takes no resource; CreateBackupSelection refuses a role without it",
}
"""Actions of which the Service Authorization Reference names no resource type, and why they are granted."""


NODES = ("NodesMasterRole", "NodesWorkerRole")
HERE = "arn:{partition}:ec2:{region}:{account}:instance/i-0aaaaaaaaaaaaaaaa"
BEYOND_IAM = (
    ForbiddenCall(
        name="hide a ring from the other workers with ReceiveMessage and VisibilityTimeout",
        reason="SQS has no condition key for parameters of a call; workers read the state item once a minute anyway",
        roles=("NodesWorkerRole",),
        action="sqs:ReceiveMessage",
        resource="{queue:WorkerQueue}",
    ),
    ForbiddenCall(
        name="write the log stream of another worker, and with it metrics of any namespace",
        reason="a stream's name has no colon, and both variables that name the caller's instance do; CloudWatch makes "
        "metrics of every line in embedded metric format (CloudWatch user guide, PutLogEvents is the only right)",
        roles=("NodesWorkerRole",),
        action="logs:PutLogEvents",
        resource="{log_group:NodeLog}:log-stream:worker/i-0bbbbbbbbbbbbbbbb",
        context={"ec2:SourceInstanceARN": HERE},
    ),
    ForbiddenCall(
        name="report the heartbeat of another instance of the account",
        reason="both keys of Systems Manager for this call name the caller, none the target, and it takes no tag; a "
        "variable that is a whole ARN cannot stand behind `instance/`",
        roles=NODES,
        action="ssm:UpdateInstanceInformation",
        resource="arn:{partition}:ec2:{region}:{account}:instance/i-0bbbbbbbbbbbbbbbb",
        context={"ec2:SourceInstanceARN": HERE},
    ),
)
"""Rights of a stolen node that no node needs, because AWS has no condition key to bind them (Service Authorization
Reference, "Condition keys" of SQS, CloudWatch Logs and Systems Manager; CloudWatch Logs API, "CreateLogStream")."""


@pytest.fixture
def template_of(synthesize):
    """Return a function from the name of a preset to its template, with a submitter where an API takes jobs."""

    def make(preset):
        (template,) = synthesize(PRESETS[preset], add_submitter).values()
        return template

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
    assert tried == {call.name for call in list_forbidden_calls(rights)}
    assert len(tried) >= LEAST_FORBIDDEN
    assert all(call.reason for call in list_forbidden_calls(rights))
    assert all(rights.roles.values()), "a role without a policy would be judged by nothing"


@pytest.mark.parametrize("call", BEYOND_IAM, ids=lambda call: call.name)
def test_rights_that_iam_cannot_bind_are_still_allowed_and_belong_on_the_page_about_security(template_of, call):
    verdicts = list(judge_call(read_template_rights(template_of("default")), call))
    assert len(verdicts) == len(call.roles)
    assert all(verdict.decision.is_allowed for verdict in verdicts), "move it to must_deny.toml"


def test_a_forged_metric_or_line_raises_an_alarm_and_changes_nothing(template_of, grants_of):
    alarms = [entry["Properties"] for entry in template_of("default")["Resources"].values() if "Alarm" in entry["Type"]]
    topics = [action for alarm in alarms for action in alarm["AlarmActions"]]
    assert len(topics) >= len(alarms) > 0
    assert {next(iter(action)) for action in topics} == {"Ref"}
    kinds = {template_of("default")["Resources"][action["Ref"]]["Type"] for action in topics}
    assert kinds == {"AWS::SNS::Topic"}
    ours = [grant for grant in grants_of("default") if "Nodes" in grant.role or "CapacityAdjuster" in grant.role]
    readers = {grant.action for grant in ours if grant.action.startswith(("cloudwatch:", "logs:"))}
    assert readers == {"logs:CreateLogStream", "logs:PutLogEvents"}, "no role reads a metric or a line"


OWN, FOREIGN, NOBODY = "123456789012", "999999999999", ""
PACKAGES = "arn:aws:s3:::al2023-repos-us-east-1-de612dc2/core/mirrors/x.rpm"


@pytest.mark.parametrize(
    ("preset", "account", "call", "is_let_through"),
    [
        ("default", OWN, ("s3:PutObject", "arn:aws:s3:::team/checkpoint"), True),
        ("default", FOREIGN, ("s3:PutObject", "arn:aws:s3:::thief/data.tar"), False),
        ("default", NOBODY, ("s3:PutObject", "arn:aws:s3:::thief/data.tar"), False),
        ("default", FOREIGN, ("s3:DeleteObject", "arn:aws:s3:::team/data.tar"), False),
        # Open data, models behind presigned URLs and packages are in anybody's buckets.
        ("default", FOREIGN, ("s3:GetObject", "arn:aws:s3:::anybody/model.bin"), True),
        ("default", NOBODY, ("s3:ListBucket", "arn:aws:s3:::open-data"), True),
        ("private", OWN, ("s3:PutObject", "arn:aws:s3:::team/checkpoint"), True),
        ("private", FOREIGN, ("s3:PutObject", "arn:aws:s3:::thief/data.tar"), False),
        ("private", FOREIGN, ("s3:GetObject", "arn:aws:s3:::anybody/model.bin"), False),
        ("private", NOBODY, ("s3:ListBucket", "arn:aws:s3:::open-data"), False),
        ("private", NOBODY, ("s3:GetObject", PACKAGES), True),
    ],
)
def test_the_endpoint_of_s3_takes_writes_from_this_account_alone_and_reads_by_what_the_nodes_need(
    template_of, preset, account, call, is_let_through
):
    template = template_of(preset)
    (endpoint,) = (entry for name, entry in template["Resources"].items() if "S3Endpoint" in name)
    scope = TemplateScope(template, "sample")
    policy = resolve_intrinsics(endpoint["Properties"]["PolicyDocument"], scope)
    caller = Caller("anybody", account)
    context = make_context(caller, {})
    if not account:
        del context["aws:principalaccount"]
    decision = evaluate(Request(caller, *call, context), (), read_policy(policy, "resource"))
    assert decision.is_allowed is is_let_through


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
        ("read the source of another cluster's job", worker),
        ("send to another cluster's master", worker),
        ("schedule the key's deletion", worker),
        ("decrypt by itself", worker),
        ("decrypt through a service that it does not use", worker),
        ("give the key away", worker),
        ("use another key", worker),
    }, "and the queues' own policies still refuse all but their one sender"


def test_only_actions_without_a_resource_type_are_granted_on_everything(grants_of, reference):
    granted = {grant.action for preset in CHOSEN for grant in grants_of(preset) if grant.resource == "*"}
    # EMR and SageMaker look at the network before they launch.
    assert {action for action in granted if not action.startswith("ec2:Describe")} == WITHOUT_RESOURCE.keys()
    for action in granted:
        service, name = action.split(":")
        taken = set(reference[service]["Actions"][name.lower()].get("Resources", ())) - {"dataset"}
        assert not taken, action


def test_every_granted_action_exists_and_is_no_pattern(grants_of, reference):
    for grant in {grant for preset in CHOSEN for grant in grants_of(preset)}:
        service, name = grant.action.split(":")
        assert name.lower() in reference[service]["Actions"], grant
