"""Upload of files to S3, which skips present files and checks the result."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deeplearning_cli.data.bundle import Bundle
from deeplearning_cli.data.download import Report
from deeplearning_cli.data.sources import Destination, PreparationError
from deeplearning_cli.errors import require_modules

PART_BYTES = 16 << 20
"""boto3 keeps ten parts in memory, and makes them larger if a file would have more than 10,000."""
AT_ONCE = 8
DIGEST = "sha256"
"""Metadata key of the object, with which a later run recognizes a finished file and skips it."""
AGAIN = "run the same command again; it skips files that are in S3 already"
_REMEDIES = {
    "AccessDenied": "the credentials need s3:PutObject, s3:GetObject, s3:ListBucket and s3:AbortMultipartUpload there",
    "403": "check that the bucket is yours and the credentials may use it: aws sts get-caller-identity",
    "404": "create the bucket first: aws s3 mb",
    "NoSuchBucket": "create the bucket first: aws s3 mb",
    "ExpiredToken": f"log in again; then {AGAIN}",
}


def make_client() -> Any:
    """
    Return an S3 client of the user's own credentials and region.

    Raises:
        UnavailableError: boto3 is missing; the message names the remedy.
    """
    require_modules("boto3", extra="data")
    import boto3  # noqa: PLC0415 - takes half a second, and only this command needs it
    from botocore.config import Config  # noqa: PLC0415 - as above

    with explain():
        retries = {"max_attempts": 5, "mode": "standard"}
        return boto3.session.Session().client("s3", config=Config(retries=retries, max_pool_connections=AT_ONCE))


@contextmanager
def explain() -> Iterator[None]:
    """Return the PreparationError for an error of AWS, with cause and remedy."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415 - see above

    try:
        yield
    except NoCredentialsError as error:
        raise PreparationError("AWS credentials must be configured, got none; run: aws configure") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise PreparationError(f"S3 call failed: {error}; {_REMEDIES.get(code, AGAIN)}") from error
    except BotoCoreError as error:
        raise PreparationError(f"could not reach S3: {error}; {AGAIN}") from error


def is_there(client: Any, bundle: Bundle, destination: Destination) -> bool:
    """Return whether the object is in S3 already, with the same size and digest."""
    with explain():
        return _find_object(client, destination) == (bundle.size, bundle.sha256)


def _find_object(client: Any, destination: Destination) -> tuple[int, str] | None:
    """Return size and digest of an object; None if it does not exist."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - see above

    try:
        head = client.head_object(Bucket=destination.bucket, Key=destination.key)
    except ClientError as error:
        if error.response["ResponseMetadata"]["HTTPStatusCode"] == 404:  # noqa: PLR2004 - not found
            return None
        raise
    return head["ContentLength"], head["Metadata"].get(DIGEST, "no digest")


def upload(client: Any, bundle: Bundle, destination: Destination, report: Report) -> bool:
    """
    Upload a file, unless it is in S3 already; return whether anything was sent.

    Each part has its SHA-256, with which S3 refuses parts that were damaged in transit. An upload that fails or is
    interrupted is aborted, so that its parts are not charged, and starts again with the next run; only a killed process
    leaves parts behind. `report` is called with the bytes sent.

    Raises:
        PreparationError: A call failed, or the object in S3 differs from the file.
    """
    if is_there(client, bundle, destination):
        report(destination.key, bundle.size, bundle.size)
        return False
    from boto3.s3.transfer import TransferConfig  # noqa: PLC0415 - see above

    config = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=AT_ONCE)
    with explain(), bundle.file.open("rb") as stream:
        client.upload_fileobj(
            stream,
            destination.bucket,
            destination.key,
            ExtraArgs={"Metadata": {DIGEST: bundle.sha256}, "ChecksumAlgorithm": "SHA256"},
            Callback=_count_bytes(destination.key, bundle.size, report),
            Config=config,
        )
        size, digest = _find_object(client, destination) or (0, "no digest")
    if (size, digest) != (bundle.size, bundle.sha256):
        where = f"s3://{destination.bucket}/{destination.key}"
        raise PreparationError(
            f"{where} must have {bundle.size} bytes of {bundle.sha256}, got {size} bytes of {digest}; {AGAIN}"
        )
    report(destination.key, bundle.size, bundle.size)
    return True


def _count_bytes(what: str, total: int, report: Report) -> Callable[[int], None]:
    """Return a callback that adds up the reports of boto3's threads; a part that is sent again is subtracted first."""
    lock = threading.Lock()
    done = 0

    def count(sent: int) -> None:
        nonlocal done
        with lock:
            done += sent
            report(what, done, total)

    return count
