"""Classification of errors of AWS and of the network: retry, wait for IAM or the clock, or fail."""

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    FlexibleChecksumError,
    HTTPClientError,
    IncompleteReadError,
    MetadataRetrievalError,
    NoCredentialsError,
)
from botocore.exceptions import ConnectionError as NoConnectionError
from botocore.parsers import ResponseParserError

AwsError = (BotoCoreError, ClientError, ResponseParserError)
"""Errors that a client raises when AWS refuses a call or does not respond."""
SKEW_SECONDS = 240
"""Just below the five minutes from which on AWS refuses the time of a signature."""

_PASSING_CODES = (
    "Throttl",
    "RequestLimit",
    "TooManyRequests",
    "ProvisionedThroughput",
    "SlowDown",
    "BandwidthLimit",
    "OverLimit",
    "RequestTimeout",
    "PriorRequestNotComplete",
    "InternalError",
    "InternalFailure",
    "ServiceUnavailable",
)
_SKEWED_CODES = ("RequestExpired", "RequestTimeTooSkewed", "RequestInTheFuture", "InvalidSignature", "SignatureDoesNot")
"""A node's clock can be wrong until it is synchronized, which may happen after the agent's start."""
_DENIED_CODES = (
    "AccessDenied",
    "UnrecognizedClient",
    "InvalidClientTokenId",
    "InvalidAccessKeyId",
    "InvalidToken",
    "ExpiredToken",
    "NotAuthorized",
    "UnauthorizedOperation",
    "AuthorizationError",
)
_PASSING_ERRORS = (
    HTTPClientError,
    NoConnectionError,
    IncompleteReadError,
    FlexibleChecksumError,
    ResponseParserError,
    NoCredentialsError,
    CredentialRetrievalError,
    MetadataRetrievalError,
)
"""Errors without a code of AWS: no response, a truncated one, or no credentials at the moment."""


def error_code(error: Exception) -> str:
    """Return the code that AWS gave an error; empty without one."""
    return str(_response(error).get("Error", {}).get("Code", ""))


def is_denied(error: Exception) -> bool:
    return any(code in error_code(error) for code in _DENIED_CODES)


def is_skewed(error: Exception) -> bool:
    """Return whether AWS refused the time of a signature; a wrong secret has the same codes, but nodes have none."""
    return any(code in error_code(error) for code in _SKEWED_CODES)


def is_passing(error: Exception) -> bool:
    """
    Return whether the same call may succeed later.

    It may after no response, throttling, a fault of the service, or a wrong clock that is corrected meanwhile.
    """
    if not isinstance(error, ClientError):
        return isinstance(error, _PASSING_ERRORS)
    status = _metadata(error).get("HTTPStatusCode", 0)
    if error_code(error).isdigit():  # A status in place of a code: the response is truncated, or not AWS's.
        return True
    return status >= 500 or is_skewed(error) or any(code in error_code(error) for code in _PASSING_CODES)  # noqa: PLR2004


def read_skew(error: Exception, now: float) -> float:
    """Return the seconds by which this node's clock is ahead of the date of AWS's response; 0 when unknown."""
    try:
        skew = now - parsedate_to_datetime(_metadata(error)["HTTPHeaders"]["date"]).timestamp()
    except (KeyError, TypeError, ValueError):
        return 0.0
    return skew if abs(skew) >= SKEW_SECONDS else 0.0


def _metadata(error: Exception) -> Mapping[str, Any]:
    metadata: Mapping[str, Any] = _response(error).get("ResponseMetadata", {})
    return metadata


def _response(error: Exception) -> Mapping[str, Any]:
    # Connection errors have the attribute, and it is None.
    response: Mapping[str, Any] = getattr(error, "response", None) or {}
    return response
