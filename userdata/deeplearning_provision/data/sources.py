"""Provisioning of the sources of data, below /opt/deeplearning/data on every node."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_contract.names import DATA_DIRECTORY, PROVISION_FILE, NodeRole
from deeplearning_contract.setting_parts import DataSettings
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.provision_status import data_step, read_boot
from deeplearning_provision.data.staging import Staging
from deeplearning_provision.data.target import TROUBLE, DataTarget, describe_source
from deeplearning_provision.disk import switch_link
from deeplearning_provision.s3 import ObjectStore, TransferSettings
from deeplearning_provision.status import Status, lock_file
from deeplearning_provision.steps import Outcome, ProvisionFailure, join_outcomes, settle_step

LOCAL_DIRECTORY = "/opt/deeplearning/local"
AT_ONCE = 2
"""Number of concurrent sources: one is extracted while another is downloaded."""
PROBE_SECONDS = 15
LONGEST_PAUSE_SECONDS = 15.0
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def stage_all(
    facts: NodeFacts,
    status: Status,
    root: Path,
    programs: Programs,
    clock: Clock,
    *,
    settings: TransferSettings | None = None,
    is_forced: bool = False,
) -> Outcome:
    """
    Provision every source of the node's settings, concurrently.

    Effects: an entry of /opt/deeplearning/data for each source, and its target. With `is_forced`, refused content is
    fetched again; BlockingIOError when another process of this node is staging.
    """
    provisioning = DataProvisioning(facts, status, root, programs, clock, settings or TransferSettings(), is_forced)

    def settle(source: DataSettings) -> Outcome:
        return settle_step(status, data_step(source.name), lambda: provisioning.provide(source), clock)

    pool = ThreadPoolExecutor(max(1, len(facts.needs.data)), "data")
    with lock_file(root, "data", is_patient=not is_forced), pool:
        return join_outcomes(list(pool.map(settle, facts.needs.data)))


@dataclass(frozen=True)
class DataProvisioning:
    facts: NodeFacts
    status: Status
    root: Path
    programs: Programs
    clock: Clock
    settings: TransferSettings
    is_forced: bool = False
    slots: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))

    @property
    def is_master(self) -> bool:
        return self.facts.role == NodeRole.MASTER.value

    def provide(self, source: DataSettings) -> str:
        """Provision one source; return a description for users."""
        if not _NAME.fullmatch(source.name):
            raise ProvisionFailure(f"name must be letters, digits and ._-, got {source.name!r}", "rename the source")
        ways = {
            "efs": self._share,
            "local": self._stage_locally,
            "lustre": self._await_lustre,
            "stream": self._check_stream,
        }
        if source.target not in ways:
            raise ProvisionFailure(f"target must be one of {', '.join(ways)}, got {source.target!r}", "correct it")
        return ways[source.target](source)

    def _share(self, source: DataSettings) -> str:
        mount_point = self._path(self.facts.mount_point)
        self._check_mount(mount_point)
        target = DataTarget(mount_point, source.name)
        detail = self._stage(source, target) if self.is_master else self._await_master(source, target)
        self._link(source, target.path)
        return detail

    def _stage_locally(self, source: DataSettings) -> str:
        base = self._path(LOCAL_DIRECTORY)
        if not base.is_dir():
            raise ProvisionFailure(f"{base} must be a folder", "see the agent's log", is_final=False)
        target = DataTarget(base, source.name, read_boot(self.root))
        detail = self._stage(source, target)
        self._link(source, target.path)
        return detail

    def _stage(self, source: DataSettings, target: DataTarget) -> str:
        listing_file = self._path(PROVISION_FILE).with_name(f"{source.name}.listing")
        return Staging(
            source, target, self._store(), self.status, self.clock, self.facts.instance_id, listing_file, self.slots,
            self.is_forced,
        ).run()  # fmt: skip

    def _await_master(self, source: DataSettings, target: DataTarget) -> str:
        """Wait until the master has published the source."""
        wanted, pause = describe_source(source), 1.0
        while True:
            if wanted.items() <= target.read_marker().items():
                return "the master has staged it"
            trouble = target.read_note(TROUBLE).get("detail")
            self.status.wait(data_step(source.name), f"the master: {trouble}" if trouble else "the master stages it")
            self.clock.wait(pause)
            pause = min(1.5 * pause, LONGEST_PAUSE_SECONDS)

    def _await_lustre(self, source: DataSettings) -> str:
        if self.facts.needs.lustre is None:
            raise ProvisionFailure("target lustre must come with a file system, got none", "give the cluster one")
        mount_point = self._path(self.facts.needs.lustre.mount_point)
        self._check_mount(mount_point)
        folder = mount_point / source.name
        if not folder.is_dir():
            remedy = "retrying; check that the file system is linked to the source's bucket"
            raise ProvisionFailure(f"{folder} must be a folder, which Lustre imports from S3", remedy, is_final=False)
        self._link(source, folder)
        return f"{folder} is linked with s3://{source.bucket}/{source.key}"

    def _check_stream(self, source: DataSettings) -> str:
        """Write the URI of a source that stays in S3; the master checks that it can be read."""
        uri = f"s3://{source.bucket}/{source.key}"
        if self.is_master:
            first = next(self._store().list_pages(source.bucket, source.key))
            if not first:
                raise ProvisionFailure(f"{uri} must contain objects, got none", "upload them, or correct the key")
        write_file(self._path(f"{DATA_DIRECTORY}/{source.name}.s3"), f"{uri}\n")
        return f"stays at {uri}, which {source.name}.s3 names"

    def _link(self, source: DataSettings, target: Path) -> None:
        link = self._path(f"{DATA_DIRECTORY}/{source.name}")
        if link.exists() and not link.is_symlink():
            raise ProvisionFailure(f"{link} must be a link, got something else", "move it away")
        switch_link(link, target)

    def _check_mount(self, mount_point: Path) -> None:
        try:
            self.programs.run(["mountpoint", "-q", str(mount_point)], timeout_seconds=PROBE_SECONDS)
        except ProgramError as error:
            remedy = "retrying; see the agent's log"
            raise ProvisionFailure(f"{mount_point} must be mounted: {error}", remedy, is_final=False) from error

    def _store(self) -> ObjectStore:
        return ObjectStore(self.facts.region, self.clock, self.settings)

    def _path(self, absolute: str) -> Path:
        return self.root / absolute.lstrip("/")
