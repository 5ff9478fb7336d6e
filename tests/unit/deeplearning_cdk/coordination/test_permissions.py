"""Every right that a cluster's roles have, exactly."""

import json
import re

import pytest
from aws_cdk import aws_s3 as s3

from deeplearning_cdk import DataSource, EnvironmentCache, JobEnvironment, Software, TrainingCluster
from deeplearning_cdk.coordination.node_permissions import pull_statements
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, props_of
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

ASSETS = "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"
GROUPS = "arn:${AWS::Partition}:autoscaling:${AWS::Region}:${AWS::AccountId}:autoScalingGroup:*"
HERE = {"AWS::Partition": "partition", "AWS::Region": "region", "AWS::AccountId": "account"}
CHANNELS = [
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
]
ROLES = ("MasterRole", "WorkerRole")
ISOLATED, AMAZON_LINUX = VARIANTS["network.isolated"], VARIANTS["amazon-linux"]
MOST_POLICY_CHARACTERS = 6144
"""IAM's limit on a managed policy, which counts no white space."""


def _arn(synthesis, kind, part=""):
    (name,) = (name for name in synthesis.of_type(kind) if part in name)
    return {"Fn::GetAtt": [name, "Arn"]}


def _allow(actions, resources, **more):
    return {"Effect": "Allow", "Action": actions, "Resource": resources, **more}


def _plain(value):
    """Return a part of a template with each pseudo parameter as its own name, and each reference as `<id>`."""
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if "Fn::Join" in value:
        return value["Fn::Join"][0].join(_plain(value["Fn::Join"][1]))
    if "Fn::Sub" in value:
        return re.sub(r"\$\{([\w:]+)\}", lambda match: HERE[match[1]], value["Fn::Sub"])
    if "Ref" in value:
        return HERE.get(value["Ref"], f"<{re.sub('[0-9A-F]{8}$', '', value['Ref'])}>")
    return {name: _plain(entry) for name, entry in value.items()}


def _use_key(synthesis):
    """Return the two statements with which a role uses the key through the meeting points."""
    key = _arn(synthesis, "AWS::KMS::Key", "Encryption")
    table, queues = "dynamodb.region.amazonaws.com", "sqs.region.amazonaws.com"
    return [
        _allow("kms:Decrypt", key, Condition={"StringEquals": {"kms:ViaService": [table, queues]}}),
        _allow("kms:GenerateDataKey", key, Condition={"StringEquals": {"kms:ViaService": queues}}),
    ]


def _use_state(synthesis, *actions):
    """Return the statement with which a node uses the state item and its parts, and no other item of the table."""
    cluster = synthesis.cluster_name
    return _allow(
        list(actions) if len(actions) > 1 else actions[0],
        _arn(synthesis, "AWS::DynamoDB::Table"),
        Condition={
            "ForAllValues:StringLike": {"dynamodb:LeadingKeys": [cluster, f"{cluster}#state#*#*"]},
            "Null": {"dynamodb:LeadingKeys": "false"},
        },
    )


def _send_events(synthesis, *kinds):
    names = [f"Deep Learning {kind}" for kind in kinds]
    return _allow(
        "events:PutEvents",
        "arn:partition:events:region:account:event-bus/default",
        Condition={
            "ForAllValues:StringEquals": {
                "events:source": f"deeplearning-cdk.{synthesis.cluster_name}",
                "events:detail-type": names,
            },
            "Null": {"events:source": "false", "events:detail-type": "false"},
        },
    )


def _open_sessions():
    instances = "arn:partition:ec2:region:account:instance/*"
    from_here = {"ArnLike": {"ec2:SourceInstanceARN": instances}}
    return [
        _allow("ssm:UpdateInstanceInformation", instances, Condition=from_here),
        _allow(CHANNELS, "*", Condition=from_here),
    ]


def _write_logs(role):
    streams = f"arn:partition:logs:region:account:log-group:<ClusterNodeLog>:log-stream:{role}/*"
    return _allow(["logs:CreateLogStream", "logs:PutLogEvents"], streams)


