"""One health check of a target: a request as Elastic Load Balancing makes it, and what it says of the target."""

import http.client
import socket
import ssl
from dataclasses import dataclass

_TRAFFIC = "ELB-HealthChecker/2.0"
"""User agent of health checks (Application Load Balancer user guide)."""


@dataclass(frozen=True)
class Failure:
    """Reason why a target is not healthy, with its description (Elastic Load Balancing API, `TargetHealth`)."""

    reason: str
    description: str


TIMEOUT = Failure("Target.Timeout", "Request timed out")
FAILED = Failure("Target.FailedHealthChecks", "Health checks failed")


@dataclass(frozen=True)
class HealthCheck:
    """
    The health check of a target group.

    Attributes:
        protocol: `HTTP`, `HTTPS` or `TCP`.
        path: What a request asks for; unused for `TCP`.
        matcher: Codes of a healthy answer, such as `200`, `200-399` or `200,302`.
        timeout: Longest wait for an answer, in seconds.
    """

    protocol: str
    path: str
    matcher: str
    timeout: float


def probe(address: str, port: int, check: HealthCheck) -> Failure | None:
    """Check a target once; return why it failed, None where it passed."""
    try:
        if check.protocol not in ("HTTP", "HTTPS"):
            socket.create_connection((address, port), check.timeout).close()
            return None
        status = _request(address, port, check)
    except (TimeoutError, socket.gaierror):
        return TIMEOUT
    except OSError as error:
        # A packet to an address that nobody has is lost in a VPC, where no router says so.
        return FAILED if isinstance(error, ConnectionError) else TIMEOUT
    except http.client.HTTPException:
        return FAILED
    if matches(status, check.matcher):
        return None
    return Failure("Target.ResponseCodeMismatch", f"Health checks failed with these codes: [{status}]")


def matches(status: int, matcher: str) -> bool:
    """Return whether a status is one of a matcher's codes."""
    ranges = (part.partition("-") for part in matcher.split(","))
    return any(int(low) <= status <= int(high or low) for low, _, high in ranges)


def _request(address: str, port: int, check: HealthCheck) -> int:
    if check.protocol == "HTTPS":  # a balancer does not verify certificates of targets
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(
            address, port, timeout=check.timeout, context=context
        )
    else:
        connection = http.client.HTTPConnection(address, port, timeout=check.timeout)
    try:
        connection.request("GET", check.path, headers={"User-Agent": _TRAFFIC, "Connection": "close"})
        return connection.getresponse().status
    finally:
        connection.close()
