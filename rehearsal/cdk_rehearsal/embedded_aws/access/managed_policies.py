"""AWS's own managed policies, one at a time: loading all of moto's takes a second."""

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from botocore.exceptions import ClientError
from moto.iam.aws_managed_policies import aws_managed_policies_data
from moto.iam.models import AWSManagedPolicy, iam_backends

from cdk_rehearsal.place import Place


def admit_managed_policy(place: Place, arn: str) -> None:
    """Make a managed policy of AWS attachable, if there is one of this ARN."""
    backend = iam_backends[place.account][place.partition]
    prefix = f"arn:{place.partition}:iam::aws:policy/"
    data = _read_policies().get(arn.rpartition("/")[2])
    if not arn.startswith(prefix) or data is None or arn in backend.managed_policies:
        return
    policy = AWSManagedPolicy.from_data(arn.rpartition("/")[2], place.account, place.region, data)
    if policy.arn == arn:  # the path is part of the ARN, and a wrong one is an error on AWS
        backend.managed_policies[arn] = policy


def require_boundary(place: Place, arn: str) -> None:
    """Raise ClientError, in IAM's words, unless the account or AWS has the policy of a permissions boundary."""
    admit_managed_policy(place, arn)
    if arn not in iam_backends[place.account][place.partition].managed_policies:
        message = f"Scope ARN: {arn} does not exist or is not attachable."
        raise ClientError({"Error": {"Code": "NoSuchEntity", "Message": message}}, "CreateRole")


def add_policies(place: Place, policies: Mapping[str, str]) -> None:
    """Add managed policies to the account, by their names with their paths."""
    for name, text in policies.items():
        path, _, last = f"/{name}".rpartition("/")
        place.client("iam").create_policy(PolicyName=last, Path=f"{path}/", PolicyDocument=text)


@lru_cache(maxsize=16)
def read_managed_policy(name: str) -> str:
    """Return the text of a managed policy of AWS."""
    return json.dumps(_read_policies()[name]["Document"])


@lru_cache(maxsize=1)
def _read_policies() -> dict[str, Any]:
    policies: dict[str, Any] = json.loads(aws_managed_policies_data)
    return policies
