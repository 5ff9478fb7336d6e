"""
Cache of finished environments in a bucket, for later clusters.

| key below the prefix | content |
|---|---|
| `<recipe>.json` | key of a recipe's environment; written last |
| `<key>/complete.json` | manifest |
| `<key>/<sha256>.tar` | archive; the digest keeps those of two concurrent builds apart |

No failure here fails a node: without the bucket the environment is built, and the step reports the cause.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from deeplearning_contract.document import ContractError
from deeplearning_contract.setting_parts import EnvironmentCacheSettings
from deeplearning_node.aws_clients import AwsError
from deeplearning_node.aws_errors import error_code
from deeplearning_provision.environments.archive import Archive
from deeplearning_provision.environments.store import ARCHIVE, COMPLETE, Manifest, Memo, read_memo
from deeplearning_provision.s3 import ObjectStore
from deeplearning_provision.steps import ProvisionFailure, WrongContentError

ABSENT = frozenset({"NoSuchKey", "404"})
LARGEST_NOTE = 1 << 20
"""Most bytes of a manifest or memo."""


class CacheError(Exception):
    """Failure of the cache; the message names the cause."""


@dataclass(frozen=True)
class EnvironmentCache:
    settings: EnvironmentCacheSettings
    store: ObjectStore

    def __str__(self) -> str:
        return f"s3://{self.settings.bucket}/{self.settings.prefix}"

    def find(self, recipe: str) -> Manifest | None:
        """Return the manifest of a recipe's environment; None when the cache has none."""
        key = read_memo(self._read(f"{recipe}.json"))
        text = self._read(f"{key}/{COMPLETE}") if key else ""
        if not text:
            return None
        try:
            manifest = Manifest.from_text(text)
        except ContractError as error:
            raise CacheError(f"its entry {key} was refused: {error}") from error
        return manifest if manifest.key == key and manifest.archive else None

    def fetch(self, manifest: Manifest, archive: Archive, folder: Path, on_bytes: Callable[[int], None]) -> None:
        """Download an archive into a new folder and compare its digest; threads call `on_bytes` with each count."""
        folder.mkdir(parents=True)
        key = self._name_archive(manifest, archive)
        try:
            self.store.fetch_verified(self.settings.bucket, key, archive.sha256, folder / ARCHIVE, on_bytes)
        except WrongContentError as error:
            raise CacheError(f"its archive was refused: {error.cause}") from error
        except ProvisionFailure as error:
            raise CacheError(f"its archive cannot be read: {error.cause}") from error

    def keep(self, recipe: str, manifest: Manifest, folder: Path, on_bytes: Callable[[int], None]) -> None:
        """Upload the environment of a recipe and its archive in `folder`; threads call `on_bytes` with each count."""
        # Imported here, since only a master that fills a cache needs it.
        from boto3.exceptions import Boto3Error  # noqa: PLC0415
        from boto3.s3.transfer import S3Transfer  # noqa: PLC0415

        if manifest.archive is None:
            raise CacheError("the environment has no archive")
        key = self._name_archive(manifest, manifest.archive)
        transfer = S3Transfer(client=self.store.client)
        try:
            transfer.upload_file(str(folder / ARCHIVE), self.settings.bucket, key, callback=on_bytes)
        except (*AwsError, Boto3Error) as error:
            raise CacheError(f"could not write the archive: {error}") from error
        self._put(f"{manifest.key}/{COMPLETE}", manifest.to_text())
        self._put(f"{recipe}.json", Memo(manifest.key).to_text())

    def _name_archive(self, manifest: Manifest, archive: Archive) -> str:
        return f"{self.settings.prefix}{manifest.key}/{archive.sha256}.tar"

    def _put(self, key: str, text: str) -> None:
        name = f"{self.settings.prefix}{key}"
        try:
            self.store.client.put_object(Bucket=self.settings.bucket, Key=name, Body=text.encode())
        except AwsError as error:
            raise CacheError(f"could not write {key}: {error}") from error

    def _read(self, key: str) -> str:
        """Return a small object; empty when it is missing. A failure is not retried, since a build can replace it."""
        bucket, name = self.settings.bucket, f"{self.settings.prefix}{key}"
        try:
            with self._get(bucket, name) as body:
                return bytes(body.read(LARGEST_NOTE)).decode("utf-8", "replace")
        except AwsError as error:
            if error_code(error) in ABSENT:
                return ""
            raise CacheError(f"could not read {key}: {error}") from error

    def _get(self, bucket: str, name: str) -> Any:
        try:
            return self.store.client.get_object(Bucket=bucket, Key=name)["Body"]
        except ClientError as error:
            self.store.refuse_missing(bucket, name, error)
            raise
