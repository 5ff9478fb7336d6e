"""
Clients of the AWS services, made when first needed.

They come from botocore, which boto3 carries: importing boto3 itself would cost every node memory for
resources that the agent does not use.
"""

import os
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from deeplearning_agent.deadline import Clock, Deadline
from deeplearning_agent.failure import StageFailure

T = TypeVar("T")

AwsError = (BotoCoreError, ClientError)
CONNECT_SECONDS = 10
ANSWER_SECONDS = 40
"""More than the 20 s of a long poll."""
ATTEMPTS = 5
DENIED_SECONDS = 60
"""A new role can be denied for a while, until IAM has spread it."""
CREDENTIALS_SECONDS = 180

_PASSING_CODES = ("Throttl", "RequestLimit", "TooManyRequests", "ProvisionedThroughput", "SlowDown", "InternalError")
_DENIED_CODES = ("AccessDenied", "UnrecognizedClient", "InvalidClientTokenId", "ExpiredToken", "NotAuthorized")


class AwsFailure(StageFailure):
    """AWS refused a call, or did not answer it in time."""


class AwsClients:
    """The clients of one agent, in one region."""

    def __init__(self, region: str) -> None:
        """Make the session; it reads credentials when a client first calls."""
        self.region = region
        self.session = botocore.session.Session()
        self.session.set_config_variable("ec2_metadata_v1_disabled", "true")

    @cached_property
    def dynamodb(self) -> Any:
        """The client that reads and writes the state item."""
        return self._client("dynamodb")

    @cached_property
    def sqs(self) -> Any:
        """The client of the queues."""
        return self._client("sqs")

    @cached_property
    def s3(self) -> Any:
        """The client that fetches the user's scripts; most nodes never need it."""
        return self._client("s3")

    def wait_for_credentials(self, deadline: Deadline) -> None:
        """
        Wait until the instance has the credentials of its role.

        Raises:
            StageFailure: It has none within three minutes.
        """
        cause = "instance metadata has none"
        for _ in deadline.at_most(CREDENTIALS_SECONDS).attempts():
            try:
                if self.session.get_credentials() is not None:
                    return
            except AwsError as error:  # noqa: PERF203 - waiting dwarfs it
                cause = str(error)
        raise StageFailure(f"no AWS credentials: {cause}", "check the node's instance profile and role")

    def _client(self, service: str) -> Any:
        # A test's or an emulator's endpoint has no host name for each bucket.
        addressing = "path" if "AWS_ENDPOINT_URL" in os.environ else "auto"
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            s3={"addressing_style": addressing},
        )
        return self.session.create_client(service, region_name=self.region, config=config)


def call_until(deadline: Deadline, action: Callable[[], T]) -> T:
    """
    Call AWS until it answers: through throttling, outages and the minute in which IAM spreads a new role.

    Args:
        deadline: When to give up.
        action: The call; it must be safe to repeat.

    Raises:
        AwsFailure: The deadline is over, or AWS refused; AWS's words name the action.
    """
    denied = deadline.at_most(DENIED_SECONDS)
    for _ in deadline.attempts():
        try:
            return action()
        except AwsError as error:  # noqa: PERF203 - waiting dwarfs it
            last = error
            if not is_passing(error) and (denied.is_over or not is_denied(error)):
                break
    raise AwsFailure(f"{last}", "see the policy of the node's role" if is_denied(last) else "") from last


def call_for(clock: Clock, seconds: float, action: Callable[[], T]) -> T:
    """Call AWS until it answers, for at most so many seconds; else as `call_until`."""
    return call_until(Deadline.after(clock, seconds), action)


def error_code(error: Exception) -> str:
    """Return the code that AWS gave an error, or nothing."""
    return str(getattr(error, "response", {}).get("Error", {}).get("Code", ""))


def is_denied(error: Exception) -> bool:
    """Tell whether AWS refused the caller."""
    return any(code in error_code(error) for code in _DENIED_CODES)


def is_passing(error: Exception) -> bool:
    """Tell whether the same call may succeed later: no answer, too many calls, or a fault of the service."""
    status = getattr(error, "response", {}).get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    return not isinstance(error, ClientError) or status >= 500 or any(c in error_code(error) for c in _PASSING_CODES)  # noqa: PLR2004
