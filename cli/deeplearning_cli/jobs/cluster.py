"""A cluster that takes jobs, reached through a session on the master."""

import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.errors import UnavailableError
from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.jobs.output import read_lines
from deeplearning_cli.ssh import enter_node, make_session_command, require_programs, start_session
from deeplearning_contract.document import ContractError, parse_last_line
from deeplearning_contract.job_definition import (
    COMMAND,
    SESSION_BEGUN,
    SESSION_ENDED,
    JobDefinition,
    SubmissionSettings,
)
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_view.aws_responses import ViewError

_END = re.compile(rf"{SESSION_ENDED} (\d+)\s*$")


@dataclass(frozen=True)
class JobCluster:
    """
    A cluster that takes jobs, on EC2.

    Attributes:
        access: Access to its account.
        settings: Its submission document.
    """

    access: CloudAccess
    settings: SubmissionSettings

    def place(self, sha256: str) -> ScriptSettings:
        """Return the place of a packed source folder, by its digest."""
        return ScriptSettings(self.settings.bucket, f"{self.settings.prefix}{sha256}.tar.gz", sha256)

    def check(self, job: JobDefinition) -> None:
        """Raise UnavailableError for a job that the platform does not take; EC2 takes every one."""

    def upload(self, content: bytes, source: ScriptSettings) -> None:
        """Upload a packed source folder; UnavailableError with the right that is missing."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

        try:
            self.access.clients("s3").put_object(Bucket=source.bucket, Key=source.key, Body=content)
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError(
                f"could not upload the source to s3://{source.bucket}/{source.key}: {error}; the caller needs "
                "s3:PutObject there, which the cluster's grant_submit grants"
            ) from error

    @property
    def master_tags(self) -> Mapping[str, str]:
        """Tags by which the master is found."""
        return {CLUSTER_TAG: self.settings.cluster, ROLE_TAG: NodeRole.MASTER.value}

    def plan(self, job: JobDefinition, options: Sequence[str], on_line: Callable[[str], None]) -> int:
        """Print the plan of a job, and return 0, 1 if the job would be refused now, or 2 without a plan."""
        return self.run(["start-job", "--plan", *options, job.encode()], on_line)

    def start(self, job: JobDefinition, on_line: Callable[[str], None], *, waits: bool = True) -> int:
        """
        Start a job, and return 0, or 2 if it was refused.

        `waits` decides about a job that comes after others: whether to return when it has started, or at once.
        """
        del waits  # A running job refuses others.
        return self.run(["start-job", "--detach", job.encode()], on_line)

    def stop(self, name: str, on_line: Callable[[str], None]) -> int:
        """End a job on every node, and return the exit status of `deeplearning stop`."""
        return self.run(["stop", name], on_line)

    def describe(self, **more: Any) -> str:
        """Return the JSON object with which a command about the cluster ends with `--json`."""
        return json.dumps({"platform": self.settings.platform, "cluster": self.settings.cluster, **more}, indent=2)

    def find_job(self, name: str) -> dict[str, Any]:
        """Return a job as `list_jobs` does; UnavailableError without it."""
        job = next((job for job in self.list_jobs() if job["name"] == name), None)
        if job is None:
            raise UnavailableError(f"job {name} must be listed, got none; see: deeplearning-cdk jobs")
        return job

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return the jobs and the states of their newest runs, as `deeplearning jobs --json` prints them."""
        lines: list[str] = []
        status = self.run(["jobs", "--json"], lines.append)
        try:
            jobs: list[dict[str, Any]] = parse_last_line("\n".join(lines), "the jobs")["jobs"]
        except (ContractError, KeyError) as error:
            raise UnavailableError(f"the master must list its jobs, got status {status}: {lines[-3:]}") from error
        return jobs

    def run(
        self,
        words: Sequence[str],
        on_line: Callable[[str], None],
        on_refresh: Callable[[str], None] = lambda _: None,
    ) -> int:
        """
        Run `deeplearning` on the master as its login user, and return its exit status.

        `on_line` gets each line of output, standard error included, as it arrives; `on_refresh` the latest text of a
        line that has not ended, such as a progress bar.

        Raises:
            UnavailableError: No session can be opened, or it ends before the command.
        """
        instance_id = self._find_master()
        command = self._open_session(instance_id, [COMMAND, "session", *words])
        is_begun, last = False, ""
        with contextlib.closing(read_lines(command)) as lines:
            for line in lines:
                if line.strip() == SESSION_BEGUN:
                    is_begun = True
                elif is_begun and (ended := _END.search(line)):
                    if line[: ended.start()].strip():
                        on_line(line[: ended.start()])
                    return int(ended[1])
                elif is_begun:
                    (on_refresh if line.endswith("\r") else on_line)(line.removesuffix("\r"))
                last = line.strip() or last
        raise UnavailableError(f"the session on {instance_id} ended before its command did: {last or 'no output'}")

    def _open_session(self, instance_id: str, words: Sequence[str]) -> list[str]:
        access = self.access
        try:
            if access.lab is not None:
                start_session(access, instance_id)
                return enter_node(access.lab, instance_id, words)
        except ViewError as error:
            raise UnavailableError(str(error)) from error
        require_programs("aws", "session-manager-plugin")
        place = ["--region", access.region, *(["--profile", access.profile] if access.profile else [])]
        return make_session_command(instance_id, place, self.settings.login_user, words, is_ssh=False)

    def _find_master(self) -> str:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

        tags = {f"tag:{key}": value for key, value in self.master_tags.items()}
        filters = {**tags, "instance-state-name": "running"}
        try:
            answer = self.access.clients("ec2").describe_instances(
                Filters=[{"Name": name, "Values": [value]} for name, value in filters.items()]
            )
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError(
                f"could not find the master: {error}; the caller needs ec2:DescribeInstances, "
                "which the cluster's grant_submit grants"
            ) from error
        found = [str(entry["InstanceId"]) for part in answer["Reservations"] for entry in part["Instances"]]
        if len(found) != 1:
            raise UnavailableError(
                f"cluster {self.settings.cluster} must have one running master, got {found or 'none'}; "
                "see: deeplearning-cdk status"
            )
        return found[0]
