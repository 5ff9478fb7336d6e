"""Sources of `deeplearning-cdk prepare-data`, URLs, files, folders and presets, and the destination in S3."""

import ipaddress
import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deeplearning_contract.data_sets import DATA_SETS

ARCHIVE_ENDINGS = (".tar", ".tar.gz", ".tgz", ".zip")
MOST_KEY_BYTES = 1024
_SHA256 = re.compile(r"[0-9a-fA-F]{64}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class PreparationError(Exception):
    """A preparation failed; the message is cause and remedy."""

    exit_status = 1
    """Exit status of the command; the preparation can be resumed."""


class InputError(PreparationError):
    """The request is invalid; nothing was started."""

    exit_status = 2


@dataclass(frozen=True)
class Source:
    """
    A file, folder or download that becomes part of the data.

    Attributes:
        name: Name of the downloaded file, and of its entry in the bundle if it is not unpacked.
        url: URL of a download; empty for a local source.
        path: A local file or folder; None for a download.
        digest: Hex digest that a download must have: SHA-256, or MD5 where no other is published; empty for none.
        size: Bytes that a download must have; 0 when it is not known.
        folder: Its folder in the bundle; empty for the root.
    """

    name: str
    url: str = ""
    path: Path | None = None
    digest: str = ""
    size: int = 0
    folder: str = ""

    @property
    def is_archive(self) -> bool:
        """True if its content, not the file itself, goes into the bundle."""
        return self.name.endswith(ARCHIVE_ENDINGS)


PRESETS: dict[str, tuple[Source, ...]] = {
    name: tuple(Source(file.name, file.url, None, file.digest, file.size, file.folder) for file in data_set.files)
    for name, data_set in DATA_SETS.items()
}


@dataclass(frozen=True)
class Destination:
    """Destination in S3: the key of a bundle, or a prefix that ends with `/`."""

    bucket: str
    key: str

    @property
    def data_name(self) -> str:
        """Name of the data in the cluster's configuration, derived from the key."""
        last = self.key.rstrip("/").rpartition("/")[2] or self.bucket
        for ending in ARCHIVE_ENDINGS:
            last = last.removesuffix(ending)
        name = re.sub(r"[^A-Za-z0-9._-]", "-", last)[:64]
        return name if _NAME.fullmatch(name) else "data"


def read_url(text: str) -> Source:
    """Parse `URL` or `URL=SHA256`; the URL must name a file, over http or https."""
    url, mark, digest = text.rpartition("=")
    if not mark or not _SHA256.fullmatch(digest):
        url, digest = text, ""
        if mark and "?" not in text:
            raise InputError(f"--url must be URL or URL=SHA256 with 64 hex digits, got {text!r}; copy the whole digest")
    parts = urllib.parse.urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise InputError(f"--url must begin with http:// or https://, got {url!r}; for local files: --path")
    name = urllib.parse.unquote(parts.path).rpartition("/")[2]
    if not name or name in {".", ".."} or not name.isprintable() or "\\" in name:
        raise InputError(f"--url must name a file, got {url!r}; download it by hand and give it with --path")
    return Source(name, url, None, digest.lower())


def read_path(text: str) -> Source:
    """Return a local file or folder, which must exist, as a source."""
    path = Path(text)
    if not path.exists() or not (path.is_file() or path.is_dir()):
        raise InputError(f"--path must be a file or a folder, got {text!r}; for a download: --url")
    resolved = path.resolve()
    return Source(resolved.name, path=resolved)


def check_sources(sources: Sequence[Source]) -> None:
    """Refuse an empty list, and sources that would overwrite each other."""
    if not sources:
        raise InputError("sources must be given; add --url URL, --path PATH or --preset NAME")
    seen: dict[str, Source] = {}
    for source in sources:
        if source.name in seen:
            raise InputError(f"sources must have different names, got {source.name!r} twice; rename or drop one")
        seen[source.name] = source


def read_destination(text: str, *, is_bundle: bool, ending: str) -> Destination:
    """
    Parse `s3://bucket/key`: the key of a bundle, which ends with `ending`, or a prefix for files.

    Raises:
        InputError: S3 would refuse the bucket or the key, or the key does not fit the form.
    """
    if not text.startswith("s3://"):
        raise InputError(f"destination must be s3://BUCKET/KEY, got {text!r}; put s3:// before the bucket")
    bucket, _, key = text.removeprefix("s3://").partition("/")
    if not _BUCKET.fullmatch(bucket) or ".." in bucket or _is_address(bucket):
        rule = "3 to 63 lower-case letters, digits, dots and hyphens that begin and end with a letter or digit"
        raise InputError(f"bucket must be {rule}, got {bucket!r}; see: aws s3 ls")
    segments = key.removesuffix("/").split("/")
    is_plain = key.isprintable() and not set(key) & set('*?\\"$')  # IAM policies and DataSource require it.
    if key and (not is_plain or any(part in {"", ".", ".."} for part in segments)):
        rule = 'names separated by single slashes without any of *?\\"$'
        raise InputError(f"key must be {rule}, got {key!r}; write it without // and ..")
    if len(key.encode()) + len(".sha256") > MOST_KEY_BYTES:
        raise InputError(f"key must be shorter than {MOST_KEY_BYTES} bytes, got {len(key.encode())}; shorten it")
    if is_bundle and not (key.endswith(ending) and segments[-1] != ending):
        raise InputError(f"key must end with <name>{ending}, got {key!r}; add the bundle's name, or use --no-bundle")
    if not is_bundle and key and not key.endswith("/"):
        raise InputError(f"prefix must end with a slash, got {key!r}; write {key}/")
    return Destination(bucket, key)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
