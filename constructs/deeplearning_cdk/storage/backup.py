"""Daily backup of a cluster's own file system and, on EC2, of its state table."""

from aws_cdk import Aws, Fn, RemovalPolicy
from aws_cdk import aws_backup as backup
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from deeplearning_cdk.security.acknowledged_rules import acknowledge

KEPT_DAYS = 35
_EVERY_NIGHT = "cron(0 5 ? * * *)"
_START_MINUTES, _COMPLETION_MINUTES = 60, 24 * 60


class ClusterBackup(Construct):
    """
    Backup vault of a cluster, and a plan that backs up every day at 5:00 UTC and deletes backups after 35 days.

    The vault is retained when the stack is deleted, because backups are needed when data is lost. Role and policy are
    retained too: AWS Backup needs the role to delete recovery points after their 35 days (AWS Backup developer guide,
    "Identity and access management", Warning). The vault's name is unique to each creation of the stack, so that a
    stack can be created again under the same name.
    All resources are created before the nodes: a backup that the account refuses fails the stack before nodes cost
    money. If a creation fails while the nightly backup runs, the vault is not empty: the rollback ends as
    ROLLBACK_FAILED, and deleting the stack then retains the vault.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        key: KMS key of the vault.
        state_table: Table of the state item. Default: none.
        file_system_arn: The cluster's own file system. Default: none.

    Attributes:
        vault: Vault of the backups.
        selection: Selection of the resources to back up, created last.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        key: kms.IKey,
        state_table: dynamodb.ITable | None = None,
        file_system_arn: str | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._key_arn, self._file_system_arn = key.key_arn, file_system_arn
        self._table_arn = state_table.table_arn if state_table else None
        self.vault = backup.CfnBackupVault(
            self,
            "Vault",
            # The last part of a stack's id is unique, also among stacks that had the same name.
            backup_vault_name=f"dl-{self.node.addr[-8:]}-{Fn.select(2, Fn.split('/', Aws.STACK_ID))}",
            encryption_key_arn=self._key_arn,
        )
        self.vault.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        plan = backup.CfnBackupPlan(
            self,
            "Plan",
            backup_plan=backup.CfnBackupPlan.BackupPlanResourceTypeProperty(
                backup_plan_name="deep-learning-cluster", backup_plan_rule=[self._describe_rule()]
            ),
        )
        role, policy = self._make_role()
        self.selection = backup.CfnBackupSelection(
            self,
            "Selection",
            backup_plan_id=plan.ref,
            backup_selection=backup.CfnBackupSelection.BackupSelectionResourceTypeProperty(
                selection_name="deep-learning-cluster",
                iam_role_arn=role.role_arn,
                resources=[arn for arn in (file_system_arn, self._table_arn) if arn is not None],
            ),
        )
        self.selection.node.add_dependency(policy)

    def _describe_rule(self) -> backup.CfnBackupPlan.BackupRuleResourceTypeProperty:
        return backup.CfnBackupPlan.BackupRuleResourceTypeProperty(
            rule_name="daily",
            target_backup_vault=self.vault.ref,
            schedule_expression=_EVERY_NIGHT,
            start_window_minutes=_START_MINUTES,
            completion_window_minutes=_COMPLETION_MINUTES,
            lifecycle=backup.CfnBackupPlan.LifecycleResourceTypeProperty(delete_after_days=KEPT_DAYS),
        )

    def _make_role(self) -> tuple[iam.Role, iam.ManagedPolicy]:
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("backup.amazonaws.com"),
            description="Backs up a deep-learning cluster",
        )
        document = iam.PolicyDocument(statements=self._rights(), minimize=True)
        policy = iam.ManagedPolicy(self, "Policy", roles=[role], document=document)
        for kept in (role, policy):
            kept.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)
        # Backups are named when they are created, and `tag:GetResources` takes no resource in IAM.
        wildcards = [*([_backups_of(self._table_arn)] if self._table_arn else []), self._recovery_points(), "*"]
        acknowledge(policy, "wildcard-resources", findings=wildcards)
        return role, policy

    def _rights(self) -> list[iam.PolicyStatement]:
        """
        Return the statements of AWSBackupServiceRolePolicyForBackup for EFS and DynamoDB, limited to these resources.

        The AWS Backup developer guide lists the statements for both ("Managed policies", Customer managed policies).
        """
        statements = [
            *(_table_rights(self._table_arn) if self._table_arn else ()),
            # CreateBackupSelection refuses a role without it (hashicorp/terraform-provider-aws issue 10511).
            _allow(["tag:GetResources"], "*"),
            _allow(["backup:CopyIntoBackupVault", "backup:DescribeBackupVault"], self.vault.attr_backup_vault_arn),
            _allow(["backup:TagResource"], self._recovery_points()),
            *(_table_key_rights(self._key_arn) if self._table_arn else ()),
            _allow(["kms:DescribeKey"], self._key_arn),
            _allow(["kms:CreateGrant"], self._key_arn, {"Bool": {"kms:GrantIsForAWSResource": "true"}}),
        ]
        if self._file_system_arn is not None:
            actions = ["elasticfilesystem:Backup", "elasticfilesystem:DescribeTags"]
            statements.append(_allow(actions, self._file_system_arn))
        return statements

    def _recovery_points(self) -> str:
        return Fn.sub("arn:${AWS::Partition}:backup:${AWS::Region}:${AWS::AccountId}:recovery-point:*")


def _backups_of(table_arn: str) -> str:
    return Fn.join("", [table_arn, "/backup/*"])


def _table_rights(table_arn: str) -> list[iam.PolicyStatement]:
    actions = [
        "dynamodb:CreateBackup",
        "dynamodb:DescribeTable",
        "dynamodb:ListTagsOfResource",
        "dynamodb:StartAwsBackupJob",
    ]
    return [
        _allow(actions, table_arn),
        _allow(["dynamodb:DeleteBackup", "dynamodb:DescribeBackup"], _backups_of(table_arn)),
    ]


def _table_key_rights(key_arn: str) -> list[iam.PolicyStatement]:
    service = Fn.sub("dynamodb.${AWS::Region}.${AWS::URLSuffix}")
    is_dynamodb = {"StringEquals": {"kms:ViaService": service}}
    return [_allow(["kms:Decrypt", "kms:GenerateDataKey"], key_arn, is_dynamodb)]


def _allow(
    actions: list[str], resource: str, conditions: dict[str, dict[str, str]] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(actions=actions, resources=[resource], conditions=conditions)
