"""Jobs of a cluster by sessions on its master, where `deeplearning` plans, lists, shows and ends them."""

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.jobs.output import JobOutput, read_lines
from deeplearning_cli.jobs.platform import StackJobs
from deeplearning_cli.ssh import enter_node, make_session_command, require_programs, start_session
from deeplearning_contract.document import ContractError, parse_last_line
from deeplearning_contract.jobs.job_definition import COMMAND, SESSION_BEGUN, SESSION_ENDED, JobDefinition
from deeplearning_view.aws_responses import ViewError

_END = re.compile(rf"{SESSION_ENDED} (\d+)\s*$")


@dataclass(frozen=True)
class MasterSession(StackJobs, ABC):
    """Sessions on the master of a cluster; those methods of `JobPlatform` that need no more."""

    @property
    @abstractmethod
    def master_tags(self) -> Mapping[str, str]:
        """Tags by which the master is found."""

    def plan(self, job: JobDefinition, on_line: Callable[[str], None], *, as_json: bool) -> int:
        """Print the plan of a job, on the nodes as they are now."""
        return self.run(["start-job", "--plan", *(["--json"] if as_json else []), job.encode()], on_line)

    def follow(
        self, name: str, output: JobOutput, *, rank: str | None = None, lines: int | None = None, to_end: bool = True
    ) -> int:
        """Print the output of a job's newest run, from the shared file system."""
        options = {"--rank": rank, "--lines": lines}
        words = [word for option, value in options.items() if value is not None for word in (option, str(value))]
        status = self.run(
            ["logs", name, *(["--follow"] if to_end else []), *words], output.print_line, output.print_refresh
        )
        output.end_line()
        return status

    def stop(self, name: str, on_line: Callable[[str], None]) -> int:
        """End a job on every node."""
        return self.run(["stop", name], on_line)

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return the jobs of the shared file system."""
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
