"""Jobs of a case on EKS, submitted by the installed command line, and the faults of their pods and nodes."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.errors import PromiseError, RehearsalError
from cdk_rehearsal.place import OPERATOR_KEY, OPERATOR_SECRET, Credentials
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_job import CONTAINER, INDEX_LABEL, name_job
from deeplearning_rehearsal.checks.training import JOB_FILE, list_checkpoints, list_sources
from deeplearning_rehearsal.platforms.eks import find_end, list_pods, read_log

if TYPE_CHECKING:  # Reading a case needs no embedded AWS.
    from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
    from cdk_rehearsal.lab import Lab
    from deeplearning_rehearsal.kubernetes_jobs import KubernetesJobs

_COMMAND = (sys.executable, "-m", "deeplearning_cli.main")
_SETTINGS = ("AWS_", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
"""Variables of the user that decide where requests go; a case has its own."""
_END_SECONDS = 60.0
"""Longest wait for a command that does not follow a job."""


class Command:
    """
    A command that runs.

    Attributes:
        lines: What it has printed.
    """

    def __init__(
        self, words: Sequence[str], folder: Path, environment: Mapping[str, str], on_line: Callable[[str], None]
    ) -> None:
        self.words, self.lines = " ".join(words), list[str]()
        self._process = subprocess.Popen(
            [*_COMMAND, *words],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        self._reader = threading.Thread(target=self._read, args=[on_line], name=self.words, daemon=True)
        self._reader.start()

    def wait(self, seconds: float) -> int:
        """Return its exit status; PromiseError when it runs after so many seconds."""
        try:
            status = self._process.wait(max(0.0, seconds))
        except subprocess.TimeoutExpired as error:
            raise PromiseError(f"deeplearning-cdk {self.words} must end, it is not in time") from error
        self._reader.join()
        return status

    def has_ended(self) -> bool:
        """Return whether it has ended."""
        return self._process.poll() is not None

    def end(self) -> None:
        """End it if it runs; the job goes on."""
        self._process.kill()
        self._process.wait()

    def _read(self, on_line: Callable[[str], None]) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(line.rstrip("\n"))
            on_line(self.lines[-1])


@dataclass
class SubmittedJobs:
    """
    Jobs of a stack on EKS.

    Attributes:
        jobs: The objects of Kubernetes, seen by an administrator.
        definition: The job of the case, without its source.
        folder: Folder of the job's file and source.
        find_digits: Returns the file that the example trains on.
        submitter: Logical id of the role that submits; empty where an administrator does.
        report: Told what commands print, with the lane.
    """

    jobs: "KubernetesJobs"
    aws: "EmbeddedAws"
    lab: "Lab"
    definition: JobDefinition
    folder: Path
    find_digits: Callable[[], Path]
    submitter: str
    report: Callable[[str, str], None]
    commands: list[Command] = field(default_factory=list)

    @property
    def job(self) -> str:
        """Name of the job."""
        return self.definition.name

    def prepare(self) -> None:
        """Prepare the cluster, and write the folder of the job; PromiseError when the command fails."""
        self.folder.mkdir(parents=True, exist_ok=True)
        document = self.definition.to_document() | {"source": "."}
        lines = [f"{key} = {json.dumps(value)}\n" for key, value in document.items()]
        (self.folder / JOB_FILE).write_text("".join(lines), encoding="utf-8")
        for path in list_sources(self.definition, self.find_digits):
            (self.folder / path.name).write_bytes(path.read_bytes())
        command = self._start(["prepare-cluster"], "")
        if command.wait(_END_SECONDS) != 0:
            raise PromiseError(f"deeplearning-cdk prepare-cluster must succeed: {' | '.join(command.lines[-3:])}")

    def submit(self) -> Command:
        """Begin to submit the job, and to follow it."""
        return self._start(["submit", JOB_FILE], self.submitter)

    def submit_other(self, name: str, *, queue: str = "", gpus_per_member: int = 0) -> None:
        """Submit another job of the same program without following it, in a queue of Kueue if one is given."""
        text = (self.folder / JOB_FILE).read_text(encoding="utf-8")
        keys = f"gpus_per_member = {gpus_per_member}\n" if gpus_per_member else ""
        file = self.folder / f"{name}.toml"
        file.write_text(text.replace(json.dumps(self.job), json.dumps(name), 1) + keys, encoding="utf-8")
        words = ["submit", file.name, "--detach", *(["--queue", queue] if queue else [])]
        self._start(words, self.submitter).wait(_END_SECONDS)

    def stop(self) -> None:
        """Stop the job of the case."""
        command = self._start(["stop", self.job], self.submitter)
        if command.wait(_END_SECONDS) != 0:
            raise PromiseError(f"deeplearning-cdk {command.words} must succeed: {' | '.join(command.lines[-3:])}")

    def read_output(self) -> str:
        """Return what all commands have printed."""
        return "\n".join(line for command in self.commands for line in list(command.lines))

    def close(self) -> None:
        """End all commands."""
        for command in self.commands:
            command.end()

    def list_jobs(self) -> list[dict[str, Any]]:
        """Return the Jobs of the namespace."""
        return self.jobs.administrator.list("jobs", self.jobs.settings.namespace)

    def describe(self) -> dict[str, Any] | None:
        """Return the Job of the case; None before it is there."""
        name = name_job(self.job)
        return next((each for each in self.list_jobs() if each["metadata"]["name"] == name), None)

    def find_status(self) -> str:
        """Return how the Job of the case has ended, `Suspended` for a stopped one; empty while it runs."""
        job = self.describe()
        if job is None:
            return ""
        return find_end(job) or ("Suspended" if job["spec"].get("suspend") else "")

    def count_failures(self) -> int | None:
        """Return how many pods of the Job have failed at the cost of a retry; None without a Job."""
        job = self.describe()
        return None if job is None else int(job["status"].get("failed", 0))

    def count_lost_lines(self) -> int | None:
        """Return how many lines of the first pod's log `submit` has not printed; None without a pod."""
        settings, api = self.jobs.settings, self.jobs.administrator
        pods = list_pods(api, settings.namespace, name_job(self.job))
        if not pods:
            return None
        log = read_log(api, settings.namespace, pods[0]["metadata"]["name"]).splitlines()
        printed = iter(self.read_output().splitlines())
        return sum(line not in printed for line in log)

    def list_checkpoints(self) -> list[Path]:
        """Return the checkpoints of the job on the shared file system, the newest last."""
        return list_checkpoints(self._find_shared_folder(), self.job)

    def delete_pod(self, index: int) -> None:
        """Delete a pod as `kubectl delete pod` does."""
        from cdk_rehearsal.kubernetes.api_client import locate  # noqa: PLC0415 - see above

        path = locate("pods", self.jobs.settings.namespace, self._find_pod(index)["metadata"]["name"])
        self.jobs.administrator.call("DELETE", path)

    def exhaust_memory(self, index: int) -> None:
        """Let the kernel kill the container of a pod, as it does when the memory of its node is used up."""
        self._kubelets.kill(self._find_pod(index)["metadata"]["name"], "OOMKilled")

    def exceed_disk(self, index: int) -> None:
        """
        Let a pod write more to its disk than its limit, so that the kubelet evicts it.

        The message is that of Kubernetes, pkg/kubelet/eviction/helpers.go, containerEphemeralStorageMessageFmt.
        """
        pod = self._find_pod(index)
        limit = pod["spec"]["containers"][0]["resources"]["limits"]["ephemeral-storage"]
        message = f'Container {CONTAINER} exceeded its local ephemeral storage limit "{limit}". '
        self._kubelets.evict(pod["metadata"]["name"], message)

    def press_node(self, index: int) -> str:
        """Let the node of a pod be short of memory, so that it evicts the pod and takes no other; return its name."""
        node = str(self._find_pod(index)["spec"]["nodeName"])
        self._kubelets.press(node, "memory")
        return node

    def relieve_node(self, node: str) -> None:
        """Let a node have enough memory again."""
        self._kubelets.relieve(node)

    def power_off_node(self, index: int) -> str:
        """Cut the power of the node of a pod; return the id of its instance."""
        node = self._find_pod(index)["spec"]["nodeName"]
        self._kubelets.lose(node)
        return self.jobs.pods.nodes[node].machine.instance_id

    @property
    def _kubelets(self) -> Any:
        cluster = self.jobs.clusters.cluster
        assert cluster is not None  # The stack is complete.
        return cluster.kubelets

    def _find_pod(self, index: int) -> dict[str, Any]:
        pods = list_pods(self.jobs.administrator, self.jobs.settings.namespace, name_job(self.job))
        running = [pod for pod in pods if pod["status"].get("phase") == "Running"]
        names = [pod for pod in running if pod["metadata"]["labels"][INDEX_LABEL] == str(index)]
        if not names:
            raise RehearsalError(f"pod {index} of {self.job} must run, it does not")
        return names[-1]

    def _find_shared_folder(self) -> Path:
        file_system, _, point = self.jobs.settings.volume_handle.partition("::")
        paths = [node.machine.access_points[point].path for node in self.jobs.pods.nodes.values()]
        return self.lab.file_system(file_system) / paths[0].lstrip("/")

    def _start(self, words: Sequence[str], role: str) -> Command:
        environment = {
            name: value for name, value in os.environ.items() if not name.upper().startswith(_SETTINGS)
        } | self._describe_caller(role)
        lane = words[0]
        command = Command(words, self.folder, environment, lambda line: self.report(lane, line))
        self.commands.append(command)
        return command

    def _describe_caller(self, role: str) -> dict[str, str]:
        """Return the variables of a caller: a role of the stack, or else the operator."""
        credentials = self.aws.mint(role) if role else Credentials(OPERATOR_KEY, OPERATOR_SECRET)
        place = self.aws.place
        return {
            "AWS_ACCESS_KEY_ID": credentials.access_key_id,
            "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
            **({"AWS_SESSION_TOKEN": credentials.session_token} if credentials.session_token else {}),
            "AWS_ENDPOINT_URL": place.endpoint,
            "AWS_REGION": place.region,
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "*",
        }
