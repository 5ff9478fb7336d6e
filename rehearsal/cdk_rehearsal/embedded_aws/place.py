"""Where the embedded AWS is: account, region and the address of its server."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import boto3
from botocore.config import Config

OPERATOR_KEY = "AKIAREHEARSALOPERATR"
OPERATOR_SECRET = "the-operator-of-the-rehearsal"  # noqa: S105 - opens nothing but this lab


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
        return _client(service, self.region, self.endpoint)

    def client_as(self, service: str, *, access_key_id: str, secret_access_key: str, session_token: str) -> Any:
        """Return a client that signs with these credentials, whose calls are judged by their role's rights."""
        return _session().client(
            service,
            aws_access_key_id=access_key_id,
            aws_secret_access_key=secret_access_key,
            aws_session_token=session_token,
            region_name=self.region,
            endpoint_url=self.endpoint,
            config=Config(retries={"total_max_attempts": 1}, proxies={}),
        )


@lru_cache(maxsize=64)
def _client(service: str, region: str, endpoint: str) -> Any:
    config = Config(
        retries={"total_max_attempts": 1}, max_pool_connections=32, s3={"addressing_style": "path"}, proxies={}
    )
    return _session().client(
        service,
        aws_access_key_id=OPERATOR_KEY,
        aws_secret_access_key=OPERATOR_SECRET,
        region_name=region,
        endpoint_url=endpoint,
        config=config,
    )


@lru_cache(maxsize=1)
def _session() -> Any:
    # One session keeps botocore's service models; EC2's alone takes a third of a second to read.
    return boto3.session.Session()