def _read_assets(statement):
    """Check that a statement reads objects of the asset bucket, and return their names' endings."""
    assert statement["Action"] == "s3:GetObject"
    resources = statement["Resource"] if isinstance(statement["Resource"], list) else [statement["Resource"]]
    keys = []
    for resource in resources:
        arn, partition, service, bucket, key = resource["Fn::Join"][1]
        assert (arn, partition, service, bucket) == ("arn:", {"Ref": "AWS::Partition"}, ":s3:::", {"Fn::Sub": ASSETS})
        assert "*" not in key
        keys.append(key.rpartition(".")[2])
    return keys


@pytest.mark.defect("D45", "D62")
def test_master_reads_its_queues_writes_the_state_and_rings_the_workers(synthesize):
    synthesis = synthesize()
    *statements, assets, jobs = synthesis.statements("MasterRole")
    assert [_plain(statement) for statement in statements] == [
        # To end the cluster from the master; describing groups takes no resource.
        _allow("autoscaling:DescribeAutoScalingGroups", "*"),
        _allow(
            ["autoscaling:SetDesiredCapacity", "autoscaling:SetInstanceHealth"],
            _plain({"Fn::Sub": GROUPS}),
            Condition={"StringEquals": {"autoscaling:ResourceTag/deeplearning:cluster": synthesis.cluster_name}},
        ),
        _use_state(synthesis, "dynamodb:GetItem", "dynamodb:PutItem"),
        _allow(
            ["sqs:DeleteMessage", "sqs:ReceiveMessage"],
            [_arn(synthesis, "AWS::SQS::Queue", "MasterQueue"), _arn(synthesis, "AWS::SQS::Queue", "ReportQueue")],
        ),
        _allow("sqs:SendMessage", _arn(synthesis, "AWS::SQS::Queue", "WorkerQueue")),
        *_use_key(synthesis),
        _send_events(
            synthesis, "Cluster Degraded", "Cluster Failed", "Cluster Finished", "Cluster Formed", "Job Failed"
        ),
        *_open_sessions(),
        _write_logs("master"),
    ]
    assert _read_assets(assets) == ["zip"]
    sources = f"arn:partition:s3:::{ASSETS}/deeplearning-jobs/{synthesis.cluster_name}/*"
    assert _plain(jobs) == _allow(
        "s3:GetObject", re.sub(r"\$\{([\w:]+)\}", lambda match: HERE[match[1]], sources), Sid="ReadJobSources"
    )


@pytest.mark.fault(24)
@pytest.mark.defect("D45", "D62")
def test_worker_only_reads_the_state_hears_rings_and_reports(synthesize):
    synthesis = synthesize()
    *statements, assets = synthesis.statements("WorkerRole")
    assert [_plain(statement) for statement in statements] == [
        _use_state(synthesis, "dynamodb:GetItem"),
        _allow("sqs:ReceiveMessage", _arn(synthesis, "AWS::SQS::Queue", "WorkerQueue")),
        _allow("sqs:SendMessage", _arn(synthesis, "AWS::SQS::Queue", "ReportQueue")),
        *_use_key(synthesis),
        *_open_sessions(),
        _write_logs("worker"),
    ]
    assert _read_assets(assets) == ["zip"]


