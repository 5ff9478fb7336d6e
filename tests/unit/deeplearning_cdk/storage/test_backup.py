"""Resources that are backed up, the role that does it, and resources with the cluster's tag for cost reports."""

import pytest
from aws_cdk import Tags

from deeplearning_cdk import TrainingCluster
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import props_of
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS

CPU = {"workers.instance_type": "m5.large"}
VAULT, PLAN, SELECTION = (f"AWS::Backup::Backup{part}" for part in ("Vault", "Plan", "Selection"))
NO_BACKUP = "deeplearning_cdk:withoutBackup"


def _arn(name):
    return {"Fn::GetAtt": [name, "Arn"]}


def _file_system(synthesis):
    (name,) = synthesis.of_type("AWS::EFS::FileSystem")
    arn = "arn:${AWS::Partition}:elasticfilesystem:${AWS::Region}:${AWS::AccountId}:file-system/${Id}"
    return {"Fn::Sub": [arn, {"Id": {"Ref": name}}]}


# --- Backups ------------------------------------------------------------------------------------------


def test_the_file_system_and_the_state_are_backed_up_every_day_and_kept_for_35_days(synthesize):
    synthesis = synthesize(**CPU)
    (vault,), (plan,), (table,) = (synthesis.of_type(kind) for kind in (VAULT, PLAN, "AWS::DynamoDB::Table"))
    assert synthesis.only(PLAN)["BackupPlan"]["BackupPlanRule"] == [
        {
            "CompletionWindowMinutes": 1440,
            "Lifecycle": {"DeleteAfterDays": 35},
            "RuleName": "daily",
            "ScheduleExpression": "cron(0 5 ? * * *)",
            "StartWindowMinutes": 60,
            "TargetBackupVault": {"Ref": vault},
        }
    ]
    selection = synthesis.only(SELECTION)
    assert selection["BackupPlanId"] == {"Ref": plan}
    assert selection["BackupSelection"]["Resources"] == [_file_system(synthesis), _arn(table)]


@pytest.mark.parametrize("role", NodeRole)
def test_a_backup_that_is_refused_fails_the_stack_before_a_node_costs_anything(synthesize, role):
    synthesis = synthesize(**CPU)
    for kind in (VAULT, PLAN, SELECTION):
        assert set(synthesis.of_type(kind)) <= synthesis.before(synthesis.group_id(role))


