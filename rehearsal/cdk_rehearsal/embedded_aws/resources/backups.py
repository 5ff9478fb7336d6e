"""
Creates the vaults, plans and selections of AWS Backup.

No lab lives until the night, so no backup is made: its rights are asked for when something is selected.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import Simple

BACKUP = "backup.amazonaws.com"
Call = tuple[str, Mapping[str, str]]
_NEXT = "00000000-0000-0000-0000-000000000000"
"""In the place of the ids that backups get when they are made."""


def _create_plan(creation: Creation) -> Created:
    properties = creation.properties
    plan = properties["BackupPlan"]
    rules = [
        {
            # The template's names differ from the API's.
            ("TargetBackupVaultName" if name == "TargetBackupVault" else name): _typed(value)
            for name, value in rule.items()
        }
        for rule in plan["BackupPlanRule"]
    ]
    answer = creation.client("backup").create_backup_plan(
        BackupPlan={"BackupPlanName": plan["BackupPlanName"], "Rules": rules}, **properties.select("BackupPlanTags")
    )
    names = ("BackupPlanId", "BackupPlanArn", "VersionId")
    return Created(answer["BackupPlanId"], {name: answer[name] for name in names})


def _create_selection(creation: Creation) -> Created:
    properties = creation.properties
    selection = properties["BackupSelection"]
    # moto has no selections; that of a plan or role that does not exist is refused as AWS does.
    plan = creation.client("backup").get_backup_plan(BackupPlanId=properties["BackupPlanId"])["BackupPlan"]
    role = str(selection["IamRoleArn"])
    _require_trust(creation, role)
    _require_tag_right(creation, role)
    if not selection["SelectionName"] or not all(str(arn).startswith("arn:") for arn in selection["Resources"]):
        raise ValueError(f"Resources must be ARNs, got {selection['Resources']}")
    for vault in sorted({rule["TargetBackupVaultName"] for rule in plan["Rules"]}):
        _check_rights(creation, role, vault, selection["Resources"])
    identity = str(uuid.uuid4())
    return Created(f"{identity}_{properties['BackupPlanId']}", {"SelectionId": identity})


def _require_trust(creation: Creation, role_arn: str) -> None:
    if not creation.services.authorizer.trusts(role_arn, BACKUP):
        raise ValueError(f"The IAM role {role_arn} is not valid or cannot be assumed by AWS Backup")


def _require_tag_right(creation: Creation, role_arn: str) -> None:
    """
    Refuse a selection whose role may not look up resources, in the words of `CreateBackupSelection`.

    hashicorp/terraform-provider-aws issue 10511 and pull request 12017, which retries on this text. The reports select
    by tag; no page says that a selection by ARNs is exempt.
    """
    service = Principal("other", "", "aws-backup", role_arn)
    if creation.services.authorizer.check_call(service, "tag.GetResources", {}) is not None:
        raise ValueError(f"IAM Role {role_arn} is not authorized to call tag:GetResources (ERROR_3018)")


def _check_rights(creation: Creation, role_arn: str, vault: str, resources: Sequence[str]) -> None:
    """Check the calls of a nightly backup by its role; a denial is reported as of any other call."""
    service = Principal("other", "", "aws-backup", role_arn)
    point = creation.services.authorizer.state.arn("backup", f"recovery-point:{_NEXT}")
    of_vault: list[Call] = [
        ("backup.DescribeBackupVault", {"BackupVaultName": vault}),
        ("backup.CopyIntoBackupVault", {"BackupVaultName": vault}),
        ("backup.EncryptRecoveryPoint", {"BackupVaultName": vault}),
        ("backup.TagResource", {"ResourceArn": point}),
    ]
    of_resources = [call for arn in resources for call in list_backup_calls(arn)]
    for operation, parameters in of_vault + of_resources:
        creation.services.authorizer.check_call(service, operation, parameters)


def list_backup_calls(arn: str) -> Iterator[Call]:
    """
    Return what AWS Backup does to back up a resource, and to delete its old backups.

    AWS Backup Developer Guide, "Managed policies": what custom roles need for Amazon EFS and for Amazon DynamoDB. Of a
    table, an account has one of two kinds of backups, by its age and what it opted in to: DynamoDB's or AWS Backup's.
    """
    service, name = arn.split(":")[2], arn.rpartition("/")[2]
    if service == "elasticfilesystem":
        yield "elasticfilesystem.DescribeTags", {"FileSystemId": name}
        yield "elasticfilesystem.Backup", {"FileSystemId": name}
    elif service == "dynamodb":
        yield "dynamodb.DescribeTable", {"TableName": name}
        yield "dynamodb.ListTagsOfResource", {"ResourceArn": arn}
        yield "dynamodb.StartAwsBackupJob", {"TableName": name}
        yield "dynamodb.CreateBackup", {"TableName": name}
        yield "dynamodb.DescribeBackup", {"BackupArn": f"{arn}/backup/{_NEXT}"}
        yield "dynamodb.DeleteBackup", {"BackupArn": f"{arn}/backup/{_NEXT}"}
    else:
        raise ValueError(f"a resource to back up must be a file system or a table, got {arn}; add its calls")


def _typed(value: Any) -> Any:
    """Return whole numbers as the API's type; CloudFormation takes them as text too."""
    if isinstance(value, dict):
        return {name: _typed(entry) for name, entry in value.items()}
    return int(value) if isinstance(value, str) and value.isdigit() else value


CREATORS: dict[str, Creator] = {
    "AWS::Backup::BackupVault": Simple("backup", "create_backup_vault", id="{BackupVaultName}"),
    "AWS::Backup::BackupPlan": _create_plan,
    "AWS::Backup::BackupSelection": _create_selection,
}
