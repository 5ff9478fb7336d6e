"""Uploads files to S3, leaves out those that are there already, and checks what arrived."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from deeplearning_cli.data.bundle import Bundle
from deeplearning_cli.data.download import Report
from deeplearning_cli.data.sources import Destination, InputError, PreparationError

PART_BYTES = 16 << 20
"""boto3 holds ten parts in memory at a time, and makes them larger where a file would have more than 10,000."""
AT_ONCE = 8
DIGEST = "sha256"
"""Key of the object's own metadata: by it a second run recognizes a finished file, and continues with the next."""
AGAIN = "run the same command again; it leaves out what is in S3 already"
_REMEDIES = {
    "AccessDenied": "the credentials need s3:PutObject, s3:GetObject, s3:ListBucket and s3:AbortMultipartUpload there",
    "403": "see that the bucket is yours and the credentials may use it: aws sts get-caller-identity",
    "404": "make the bucket first: aws s3 mb",
    "NoSuchBucket": "make the bucket first: aws s3 mb",
    "ExpiredToken": f"log in again; then {AGAIN}",
}


def make_client() -> Any:
    """Return an S3 client of the user's own credentials and region."""
    try:
        import boto3  # noqa: PLC0415 - takes half a second, and only this command needs it
        from botocore.config import Config  # noqa: PLC0415 - as above
    except ImportError as error:
        raise InputError("missing: boto3; run: pip install 'deeplearning-cdk[data]'") from error
    with explain():
        retries = {"max_attempts": 5, "mode": "standard"}
        return boto3.session.Session().client("s3", config=Config(retries=retries, max_pool_connections=AT_ONCE))


@contextmanager
def explain() -> Iterator[None]:
    """Turn an error of AWS into a PreparationError, which has a cause and a remedy."""
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError  # noqa: PLC0415 - see above

    try:
        yield
    except NoCredentialsError as error:
        raise PreparationError("AWS credentials must be there, none were found; run: aws configure") from error
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        raise PreparationError(f"S3 call failed: {error}; {_REMEDIES.get(code, AGAIN)}") from error
    except BotoCoreError as error:
        raise PreparationError(f"could not reach S3: {error}; {AGAIN}") from error


def is_there(client: Any, bundle: Bundle, destination: Destination) -> bool:
    """Return whether the object is in S3 already, of the same size and digest."""
    with explain():
        return _find_object(client, destination) == (bundle.size, bundle.sha256)


def _find_object(client: Any, destination: Destination) -> tuple[int, str] | None:
    """Return size and digest of an object; None when there is none."""
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
    Upload a file, unless it is there already; return whether anything was sent.

    Each part carries its SHA-256, by which S3 refuses what was damaged on the way. An upload that fails or is
    interrupted is aborted, so that nobody pays for its parts, and begins anew with the next run; only a process that
    is killed leaves parts behind. `report` takes the bytes sent.

    Raises:
        PreparationError: A call failed, or another thing arrived than was sent.
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
            f"{where} must have {bundle.size} bytes of {bundle.sha256}, has {size} bytes of {digest}; {AGAIN}"
        )
    report(destination.key, bundle.size, bundle.size)
    return True


def _count_bytes(what: str, total: int, report: Report) -> Callable[[int], None]:
    """Return a callback that sums up what boto3's threads report; a part that is sent again counts back first."""
    lock = threading.Lock()
    done = 0

    def count(sent: int) -> None:
        nonlocal done
        with lock:
            done += sent
            report(what, done, total)

    return count