def test_the_role_of_the_backups_may_back_up_these_two_and_nothing_else(synthesize):
    synthesis = synthesize(**CPU)
    (role,) = (name for name in synthesis.of_type("AWS::IAM::Role") if "Backup" in name)
    (table,), (key,), (vault,) = (synthesis.of_type(kind) for kind in ("AWS::DynamoDB::Table", "AWS::KMS::Key", VAULT))
    assert synthesis.only(SELECTION)["BackupSelection"]["IamRoleArn"] == _arn(role)
    properties = synthesis.template["Resources"][role]["Properties"]
    assert not {"ManagedPolicyArns", "Policies"} & set(properties)
    (trust,) = properties["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "backup.amazonaws.com"}
    policy = synthesis.part("AWS::IAM::ManagedPolicy", "Backup")["Properties"]
    assert policy["Roles"] == [{"Ref": role}]
    rights = {
        (action, str(statement["Resource"]), str(statement.get("Condition", "")))
        for statement in policy["PolicyDocument"]["Statement"]
        for action in ([statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"])
    }
    of_table = ("CreateBackup", "DescribeTable", "ListTagsOfResource", "StartAwsBackupJob")
    backups = str({"Fn::Join": ["", [_arn(table), "/backup/*"]]})
    points = str({"Fn::Sub": "arn:${AWS::Partition}:backup:${AWS::Region}:${AWS::AccountId}:recovery-point:*"})
    via_table = str({"StringEquals": {"kms:ViaService": {"Fn::Sub": "dynamodb.${AWS::Region}.${AWS::URLSuffix}"}}})
    assert rights == {
        *((f"dynamodb:{action}", str(_arn(table)), "") for action in of_table),
        ("dynamodb:DeleteBackup", backups, ""),
        ("dynamodb:DescribeBackup", backups, ""),
        ("backup:DescribeBackupVault", str({"Fn::GetAtt": [vault, "BackupVaultArn"]}), ""),
        # AWS Backup developer guide, "Managed policies": a role for EFS starts with GetResourcesPermissions and
        # BackupVaultPermissions; CreateBackupSelection refuses one without the first (ERROR_3018).
        ("tag:GetResources", "*", ""),
        ("backup:CopyIntoBackupVault", str({"Fn::GetAtt": [vault, "BackupVaultArn"]}), ""),
        ("backup:TagResource", points, ""),
        ("elasticfilesystem:Backup", str(_file_system(synthesis)), ""),
        ("elasticfilesystem:DescribeTags", str(_file_system(synthesis)), ""),
        ("kms:Decrypt", str(_arn(key)), via_table),
        ("kms:GenerateDataKey", str(_arn(key)), via_table),
        ("kms:DescribeKey", str(_arn(key)), ""),
        ("kms:CreateGrant", str(_arn(key)), str({"Bool": {"kms:GrantIsForAWSResource": "true"}})),
    }


def test_a_file_system_of_the_users_is_the_users_to_back_up(synthesize):
    synthesis = synthesize(**{"storage.file_system": "fs-0123456789abcdef0"}, **CPU)
    (table,) = synthesis.of_type("AWS::DynamoDB::Table")
    assert synthesis.only(SELECTION)["BackupSelection"]["Resources"] == [_arn(table)]
    assert "elasticfilesystem:" not in str(synthesis.part("AWS::IAM::ManagedPolicy", "BackupPolicy"))


def test_a_second_cluster_does_not_back_up_the_file_system_of_the_first(pair):
    resources = {
        name[:3]: len(entry["Properties"]["BackupSelection"]["Resources"])
        for name, entry in pair.of_type(SELECTION).items()
    }
    assert resources == {"One": 2, "Two": 1}
    assert len({str(entry["Properties"]["BackupVaultName"]) for entry in pair.of_type(VAULT).values()}) == 2


def test_without_backups_nothing_is_created_for_them_and_the_app_gets_a_warning(synthesize):
    synthesis = synthesize(**{"storage.backup": False}, **CPU)
    assert not [kind for kind in (VAULT, PLAN, SELECTION) if synthesis.of_type(kind)]
    assert not [name for name in synthesis.template["Resources"] if "Backup" in name]
    assert [text for text in synthesis.warnings if NO_BACKUP in text]
    assert not [text for text in synthesize(**CPU).warnings if NO_BACKUP in text]


# --- Encryption ---------------------------------------------------------------------------------------


def test_a_new_file_system_is_encrypted_with_the_clusters_key(synthesize):
    synthesis = synthesize(**CPU)
    (key,) = synthesis.of_type("AWS::KMS::Key")
    properties = synthesis.only("AWS::EFS::FileSystem")
    assert (properties["Encrypted"], properties["KmsKeyId"]) == (True, _arn(key))


# --- Tags ---------------------------------------------------------------------------------------------


def _tags(properties):
    for name in ("Tags", "FileSystemTags", "AccessPointTags", "BackupVaultTags", "BackupPlanTags", "ResourceTags"):
        tags = properties.get(name)
        if isinstance(tags, dict):
            return dict(tags)
        if tags:
            return {tag["Key"]: tag["Value"] for tag in tags}
    return {}


UNTAGGED = {
    "AWS::Backup::BackupSelection",
    "AWS::CloudFormation::WaitCondition",
    "AWS::CloudFormation::WaitConditionHandle",
    "AWS::EC2::LaunchTemplate",
    "AWS::EC2::PlacementGroup",
    "AWS::EC2::Route",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EC2::SubnetRouteTableAssociation",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::EFS::MountTarget",
    "AWS::IAM::InstanceProfile",
    "AWS::IAM::ManagedPolicy",
    "AWS::Lambda::Permission",
    "AWS::SNS::Subscription",
    "AWS::SNS::TopicPolicy",
    "AWS::SQS::QueuePolicy",
    "Custom::PinnedImage",
    "Custom::RequestedCapacity",
}
"""Types that take no tags and cost nothing by themselves; a placement group would be replaced by another tag."""


@pytest.mark.parametrize("variant", ["default", "network.isolated", "guarded-spending"])
def test_everything_that_takes_tags_bears_the_clusters(synthesize, variant):
    synthesis = synthesize(**VARIANTS[variant])
    name = _tags(synthesis.group(NodeRole.MASTER)["Properties"])["deeplearning:cluster"]
    without = {
        entry["Type"]
        for entry in synthesis.template["Resources"].values()
        if _tags(entry.get("Properties", {})).get("deeplearning:cluster") != name
    }
    assert without <= UNTAGGED


def test_volumes_and_interfaces_bear_every_tag_that_the_group_gives_its_instances(make_stack, read_stack):
    stack = make_stack()
    cluster = TrainingCluster(stack, "Cluster", **props_of(CPU))
    Tags.of(stack).add("team", "vision")
    Tags.of(cluster.master).add("group-only", "yes", apply_to_launched_instances=False)
    synthesis = read_stack(stack)
    for role in NodeRole:
        expected = {
            "Name": f"{cluster.cluster_name}-{role.value}",
            "deeplearning:candidate": "0",
            "deeplearning:cluster": cluster.cluster_name,
            "deeplearning:role": role.value,
            "team": "vision",
        }
        found = {
            entry["ResourceType"]: {tag["Key"]: tag["Value"] for tag in entry["Tags"]}
            for entry in synthesis.launch_data(role)["TagSpecifications"]
        }
        assert found == {"network-interface": expected, "volume": expected}
