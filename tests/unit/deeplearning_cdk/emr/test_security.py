"""Roles, rules and encryption of clusters on EMR."""

import json
import re
from pathlib import Path

from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms

from deeplearning_cdk import DataSource, EnvironmentCache, JobEnvironment, Lustre, Software, Storage
from deeplearning_cdk.emr.training import EmrTraining
from tests.unit.deeplearning_cdk.conftest import render
from tests.unit.deeplearning_cdk.emr.conftest import CLUSTER, read_settings

ROOT = Path(__file__).parents[4]
NAME = "Stack-8085bf09"
ARN = "arn:<AWS::Partition>:ec2:<AWS::Region>:<AWS::AccountId>"


def _show(statements):
    """Return statements as actions, resources and conditions, each sorted."""

    def listed(value):
        return value if isinstance(value, list) else [value]

    return [
        (
            sorted(listed(each["Action"])),
            sorted(_shorten(render(resource)) for resource in listed(each["Resource"])),
            json.loads(_shorten(json.dumps(each.get("Condition", {})))),
        )
        for each in statements
    ]


def _shorten(text):
    """Return a text with the logical ids of this stack without their digits, and AWS's parameters by their names."""
    text = re.sub(r"\$\{([\w:.]+)\}", r"<\1>", text)
    return re.sub(r"(Training\w+?)[0-9A-F]{8}\b", r"\1", text)


