"""Brings one source to one place: what is there already is left, what was begun is gone on with."""

import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_node.deadline import Clock
from deeplearning_node.provision_status import data_step
from deeplearning_provision.data import publication
from deeplearning_provision.data.archive_content import ArchiveContent
from deeplearning_provision.data.lease import Lease
from deeplearning_provision.data.listing import list_source
from deeplearning_provision.data.prefix_content import PrefixContent
from deeplearning_provision.data.target import Place
from deeplearning_provision.disk import FullDiskError, StatVfs, explain_disk_error, read_room
from deeplearning_provision.s3.download import Pace, WrongContentError
from deeplearning_provision.s3.errors import SourceChangedError
from deeplearning_provision.s3.object_store import ObjectStore
from deeplearning_provision.status import Status
from deeplearning_provision.step_progress import Meter
from deeplearning_provision.steps import ProvisionFailure, describe_failure

MOST_CHANGES = 3
"""How often a source may change while it is fetched before it is left for later."""
HOLDER_SECONDS = 5.0
ALREADY = "as it is in S3 now, nothing had to be fetched"


class Content(Protocol):
    """What a source holds now."""

    digest: str
    incoming: Path

    def find_demand(self) -> str:
        """Return the digest that it must have; empty when it is not known."""

    def check_room(self, read: StatVfs) -> None:
        """Refuse what cannot fit."""

    def fetch(self, meter: Meter) -> str:
        """Fill the incoming folder; return what there is, for people."""


@dataclass(frozen=True)
class Staging:
    """
    The staging of one source.

    Attributes:
        source: What is staged.
        place: Where to.
        store: Where from.
        status: Who is told.
        clock: Measures pauses.
        owner: This node's instance id.
        listing_file: Where a listing is written.
        pace: How much is done at once.
        slots: How many sources may be fetched at the same time.
        is_forced: Whether content that was refused is looked at again.
        read_room: Looks at a file system.
    """

    source: DataSettings
    place: Place
    store: ObjectStore
    status: Status
    clock: Clock
    owner: str
    listing_file: Path
    pace: Pace = field(default_factory=Pace)
    slots: threading.Semaphore = field(default_factory=threading.Semaphore)
    is_forced: bool = False
    read_room: StatVfs = read_room

    def run(self) -> str:
        """
        Stage the source.

        Effects: the place; S3 is read.

        Returns:
            What is there now, for people.

        Raises:
            ProvisionFailure: It is not there, with the reason; nothing that is not whole is in its place.
        """
        try:
            with self._explain():
                self.place.make_folders()
                publication.recover(self.place)
                if self.is_forced:
                    publication.remove_note(self.place, publication.REFUSAL)
                detail = self._stage()
                publication.remove_note(self.place, publication.TROUBLE)
                return detail
        except Exception as error:
            with contextlib.suppress(OSError):  # A full disk is what it may be about.
                publication.write_note(self.place, publication.TROUBLE, {"detail": describe_failure(error)})
            raise

    def _stage(self) -> str:
        changes = 0
        while True:
            try:
                return self._stage_once()
            except SourceChangedError as error:  # noqa: PERF203 - fetching dwarfs it
                changes += 1
                if changes == MOST_CHANGES:
                    remedy = "it is tried again; stage it when nobody writes it any more"
                    raise ProvisionFailure(f"{error}, {changes} times", remedy, is_final=False) from error
                self.status.start(self._step, f"{error}: begun anew")

    @property
    def _step(self) -> str:
        return data_step(self.source.name)

    def _stage_once(self) -> str:
        content = self._look()
        if publication.is_complete(self.place, content.digest):
            if publication.has_leftovers(self.place):
                with self._hold():
                    publication.discard(self.place)
            return ALREADY
        publication.check_ownership(self.place)
        demand = f"{content.digest}:{content.find_demand()}"
        self._check_refusal(demand)
        with self._hold() as lease, self.slots:
            if publication.is_complete(self.place, content.digest):
                return ALREADY
            try:
                with self._explain():
                    content.check_room(self.read_room)
                    detail = content.fetch(Meter(self.status, self._step, self.clock, lease.check))
                    lease.check()
                    publication.publish(self.place, content.incoming, self.source, content.digest)
            except (FullDiskError, WrongContentError) as error:
                publication.discard(self.place)
                if isinstance(error, WrongContentError):
                    self._refuse(demand, error)
                raise
        return detail

    @contextlib.contextmanager
    def _hold(self) -> Iterator[Lease]:
        """Be the only one who stages the source; wait for whoever does."""
        lease = Lease(self.place.staging / "lease", self.owner)
        while holder := lease.find_holder():
            self.status.wait(self._step, f"{holder} is staging it")
            self.clock.wait(HOLDER_SECONDS)
        with lease:
            yield lease

    def _look(self) -> Content:
        if self.source.key and not self.source.key.endswith("/"):
            return ArchiveContent(self.source, self.store, self.place, self.pace)
        listing = list_source(self.source, self.store, self.listing_file)
        return PrefixContent(self.source, self.store, self.place, self.pace, listing)

    def _check_refusal(self, demand: str) -> None:
        """Refuse what was refused before, without fetching it again: the same content is as wrong as it was."""
        note = publication.read_note(self.place, publication.REFUSAL)
        if note.get("demand") == demand:
            raise ProvisionFailure(str(note.get("cause")), str(note.get("remedy")))

    def _refuse(self, demand: str, error: ProvisionFailure) -> None:
        note = {"demand": demand, "cause": error.cause, "remedy": error.remedy}
        publication.write_note(self.place, publication.REFUSAL, note)

    @contextlib.contextmanager
    def _explain(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise explain_disk_error(f"s3://{self.source.bucket}/{self.source.key}", error) from error
