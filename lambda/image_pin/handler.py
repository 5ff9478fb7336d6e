"""
Lambda function of `Custom::PinnedImage`: reads an image's parameter once for each release.

CloudFormation sends `Update` for any changed property, `ServiceTimeout` and `ServiceToken` too, and once more with the
old properties when an update rolls back (CloudFormation user guide, "Custom resource request types"). The resource's
physical id therefore lists the images of the latest releases, newest first, as `<image>@<digest of the release>`: a
listed release keeps its image, and only a new one reads the parameter.
"""

import hashlib
import json
import logging
import re
import time
from typing import Any, Protocol

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from deeplearning_contract.web import send_signal

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})
_AMI_ID = re.compile(r"ami-[0-9a-f]{8}([0-9a-f]{9})?")
_MOST_REASON = 1000
"""Characters of a reason: a response has at most 4,096 bytes, and JSON may need two for an ASCII character."""
_MOST_RELEASES = 8
"""Releases in a physical id, of at most 1 KiB (CloudFormation user guide, "Custom resource response objects")."""
_DIGEST_CHARACTERS = 8
_NOTHING = "none"
_DENIED_CODES = frozenset({"AccessDenied", "AccessDeniedException"})
_SPREADING_SECONDS = 60
"""Time that AWS may need to propagate a new role (IAM user guide, eventual consistency)."""
_PAUSE_SECONDS = 5


class Clock(Protocol):
    """Clock; tests inject another one."""

    def now(self) -> float:
        """Return the seconds since a fixed moment."""

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""


class MonotonicClock:
    """Monotonic clock of this machine."""

    def now(self) -> float:
        """Return the monotonic time, in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for `seconds`."""
        time.sleep(seconds)


class ImageError(Exception):
    """Parameter that names no image; the message contains the remedy."""


def handle(event: dict[str, Any], _context: Any) -> None:
    """Send the response to an event of CloudFormation to its presigned URL; an OSError there lets Lambda retry."""
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    before = event.get("PhysicalResourceId", _NOTHING)
    try:
        identity = before if event["RequestType"] == "Delete" else pin_image(event)
        image_id = identity.partition("@")[0]
        answer |= {"Status": "SUCCESS", "PhysicalResourceId": identity, "Data": {"ImageId": image_id}}
    except ImageError as error:
        # Without a response to this failure the stack would wait for an hour.
        reason = str(error).encode("ascii", "backslashreplace").decode()
        answer |= {"Status": "FAILED", "PhysicalResourceId": before, "Reason": reason[:_MOST_REASON]}
    logger.info("%s: %s", event["RequestType"], answer.get("Reason", answer["PhysicalResourceId"]))
    send_signal(event["ResponseURL"], json.dumps(answer).encode())


def pin_image(event: dict[str, Any]) -> str:
    """
    Return the physical id whose first image is that of the requested release; a new release reads the parameter.

    Raises:
        ImageError: The parameter cannot be read, or names no image.
    """
    # Ids of earlier versions of this function are only an image, that of the old properties.
    former = _digest(event.get("OldResourceProperties", {}))
    entries = (entry.partition("@") for entry in event.get("PhysicalResourceId", "").split(",") if entry)
    images = {release or former: image for image, _, release in entries}
    wanted = _digest(event["ResourceProperties"])
    image_id = images.pop(wanted, None) or read_image(event["ResourceProperties"])
    latest = [(wanted, image_id), *images.items()][:_MOST_RELEASES]
    return ",".join(f"{image}@{release}" for release, image in latest)


def _digest(properties: dict[str, Any]) -> str:
    release = json.dumps([properties.get("Parameter"), properties.get("Release")])
    return hashlib.sha256(release.encode()).hexdigest()[:_DIGEST_CHARACTERS]


def read_image(properties: dict[str, Any], clock: Clock | None = None) -> str:
    """
    Return the image that the resource's `Parameter` names now; denials are retried for a minute, since the role is new.

    Raises:
        ImageError: The parameter cannot be read, or names no image.
    """
    name = str(properties.get("Parameter", ""))
    try:
        value = _read_parameter(name, clock or MonotonicClock())
    except (BotoCoreError, ClientError) as error:
        raise ImageError(
            f"the image's parameter {name} cannot be read: {error}; check that it exists in this region, or pass "
            "another image"
        ) from error
    if not _AMI_ID.fullmatch(value):
        raise ImageError(f"the image's parameter {name} must contain an AMI id, got {value[:100]!r}; pass another")
    return value


def _read_parameter(name: str, clock: Clock) -> str:
    client = boto3.client("ssm", config=_CONFIG)
    deadline = clock.now() + _SPREADING_SECONDS
    while True:
        try:
            return str(client.get_parameter(Name=name)["Parameter"]["Value"])
        except ClientError as error:
            if error.response["Error"]["Code"] not in _DENIED_CODES or clock.now() >= deadline:
                raise
            logger.info("denied; retrying, since the role may be new: %s", error)
        clock.sleep(_PAUSE_SECONDS)
