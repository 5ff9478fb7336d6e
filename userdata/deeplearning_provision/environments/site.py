"""Where an environment is made on a node, and what its parts have in common."""

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deeplearning_contract.document import parse_object
from deeplearning_contract.names import ENVIRONMENT_DIRECTORY, PROVISION_FILE, NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings, ScriptSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_node.aws_clients import AwsClients, AwsFailure, call_until
from deeplearning_node.aws_errors import is_passing
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP, read_boot
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure

SHARED_FOLDER = ".deeplearning/environments"
"""Below the shared file system."""
CURRENT = "current"
LOG = f"{PROVISION_FILE.rpartition('/')[0]}/environment.log"
FETCH_SECONDS = 300


@dataclass(frozen=True)
class Site:
    """One node, as the making of its environment sees it."""

    facts: NodeFacts  # What the node knows of itself
    settings: EnvironmentSettings  # The environment that was declared
    status: Status  # Where progress is written
    root: Path  # Where the node's file tree begins
    programs: Programs
    clock: Clock  # Its time
    transcript: Transcript  # The log of what runs
    # What this master makes for the cluster; empty while it makes nothing
    claim: dict[str, Any] = field(default_factory=dict)
    is_thorough: bool = False  # Whether archives are read to their end before they count as whole

    @classmethod
    def open(
        cls,
        facts: NodeFacts,
        status: Status,
        root: Path,
        programs: Programs,
        clock: Clock,
        *,
        is_thorough: bool = False,
    ) -> "Site":
        """Return the site of a node's environment; ProvisionFailure when none was declared."""
        if facts.needs.environment is None:
            raise ProvisionFailure("no environment was declared", "give the cluster's construct an environment")
        # A service may have no HOME, below which pip keeps its cache.
        home = {"HOME": str(Path.home())}
        transcript = Transcript(root / LOG.lstrip("/"), programs, home)
        return cls(facts, facts.needs.environment, status, root, programs, clock, transcript, {}, is_thorough)

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

    @property
    def boot(self) -> str:
        """This boot's id."""
        return read_boot(self.root)

    def tell(self, detail: str, total: int = 0, unit: str = "", done: int = 0) -> None:
        """Say what begins now, here and to the nodes that wait for it."""
        self.status.start(ENVIRONMENT_STEP, detail, total, unit, done)
        self._tell_cluster(detail)

    def count(self, done: int) -> None:
        """Say how much of it is done."""
        self.status.advance(ENVIRONMENT_STEP, done)

    def show(self, detail: str, done: int, total: int, unit: str) -> None:
        """Say what happens within the same part, and how far that is."""
        step = self.status.get(ENVIRONMENT_STEP)
        if (step.total, step.unit) != (total, unit):
            self.status.start(ENVIRONMENT_STEP, detail, total, unit, done)
        else:
            self.status.advance(ENVIRONMENT_STEP, done, detail)
        self._tell_cluster(detail)

    def wait(self, detail: str) -> None:
        """Say what this node waits for."""
        self.status.wait(ENVIRONMENT_STEP, detail)

    def read_claim(self) -> Mapping[str, Any]:
        """Return what the master says; empty when it has said nothing yet."""
        try:
            return parse_object(self.claim_file.read_text(encoding="utf-8"), "claim")
        except (OSError, ValueError):
            return {}

    def write_claim(self, **changes: Any) -> None:
        """Say what this master makes, what it does for that now, and why it could not."""
        self.claim.update(changes)
        write_file(self.claim_file, json.dumps(self.claim, indent=2, sort_keys=True) + "\n")

    def _tell_cluster(self, detail: str) -> None:
        if self.claim and self.claim.get("doing") != detail:
            self.write_claim(doing=detail)

    def fetch_file(self, name: str) -> Path:
        """Download the declared file under a name, unless this node has it; conda looks at how a name ends."""
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
