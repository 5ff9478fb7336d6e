"""Clusters of EC2 instances in Auto Scaling groups."""

from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.errors import AssemblyError, PromiseError, UnavailableError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import SubmissionSettings
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_rehearsal.checks.contract_check import Nodes
from deeplearning_rehearsal.checks.training import last_lines
from deeplearning_rehearsal.platforms.platform import Clients, ClusterPlatform

_GROUP = "AWS::AutoScaling::AutoScalingGroup"
_REQUEST = "Custom::RequestedCapacity"
WORKER_MINIMUM_VARIABLE = "DEEPLEARNING_WORKER_MIN_CAPACITY"
"""Variable of the capacity adjuster's environment that holds the fewest workers."""


class Ec2Platform(ClusterPlatform):
    """Clusters of EC2 instances; the stack is complete when the cluster has formed."""

    has_late_members = False

    def owns(self, template: Mapping[str, Any]) -> bool:
        """Return whether an Auto Scaling group of a template is a master's."""
        return bool(_find_groups(template, NodeRole.MASTER))

    def count_nodes(self, template: Mapping[str, Any]) -> int:
        """Return the nodes that a template asks for, in its request for capacity or in its groups."""
        asked = sum(int(each["Master"]) + int(each["Workers"]) for each in _find(template, _REQUEST).values())
        groups = _find(template, _GROUP).values()
        return asked or sum(int(group.get("DesiredCapacity", group.get("MinSize", 0))) for group in groups)

    def require_nodes(self, template: Mapping[str, Any], nodes: int) -> None:
        """Raise UnavailableError if the stack's own minimum is higher than this number of nodes, master included."""
        for function in _find(template, "AWS::Lambda::Function").values():
            fewest = function.get("Environment", {}).get("Variables", {}).get(WORKER_MINIMUM_VARIABLE)
            if isinstance(fewest, str) and fewest.isdigit() and nodes - 1 < int(fewest):
                raise UnavailableError(
                    f"--nodes must be at least {int(fewest) + 1}, the master and the stack's workers.min_capacity of "
                    f"{fewest}, got {nodes}; raise it, or synthesize with a lower workers.min_capacity"
                )

    def resize(self, template: dict[str, Any], workers: int) -> dict[str, str]:
        """
        Set the number of workers in a template, and return path -> new value.

        The maximum of the workers' group is raised where it is lower.

        Raises:
            AssemblyError: The template has no group of workers, or has several that ask for themselves.
        """
        groups, requests = _find_groups(template, NodeRole.WORKER), _find(template, _REQUEST)
        if not groups or (len(groups) > 1 and not requests):
            raise AssemblyError(
                f"the template must have {'a' if requests else 'one'} group tagged {ROLE_TAG}={NodeRole.WORKER.value} "
                f"to set its size, got {sorted(groups)}"
            )
        listing = {}
        for name, wanted in requests.items():
            wanted["Workers"] = listing[f"{name}.Workers"] = str(workers)
        for name, properties in groups.items():
            if not requests:  # Of a template whose groups ask for themselves.
                properties["DesiredCapacity"] = listing[f"{name}.DesiredCapacity"] = str(workers)
            if int(properties["MaxSize"]) < workers:  # The stack asks one of them; each may be that.
                properties["MaxSize"] = listing[f"{name}.MaxSize"] = str(workers)
        return listing

    def list_settings(self, template: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
        """Yield the user data of a template's launch templates."""
        for properties in _find(template, "AWS::EC2::LaunchTemplate").values():
            if "UserData" in properties["LaunchTemplateData"]:
                yield properties["LaunchTemplateData"], "UserData"

    def await_members(self, clients: Clients, submission: SubmissionSettings, seconds: float) -> None:
        """Wait for nothing."""

    def find_logs(self, clients: Clients, submission: SubmissionSettings) -> Mapping[str, bool]:  # noqa: ARG002
        """Return none: EC2 itself writes no logs."""
        return {}

    def run_job(
        self,
        nodes: Nodes,
        master: str,
        job: JobDefinition,
        seconds: float,
        *,
        clients: Clients,  # noqa: ARG002
        submission: SubmissionSettings,
    ) -> str:
        """Run a job on the master by `deeplearning start-job`."""
        command = ["deeplearning", "start-job", job.encode()]
        answer = nodes.run(master, command, user=submission.login_user, login_shell=True, timeout=seconds)
        if answer.returncode != 0:
            raise PromiseError(
                f"the job ended with status {answer.returncode}: {last_lines(answer.stdout + answer.stderr)}"
            )
        return answer.stdout


def _find(template: Mapping[str, Any], kind: str) -> dict[str, Any]:
    """Return the properties of all resources of a type, by their logical ids."""
    resources = template.get("Resources", {}).items()
    return {name: each["Properties"] for name, each in resources if each["Type"] == kind and "Properties" in each}


def _find_groups(template: Mapping[str, Any], role: NodeRole) -> dict[str, Any]:
    tag = (ROLE_TAG, role.value)
    return {
        name: group
        for name, group in _find(template, _GROUP).items()
        if tag in {(each.get("Key"), each.get("Value")) for each in group.get("Tags", [])}
    }