@pytest.mark.parametrize("role", ROLES)
def test_only_ec2_may_act_as_a_nodes_role_which_has_no_fixed_name(synthesize, role):
    properties = synthesize().part("AWS::IAM::Role", role)["Properties"]
    assert "RoleName" not in properties
    (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust == {"Action": "sts:AssumeRole", "Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}}


@pytest.mark.parametrize("props", [{}, ISOLATED], ids=["default", "isolated"])
def test_no_role_has_a_policy_inside_or_one_of_aws_and_none_may_hand_out_rights(synthesize, props):
    synthesis = synthesize(**props)
    assert not synthesis.of_type("AWS::IAM::Policy")
    granted = set()
    for name, role in synthesis.of_type("AWS::IAM::Role").items():
        assert not role["Properties"].keys() & {"Policies", "ManagedPolicyArns"}, name
        for policy in synthesis.policies(name):
            assert len(json.dumps(policy["PolicyDocument"])) < MOST_POLICY_CHARACTERS
            for statement in policy["PolicyDocument"]["Statement"]:
                actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
                granted |= set(actions)
    # Nothing of iam:, sts: or organizations:, and no pattern of actions.
    assert {action.partition(":")[0] for action in granted} <= {
        *("autoscaling", "backup", "dynamodb", "ec2", "elasticfilesystem", "events", "kms", "logs", "s3", "sqs"),
        *("ssm", "ssmmessages", "tag"),
    }
    assert not [action for action in granted if "*" in action]


@pytest.mark.parametrize("role", ROLES)
def test_nodes_mount_through_their_access_point_where_the_image_has_iam_and_have_no_other_right_more(synthesize, role):
    synthesis = synthesize(**AMAZON_LINUX)
    (file_system,) = synthesis.of_type("AWS::EFS::FileSystem")
    (access_point,) = synthesis.of_type("AWS::EFS::AccessPoint")
    prefix = "arn:${AWS::Partition}:elasticfilesystem:${AWS::Region}:${AWS::AccountId}:file-system/${Id}"
    *others, mount = synthesis.statements(role)
    assert mount == _allow(
        ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
        {"Fn::Sub": [prefix, {"Id": {"Ref": file_system}}]},
        Condition={"StringEquals": {"elasticfilesystem:AccessPointArn": {"Fn::GetAtt": [access_point, "Arn"]}}},
    )
    assert others == synthesize().statements(role)


@pytest.mark.fault(24)
@pytest.mark.defect("D18")
def test_adjuster_changes_only_groups_that_have_its_clusters_tag(synthesize):
    synthesis = synthesize()
    assert [_plain(statement) for statement in synthesis.statements("CapacityAdjusterRole")] == [
        _allow(
            ["logs:CreateLogStream", "logs:PutLogEvents"], _arn(synthesis, "AWS::Logs::LogGroup", "CapacityAdjuster")
        ),
        _allow(["dynamodb:GetItem", "dynamodb:PutItem"], _arn(synthesis, "AWS::DynamoDB::Table")),
        _allow(
            "sqs:SendMessage",
            # Lambda sends what it gave up as the function's role.
            [_arn(synthesis, "AWS::SQS::Queue", "DeadLetters"), _arn(synthesis, "AWS::SQS::Queue", "MasterQueue")],
        ),
        *_use_key(synthesis),
        # Lambda decrypts the environment as the function's role; where nobody made a grant on the key, functions
        # without this right did not start (cattle-ops/terraform-aws-gitlab-runner issue 1253). The condition is that
        # of aws-cloudformation/cloudformation-coverage-roadmap issue 321.
        _allow(
            "kms:Decrypt",
            _arn(synthesis, "AWS::KMS::Key", "Encryption"),
            Condition={"StringEquals": {"kms:ViaService": "lambda.region.amazonaws.com"}},
        ),
        _send_events(synthesis, "Cluster Failed", "Cluster Finished"),
        _allow(["autoscaling:DescribeAutoScalingGroups", "autoscaling:DescribeScalingActivities"], "*"),
        _allow(
            ["autoscaling:ResumeProcesses", "autoscaling:SetDesiredCapacity", "autoscaling:SuspendProcesses"],
            _plain({"Fn::Sub": GROUPS}),
            Condition={"StringEquals": {"autoscaling:ResourceTag/deeplearning:cluster": synthesis.cluster_name}},
        ),
    ]


# --- Data and environment -----------------------------------------------------------------------------


def _s3(path):
    return {"Fn::Join": ["", ["arn:", {"Ref": "AWS::Partition"}, f":s3:::{path}"]]}


CACHE = "team-environments"


@pytest.mark.parametrize("role", ROLES)
def test_nodes_read_exactly_the_data_that_was_named_and_nothing_that_lustre_reads_for_them(synthesize, role):
    synthesis = synthesize(**EVERYTHING)
    statements = [entry for entry in synthesis.statements(role) if "s3:" in json.dumps(entry["Action"])]
    (read,) = (entry for entry in statements if entry["Action"] == "s3:GetObject" and "Sid" not in entry)
    # What goes to the shared file system is read by the master alone.
    archive = [_s3("team-data/coco/train.tar.gz"), _s3("team-data/coco/train.tar.gz.sha256")]
    assert [resource for resource in read["Resource"] if ASSETS not in json.dumps(resource)] == [
        _s3("other-data/*"),
        *(archive if role == "MasterRole" else []),
        _s3("team-data/images/*"),
    ]
    listed = [each for each in statements if each != read and "Sid" not in each and CACHE not in json.dumps(each)]
    assert {entry["Action"] for entry in listed} == {"s3:ListBucket"}
    coco = (":s3:::team-data", '{"StringLike": {"s3:prefix": "coco/train.tar.gz*"}}')
    assert sorted((entry["Resource"]["Fn::Join"][1][2], json.dumps(entry.get("Condition"))) for entry in listed) == [
        (":s3:::other-data", "null"),
        *([coco] if role == "MasterRole" else []),
        (":s3:::team-data", '{"StringLike": {"s3:prefix": "images/*"}}'),
    ]
    assert "linked-data" in json.dumps(synthesis.of_type("AWS::FSx::DataRepositoryAssociation"))
    assert "linked-data" not in json.dumps(synthesis.of_type("AWS::IAM::ManagedPolicy"))


@pytest.mark.parametrize(
    ("role", "endings"),
    [("MasterRole", ["sh", "sh", "txt", "zip"]), ("WorkerRole", ["sh", "txt", "zip"])],
)
def test_every_node_reads_its_scripts_and_the_file_of_the_environment(synthesize, role, endings):
    statements = synthesize(**EVERYTHING).statements(role)
    (read,) = (entry for entry in statements if entry["Action"] == "s3:GetObject" and "Sid" not in entry)
    assets = [resource for resource in read["Resource"] if ASSETS in json.dumps(resource)]
    assert sorted(_read_assets({**read, "Resource": assets})) == endings


def test_the_master_reads_and_writes_below_the_caches_prefix_and_deletes_nothing(synthesize):
    synthesis = synthesize(**EVERYTHING)
    cached = [entry for entry in synthesis.statements("MasterRole") if CACHE in json.dumps(entry["Resource"])]
    assert cached == [
        _allow(["s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"], _s3(f"{CACHE}/environments/*")),
        _allow("s3:ListBucket", _s3(CACHE), Condition={"StringLike": {"s3:prefix": "environments/*"}}),
    ]
    # Workers do nothing with it.
    assert CACHE not in json.dumps(synthesis.policies("WorkerRole"))


def test_nodes_use_the_keys_of_the_buckets_that_are_constructs_each_for_what_it_does_there(make_stack, read_stack):
    stack = make_stack()
    buckets = [s3.Bucket(stack, name, encryption=s3.BucketEncryption.KMS) for name in ("Data", "Cache")]
    props = {
        "workers.instance_type": "m5.large",
        "storage.data": [
            DataSource("train", buckets[0], "train/"),
            DataSource("images", buckets[0], "images/", "local"),
        ],
        "software.environment_cache": EnvironmentCache(buckets[1]),
    }
    TrainingCluster(stack, "Cluster", **props_of(props))
    synthesis = read_stack(stack)
    granted = {name: entry for name, entry in synthesis.of_type("AWS::IAM::ManagedPolicy").items() if "Grants" in name}
    found = {
        re.sub(".*Nodes|[0-9A-F]{8}$", "", entry["Properties"]["Roles"][0]["Ref"]): entry["Properties"][
            "PolicyDocument"
        ]["Statement"]
        for entry in granted.values()
    }
    read = _allow("kms:Decrypt", _arn(synthesis, "AWS::KMS::Key", "DataKey"))
    keep = _allow(["kms:Decrypt", "kms:GenerateDataKey"], _arn(synthesis, "AWS::KMS::Key", "CacheKey"))
    assert found == {"MasterRole": [read, keep], "WorkerRole": [read]}
    # A node that starts before it may decrypt would fail for good.
    for node_role in NodeRole:
        assert set(granted) <= synthesis.before(synthesis.group_id(node_role))
    cache = synthesis.settings(NodeRole.MASTER).needs.environment.cache
    assert cache.bucket.startswith("<Cache")
    assert cache.prefix == "environments/"


@pytest.mark.defect("D57")
@pytest.mark.parametrize("props", [{}, ISOLATED], ids=["default", "isolated"])
def test_data_comes_through_the_s3_endpoint_which_shuts_no_bucket_out(synthesize, props):
    endpoints = synthesize(**props).of_type("AWS::EC2::VPCEndpoint")
    (gateway,) = (entry["Properties"] for name, entry in endpoints.items() if "S3Endpoint" in name)
    assert gateway["VpcEndpointType"] == "Gateway"
    # It admits whatever a role of this account may do: assets and the data, in whosever bucket they are.
    assert _allow("*", "*", Principal="*", Condition={"StringEquals": {"aws:PrincipalAccount": "account"}}) in [
        _plain(statement) for statement in gateway["PolicyDocument"]["Statement"]
    ]


@pytest.mark.fault(19, 24, 35)
def test_adjuster_is_invoked_by_its_topic_and_its_timer_alone(synthesize):
    synthesis = synthesize()
    (topic,) = (name for name in synthesis.of_type("AWS::SNS::Topic") if "LaunchEvents" in name)
    (timer,) = (name for name in synthesis.of_type("AWS::Events::Rule") if "Timer" in name)
    (function,) = (name for name in synthesis.of_type("AWS::Lambda::Function") if "CapacityAdjuster" in name)
    permissions = [entry["Properties"] for entry in synthesis.of_type("AWS::Lambda::Permission").values()]
    invokers = [entry for entry in permissions if entry["FunctionName"] == {"Fn::GetAtt": [function, "Arn"]}]
    assert sorted((entry["Principal"], str(entry["SourceArn"])) for entry in invokers) == [
        ("events.amazonaws.com", str({"Fn::GetAtt": [timer, "Arn"]})),
        ("sns.amazonaws.com", str({"Ref": topic})),
    ]
    schedule = synthesis.part("AWS::Events::Rule", "Timer")["Properties"]
    assert (schedule["ScheduleExpression"], schedule["State"]) == ("rate(1 minute)", "ENABLED")


@pytest.mark.parametrize(
    ("image", "repository"),
    [
        ("123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train:1", "eu-west-1:123456789012:repository/team/train"),
        ("123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn/a@sha256:1", "cn-north-1:123456789012:repository/a"),
        ("123456789012.dkr-ecr.us-east-1.on.aws/a:1", "us-east-1:123456789012:repository/a"),
    ],
)
def test_nodes_may_pull_the_image_of_the_environment_from_ecr_and_no_other(image, repository):
    """Amazon ECR user guide, "Identity-based policies": a token is not of one registry, and needs `*`."""
    login, pull = pull_statements(image)
    assert (login.actions, login.resources) == (["ecr:GetAuthorizationToken"], ["*"])
    assert pull.actions == ["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"]
    assert [resource.partition(":ecr:")[2] for resource in pull.resources] == [repository]


@pytest.mark.parametrize("image", ["", "train:1", "public.ecr.aws/docker/library/python:3.12", "ghcr.io/team/train:1"])
def test_an_image_of_another_registry_needs_no_permission(image):
    assert pull_statements(image) == []


def test_both_roles_may_pull_because_every_node_does(synthesize):
    image = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/team/train:1"
    synthesis = synthesize(software=Software(environment=JobEnvironment.from_container(image)))
    for role in ROLES:
        assert "ecr:GetAuthorizationToken" in json.dumps(synthesis.statements(role))
