"""`deeplearning-cdk prepare-data`: downloads, checks, bundles and uploads data for a cluster."""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from deeplearning_cli.arguments import Commands
from deeplearning_cli.data.bundle import Bundle, make_bundle
from deeplearning_cli.data.download import CHUNK_BYTES, Report, download
from deeplearning_cli.data.entries import list_files
from deeplearning_cli.data.sources import (
    PRESETS,
    Destination,
    InputError,
    PreparationError,
    Source,
    check_sources,
    read_destination,
    read_path,
    read_url,
)
from deeplearning_cli.data.upload import DIGEST, explain, is_there, make_client, upload
from deeplearning_cli.errors import UnavailableError, report_error

TENTHS = 10
_JSON_KEYS = """\
--json prints one object; keys are added, never renamed:
  sources[]    source (URL or path), size (bytes) and digest, null if not known in advance
  bundle       path of the archive on this machine; null with --no-bundle
  data         an entry of the context key `data`: name, bucket, key, and sha256 of an archive that is in S3
  is_ready     true if the data is in S3, false for a dry run
"""


@dataclass(frozen=True)
class Preparation:
    """Request of a preparation; `name` is the data's name in the cluster's props."""

    sources: tuple[Source, ...]
    name: str
    destination: Destination
    work: Path
    is_bundle: bool

    @property
    def bundle(self) -> Path:
        """Path of the archive on this machine."""
        return self.work / self.destination.key.rpartition("/")[2]


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "prepare-data",
        help="download, check, bundle and upload data to S3, for clusters to read",
        description="Download and check files, put them and local files into one archive, and upload it to S3 with\n"
        "its SHA-256 beside it. After an interruption, the same command resumes downloads, skips files that are\n"
        "in S3 already, and uploads the others from their beginning; once complete, it does nothing. The contents\n"
        "of archives go into the bundle, not the archives themselves.",
        epilog=f"{_JSON_KEYS}\nexit status: 0 the data is in S3, 1 something failed, 2 it could not start, "
        "130 interrupted; example:\n"
        "deeplearning-cdk prepare-data s3://team-data/coco-2017.tar --preset coco-2017",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("destination", help="s3://BUCKET/NAME.tar, with --zip .zip, with --no-bundle s3://BUCKET/PREFIX/")
    add("--path", action="append", default=[], metavar="PATH", help="local file or folder; may be repeated")
    add("--url", action="append", default=[], metavar="URL[=SHA256]", help="URL to download; may be repeated")
    add("--preset", action="append", default=[], choices=tuple(PRESETS), help="known data set; may be repeated")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--zip", action="store_true", help="write a .zip instead of a .tar")
    form.add_argument("--no-bundle", action="store_true", help="upload every file unchanged below a prefix")
    add(
        "--work",
        default="build/data",
        metavar="DIR",
        help="folder of downloads and the bundle (default: %(default)s)",
    )
    add("--dry-run", action="store_true", help="print the plan and do nothing")
    add("--json", action="store_true", help="print one JSON object on standard output, progress on standard error")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prepare the data; return 0 if it is in S3, 1 if it failed and can be resumed, 2 if it could not start."""
    try:
        preparation = _read(arguments)
        if arguments.dry_run:
            if arguments.json:
                _print_document(preparation, "", is_ready=False)
            else:
                _print_plan(preparation)
            return 0
        client = make_client()
        with explain():
            client.head_bucket(Bucket=preparation.destination.bucket)
        with show_progress() as report:
            digest = _carry_out(client, preparation, report)
    except (PreparationError, UnavailableError) as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        _print_document(preparation, digest, is_ready=True)
    else:
        _print_use(preparation, digest)
    return 0


def _read(arguments: argparse.Namespace) -> Preparation:
    sources = (
        *(source for name in arguments.preset for source in PRESETS[name]),
        *map(read_url, arguments.url),
        *map(read_path, arguments.path),
    )
    check_sources(sources)
    ending = ".zip" if arguments.zip else ".tar"
    is_bundle = not arguments.no_bundle
    destination = read_destination(arguments.destination, is_bundle=is_bundle, ending=ending)
    # Jobs find a known data set by its name, independent of the archive's key.
    name = arguments.preset[0] if len(arguments.preset) == 1 else destination.data_name
    return Preparation(sources, name, destination, Path(arguments.work), is_bundle)


def _carry_out(client: Any, preparation: Preparation, report: Report) -> str:
    """Do the remaining steps and return the bundle's digest, empty without a bundle."""
    work = preparation.work
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--work must be a folder that can be written, got {work}: {error.strerror}") from error
    files = [(source, source.path or download(source, work / "downloads", report)) for source in preparation.sources]
    if not preparation.is_bundle:
        _upload_files(client, preparation, files, report)
        return ""
    destination = preparation.destination
    bundle = make_bundle(files, preparation.bundle, report)
    upload(client, bundle, destination, report)
    _write_digest(client, bundle, destination)
    return bundle.sha256


