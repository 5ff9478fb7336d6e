"""Jobs of a cluster on EMR, each of them a step: EMR shows steps, and runs one after the other."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_cli.errors import UNAVAILABLE, UnavailableError
from deeplearning_cli.jobs.output import print_progress
from deeplearning_cli.jobs.platform import LIVE_STATES, Queued, Refused, Started
from deeplearning_cli.jobs.session import MasterSession
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.submission import STEP_NAME, make_emr_step
from deeplearning_contract.names import EMR_CLUSTER_TAG, EMR_PRIMARY, EMR_ROLE_TAG

POLL_SECONDS = 5.0
_WAITING, _RUNNING = "PENDING", "RUNNING"
_STARTED = "] started"
"""End of the line of `deeplearning start-job` when the ranks start."""
MOST_CHARACTERS = 10_280
"""Most characters of an argument of a step (EMR API Reference, HadoopJarStepConfig)."""


@dataclass(frozen=True)
class EmrPlatform(MasterSession):
    """A cluster that takes jobs, on EMR."""

    @property
    def master_tags(self) -> Mapping[str, str]:
        """Tags of the primary node; a stack that replaces its cluster has two of one name, so EMR's id counts."""
        return {EMR_CLUSTER_TAG: self.settings.cluster_id, EMR_ROLE_TAG: EMR_PRIMARY}

    def check(self, job: JobDefinition) -> None:
        """Raise UnavailableError for a job that is too long for a step."""
        length = max(map(len, make_emr_step(job)["HadoopJarStep"]["Args"]))
        if length > MOST_CHARACTERS:
            raise UnavailableError(
                f"program and env must be at most {MOST_CHARACTERS:,} characters as an encoded argument of an EMR "
                f"step, got {length:,}; put variables and arguments into a file of the source folder, which program "
                "reads"
            )

    def start(self, job: JobDefinition, on_line: Callable[[str], None]) -> Started | Queued | Refused:
        """Add a step that runs a job after those of the cluster."""
        before = [step["Name"] for step in self._list_steps(_WAITING, _RUNNING)]
        answer = self._call("add_job_flow_steps", JobFlowId=self.settings.cluster_id, Steps=[make_emr_step(job)])
        step_id = str(answer["StepIds"][0])
        if before:
            waits = f"step {step_id} waits for {', '.join(before)}"
            return Queued(waits, lambda: self._await_start(step_id, on_line))
        return self._await_start(step_id, on_line)

    def _await_start(self, step_id: str, on_line: Callable[[str], None]) -> Started | Refused:
        shown = 0
        while True:
            step = self._call("describe_step", ClusterId=self.settings.cluster_id, StepId=step_id)["Step"]
            state = step["Status"]["State"]
            if state != _WAITING:
                lines: list[str] = []
                self.run(["logs", "--step", step_id], lines.append)
                # What a short job says at its end comes after its own output, from its status.
                begun = next((count for count, line in enumerate(lines, 1) if line.endswith(_STARTED)), None)
                for line in lines[shown:begun]:
                    on_line(line)
                shown = len(lines)
                if begun:
                    return Started()
                if state != _RUNNING:
                    print_progress(f"step {step_id} is {state}")
                    return Refused(UNAVAILABLE)
            time.sleep(POLL_SECONDS)

    def stop(self, name: str, on_line: Callable[[str], None]) -> int:
        """End a job, also one whose step waits."""
        waiting = [str(step["Id"]) for step in self._list_steps(_WAITING) if step["Name"] == f"{STEP_NAME}{name}"]
        if waiting:
            self._call("cancel_steps", ClusterId=self.settings.cluster_id, StepIds=waiting)
            for step_id in waiting:
                on_line(f"{name} is cancelled before its start ({step_id})")
            if not any(job["name"] == name and job["state"] in LIVE_STATES for job in self.list_jobs()):
                return 0
        return super().stop(name, on_line)

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return the jobs of the shared file system, and those whose steps wait."""
        return super().list_jobs() + [
            _describe_waiting(step) for step in self._list_steps(_WAITING) if step["Name"].startswith(STEP_NAME)
        ]

    def _list_steps(self, *states: str) -> list[dict[str, Any]]:
        """Return steps in these states, the oldest first."""
        with self._use_steps() as emr:
            pages = emr.get_paginator("list_steps").paginate(
                ClusterId=self.settings.cluster_id, StepStates=list(states)
            )
            return [step for page in pages for step in page["Steps"]][::-1]

    def _call(self, operation: str, **parameters: Any) -> dict[str, Any]:
        with self._use_steps() as emr:
            answer: dict[str, Any] = getattr(emr, operation)(**parameters)
            return answer

    @contextlib.contextmanager
    def _use_steps(self) -> Iterator[Any]:
        """Lend the client of EMR; UnavailableError with the rights that may be missing."""
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

        try:
            yield self.access.clients("emr")
        except (BotoCoreError, ClientError) as error:
            raise UnavailableError(
                f"could not use the steps of cluster {self.settings.cluster_id}: {error}; the caller needs "
                "elasticmapreduce:AddJobFlowSteps, CancelSteps, DescribeStep and ListSteps on it, which "
                "the cluster's grant_submit grants"
            ) from error


def _describe_waiting(step: Mapping[str, Any]) -> dict[str, Any]:
    name = str(step["Name"]).removeprefix(STEP_NAME)
    return {
        "name": name,
        "run": name,
        "state": "queued",
        "status": None,
        "launcher": "",
        "members": 0,
        "started": step["Status"]["Timeline"]["CreationDateTime"].isoformat(),
        "ended": "",
        "cause": "",
        "resumed_from": "",
        "last_line": f"step {step['Id']}",
    }
