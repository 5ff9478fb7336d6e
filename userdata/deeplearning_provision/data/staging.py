"""Staging of one source to one target, which skips published content and resumes an interrupted download."""

import contextlib
import threading
from dataclasses import dataclass, field
from pathlib import Path

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_node.deadline import Clock
from deeplearning_node.provision_status import data_step
from deeplearning_provision.data.content import Content, LeaseLostError, StepProgress, read_content
from deeplearning_provision.data.target import LEASE, REFUSAL, TROUBLE, DataTarget
from deeplearning_provision.disk import FullDiskError, explain_disk_errors
from deeplearning_provision.lease import Lease
from deeplearning_provision.s3 import ObjectStore, SourceChangedError
from deeplearning_provision.status import Status
from deeplearning_provision.steps import ProvisionFailure, WrongContentError, describe_failure

MOST_CHANGES = 3
"""Changes of a source during a download, after which staging fails."""
ALREADY = "unchanged in S3, nothing to fetch"


@dataclass(frozen=True)
class Staging:
    source: DataSettings
    target: DataTarget
    store: ObjectStore
    status: Status
    clock: Clock
    owner: str  # Instance id of this node
    listing_file: Path  # File for the listing of a prefix
    slots: threading.Semaphore = field(default_factory=threading.Semaphore)  # Limit of concurrent sources
    is_forced: bool = False  # Whether refused content is downloaded again

    def run(self) -> str:
        """
        Stage the source and return a description for users.

        Effects: the target's folders; reads from S3. A failure publishes nothing.
        """
        try:
            with explain_disk_errors(self._what):
                self.target.folder.mkdir(parents=True, exist_ok=True)
                if self.is_forced:
                    self.target.remove_note(REFUSAL)
                detail = self._stage()
                self.target.remove_note(TROUBLE)
                return detail
        except Exception as error:
            with contextlib.suppress(OSError):  # The disk may be full.
                self.target.write_note(TROUBLE, {"detail": str(describe_failure(error))})
            raise

    def _stage(self) -> str:
        changes = 0
        while True:
            try:
                return self._stage_once()
            except SourceChangedError as error:  # noqa: PERF203 - fetching dwarfs it
                changes += 1
                if changes == MOST_CHANGES:
                    remedy = "retrying; stage it again once no program writes it"
                    raise ProvisionFailure(f"{error}, {changes} times", remedy, is_final=False) from error
                self.status.start(self._step, f"{error}: restarting")

    @property
    def _what(self) -> str:
        return f"s3://{self.source.bucket}/{self.source.key}"

    @property
    def _step(self) -> str:
        return data_step(self.source.name)

    def _stage_once(self) -> str:
        content = read_content(self.source, self.store, self.listing_file)
        if self.target.is_complete(content.digest) and not self.target.has_rest():
            return ALREADY
        self.target.refuse_foreign()
        required = f"{content.digest}:{content.required_sha256()}"
        note = self.target.read_note(REFUSAL)  # Refused content is not fetched again.
        if note.get("required") == required:
            raise ProvisionFailure(str(note.get("cause")), str(note.get("remedy")))
        lease = Lease(self.target.folder / LEASE, self.owner, self.clock)
        with lease.hold(lambda: False, self._wait), self.slots:
            if self.target.is_complete(content.digest):
                self.target.remove_rest()
                return ALREADY
            try:
                with explain_disk_errors(self._what):
                    return self._fetch(content, lease)
            except (FullDiskError, WrongContentError) as error:
                if not lease.is_lost():
                    self.target.remove_rest()
                if isinstance(error, WrongContentError):
                    note = {"required": required, "cause": error.cause, "remedy": error.remedy}
                    self.target.write_note(REFUSAL, note)
                raise

    def _wait(self, owner: str) -> None:
        self.status.wait(self._step, f"{owner or 'another node'} is staging it")

    def _fetch(self, content: Content, lease: Lease) -> str:
        self.target.remove_rest(content.digest)
        content.check_room(self.target)
        detail = content.fetch(self.target, StepProgress(self.status, self._step, lease))
        if lease.is_lost():
            raise LeaseLostError
        self.target.publish(self.source, content.digest)
        return detail
