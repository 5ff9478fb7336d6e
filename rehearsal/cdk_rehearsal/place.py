"""Account, region and address of the embedded AWS, and clients of its services."""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config

OPERATOR_KEY = "AKIAREHEARSALOPERATR"
OPERATOR_SECRET = "the-operator-of-the-rehearsal"  # noqa: S105 - opens nothing but this lab


@dataclass(frozen=True)
class Credentials:
    """Credentials of requests; long-lived ones have no session token."""

    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(repr=False, default="")


@dataclass(frozen=True)
class Place:
    """The account, the region, and the URL of the server, without a path, that everything of a rehearsal uses."""

    account: str
    region: str
    endpoint: str

    @property
    def partition(self) -> str:
        """The ARN partition of the region."""
        if self.region.startswith("cn-"):
            return "aws-cn"
        return "aws-us-gov" if self.region.startswith("us-gov-") else "aws"

    @property
    def url_suffix(self) -> str:
        """The DNS suffix of the partition."""
        return "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource of this account and region."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{resource}"

    def client(self, service: str) -> Any:
        """Return the operator's client of a service; clients are shared, boto3's are thread-safe."""
        return _client(service, self)

    def client_as(self, service: str, credentials: Credentials) -> Any:
        """Return a client that signs with these credentials, whose role's rights decide its calls."""
        return _make_client(service, self, credentials)


@lru_cache(maxsize=64)
def _client(service: str, place: Place) -> Any:
    return _make_client(service, place, Credentials(OPERATOR_KEY, OPERATOR_SECRET))


def _make_client(service: str, place: Place, credentials: Credentials) -> Any:
    return _session().client(
        service,
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        aws_session_token=credentials.session_token or None,
        region_name=place.region,
        endpoint_url=place.endpoint,
        config=Config(
            retries={"total_max_attempts": 1}, max_pool_connections=32, s3={"addressing_style": "path"}, proxies={}
        ),
    )


@lru_cache(maxsize=1)
def _session() -> Any:
    # One session keeps botocore's service models; EC2's alone takes a third of a second to read.
    return boto3.session.Session()
