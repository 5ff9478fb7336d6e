"""Instance metadata of EC2, version 2 only."""

import http.client
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_network

from deeplearning_contract.web import open_address
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure

ENDPOINT_VARIABLE = "AWS_EC2_METADATA_SERVICE_ENDPOINT"
DEFAULT_ENDPOINT = "http://169.254.169.254"
ANSWER_SECONDS = 5
LIMIT_SECONDS = 120
_MOST_BYTES = 64 * 1024
_INSTANCE_ID = re.compile(r"i-[0-9a-f]{8,17}")
_ADDRESS = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){3}")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")
_BLOCKS = "vpc-ipv4-cidr-blocks"
"""Path of all IPv4 blocks of the VPC, one a line, as in aws/amazon-vpc-cni-k8s (pkg/awsutils/imds.go)."""


@dataclass(frozen=True)
class Identity:
    """Identity of the instance in EC2."""

    instance_id: str
    address: str  # Its private IPv4 address
    networks: tuple[str, ...]  # The IPv4 blocks of its VPC, such as `10.0.0.0/16`


def read_identity(clock: Clock, environment: Mapping[str, str] = os.environ) -> Identity:
    """Read the instance's identity from the metadata service, retrying for two minutes; StageFailure after that."""
    cause = ""
    for _ in Deadline.after(clock, LIMIT_SECONDS).attempts():
        try:
            read = open_metadata(environment)
            instance_id = check_answer(_INSTANCE_ID, read("instance-id"))
            address = check_answer(_ADDRESS, read("local-ipv4"))
            mac = check_answer(_MAC, read("mac"))
            blocks = read(f"network/interfaces/macs/{mac}/{_BLOCKS}").split()
            return Identity(instance_id, address, tuple(str(ip_network(block)) for block in blocks))
        except (OSError, ValueError) as error:  # noqa: PERF203 - waiting dwarfs it
            cause = str(error)
    raise StageFailure(
        f"the instance metadata service at {find_endpoint(environment)} returned no identity: {cause}",
        "enable it with tokens required, and a hop limit that reaches the node",
        stage="read the instance metadata",
    )


def explain_missing_credentials(environment: Mapping[str, str] = os.environ) -> str:
    """
    Return the reason for missing credentials in instance metadata; empty when there are some. Up to three requests.
    """
    try:
        read = open_metadata(environment)
        role = read("iam/security-credentials/").splitlines()[0]
        answer = json.loads(read(f"iam/security-credentials/{role}"))
        found = {key: answer.get(key) for key in ("Code", "Message")}  # The rest is secret.
    except (OSError, ValueError, AttributeError) as error:
        return f"{error}"
    return "" if found["Code"] == "Success" else f"instance metadata for role {role}: {found}"


def find_endpoint(environment: Mapping[str, str]) -> str:
    """Return the address of the metadata service without a trailing slash."""
    return environment.get(ENDPOINT_VARIABLE, DEFAULT_ENDPOINT).rstrip("/")


def open_metadata(environment: Mapping[str, str]) -> Callable[[str], str]:
    """Fetch a token, and return the function that reads one path below `meta-data/`; both raise as `request`."""
    base = f"{find_endpoint(environment)}/latest"
    token = request(f"{base}/api/token", "PUT", {"X-aws-ec2-metadata-token-ttl-seconds": "300"})
    return lambda path: request(f"{base}/meta-data/{path}", "GET", {"X-aws-ec2-metadata-token": token})


def request(url: str, method: str, headers: dict[str, str]) -> str:
    """Return the text of one response; HTTPError for an error status, OSError without a response."""
    asked = urllib.request.Request(url, method=method, headers=headers)  # noqa: S310 - the scheme is fixed
    try:
        with open_address(asked, ANSWER_SECONDS) as response:
            text: str = response.read(_MOST_BYTES).decode().strip()
    except urllib.error.HTTPError as error:
        error.msg = f"{error.msg}, to {method} {url}"
        raise
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise OSError(f"{method} {url}: {error!r}") from error
    if not text:
        raise OSError(f"{method} {url}: empty response")
    return text


def check_answer(pattern: "re.Pattern[str]", text: str) -> str:
    """Return a text of the right form; ValueError when another service responds at the address."""
    if not pattern.fullmatch(text):
        raise ValueError(f"instance metadata must be like {pattern.pattern}, got {text[:80]!r}")
    return text
