"""
Settings of the programs, from the constructs: the node's file and the Lambda function's environment.

The constructs write them at synthesis with CloudFormation tokens in the values; the agent and the
adjuster read them at run time. Both sides use these classes, so that each name is defined once.
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
    state_table: str  # Name of the DynamoDB table with the state record
    master_queue_url: str  # Notifications from the adjuster to the master
    worker_queue_url: str  # Notifications from the master to the workers
    report_queue_url: str  # Reports from the workers to the master
    report_sender: str  # IAM unique id (AROA…) of the workers' role, the first half of a report's `SenderId`
    signal_url: str  # Presigned URL of the stack's WaitConditionHandle; empty on workers
    login_user: str  # The image's login user; logins and training run as this user
    file_system: FileSystemSettings  # Mount of the shared file system
    expected_gpu_count: int  # GPUs of the instance type; 0 for none or an unknown type
    # Packages that the node installs only if the image lacks their command: command -> packages
    packages: Mapping[str, tuple[str, ...]]
    setup_seconds: int  # Time from the agent's first start to the end of formation; less than the stack's own time-out
    setup_script: ScriptSettings | None = None  # Runs as root on every node before its report; None for none
    # Runs as the login user on the master once the cluster has formed; None for none
    run_script: ScriptSettings | None = None
    needs: JobNeeds = NO_NEEDS  # Requirements of jobs in addition to the contract
    log_group: str = ""  # CloudWatch log group of the node's log; empty when it is not shipped
    stop_when_idle_seconds: int = 0  # Idle time after which the master ends the cluster; 0 for never
    stop_after_seconds: int = 0  # On EMR, time after which the primary node ends the cluster; 0 for never
    event_cluster: str = ""  # On EKS, cluster whose events the pods of a failed job send; empty for none

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object for `from_json`; values may be CDK tokens, and tuples become lists."""
        document: dict[str, Any] = compact(self)
        return document

    @classmethod
    def from_json(cls, text: str) -> "NodeSettings":
        """Read the settings file; ContractError for a malformed one."""
        return parse_record(cls, text, "settings")


@dataclass(frozen=True)
class AdjusterSettings:
    """Settings of the capacity adjuster, from the function's environment."""

    cluster: str  # The cluster's name, also the value of the `deeplearning:cluster` tag of its groups
    state_table: str  # Name of the DynamoDB table with the state record
    master_queue_url: str  # Notifications from the adjuster to the master
    signal_url: str  # Presigned URL of the stack's WaitConditionHandle
    worker_min_capacity: int  # Minimum number of workers
    settle_seconds: int  # Seconds between the two equal reads that a decision needs
    # Capacity Block of the nodes, whose end is announced; empty without one
    capacity_reservation_id: str = ""
    stop_after_seconds: int = 0  # Age of the groups at which the adjuster stops the cluster; 0 for never
    budget_topic_arn: str = ""  # Topic on which AWS Budgets requests a stop of the cluster; empty without one
    encryption_key: str = ""  # ARN of the key of the nodes' volumes, for the remedy of a refused launch
    # Values of the candidate tag in the order in which their groups get capacity, separated by commas, the first
    # included; empty for the first alone
    candidates: str = ""
    first_candidate: str = ""  # Zone, type and purchase of the first, in the form of a further one's tag
    patience_seconds: int = 0  # Time for the launches of a candidate before the next one is asked
    search_seconds: int = 0  # Time after which no further candidate is asked and the cluster fails
    worker_block_id: str = ""  # Capacity Block for which the workers alone wait; empty without one

    @property
    def has_end(self) -> bool:
        """True if the adjuster may stop the cluster."""
        return self.stop_after_seconds > 0 or bool(self.budget_topic_arn)

    def to_environment(self) -> dict[str, str]:
        """Return the Lambda function's environment variables without defaults; values may be CDK tokens."""
        given = {each.name: getattr(self, each.name) for each in fields(self)}
        wanted = {each.name: given[each.name] for each in fields(self) if each.default is MISSING or given[each.name]}
        return {adjuster_variable(name): str(value) for name, value in wanted.items()}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "AdjusterSettings":
        """Read the Lambda function's environment variables; ContractError for a missing or malformed one."""
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
    """Return the environment variable of one of the adjuster's settings."""
    return f"DEEPLEARNING_{name.upper()}"
