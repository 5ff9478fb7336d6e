"""Where an environment is made on a node, and what its parts have in common."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_agent.atomic_file import write_file
from deeplearning_agent.aws_clients import AwsClients, AwsFailure, call_until
from deeplearning_agent.aws_errors import is_passing
from deeplearning_agent.deadline import Clock, Deadline
from deeplearning_agent.node_facts import NodeFacts
from deeplearning_agent.programs import Programs
from deeplearning_contract.document import parse_object
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY, PROVISION_FILE, NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings, ScriptSettings
from deeplearning_provision.status import ENVIRONMENT_STEP, Status
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.transcript import Transcript

SHARED_FOLDER = ".deeplearning/environments"
"""Below the shared file system."""
CURRENT = "current"
LOG = f"{PROVISION_FILE.rpartition('/')[0]}/environment.log"
FETCH_SECONDS = 300


@dataclass(frozen=True)
class Site:
    """
    One node, as the making of its environment sees it.

    Attributes:
        facts: What the node knows of itself.
        settings: The environment that was declared.
        status: Where progress is written.
        root: Where the node's file tree begins.
        programs: Its programs.
        clock: Its time.
        transcript: The log of what runs.
    """

    facts: NodeFacts
    settings: EnvironmentSettings
    status: Status
    root: Path
    programs: Programs
    clock: Clock
    transcript: Transcript

    @classmethod
    def open(cls, facts: NodeFacts, status: Status, root: Path, programs: Programs, clock: Clock) -> "Site":
        """
        Return the site of a node's environment.

        Raises:
            ProvisionFailure: None was declared.
        """
        if facts.needs.environment is None:
            raise ProvisionFailure("no environment was declared", "give the cluster's construct an environment")
        # A service may have no HOME, below which pip keeps its cache.
        home = {"HOME": str(Path.home())}
        transcript = Transcript(root / LOG.lstrip("/"), programs, home)
        return cls(facts, facts.needs.environment, status, root, programs, clock, transcript)

    @property
    def is_master(self) -> bool:
        """Whether this node makes what all share."""
        return self.facts.role == NodeRole.MASTER.value

    @property
    def local(self) -> Path:
        """The folder of this node's environments."""
        return self.root / ENVIRONMENT_DIRECTORY.lstrip("/")

    @property
    def shared(self) -> Path:
        """The folder of what all nodes share."""
        return self.root / self.facts.mount_point.lstrip("/") / SHARED_FOLDER

    @property
    def claim_file(self) -> Path:
        """What the master of this cluster says that it makes; another cluster may share the file system."""
        return self.shared / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', self.facts.cluster)}.json"

    def tell(self, detail: str, total: int = 0, done: int = 0) -> None:
        """Say what happens now, and how many wheels of how many are done."""
        self.status.start(ENVIRONMENT_STEP, detail, total, "wheels" if total else "", done)

    def count(self, done: int, total: int) -> None:
        """Say how many wheels are done."""
        if self.status.get(ENVIRONMENT_STEP).total != total:
            self.tell(self.status.get(ENVIRONMENT_STEP).detail, total)
        self.status.advance(ENVIRONMENT_STEP, done)

    def wait(self, detail: str) -> None:
        """Say what this node waits for."""
        self.status.wait(ENVIRONMENT_STEP, detail)

    def read_claim(self) -> Mapping[str, Any]:
        """Return what the master says; empty when it has said nothing yet."""
        try:
            return parse_object(self.claim_file.read_text(encoding="utf-8"), "claim")
        except (OSError, ValueError):
            return {}

    def write_claim(self, digest: str, recipe: Mapping[str, Any], failure: str = "") -> None:
        """Say what this master makes, and why it could not."""
        claim = {"digest": digest, "recipe": recipe, "instance": self.facts.instance_id, "failure": failure}
        write_file(self.claim_file, json.dumps(claim, indent=2, sort_keys=True) + "\n")

    def fetch_file(self, name: str) -> Path:
        """
        Fetch the declared file from S3, unless this node has it.

        Args:
            name: What it is called here; conda looks at how a name ends.

        Raises:
            ProvisionFailure: It is not what was deployed, or AWS refused.
            AwsFailure: AWS does not answer.
        """
        source = self.settings.file
        if source is None:
            raise ProvisionFailure(f"an environment of kind {self.settings.kind} must name a file", "deploy again")
        path = self.local / f"{source.sha256[:16]}-{name}"
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256:
            return path
        data = self._download(source)
        found = hashlib.sha256(data).hexdigest()
        if found != source.sha256:
            what = f"s3://{source.bucket}/{source.key}"
            raise ProvisionFailure(f"sha256 of {what} must be {source.sha256}, got {found}", "deploy again")
        write_file(path, data.decode("utf-8", "surrogateescape"))
        return path

    def _download(self, source: ScriptSettings) -> bytes:
        clients = AwsClients(self.facts.region)

        def fetch() -> bytes:
            body: bytes = clients.s3.get_object(Bucket=source.bucket, Key=source.key)["Body"].read()
            return body

        try:
            return call_until(Deadline.after(self.clock, FETCH_SECONDS), fetch)
        except AwsFailure as error:
            cause = error.__cause__
            is_final = isinstance(cause, Exception) and not is_passing(cause)
            what = f"s3://{source.bucket}/{source.key}"
            remedy = error.remedy or "deploy again"
            raise ProvisionFailure(f"{what} cannot be read: {error.cause}", remedy, is_final=is_final) from error
