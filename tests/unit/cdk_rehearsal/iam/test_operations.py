"""Rights of each operation: actions, resources, condition keys, and the use of keys by services for their callers."""

import pytest

from cdk_rehearsal.embedded_aws.resources.backups import list_backup_calls
from cdk_rehearsal.errors import PolicyError, UnknownOperationError
from cdk_rehearsal.iam.evaluation import evaluate
from cdk_rehearsal.iam.operations import find_needs
from cdk_rehearsal.iam.policy import read_policy
from cdk_rehearsal.iam.request import Caller, Request, make_context

ACCOUNT, REGION = "123456789012", "us-east-1"
KEY = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/k1"
TABLE = f"arn:aws:dynamodb:{REGION}:{ACCOUNT}:table/state"
FILES = f"arn:aws:elasticfilesystem:{REGION}:{ACCOUNT}:file-system/fs-1"
VAULT = f"arn:aws:backup:{REGION}:{ACCOUNT}:backup-vault:nightly"
ARCHIVE = "arn:aws:s3:::team/environments/a.tar"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/Backup"


class AccountWithKey:
    """An account in which table, vault and archive are encrypted with the customer's key, and nothing else."""

    account_id, region, url_suffix = ACCOUNT, REGION, "amazonaws.com"

    def arn(self, service, resource):
        return f"arn:aws:{service}:{REGION}:{ACCOUNT}:{resource}"

    def find_group(self, name):
        return None

    def find_group_of(self, instance_id):
        return None

    def find_partition_key(self, table):
        return "cluster" if table == "state" else ""

    def find_tags(self, arn):
        return {"team": "learning"}

    def find_role(self, name):
        return f"arn:aws:iam::1:role/{name}"

    find_profile_role = find_role

    def find_key(self, arn):
        return KEY if arn in {TABLE, VAULT, ARCHIVE} else ""


def list_needs(*calls):
    return [need for operation, parameters in calls for need in find_needs(operation, parameters, AccountWithKey())]


def may(need, *statements):
    caller = Caller(ROLE, ACCOUNT, ROLE)
    request = Request(caller, need.action, need.resource, make_context(caller, need.context))
    root = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    key_policy = {"Statement": {"Effect": "Allow", "Principal": root, "Action": "kms:*", "Resource": "*"}}
    own, theirs = read_policy({"Statement": list(statements)}, "identity"), read_policy(key_policy, "resource")
    return evaluate(request, own, theirs).is_allowed


def test_a_backup_of_a_table_needs_what_aws_documents_for_both_kinds_of_backups():
    (backup,) = {need.resource for need in list_needs(*list_backup_calls(TABLE)) if "/backup/" in need.resource}
    assert backup.startswith(f"{TABLE}/backup/")
    assert {(need.action, need.resource, need.is_implied) for need in list_needs(*list_backup_calls(TABLE))} == {
        ("dynamodb:DescribeTable", TABLE, False),
        ("dynamodb:CreateBackup", TABLE, False),
        ("dynamodb:DescribeBackup", backup, False),
        ("dynamodb:DeleteBackup", backup, False),
        ("dynamodb:StartAwsBackupJob", TABLE, False),
        ("dynamodb:ListTagsOfResource", TABLE, False),
        ("kms:Decrypt", KEY, True),
        ("kms:GenerateDataKey", KEY, True),
    }


def test_the_key_of_a_table_is_used_through_dynamodb_alone():
    used = [need for need in list_needs(*list_backup_calls(TABLE)) if need.is_implied]
    assert {need.context["kms:ViaService"] for need in used} == {"dynamodb.us-east-1.amazonaws.com"}


def test_a_backup_of_a_file_system_needs_two_actions_on_it_and_none_on_its_key():
    needs = list_needs(*list_backup_calls(FILES))
    assert {(need.action, need.resource) for need in needs} == {
        ("elasticfilesystem:Backup", FILES),
        ("elasticfilesystem:DescribeTags", FILES),
    }
    # Nothing is mounted: a right that is bound to a mount target does not reach it.
    assert not [need for need in needs if need.context]


