"""Submission of jobs: the document by which `deeplearning-cdk submit` finds a cluster, and where it puts sources."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.jobs.job_definition import COMMAND, JobDefinition
from deeplearning_contract.setting_parts import DataSettings, ScriptSettings, compact

SUBMISSION_PATH = "/deeplearning"
"""Path of all submission documents among SSM's parameters."""
STEP_NAME = "deeplearning job "
"""Beginning of the name of an EMR step that runs a job; the job's name follows."""
_AGENTS = "agents/"
PLANNED = "made-by-submit"
"""Secret in a plan of a job, which starts nothing."""
Platform = Literal["ec2", "emr", "sagemaker", "eks"]
"""Service of AWS that runs a cluster."""


@dataclass(frozen=True)
class FileSystemFolder:
    """Folder of a file system that SageMaker mounts in the containers of a training job."""

    file_system_id: str
    kind: Literal["EFS", "FSxLustre"]  # SageMaker's word for the type of the file system
    path: str  # Absolute path on the file system, the mount name of FSx for Lustre first, such as `/abcdefgh`


@dataclass(frozen=True)
class TrainingSettings:
    """Training jobs of a stack on SageMaker; values may be CDK tokens."""

    name_prefix: str  # Beginning of the names of the stack's training jobs, with `-` at its end
    role_arn: str  # Execution role
    image: str  # URI of the image of the containers
    instance_type: str  # SageMaker's name of it, such as `ml.g5.12xlarge`
    gpu_count: int  # NVIDIA GPUs of an instance
    members: int  # Instances of a job that names none
    volume_gibibytes: int  # Volume of each instance; 0 for a type whose disks have a fixed size
    subnets: tuple[str, ...]
    security_groups: tuple[str, ...]
    shared: FileSystemFolder  # The shared file system
    output: str  # S3 URI below which SageMaker writes models
    key_arn: str  # KMS key of volumes and models
    agent: ScriptSettings  # Zip of the programs of the containers
    max_seconds: int  # Longest run of a job
    max_wait_seconds: int = 0  # Longest run of a job on spot capacity with all its waits; 0 for on-demand capacity
    max_pending_seconds: int = 0  # Longest wait for capacity; 0 for SageMaker's own limit
    keep_alive_seconds: int = 0  # Time for which instances wait for the next job; 0 for none
    data: tuple[DataSettings, ...] = ()  # Data in S3 for jobs
    lustre: FileSystemFolder | None = None  # FSx for Lustre; None without one


@dataclass(frozen=True)
class KubernetesSettings:
    """Jobs of a stack on EKS; values may be CDK tokens."""

    cluster_name: str  # Name of the cluster on EKS, which tokens contain
    endpoint: str  # URL of the API server
    authority: str  # Its certificate authority, base64
    namespace: str  # Of jobs
    service_account: str  # Of pods
    image: str  # URI of the image of the pods
    members: int  # Pods of a job that names no number
    gpu_count: int  # NVIDIA GPUs of a node
    efa_count: int  # EFA interfaces that a pod asks for; 0 where its image has no software for them
    node_label: str  # `key=value` of the nodes of members
    mount_point: str  # Of the shared file system in pods
    volume_handle: str  # Of the EFS driver: `fs-…::fsap-…`
    shared_capacity: str  # Of the volume, such as `85Gi`
    claim_capacity: str
    agent: ScriptSettings  # Zip of the programs of the pods
    region: str
    has_nvidia_plugin: bool  # Whether the nodes' image contains the NVIDIA device plugin
    queue: str = ""  # LocalQueue of Kueue; empty for none
    memory_mib: int = 0  # Memory of a pod that has all GPUs of its node; 0 for no limit
    disk_gibibytes: int = 0  # Disk of such a pod; 0 for no limit
    data: tuple[DataSettings, ...] = ()


