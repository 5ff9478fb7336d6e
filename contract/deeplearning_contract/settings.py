"""
Settings that the constructs give to the programs: the node's file and the Lambda's environment.

The constructs write them at synth with CloudFormation tokens in the values; the agent and the
adjuster read them at run time. Both sides use these classes, so a name exists once.
"""

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any

from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import NO_NEEDS, FileSystemSettings, JobNeeds, ScriptSettings, compact


@dataclass(frozen=True)
class NodeSettings:
    """Settings of a node, from its user data."""

    cluster: str
    role: NodeRole
    region: str  # AWS region
    state_table: str  # Name of the DynamoDB table that holds the state item
    master_queue_url: str  # Doorbells from the adjuster to the master
    worker_queue_url: str  # Doorbells from the master to the workers
    report_queue_url: str  # Reports from the workers to the master
    report_sender: str  # IAM unique id (AROA…) of the workers' role, the first half of a report's `SenderId`
    signal_url: str  # Presigned URL of the stack's WaitConditionHandle; empty on workers
    login_user: str  # The image's login user; logins and training run as this user
    file_system: FileSystemSettings  # How the shared file system is mounted
    expected_gpu_count: int  # GPUs that the instance type has; 0 when it has none or it is not known
    # Packages that the node installs only where the image lacks what they provide: command -> packages
    packages: Mapping[str, tuple[str, ...]]
    worker_min_capacity: int  # Fewest workers with which the user wants the cluster
    setup_seconds: int  # Time from the agent's first start to the end of formation; less than the stack's own time-out
    setup_script: ScriptSettings | None = None  # Runs as root on every node before it reports; None without one
    # Runs as the login user on the master once the cluster has formed; None without one
    run_script: ScriptSettings | None = None
    needs: JobNeeds = NO_NEEDS  # What jobs find on the node beside its contract
    log_group: str = ""  # CloudWatch log group that takes the node's log; empty when it is not shipped
    stop_when_idle_seconds: int = 0  # How long the cluster may do nothing before its master ends it; 0 for ever

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads; values may be CDK tokens, and lists are no tuples, for it."""
        document: dict[str, Any] = compact(self)
        return document

    @classmethod
    def from_json(cls, text: str) -> "NodeSettings":
        """Read the settings file; ContractError for one of another shape."""
        return parse_record(cls, text, "settings")


@dataclass(frozen=True)
class AdjusterSettings:
    """Settings of the capacity adjuster, from the function's environment."""

    cluster: str  # The cluster's name, also the value of the `deeplearning:cluster` tag of its groups
    state_table: str  # Name of the DynamoDB table that holds the state item
    master_queue_url: str  # Doorbells from the adjuster to the master
    signal_url: str  # Presigned URL of the stack's WaitConditionHandle
    worker_min_capacity: int  # Fewest workers with which the user wants the cluster
    settle_seconds: int  # Time between the two equal reads that a decision needs
    # The capacity block that the nodes run in, whose end is announced; empty without one
    capacity_reservation_id: str = ""
    stop_after_seconds: int = 0  # How long the groups may exist before the adjuster stops the cluster; 0 for ever
    budget_topic_arn: str = ""  # The topic on which AWS Budgets says that the cluster is to stop; empty without one
    encryption_key: str = ""  # ARN of the key that encrypts the nodes' volumes, for the remedy of a refused launch

    @property
    def has_end(self) -> bool:
        """Whether the adjuster may stop the cluster."""
        return self.stop_after_seconds > 0 or bool(self.budget_topic_arn)

    def to_environment(self) -> dict[str, str]:
        """Return the Lambda's environment variables, but those of defaults; values may be CDK tokens."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        wanted = {each.name: given[each.name] for each in fields(self) if each.default is MISSING or given[each.name]}
        return {adjuster_variable(name): str(value) for name, value in wanted.items()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "AdjusterSettings":
        """Read the Lambda's environment variables; ContractError for a missing or malformed one."""
        values: dict[str, Any] = {}
        try:
            for each in fields(cls):
                variable = adjuster_variable(each.name)
                if variable in environment or each.default is MISSING:
                    text = environment[variable]
                    values[each.name] = int(text) if each.type is int else text
        except (KeyError, TypeError, ValueError) as error:
            raise ContractError(f"adjuster environment is incomplete or malformed: {error}") from error
        return cls(**values)


def adjuster_variable(name: str) -> str:
    """Return the variable of the Lambda's environment that holds one of the adjuster's settings."""
    return f"DEEPLEARNING_{name.upper()}"