def test_emr_may_launch_tag_and_end_only_instances_of_this_cluster_in_its_subnet_and_groups(make):
    is_new = {"StringEquals": {"aws:RequestTag/deeplearning:cluster": NAME}}
    is_ours = {"StringEquals": {"aws:ResourceTag/deeplearning:cluster": NAME}}
    core, primary, service = (
        f"{ARN}:security-group/<TrainingSecurityGroups{name}.GroupId>" for name in ("Core", "Primary", "Service")
    )
    nodes = f"{ARN}:security-group/<TrainingNetworkNodesSecurityGroup.GroupId>"
    subnet = f"{ARN}:subnet/<TrainingNetworkVpcPrivateSubnet1Subnet>"
    image = "arn:<AWS::Partition>:ec2:<AWS::Region>::image/ami-*"
    interfaces, instances, volumes = (f"{ARN}:{kind}/*" for kind in ("network-interface", "instance", "volume"))
    statements = _show(make().statements("RolesService"))
    describes = next(actions for actions, resources, _ in statements if resources == ["*"])
    key = ["<TrainingEncryptionKey.Arn>"]
    assert all(action.startswith("ec2:Describe") for action in describes)
    assert len(describes) == 13
    assert [each for each in statements if each[1] != ["*"]] == [
        (["ec2:RunInstances"], sorted([image, interfaces, nodes, core, primary, subnet]), {}),
        (["ec2:RunInstances"], [instances, volumes], is_new),
        (["ec2:CreateNetworkInterface"], [service, subnet], {}),
        (["ec2:CreateNetworkInterface"], [interfaces], is_new),
        (["ec2:CreateTags"], [instances, interfaces, volumes], {"StringEquals": {"ec2:CreateAction": "RunInstances"}}),
        (["ec2:CreateTags"], [interfaces], {"StringEquals": {"ec2:CreateAction": "CreateNetworkInterface"}}),
        (["ec2:CreateTags", "ec2:DeleteTags"], [instances, interfaces, volumes], is_ours),
        (["ec2:ModifyInstanceAttribute", "ec2:TerminateInstances"], [instances], is_ours),
        (["ec2:DeleteNetworkInterface"], [interfaces], is_ours),
        (["ec2:AuthorizeSecurityGroupIngress"], [core, primary], {}),
        (["ec2:AuthorizeSecurityGroupEgress"], [core, primary, service], {}),
        (["ec2:DescribeVpcAttribute"], [f"{ARN}:vpc/<TrainingNetworkVpc>"], {}),
        (["kms:DescribeKey"], key, {}),
        (
            ["kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo"],
            key,
            {
                "StringEquals": {
                    "kms:ViaService": {"Fn::Join": ["", ["ec2.", {"Ref": "AWS::Region"}, ".amazonaws.com"]]}
                }
            },
        ),
        (["kms:CreateGrant"], key, {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
        (
            ["iam:PassRole"],
            ["<TrainingRolesInstance.Arn>"],
            {"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"}},
        ),
    ]


def test_instances_read_programs_and_sources_write_logs_mount_and_open_sessions(make):
    assets = "arn:<AWS::Partition>:s3:::<cdk-hnb659fds-assets-<AWS::AccountId>-<AWS::Region>>"
    instances = {"ArnLike": {"ec2:SourceInstanceARN": _join(f"{ARN}:instance/*")}}
    statements = _show(make().statements("RolesInstance"))
    sources = (["s3:GetObject"], [f"{assets}/deeplearning-jobs/{NAME}/*"], {})
    (read_actions, programs, _), *rest = [statement for statement in statements if statement != sources]
    assert len(statements) == len(rest) + 2
    assert read_actions == ["s3:GetObject"]
    assert len(programs) == 2
    assert all(re.fullmatch(re.escape(assets) + r"/[0-9a-f]{64}\.(zip|sh)", name) for name in programs)
    assert rest == [
        (
            ["ssm:GetParameter"],
            ["arn:<AWS::Partition>:ssm:<AWS::Region>:<AWS::AccountId>:parameter/<TrainingProgramsRelease>"],
            {},
        ),
        (["s3:PutObject"], ["<TrainingLogBucket.Arn>/logs/*"], {}),
        (["kms:Decrypt", "kms:GenerateDataKey"], ["<TrainingEncryptionKey.Arn>"], {}),
        (
            ["elasticfilesystem:ClientMount", "elasticfilesystem:ClientWrite"],
            rest[3][1],
            {
                "StringEquals": {
                    "elasticfilesystem:AccessPointArn": {"Fn::GetAtt": ["TrainingFileSystemAccessPoint", "Arn"]}
                }
            },
        ),
        (["ssm:UpdateInstanceInformation"], [f"{ARN}:instance/*"], instances),
        (
            [f"ssmmessages:{verb}{kind}Channel" for verb in ("Create", "Open") for kind in ("Control", "Data")],
            ["*"],
            instances,
        ),
    ]


def _join(text):
    """Return the intrinsic that `render` shows as a text."""
    parts = [part for part in re.split(r"(<[^>]+>)", text) if part]
    return {"Fn::Join": ["", [{"Ref": part[1:-1]} if part.startswith("<") else part for part in parts]]}


def test_emrs_role_is_for_clusters_of_this_account_alone(make):
    (statement,) = make().part("AWS::IAM::Role", "RolesService")["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "elasticmapreduce.amazonaws.com"}
    assert statement["Condition"]["StringEquals"] == {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    arn = "arn:<AWS::Partition>:elasticmapreduce:<AWS::Region>:<AWS::AccountId>:*"
    assert render(statement["Condition"]["ArnLike"]["aws:SourceArn"]) == arn


def test_instance_profile_has_the_name_of_its_role_as_emr_requires(make):
    synthesis = make()
    profile = synthesis.only("AWS::IAM::InstanceProfile")
    assert [profile["InstanceProfileName"]] == profile["Roles"]
    assert "RolesInstance" in profile["Roles"][0]["Ref"]
    assert synthesis.only(CLUSTER)["JobFlowRole"] == {"Ref": next(iter(synthesis.of_type("AWS::IAM::InstanceProfile")))}


def test_groups_have_every_rule_that_emr_would_add(make):
    synthesis = make()

    def name(reference):
        return _shorten(reference["Fn::GetAtt"][0]).removeprefix("TrainingSecurityGroups")

    rules = {
        (
            name(rule["Properties"]["GroupId"]),
            name(rule["Properties"]["SourceSecurityGroupId"]),
            rule["Properties"]["IpProtocol"],
            rule["Properties"]["FromPort"],
            rule["Properties"]["ToPort"],
        )
        for key, rule in synthesis.of_type("AWS::EC2::SecurityGroupIngress").items()
        if "SecurityGroups" in key
    }
    pairs = [(group, members) for group in ("Primary", "Core") for members in ("Primary", "Core")]
    protocols = [("tcp", 0, 65535), ("udp", 0, 65535), ("icmp", -1, -1)]
    assert rules == {
        *((*pair, *protocol) for pair in pairs for protocol in protocols),
        ("Primary", "Service", "tcp", 8443, 8443),
        ("Core", "Service", "tcp", 8443, 8443),
        ("Service", "Primary", "tcp", 9443, 9443),
    }
    out = {
        (name(rule["Properties"]["DestinationSecurityGroupId"]), rule["Properties"]["FromPort"])
        for key, rule in synthesis.of_type("AWS::EC2::SecurityGroupEgress").items()
        if "SecurityGroups" in key
    }
    assert out == {("Primary", 8443), ("Core", 8443)}


def test_emr_gets_the_groups_of_this_cluster_and_members_that_of_the_file_system(make):
    instances = make().only(CLUSTER)["Instances"]
    for field, part in (
        ("EmrManagedMasterSecurityGroup", "SecurityGroupsPrimary"),
        ("EmrManagedSlaveSecurityGroup", "SecurityGroupsCore"),
        ("ServiceAccessSecurityGroup", "SecurityGroupsService"),
    ):
        assert part in instances[field]["Fn::GetAtt"][0]
    for field in ("AdditionalMasterSecurityGroups", "AdditionalSlaveSecurityGroups"):
        assert ["NodesSecurityGroup" in each["Fn::GetAtt"][0] for each in instances[field]] == [True]


def test_disks_are_encrypted_with_the_clusters_key_and_metadata_needs_a_token(make):
    synthesis = make()
    (key,) = synthesis.of_type("AWS::KMS::Key")
    statement, *others = synthesis.only("AWS::KMS::Key")["KeyPolicy"]["Statement"]
    assert [other["Sid"] for other in others] == ["EventsReachTopics", "UndeliveredReachesQueues"]
    assert render(statement["Principal"]["AWS"]) == "arn:<AWS::Partition>:iam::<AWS::AccountId>:root"
    configuration = synthesis.only("AWS::EMR::SecurityConfiguration")["SecurityConfiguration"]
    assert configuration["EncryptionConfiguration"]["AtRestEncryptionConfiguration"] == {
        "LocalDiskEncryptionConfiguration": {
            "EncryptionKeyProviderType": "AwsKms",
            "AwsKmsKey": {"Fn::GetAtt": [key, "Arn"]},
            "EnableEbsEncryption": True,
        }
    }
    assert configuration["InstanceMetadataServiceConfiguration"] == {
        "MinimumInstanceMetadataServiceVersion": 2,
        "HttpPutResponseHopLimit": 1,
    }
    (name,) = synthesis.of_type("AWS::EMR::SecurityConfiguration")
    assert synthesis.only(CLUSTER)["SecurityConfiguration"] == {"Ref": name}


def test_logs_are_encrypted_private_expire_and_outlive_a_failed_creation_with_their_key(make):
    synthesis = make()
    (key,), (name,) = synthesis.of_type("AWS::KMS::Key"), synthesis.of_type("AWS::S3::Bucket")
    bucket, arn = synthesis.template["Resources"][name], {"Fn::GetAtt": [key, "Arn"]}
    properties = bucket["Properties"]
    (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert rule["ServerSideEncryptionByDefault"] == {"KMSMasterKeyID": arn, "SSEAlgorithm": "aws:kms"}
    assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}
    (expiry,) = properties["LifecycleConfiguration"]["Rules"]
    assert expiry["ExpirationInDays"] == 90
    (denial,) = synthesis.only("AWS::S3::BucketPolicy")["PolicyDocument"]["Statement"]
    assert (denial["Effect"], denial["Condition"]) == ("Deny", {"Bool": {"aws:SecureTransport": "false"}})
    assert {each["DeletionPolicy"] for each in (bucket, synthesis.template["Resources"][key])} == {"Retain"}
    cluster = synthesis.only(CLUSTER)
    assert (render(cluster["LogUri"]), cluster["LogEncryptionKmsKeyId"]) == (f"s3://<{name}>/logs/", arn)


def test_a_key_of_the_user_encrypts_everything_and_its_owner_is_warned(make_stack, read_stack):
    stack, arn = make_stack(), "arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"
    EmrTraining(stack, "Training", encryption_key=kms.Key.from_key_arn(stack, "Mine", arn))
    synthesis = read_stack(stack)
    assert synthesis.of_type("AWS::KMS::Key") == {}
    assert synthesis.only(CLUSTER)["LogEncryptionKmsKeyId"] == arn
    assert any("logs.<region>.amazonaws.com" in each and "AutoScaling" not in each for each in synthesis.warnings)


def test_data_cache_environment_and_lustre_reach_settings_and_rights(make):
    file = str(ROOT / "examples/environments/small.txt")
    synthesis = make(
        storage=Storage(
            data=(DataSource("train", "team-data", "train/"), DataSource("all", "other-data", target="stream")),
            lustre=Lustre(),
        ),
        software=Software(
            environment=JobEnvironment.from_requirements(file), environment_cache=EnvironmentCache("team-environments")
        ),
    )
    settings = read_settings(synthesis)
    assert [source.name for source in settings.needs.data] == ["train", "all"]
    assert settings.needs.environment is not None
    assert settings.needs.environment.cache is not None
    assert settings.needs.environment.file is not None
    assert settings.needs.lustre is not None
    assert "mount.lustre" in settings.packages
    shown = str(synthesis.statements("RolesInstance"))
    assert all(name in shown for name in ("team-data/train/*", "other-data/*", "team-environments/"))
    assert set(synthesis.of_type("AWS::FSx::FileSystem")) <= set(synthesis.part(CLUSTER, "Cluster")["DependsOn"])


def test_an_existing_file_system_is_not_backed_up(make):
    synthesis = make(storage=Storage(file_system="fs-0123456789abcdef0"))
    assert synthesis.of_type("AWS::Backup::BackupVault") == {}
    assert set(synthesis.of_type("AWS::EFS::MountTarget")) <= set(synthesis.part(CLUSTER, "Cluster")["DependsOn"])


def test_a_grant_reaches_the_instances_before_they_start(make_stack, read_stack):
    stack = make_stack()
    training = EmrTraining(stack, "Training")
    iam.Grant.add_to_principal(grantee=training, actions=["sqs:SendMessage"], resource_arns=["arn:aws:sqs:a:1:b"])
    training.grant_session(iam.User(stack, "User"))
    synthesis = read_stack(stack)
    (policy,) = (name for name in synthesis.of_type("AWS::IAM::Policy") if "Roles" in name)
    assert policy in synthesis.part(CLUSTER, "Cluster")["DependsOn"]
    assert "ssm:StartSession" in str(synthesis.of_type("AWS::IAM::ManagedPolicy"))


def test_the_endpoint_of_s3_takes_what_emr_writes_with_credentials_of_its_own(make):
    """
    EMR management guide, "Sample policies for private subnets that access Amazon S3" (private-subnet-iampolicy).

    "If you enable cluster logging, you will need PUT permissions for … the system logs bucket. In the us-east-1 region,
    the bucket ARN is arn:aws:s3:::aws157-logs-prod; for all other regions, the bucket ARN is
    arn:aws:s3:::aws157-logs-prod-region". The actions are those of its example, "EnableApplicationHistory".
    """
    synthesis = make()
    (endpoint,) = (
        entry["Properties"] for name, entry in synthesis.of_type("AWS::EC2::VPCEndpoint").items() if "S3" in name
    )
    statements = endpoint["PolicyDocument"]["Statement"]
    (found,) = (statement for statement in statements if "s3:Put*" in statement["Action"])
    buckets = ("aws157-logs-prod-${AWS::Region}", "aws157-logs-prod", "prod.${AWS::Region}.appinfo.src")
    assert found == {
        "Action": ["s3:Abort*", "s3:Create*", "s3:Get*", "s3:List*", "s3:Put*"],
        "Effect": "Allow",
        "Principal": "*",
        "Resource": [{"Fn::Sub": f"arn:${{AWS::Partition}}:s3:::{bucket}/*"} for bucket in buckets],
    }
