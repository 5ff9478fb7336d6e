"""
Clients of the AWS services, created at their first use.

They are botocore's: importing boto3 would cost every node memory for resources that the agent does not use.
"""

import http
import json
import os
import threading
import time
from collections.abc import Callable
from functools import cached_property
from typing import Any, TypeVar

import botocore.session
from botocore.config import Config
from botocore.parsers import ResponseParserError

from deeplearning_node.aws_errors import AwsError as AwsError  # noqa: PLC0414 - callers of clients catch it
from deeplearning_node.aws_errors import is_denied, is_passing, is_skewed, read_skew
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import explain_missing_credentials

T = TypeVar("T")

CONNECT_SECONDS = 5
ANSWER_SECONDS = 30
"""Longer than the 20 s of a long poll."""
ATTEMPTS = 2
"""Attempts of one call of a client; `call_until` repeats the call, and checks its deadline between calls."""
LONGEST_CALL_SECONDS = ATTEMPTS * (CONNECT_SECONDS + ANSWER_SECONDS) + 1
"""Longest time by which a call can exceed a deadline; a second is botocore's longest first pause."""
DENIED_SECONDS = 60
"""Time for which a new role can be denied until IAM has propagated it."""
CREDENTIALS_SECONDS = 180
METADATA_SECONDS = 5
"""Time-out of instance metadata; botocore's default of a second is too short for a node that is busy booting."""


class AwsFailure(StageFailure):
    """A call that AWS refused, or did not answer in time."""

    is_denied = False
    """True if AWS denied access, which a retry cannot change."""


class AwsClients:
    """Clients of one agent in one region."""

    def __init__(self, region: str) -> None:
        """Create the session; it reads credentials at the first call."""
        self.region = region
        self._making = threading.Lock()
        self.session = botocore.session.Session()
        self.session.set_config_variable("ec2_metadata_v1_disabled", "true")
        self.session.set_config_variable("metadata_service_timeout", METADATA_SECONDS)
        self.session.register("after-call", check_wholeness)

    @cached_property
    def dynamodb(self) -> Any:
        return self._client("dynamodb")

    @cached_property
    def sqs(self) -> Any:
        return self._client("sqs")

    @cached_property
    def s3(self) -> Any:
        return self._client("s3")

    @cached_property
    def autoscaling(self) -> Any:
        return self._client("autoscaling")

    @cached_property
    def logs(self) -> Any:
        return self._client("logs")

    @cached_property
    def ecr(self) -> Any:
        return self._client("ecr")

    @cached_property
    def events(self) -> Any:
        return self._client("events")

    def wait_for_credentials(self, deadline: Deadline) -> None:
        """Wait for the credentials of the instance's role; StageFailure after three minutes."""
        cause = "instance metadata has none"
        for _ in deadline.at_most(CREDENTIALS_SECONDS).attempts():
            try:
                if self.session.get_credentials() is not None:
                    return
            except AwsError as error:  # noqa: PERF203 - waiting dwarfs it
                cause = str(error)
        cause = explain_missing_credentials() or cause
        raise StageFailure(f"no AWS credentials: {cause}", "check the node's instance profile and role")

    def _client(self, service: str) -> Any:
        # The endpoint of a test or an emulator has no host name for each bucket.
        addressing = "path" if "AWS_ENDPOINT_URL" in os.environ else "auto"
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
            s3={"addressing_style": addressing},
        )
        with self._making:  # Threads may share clients, but not the session that creates them.
            return self.session.create_client(service, region_name=self.region, config=config)


def check_wholeness(http_response: Any, model: Any, **_: Any) -> None:
    """
    Refuse a truncated response, and a page that is not AWS's: botocore takes both for an empty response.

    An item that could not be read must not look like one that does not exist. ResponseParserError makes the call
    retryable.
    """
    if model.has_streaming_output or http_response.status_code != http.HTTPStatus.OK:
        return
    content, length = http_response.content, http_response.headers.get("content-length")
    if length is not None and int(length) != len(content):
        raise ResponseParserError(f"calling the {model.name} operation: {len(content)} of {length} bytes arrived")
    try:
        if content and model.service_model.metadata["protocol"] == "json":
            json.loads(content)
    except ValueError as error:
        raise ResponseParserError(f"calling the {model.name} operation: AWS's answer is not JSON: {error}") from error


def call_until(deadline: Deadline, action: Callable[[], T]) -> T:
    """
    Call AWS, retrying on throttling, on outages, and during the minute in which IAM propagates a new role.

    The call must be safe to repeat. AwsFailure at the deadline, or when AWS refuses; it names the action.
    """
    denied = deadline.at_most(DENIED_SECONDS)
    for _ in deadline.attempts():
        try:
            return action()
        except AwsError as error:  # noqa: PERF203 - waiting dwarfs it
            last = error
            if not is_passing(error) and (denied.is_over or not is_denied(error)):
                break
    raise describe_aws_error(last) from last


def describe_aws_error(error: Exception, now: Callable[[], float] = time.time) -> AwsFailure:
    """Return an error of botocore as a failure with action and remedy; `now` is this node's wall clock."""
    failure = AwsFailure(f"{error}", "")
    if is_denied(error):
        failure.remedy, failure.is_denied = "see the policy of the node's role", True
    elif is_skewed(error):
        skew = read_skew(error, now())
        found = f"{abs(skew):.0f} s {'ahead of' if skew > 0 else 'behind'} AWS's" if skew else "wrong"
        failure.remedy = f"set the node's clock, which is {found}: see chronyc tracking"
    return failure


def call_for(clock: Clock, seconds: float, action: Callable[[], T]) -> T:
    """Call AWS as `call_until`, for at most `seconds`."""
    return call_until(Deadline.after(clock, seconds), action)