def test_a_resource_whose_backup_nobody_looked_up_is_refused():
    with pytest.raises(ValueError, match="file system or a table, got arn:aws:s3"):
        list(list_backup_calls("arn:aws:s3:::bucket"))


def test_a_recovery_point_is_encrypted_by_a_grant_on_the_vaults_key_for_a_resource_of_aws():
    describe, grant = list_needs(("backup.EncryptRecoveryPoint", {"BackupVaultName": "nightly"}))
    assert (describe.action, describe.resource) == ("kms:DescribeKey", KEY)
    assert (grant.action, grant.resource) == ("kms:CreateGrant", KEY)
    assert grant.context["kms:EncryptionContext:aws:backup:backup-vault"] == VAULT
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    allow = {"Effect": "Allow", "Action": ["kms:CreateGrant", "kms:DescribeKey"], "Resource": KEY, "Condition": for_aws}
    assert may(grant, allow)
    # Only a grant is for a resource: on another action the condition is never met.
    assert not may(describe, allow)


@pytest.mark.parametrize(
    ("operation", "parameters", "resource"),
    [
        ("backup.DescribeBackupVault", {"BackupVaultName": "nightly"}, VAULT),
        ("backup.TagResource", {"ResourceArn": f"{VAULT}:point"}, f"{VAULT}:point"),
        ("dynamodb.DeleteBackup", {"BackupArn": f"{TABLE}/backup/1"}, f"{TABLE}/backup/1"),
    ],
)
def test_an_operation_of_a_backup_is_about_what_the_call_names(operation, parameters, resource):
    (need,) = list_needs((operation, parameters))
    assert need.resource == resource


@pytest.mark.parametrize("operation", ["dynamodb.DeleteBackup", "backup.DescribeBackupVault", "kms.CreateGrant"])
def test_an_operation_that_is_not_known_or_names_no_resource_is_refused(operation):
    with pytest.raises(UnknownOperationError):
        list_needs((operation, {}))


@pytest.mark.parametrize("partition", ["aws", "aws-cn", "aws-us-gov"])
def test_a_public_parameter_has_no_account_in_its_arn_and_an_own_one_has_the_callers(partition):
    """Denials name it so (prakhar1989/docker-curriculum#344), and Karpenter's policy grants nothing else."""

    class SampleAccount(AccountWithKey):
        def arn(self, service, resource):
            return super().arn(service, resource).replace("arn:aws:", f"arn:{partition}:")

    names = ["/aws/service/canonical/ubuntu/ami-id", "/team/image", "word"]
    needs = find_needs("ssm.GetParameters", {"Names": names}, SampleAccount())
    assert [need.resource for need in needs] == [
        f"arn:{partition}:ssm:{REGION}::parameter/aws/service/canonical/ubuntu/ami-id",
        f"arn:{partition}:ssm:{REGION}:{ACCOUNT}:parameter/team/image",
        f"arn:{partition}:ssm:{REGION}:{ACCOUNT}:parameter/word",
    ]
    public, own, _ = needs
    allow = {"Effect": "Allow", "Action": "ssm:GetParameters"}
    assert may(public, allow | {"Resource": f"arn:{partition}:ssm:*::parameter/aws/service/*"})
    assert not may(public, allow | {"Resource": f"arn:{partition}:ssm:*:{ACCOUNT}:parameter/aws/service/*"})
    assert not may(own, allow | {"Resource": f"arn:{partition}:ssm:*::parameter/*"})


def put_item(item):
    (need, *_) = list_needs(("dynamodb.PutItem", {"TableName": "state", "Item": item}))
    return need


STATE_ONLY = {
    "Effect": "Allow",
    "Action": "dynamodb:PutItem",
    "Resource": TABLE,
    "Condition": {
        "ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["cats", "cats#state#*#*"]},
        "Null": {"dynamodb:LeadingKeys": "false"},
    },
}


