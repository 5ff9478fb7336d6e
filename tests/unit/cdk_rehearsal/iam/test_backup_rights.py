"""Rights that a role needs when a resource is selected for backup, and roles that are refused."""

import json
from types import SimpleNamespace

import pytest

from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.resources.backups import CREATORS
from cdk_rehearsal.iam.call_record import CallRecord

TABLE = "arn:aws:dynamodb:us-east-1:123456789012:table/state"
ROLE = "arn:aws:iam::123456789012:role/Backup"


def trust(service):
    statement = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": service}}
    return {"Version": "2012-10-17", "Statement": [statement]}


def select(trusted="backup.amazonaws.com", denied=()):
    asked = []

    class AskedAuthorizer(Authorizer):
        def check_call(self, principal, operation, parameters):
            asked.append((principal.role_arn, operation, parameters))
            return f"denied {operation}" if operation in denied else None

    plan = {"BackupPlan": {"Rules": [{"TargetBackupVaultName": "nightly"}, {"TargetBackupVaultName": "nightly"}]}}
    client = SimpleNamespace(get_backup_plan=lambda **_: plan)
    state = SimpleNamespace(
        arn=lambda service, resource: f"arn:aws:{service}:us-east-1:123456789012:{resource}",
        find_trust_policy=lambda _arn: json.dumps(trust(trusted)),
    )
    authorizer = AskedAuthorizer(state, CallRecord(), Observations(None))
    selection = {"IamRoleArn": ROLE, "SelectionName": "all", "Resources": [TABLE]}
    creation = SimpleNamespace(
        properties={"BackupSelection": selection, "BackupPlanId": "p1"},
        client=lambda _name: client,
        services=SimpleNamespace(authorizer=authorizer),
    )
    CREATORS["AWS::Backup::BackupSelection"](creation)
    return asked


def test_the_role_is_asked_for_vault_recovery_point_and_resource_once_for_each_vault():
    asked = select()
    assert {role for role, _, _ in asked} == {ROLE}
    assert [operation for _, operation, _ in asked] == [
        "tag.GetResources",
        "backup.DescribeBackupVault",
        "backup.CopyIntoBackupVault",
        "backup.EncryptRecoveryPoint",
        "backup.TagResource",
        "dynamodb.DescribeTable",
        "dynamodb.ListTagsOfResource",
        "dynamodb.StartAwsBackupJob",
        "dynamodb.CreateBackup",
        "dynamodb.DescribeBackup",
        "dynamodb.DeleteBackup",
    ]
    assert asked[1][2] == {"BackupVaultName": "nightly"}


def test_a_role_that_trusts_another_service_is_refused():
    with pytest.raises(ValueError, match="cannot be assumed by AWS Backup"):
        select(trusted="ec2.amazonaws.com")


def test_a_role_that_may_not_look_up_resources_is_refused_at_the_selection():
    """AWS's words: hashicorp/terraform-provider-aws issue 10511, which pull request 12017 retries on."""
    with pytest.raises(ValueError, match=f"IAM Role {ROLE} is not authorized to call tag:GetResources"):
        select(denied={"tag.GetResources"})
