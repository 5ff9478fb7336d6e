"""Creates the vaults, plans and selections of AWS Backup; no backup is made, since no lab lives until the night."""

import uuid
from typing import Any

from botocore.exceptions import ClientError

from deeplearning_rehearsal.embedded_aws.services import Created, Creation, Creator


def _create_vault(creation: Creation) -> Created:
    backup = creation.client("backup")
    name = creation.properties["BackupVaultName"]
    vault = backup.create_backup_vault(
        BackupVaultName=name, **creation.properties.select("EncryptionKeyArn", "BackupVaultTags")
    )
    return Created(name, {"BackupVaultArn": vault["BackupVaultArn"], "BackupVaultName": name})


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
    creation.client("backup").get_backup_plan(BackupPlanId=properties["BackupPlanId"])
    role = str(selection["IamRoleArn"]).rpartition("/")[2]
    try:
        creation.client("iam").get_role(RoleName=role)
    except ClientError as error:
        raise ValueError(f"The IAM role {selection['IamRoleArn']} is not valid or cannot be assumed") from error
    if not selection["SelectionName"] or not all(str(arn).startswith("arn:") for arn in selection["Resources"]):
        raise ValueError(f"Resources must be ARNs, got {selection['Resources']}")
    identity = str(uuid.uuid4())
    return Created(f"{identity}_{properties['BackupPlanId']}", {"SelectionId": identity})


def _typed(value: Any) -> Any:
    """Return whole numbers as the API's type; CloudFormation takes them as text too."""
    if isinstance(value, dict):
        return {name: _typed(entry) for name, entry in value.items()}
    return int(value) if isinstance(value, str) and value.isdigit() else value


CREATORS: dict[str, Creator] = {
    "AWS::Backup::BackupVault": _create_vault,
    "AWS::Backup::BackupPlan": _create_plan,
    "AWS::Backup::BackupSelection": _create_selection,
}
