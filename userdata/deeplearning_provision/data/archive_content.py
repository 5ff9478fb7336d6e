"""A source that is one archive: fetched, compared, extracted."""

import re
from pathlib import Path

from deeplearning_contract.setting_parts import DataSettings
from deeplearning_provision.archives.extracted_size import measure_archive
from deeplearning_provision.archives.extraction import Extraction
from deeplearning_provision.archives.reader import find_format
from deeplearning_provision.data.listing import digest_object
from deeplearning_provision.data.target import Place
from deeplearning_provision.data.workspace import claim_workspace, has_progress
from deeplearning_provision.disk import StatVfs, check_room, render_bytes
from deeplearning_provision.s3.download import Download, Pace
from deeplearning_provision.s3.object_store import ObjectStore
from deeplearning_provision.s3.verification import choose_check
from deeplearning_provision.step_progress import Meter
from deeplearning_provision.steps import ProvisionFailure

_SHA256 = re.compile(r"\s*([0-9a-fA-F]{64})\b")


class ArchiveContent:
    """
    One archive as S3 has it now.

    Attributes:
        digest: Names its content, and what the settings ask of it.
        incoming: The folder that `fetch` has filled.
    """

    incoming: Path

    def __init__(self, source: DataSettings, store: ObjectStore, place: Place, pace: Pace) -> None:
        """
        Ask S3 what it is.

        Raises:
            ProvisionFailure: It is no archive, or cannot be had.
        """
        self._source = source
        self._store = store
        self._place = place
        self._pace = pace
        self._kind = find_format(source.key)
        if not self._kind:
            raise ProvisionFailure(
                f"the key must end with .tar, .tar.gz, .tgz or .zip, or with / for a prefix, got {source.key!r}",
                "correct the key of the source and deploy",
            )
        self._item = store.describe(source.bucket, source.key)
        self.digest = digest_object(source, self._item)
        self._download = Download(store, self._item, place.staging, pace)
        self._family = f"members-{place.boot}-{self.digest[:16]}"
        self._sha256 = source.sha256

    def find_demand(self) -> str:
        """
        Return the SHA-256 that it must have: of the settings, else of the object `<key>.sha256`; empty without both.

        Raises:
            ProvisionFailure: That object holds none.
        """
        beside = f"{self._source.key}.sha256"
        if not self._source.sha256:
            text = self._store.read_text(self._source.bucket, beside)
            found = _SHA256.match(text)
            if text and not found:
                cause = f"s3://{self._source.bucket}/{beside} must begin with a SHA-256 in hex, got {text[:80]!r}"
                raise ProvisionFailure(cause, "write it again as sha256sum does, or remove it")
            self._sha256 = found[1].lower() if found else ""
        return self._sha256

    def check_room(self, read: StatVfs) -> None:
        """
        Refuse what cannot fit, before anything is fetched.

        Raises:
            ProvisionFailure: There is no room.
        """
        self._download.remove_others()
        if has_progress(self._place, self._family):
            return  # It was looked at before, and part of it is there.
        measured = measure_archive(self._store, self._item, self._kind)
        size = self._item.size - self._download.count_finished() + measured.size
        check_room(str(self._item), self._place.staging, size, measured.files, how=measured.how, read=read)

    def fetch(self, meter: Meter) -> str:
        """
        Fetch and extract what is missing.

        Returns:
            What there is now, for people.

        Raises:
            SourceChangedError: It is another one by now.
            WrongContentError: It is damaged, or holds what must not be extracted.
            ProvisionFailure: It cannot be read.
            OSError: The disk refuses.
        """
        check = choose_check(self._item, self._sha256)
        said = f"compared with {check.name}" if check else "compared with its size: no digest of it can be computed"
        if not self._download.is_verified():
            meter.start(f"fetching {self._item}, {said}", self._item.size, self._download.count_finished())
            self._download.run(check, meter.add)
        workspace = claim_workspace(self._place, self._family)
        self.incoming = workspace.path
        meter.start(f"extracting {self._item}", self._item.size)
        threads = self._pace.threads
        extraction = Extraction(self._download.path, self._kind, workspace.path, workspace.journal, threads)
        members = extraction.run(meter.reach)
        return f"{members} members of {self._item} ({render_bytes(self._item.size)}), {said}"
