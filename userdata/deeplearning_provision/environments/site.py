"""Build of an environment: the master makes the shared part; the workers wait and report its progress."""

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from deeplearning_contract.document import parse_object
from deeplearning_contract.names import EMR_INFO_DIRECTORY, ENVIRONMENT_DIRECTORY, PROVISION_FILE, NodeRole
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpu_driver import check_driver
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP, read_boot
from deeplearning_provision.environments.recipe import Recipe
from deeplearning_provision.lease import Lease
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.s3 import MissingObjectError, ObjectStore
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure, WrongContentError, describe_failure

SHARED_FOLDER = ".deeplearning/environments"
"""Folder below the shared file system."""
CURRENT = "current"
LOG = f"{PROVISION_FILE.rpartition('/')[0]}/environment.log"
LOOK_SECONDS = 5.0


@dataclass(frozen=True)
class BuildSite:
    """Node with its settings, folders and progress of the build."""

    facts: NodeFacts
    status: Status
    root: Path  # Root of the node's file tree
    programs: Programs
    clock: Clock
    is_thorough: bool = False  # Whether the master reads the archive to its end first
    claim: dict[str, Any] = field(default_factory=dict)  # The build that this master reports; empty without one

    @property
    def settings(self) -> EnvironmentSettings:
        if self.facts.needs.environment is None:
            raise ProvisionFailure("no environment was declared", "give the cluster's construct an environment")
        return self.facts.needs.environment

    @cached_property
    def transcript(self) -> Transcript:
        # A service may lack HOME, below which pip has its cache.
        return Transcript(self.root / LOG.lstrip("/"), self.programs, {"HOME": str(Path.home())})

    @property
    def is_master(self) -> bool:
        return self.facts.role == NodeRole.MASTER.value

    @property
    def local(self) -> Path:
        """Folder of this node's environments."""
        return self.root / ENVIRONMENT_DIRECTORY.lstrip("/")

    @property
    def shared(self) -> Path:
        """Folder that all nodes share."""
        return self.root / self.facts.mount_point.lstrip("/") / SHARED_FOLDER

    @property
    def claim_file(self) -> Path:
        """File of the master's progress, named after the cluster, since others may share the file system."""
        return self.shared / f"{re.sub(r'[^A-Za-z0-9_.-]', '-', self.facts.cluster)}.json"

    @property
    def boot(self) -> str:
        return read_boot(self.root)

    def report(self, detail: str, total: int = 0, unit: str = "", done: int = 0) -> None:
        """Report the start of a part, also to the waiting nodes."""
        self.status.start(ENVIRONMENT_STEP, detail, total, unit, done)
        self._tell_cluster(detail)

    def count(self, done: int) -> None:
        self.status.advance(ENVIRONMENT_STEP, done)

    def add(self, done: int) -> None:
        """Add to the progress, from any thread."""
        self.status.add(ENVIRONMENT_STEP, done)

    def show(self, detail: str, done: int, total: int, unit: str) -> None:
        """Report a detail and the progress of the same part."""
        step = self.status.get(ENVIRONMENT_STEP)
        if (step.total, step.unit) != (total, unit):
            self.status.start(ENVIRONMENT_STEP, detail, total, unit, done)
        else:
            self.status.advance(ENVIRONMENT_STEP, done, detail)
        self._tell_cluster(detail)

    def wait(self, detail: str) -> None:
        self.status.wait(ENVIRONMENT_STEP, detail)

    def read_claim(self) -> Mapping[str, Any]:
        """Return the master's claim; empty before its start."""
        try:
            return parse_object(self.claim_file.read_text(encoding="utf-8"), "claim")
        except (OSError, ValueError):
            return {}

    def write_claim(self, **changes: Any) -> None:
        """Publish changes of the claim to the cluster."""
        self.claim.update(changes)
        write_file(self.claim_file, json.dumps(self.claim, indent=2, sort_keys=True) + "\n")

    def check_driver(self, python: Path) -> None:
        """Raise ProvisionFailure where the node's driver is too old for the CUDA of an environment."""
        try:
            check_driver(self.programs, str(python), self._newer_driver)
        except StageFailure as error:
            raise ProvisionFailure(error.cause, error.remedy) from error

    @property
    def _newer_driver(self) -> str:
        is_on_emr = (self.root / EMR_INFO_DIRECTORY.lstrip("/")).is_dir()
        return f"deploy with another {'release or image' if is_on_emr else 'software.image'} that has a newer driver"

    def _tell_cluster(self, detail: str) -> None:
        if self.claim and self.claim.get("doing") != detail:
            self.write_claim(doing=detail)

    def fetch_file(self, name: str) -> Path:
        """
        Download the declared file, unless this node has it; conda reads its format from the end of the name.

        The file is an asset of the deployment, not the user's object: only another deployment repairs it.
        """
        source = self.settings.file
        if source is None:
            raise ProvisionFailure(f"an environment of kind {self.settings.kind} must name a file", "deploy again")
        path = self.local / f"{source.sha256[:16]}-{name}"
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256:
            return path
        try:
            store = ObjectStore(self.facts.region, self.clock)
            store.fetch_verified(source.bucket, source.key, source.sha256, path, lambda _: None)
        except (MissingObjectError, WrongContentError) as error:
            raise ProvisionFailure(error.cause, "deploy again") from error
        return path


def make_shared(site: BuildSite, recipe: Recipe, is_done: Callable[[], bool], make: Callable[[], None]) -> None:
    """
    Make a shared environment on the master, unless it is done; on a worker, wait for it without a limit.

    A worker reports the master's failure and continues to wait: the master may be repaired, and the claim may be from
    an earlier cluster.

    Effects: the claim file on the shared file system, with the master's work or the cause of its failure.
    """
    if site.is_master:
        _make_alone(site, recipe, is_done, make)
        return
    while not is_done():
        site.wait(_describe_wait(site, recipe))
        site.clock.wait(LOOK_SECONDS)


def _make_alone(site: BuildSite, recipe: Recipe, is_done: Callable[[], bool], make: Callable[[], None]) -> None:
    site.write_claim(digest=recipe.digest, recipe=asdict(recipe), instance=site.facts.instance_id, failure="", doing="")
    lease = Lease(site.shared / f"{recipe.digest}.lock", site.facts.instance_id, site.clock)
    try:
        with lease.hold(is_done, lambda owner: site.wait(f"{owner or 'another node'} is making it")) as is_left:
            if is_left:
                make()
    except Exception as error:
        site.write_claim(failure=str(describe_failure(error)), doing="")
        raise
    finally:
        site.claim.clear()


def _describe_wait(site: BuildSite, recipe: Recipe) -> str:
    claim = site.read_claim()
    if not claim:
        return "waiting for the master to start"
    if claim.get("digest") != recipe.digest:
        found = claim.get("recipe")
        differences = "; ".join(recipe.differences(found if isinstance(found, dict) else {}))
        return f"waiting: the master makes another environment ({differences}); use one image for both groups"
    if claim.get("failure"):
        return f"waiting: the master failed: {claim['failure']}"
    doing = f": {claim['doing']}" if claim.get("doing") else ""
    return f"waiting for the master, {claim.get('instance')}, to make it{doing}"