@pytest.mark.parametrize(
    ("item", "is_allowed"),
    [
        ({"cluster": {"S": "cats"}, "revision": {"N": "1"}}, True),
        ({"cluster": {"S": "cats#state#00ff#0"}}, True),
        ({"cluster": {"S": "cats#stop"}}, False),
        ({"cluster": {"S": "dogs"}}, False),
        # The key is where the table's schema says, not where the sender writes it.
        ({"note": {"S": "cats"}, "cluster": {"S": "cats#stop"}}, False),
        ({"note": {"S": "cats"}}, False),
    ],
)
def test_a_write_is_bound_to_the_items_whose_partition_keys_the_policy_names(item, is_allowed):
    assert may(put_item(item), STATE_ONLY) is is_allowed


def test_without_null_a_policy_for_all_values_allows_a_call_that_has_no_value():
    """IAM user guide, "Multivalued context keys": ForAllValues is true when the request has no such key."""
    loose = STATE_ONLY | {"Condition": {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["cats"]}}}
    assert may(put_item({"note": {"S": "cats"}}), loose)


OWN_EVENTS = {
    "Effect": "Allow",
    "Action": "events:PutEvents",
    "Resource": f"arn:aws:events:{REGION}:{ACCOUNT}:event-bus/default",
    "Condition": {
        "ForAllValues:StringEquals": {"events:source": "cats", "events:detail-type": ["Formed", "Failed"]},
        "Null": {"events:source": "false", "events:detail-type": "false"},
    },
}


def put_events(*events):
    entries = [{"Source": source, "DetailType": kind, "Detail": "{}"} for source, kind in events]
    return list_needs(("events.PutEvents", {"Entries": entries}))


@pytest.mark.parametrize(
    ("events", "is_allowed"),
    [
        ([("cats", "Formed")], True),
        ([("cats", "Formed"), ("cats", "Failed")], True),
        ([("dogs", "Formed")], False),
        ([("cats", "Formed"), ("dogs", "Formed")], False),
        ([("cats", "Formed"), ("cats", "Ended")], False),
    ],
)
def test_a_batch_with_one_foreign_event_is_refused(events, is_allowed):
    """EventBridge user guide, "Using IAM policy conditions": it leaves open how a batch of PutEvents is decided."""
    (batch,) = put_events(*events)
    assert may(batch, OWN_EVENTS) is is_allowed
    assert all(may(*put_events(event), OWN_EVENTS) for event in events) is is_allowed


def test_a_policy_for_one_value_is_unusable_for_a_batch_of_several():
    single = OWN_EVENTS | {"Condition": {"StringEquals": {"events:source": "cats"}}}
    assert may(*put_events(("cats", "Formed"), ("cats", "Failed")), single)
    with pytest.raises(PolicyError, match="must be ForAnyValue: or ForAllValues"):
        may(*put_events(("cats", "Formed"), ("dogs", "Formed")), single)


def test_no_key_of_systems_manager_names_the_instance_that_a_call_is_about():
    (need,) = list_needs(("ssm.UpdateInstanceInformation", {"InstanceId": "i-1"}))
    assert (need.resource.rpartition("/")[2], need.context) == ("i-1", {})


@pytest.mark.parametrize(
    ("operation", "action", "key_actions"),
    [
        ("CreateMultipartUpload", "s3:PutObject", ["kms:Decrypt", "kms:GenerateDataKey"]),
        ("UploadPart", "s3:PutObject", ["kms:Decrypt", "kms:GenerateDataKey"]),
        ("CompleteMultipartUpload", "s3:PutObject", ["kms:Decrypt", "kms:GenerateDataKey"]),
        ("AbortMultipartUpload", "s3:AbortMultipartUpload", []),
    ],
)
def test_an_upload_of_many_parts_needs_the_right_to_put_the_object_and_to_end_it_another(
    operation, action, key_actions
):
    """
    The requester "must have permission to the kms:Decrypt and kms:GenerateDataKey actions on the key".

    So https://docs.aws.amazon.com/AmazonS3/latest/API/API_CreateMultipartUpload.html of the whole upload; elsewhere the
    page wants the one for the first call and the other for the parts. Both together are right under either reading.
    """
    need, *uses = list_needs((f"s3.{operation}", {"Bucket": "team", "Key": "environments/a.tar"}))
    assert (need.action, need.resource) == (action, ARCHIVE)
    assert [(use.action, use.resource) for use in uses] == [(key_action, KEY) for key_action in key_actions]