@dataclass(frozen=True)
class SubmissionSettings:
    """Submission document: the parameter of a stack from which `submit` learns where and how to start a job."""

    platform: Platform  # Service that runs the cluster
    cluster: str  # Value of the tag `deeplearning:cluster` of the nodes
    login_user: str  # User of the nodes under whom jobs run
    bucket: str  # Bucket for packed source folders
    prefix: str  # Prefix of their keys, with `/` at its end
    cluster_id: str = ""  # EMR's id of the cluster; empty elsewhere
    training: TrainingSettings | None = None  # Training jobs of SageMaker; None elsewhere
    kubernetes: KubernetesSettings | None = None  # Jobs of EKS; None elsewhere

    @classmethod
    def from_json(cls, text: str) -> "SubmissionSettings":
        """Read the parameter's value; ContractError for a malformed one."""
        return parse_record(cls, text, "submission document")

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object for `from_json`; values may be CDK tokens."""
        document: dict[str, Any] = compact(self)
        return document


def make_secret() -> str:
    """Return the secret of a new job, with which its members sign what they write for each other."""
    return secrets.token_hex(32)


def submission_parameter(cluster: str) -> str:
    """Return the name of the SSM parameter with the submission document of a cluster."""
    return f"{SUBMISSION_PATH}/{cluster}/submission"


def source_prefix(cluster: str) -> str:
    """Return the prefix of the packed source folders of a cluster's jobs."""
    return f"deeplearning-jobs/{cluster}/"


def agent_prefix(cluster: str) -> str:
    """Return the prefix of the copies of the zip of programs that a cluster's jobs fetch."""
    return f"{source_prefix(cluster)}{_AGENTS}"


def locate_agent(submission: SubmissionSettings, agent: ScriptSettings) -> ScriptSettings:
    """
    Return the copy of the zip of programs that jobs fetch.

    The zip itself is an asset whose key changes with each release and setting, and a deployment ends the right to read
    the former one. A job whose pod or container starts again after a deployment needs the programs of its submission.

    Args:
        submission: Submission document of a stack on EKS or SageMaker.
        agent: The zip as an asset.
    """
    return replace(agent, bucket=submission.bucket, key=f"{submission.prefix}{_AGENTS}{agent.sha256}.zip")


def make_agent_copy(submission: SubmissionSettings) -> dict[str, Any] | None:
    """
    Return the request of S3's CopyObject by which a submission keeps the programs of its job.

    None on EC2 and EMR, whose nodes have them. Without the directive, S3 copies the tags of the source too, which takes
    another right where it has any (S3 API Reference, "CopyObject").
    """
    settings = submission.kubernetes or submission.training
    if settings is None:
        return None
    copy = locate_agent(submission, settings.agent)
    source = {"Bucket": settings.agent.bucket, "Key": settings.agent.key}
    return {"Bucket": copy.bucket, "Key": copy.key, "CopySource": source, "TaggingDirective": "REPLACE"}


def choose_data(settings: TrainingSettings | KubernetesSettings, job: JobDefinition) -> Sequence[DataSettings]:
    """Return the data in S3 of a job: all of the stack unless it names some; ContractError for an unknown name."""
    known = {source.name: source for source in settings.data}
    for name in job.data:
        if name not in known:
            names = ", ".join(known) or "none"
            raise ContractError(f"data must be names of the stack's data, got {name!r}; the stack has {names}")
    return [known[name] for name in job.data or known]


def make_emr_step(job: JobDefinition) -> dict[str, Any]:
    """Return the EMR step that runs the job on the primary node."""
    # A step has no login shell, whose variables the ranks expect; exec leaves no process in between.
    shell = ["bash", "--login", "-c", 'exec "$0" "$@"']
    words = [*shell, COMMAND, "start-job", "--end-with-parent", job.encode()]
    return {
        "Name": f"{STEP_NAME}{job.name}",
        "ActionOnFailure": "CONTINUE",
        "HadoopJarStep": {"Jar": "command-runner.jar", "Args": words},
    }
