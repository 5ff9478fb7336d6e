"""Submission of jobs: the document by which `deeplearning-cdk submit` finds a cluster, and where it puts sources."""

from dataclasses import dataclass
from typing import Any, Literal

from deeplearning_contract.document import parse_record
from deeplearning_contract.job_definition import COMMAND, JobDefinition
from deeplearning_contract.setting_parts import compact

SUBMISSION_PATH = "/deeplearning"
"""Path of all submission documents among SSM's parameters."""
STEP_NAME = "deeplearning job "
"""Beginning of the name of an EMR step that runs a job; the job's name follows."""
Platform = Literal["ec2", "emr"]
"""Service of AWS that runs a cluster."""


@dataclass(frozen=True)
class SubmissionSettings:
    """Submission document: the parameter of a stack from which `submit` learns where and how to start a job."""

    platform: Platform  # Service that runs the cluster
    cluster: str  # Value of the tag `deeplearning:cluster` of the nodes
    login_user: str  # User of the nodes under whom jobs run
    bucket: str  # Bucket for packed source folders
    prefix: str  # Prefix of their keys, with `/` at its end
    cluster_id: str = ""  # EMR's id of the cluster; empty on EC2

    @classmethod
    def from_json(cls, text: str) -> "SubmissionSettings":
        """Read the parameter's value; ContractError for a malformed one."""
        return parse_record(cls, text, "submission document")

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object for `from_json`; values may be CDK tokens."""
        document: dict[str, Any] = compact(self)
        return document


def submission_parameter(cluster: str) -> str:
    """Return the name of the SSM parameter with the submission document of a cluster."""
    return f"{SUBMISSION_PATH}/{cluster}/submission"


def source_prefix(cluster: str) -> str:
    """Return the prefix of the packed source folders of a cluster's jobs."""
    return f"deeplearning-jobs/{cluster}/"


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