LAUNCH = {
    "ImageId": "ami-1",
    "SubnetId": "subnet-1",
    "SecurityGroupIds": ["sg-1"],
    "KeyName": "pair",
    "Tags": {"team": "learning"},
}


def test_a_launch_is_about_what_it_uses_with_its_tags_and_what_it_makes_with_those_it_gets():
    needs = {need.resource.split(":", 4)[-1]: need.context for need in list_needs(("ec2.RunInstances", LAUNCH))}
    used = {"aws:ResourceTag/team": "learning"}
    made = {"aws:RequestTag/team": "learning", "aws:TagKeys": ("team",)}
    assert needs == {
        f"{ACCOUNT}:subnet/subnet-1": used,
        f"{ACCOUNT}:security-group/sg-1": used,
        ":image/ami-1": {},
        f"{ACCOUNT}:key-pair/pair": {},
        f"{ACCOUNT}:instance/*": made,
        f"{ACCOUNT}:volume/*": made,
        f"{ACCOUNT}:network-interface/*": {},
    }


def test_whoever_runs_a_cluster_passes_two_roles_to_two_services():
    run, *passed = list_needs(("elasticmapreduce.RunJobFlow", {"ServiceRole": "emr", "JobFlowRole": "node"}))
    assert (run.action, run.resource) == ("elasticmapreduce:RunJobFlow", "*")
    assert [(need.action, need.resource, need.context["iam:PassedToService"]) for need in passed] == [
        ("iam:PassRole", "arn:aws:iam::1:role/emr", "elasticmapreduce.amazonaws.com"),
        ("iam:PassRole", "arn:aws:iam::1:role/node", "ec2.amazonaws.com"),
    ]


def test_several_clusters_of_a_call_are_named_with_their_tags():
    needs = list_needs(("elasticmapreduce.TerminateJobFlows", {"JobFlowIds": ["j-1", "j-2"]}))
    assert [need.resource.rpartition("/")[2] for need in needs] == ["j-1", "j-2"]
    assert needs[0].context == {"elasticmapreduce:ResourceTag/team": "learning", "aws:ResourceTag/team": "learning"}


def describe_copy(**headers):
    """Return each action of a copy of the encrypted archive, with its resource."""
    copy = ("s3.CopyObject", {"Bucket": "team", "Key": "a", "CopySource": "/team/environments%2Fa.tar", **headers})
    return [(need.action, need.resource) for need in list_needs(copy)]


def test_a_copy_needs_to_read_its_source_and_to_write_its_destination():
    """S3 API Reference, "CopyObject", "Permissions"; tags are copied by default, and reading them is another right."""
    wanted = [("s3:PutObject", "arn:aws:s3:::team/a"), ("s3:GetObject", ARCHIVE)]
    tags, use = ("s3:GetObjectTagging", ARCHIVE), ("kms:Decrypt", KEY)
    assert describe_copy() == [*wanted, tags, use]
    assert describe_copy(TaggingDirective="COPY") == [*wanted, tags, use]
    assert describe_copy(TaggingDirective="REPLACE") == [*wanted, use]


@pytest.mark.parametrize("source", ["team/a?versionId=1", "team", "arn:aws:s3:us-east-1:1:accesspoint/a/object/b", ""])
def test_a_copy_of_what_is_not_looked_up_here_is_refused(source):
    with pytest.raises(UnknownOperationError, match=r"s3\.CopyObject must name its resource"):
        list_needs(("s3.CopyObject", {"Bucket": "team", "Key": "a", "CopySource": source}))


def test_a_key_that_an_upload_names_is_used_in_place_of_the_buckets():
    _, use = list_needs(("s3.PutObject", {"Bucket": "logs", "Key": "a", "SSEKMSKeyId": KEY}))
    assert (use.action, use.resource, use.is_implied) == ("kms:GenerateDataKey", KEY, True)
