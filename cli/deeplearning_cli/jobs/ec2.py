"""Jobs of a cluster on EC2: the master starts them, one at a time."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from deeplearning_cli.jobs.platform import Refused, Started
from deeplearning_cli.jobs.session import MasterSession
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole


@dataclass(frozen=True)
class Ec2Platform(MasterSession):
    """A cluster that takes jobs, on EC2."""

    @property
    def master_tags(self) -> Mapping[str, str]:
        """Tags of the master."""
        return {CLUSTER_TAG: self.settings.cluster, ROLE_TAG: NodeRole.MASTER.value}

    def check(self, job: JobDefinition) -> None:
        """Take every job."""

    def start(self, job: JobDefinition, on_line: Callable[[str], None]) -> Started | Refused:
        """Start a job; a running one refuses others."""
        status = self.run(["start-job", "--detach", job.encode()], on_line)
        return Refused(status) if status else Started()
