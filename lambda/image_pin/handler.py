"""
The Lambda behind `Custom::PinnedImage`: reads an image's parameter once for each release.

CloudFormation sends `Update` for any changed property, `ServiceTimeout` and `ServiceToken` too, and once more with the
old properties when an update rolls back (CloudFormation user guide, "Custom resource request types"). The resource's
physical id therefore lists the images of the latest releases, newest first, as `<image>@<digest of the release>`: a
release that is listed keeps its image, and only another one reads the parameter.
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

from deeplearning_contract.stack_signal import send_signal

logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)

_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})
_AMI_ID = re.compile(r"ami-[0-9a-f]{8}([0-9a-f]{9})?")
_MOST_REASON = 1000
"""CloudFormation takes answers of up to 4,096 bytes in all; JSON may need two for a character of ASCII."""
_MOST_RELEASES = 8
"""A physical id has at most 1 KiB (CloudFormation user guide, "Custom resource response objects")."""
_DIGEST_CHARACTERS = 8
_NOTHING = "none"
_DENIED_CODES = frozenset({"AccessDenied", "AccessDeniedException"})
_SPREADING_SECONDS = 60
"""How long AWS may need to spread a new role's rights (IAM user guide, eventual consistency)."""
_PAUSE_SECONDS = 5


class Clock(Protocol):
    """Time, to be replaced in tests."""

    def now(self) -> float:
        """Return the time from any fixed moment, in seconds."""

    def sleep(self, seconds: float) -> None:
        """Wait, in seconds."""


class MonotonicClock:
    """The time of this machine."""

    def now(self) -> float:
        """Return the monotonic time, in seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait, in seconds."""
        time.sleep(seconds)


class ImageError(Exception):
    """The parameter names no image; the text says what to do."""


def handle(event: dict[str, Any], _context: Any) -> None:
    """Send the response to an event of CloudFormation to its presigned URL; an OSError there lets Lambda retry."""
    answer = {name: event[name] for name in ("StackId", "RequestId", "LogicalResourceId")}
    before = event.get("PhysicalResourceId", _NOTHING)
    try:
        identity = before if event["RequestType"] == "Delete" else pin_image(event)
        image_id = identity.partition("@")[0]
        answer |= {"Status": "SUCCESS", "PhysicalResourceId": identity, "Data": {"ImageId": image_id}}
    except ImageError as error:
        # A failure without an answer would keep the stack waiting for an hour.
        reason = str(error).encode("ascii", "backslashreplace").decode()
        answer |= {"Status": "FAILED", "PhysicalResourceId": before, "Reason": reason[:_MOST_REASON]}
    logger.info("%s: %s", event["RequestType"], answer.get("Reason", answer["PhysicalResourceId"]))
    send_signal(event["ResponseURL"], json.dumps(answer).encode())


def pin_image(event: dict[str, Any]) -> str:
    """
    Return the physical id whose first image is that of the wanted release, read now for a new release.

    Raises:
        ImageError: The parameter cannot be read, or names no image.
    """
    # Ids of earlier versions of this function are an image alone, that of the old properties.
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
    Return the image that the resource's `Parameter` names now; a denial is retried for a minute, since the role is new.

    Raises:
        ImageError: The parameter cannot be read, or names no image.
    """
    name = str(properties.get("Parameter", ""))
    try:
        value = _read_parameter(name, clock or MonotonicClock())
    except (BotoCoreError, ClientError) as error:
        raise ImageError(
            f"the image's parameter {name} cannot be read: {error}; look whether it exists in this region, or pass "
            "another image"
        ) from error
    if not _AMI_ID.fullmatch(value):
        raise ImageError(f"the image's parameter {name} must hold the id of an AMI, got {value[:100]!r}; pass another")
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
            logger.info("denied, which a new role may be for a while: %s", error)
        clock.sleep(_PAUSE_SECONDS)