def _write_digest(client: Any, bundle: Bundle, destination: Destination) -> None:
    """Upload the digest beside the bundle, in the format of `sha256sum`, for the nodes."""
    line = f"{bundle.sha256}  {bundle.file.name}\n".encode()
    beside = Destination(destination.bucket, f"{destination.key}.sha256")
    if not is_there(client, Bundle(bundle.file, len(line), bundle.sha256), beside):
        with explain():
            client.put_object(Bucket=beside.bucket, Key=beside.key, Body=line, Metadata={DIGEST: bundle.sha256})


def _upload_files(client: Any, preparation: Preparation, files: Sequence[tuple[Source, Path]], report: Report) -> None:
    """Upload every file unchanged below the prefix."""
    to = preparation.destination
    for source, path in files:
        for file in list_files(path) if path.is_dir() else [path]:
            inner = f"{source.name}/{file.relative_to(path).as_posix()}" if path.is_dir() else source.name
            key = to.key + (f"{source.folder}/{inner}" if source.folder else inner)
            upload(client, _measure(file), Destination(to.bucket, key), report)


def _measure(file: Path) -> Bundle:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return Bundle(file, file.stat().st_size, digest.hexdigest())


def _print_plan(preparation: Preparation) -> None:
    for source in preparation.sources:
        size = f", {source.size} bytes" if source.size else ""
        check = f", checked by {source.digest}" if source.digest else ""
        print(f"{'download' if source.url else 'take'}  {source.url or source.path}{size}{check}")
    where = f"s3://{preparation.destination.bucket}/{preparation.destination.key}"
    if preparation.is_bundle:
        print(f"bundle    {preparation.bundle}")
        print(f"upload    {where} and {where}.sha256")
    else:
        print(f"upload    every file below {where}")
    print("nothing was done; leave --dry-run out to carry the plan out")


def _print_document(preparation: Preparation, digest: str, *, is_ready: bool) -> None:
    sources = [
        {"source": source.url or str(source.path), "size": source.size or None, "digest": source.digest or None}
        for source in preparation.sources
    ]
    document = {
        "sources": sources,
        "bundle": str(preparation.bundle) if preparation.is_bundle else None,
        "data": _make_entry(preparation, digest),
        "is_ready": is_ready,
    }
    print(json.dumps(document, indent=2))


def _make_entry(preparation: Preparation, digest: str) -> dict[str, str]:
    """Return the entry of the context key `data` with which a cluster uses the data."""
    destination = preparation.destination
    values = {"name": preparation.name, "bucket": destination.bucket, "key": destination.key}
    return values | ({"sha256": digest} if digest else {})


def _print_use(preparation: Preparation, digest: str) -> None:
    """Print the props with which a cluster uses the data."""
    destination, values = preparation.destination, _make_entry(preparation, digest)
    keywords = ", ".join(f"{name}={value!r}" for name, value in values.items())
    print(f"s3://{destination.bucket}/{destination.key} is ready. In a CDK app:\n\n    data=[DataSource({keywords})]\n")
    print(f"or on the command line:\n\n    -c data='{json.dumps([values])}'")


@contextmanager
def show_progress() -> Iterator[Report]:
    """Yield a callback that shows progress: a name, the bytes done, and the bytes in all; 0 if not known."""
    if not sys.stderr.isatty():
        yield _LineReporter()
        return
    try:
        from rich.console import Console  # noqa: PLC0415 - takes a tenth of a second, and only this needs it
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn  # noqa: PLC0415
    except ImportError:
        yield _LineReporter()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        tasks: dict[str, Any] = {}

        def report(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what)
            progress.update(tasks[what], completed=done, total=total or None)

        yield report


class _LineReporter:
    """Progress in lines, one for each completed tenth."""

    def __init__(self) -> None:
        self._reported: dict[str, int] = {}

    def __call__(self, what: str, done: int, total: int) -> None:
        tenth = TENTHS * done // total if total else 0
        if self._reported.get(what, -1) < tenth:
            self._reported[what] = tenth
            amount = f"{TENTHS * tenth} % of {total} bytes" if total else f"{done} bytes"
            sys.stderr.write(f"{what}: {amount}\n")
            sys.stderr.flush()
