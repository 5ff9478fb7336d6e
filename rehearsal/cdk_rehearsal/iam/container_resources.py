"""
Repositories of ECR and clusters of EKS that calls name.

Service Authorization Reference, "Amazon Elastic Container Registry" and "Amazon Elastic Kubernetes Service".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.iam.account import Account, Parameters, Target

_REGISTRY = re.compile(
    r"(?P<account>[0-9]{12})\.dkr[.-]ecr(?:-fips)?\.(?P<region>[a-z0-9-]+)\.[a-z0-9.-]+/(?P<repository>[^:@]+)"
)
"""The start of an image's URI (Amazon ECR user guide, "Private registry" and "Making requests over IPv6")."""
_OPEN: Mapping[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "ecr:*", "Resource": "*"}],
}
_EKS = "602401143452"
_EKS_REGISTRIES = {
    "af-south-1": "877085696533",
    "ap-east-1": "800184023465",
    "ap-southeast-3": "296578399912",
    "ap-south-2": "900889452093",
    "ap-southeast-4": "491585149902",
    "ap-southeast-5": "151610086707",
    "ap-southeast-6": "333609536671",
    "ap-southeast-7": "121268973566",
    "ca-west-1": "761377655185",
    "cn-north-1": "918309763551",
    "cn-northwest-1": "961992271922",
    "eu-central-2": "900612956339",
    "eu-south-1": "590381155156",
    "eu-south-2": "455263428931",
    "il-central-1": "066635153087",
    "me-central-1": "759879836304",
    "me-south-1": "558608220178",
    "us-gov-east-1": "151742754352",
    "us-gov-west-1": "013241004608",
}
_KINDS = {
    "nodegroupName": "nodegroup",
    "addonName": "addon",
    "principalArn": "entry",
    "associationId": "association",
}
"""Parameter in the path -> kind of what it names."""


def is_in_registry(image: str) -> bool:
    """Return whether an image is in a private registry of ECR."""
    return _REGISTRY.match(image) is not None


def find_image_policy(arn: str, account: str) -> Mapping[str, Any] | None:
    """
    Return the policy of a repository of another account; None for other resources.

    AWS's own repositories admit every account. A repository of somebody else cannot be read here, and its policy is
    taken to be in order: the caller's own policies decide.
    """
    parts = arn.split(":")
    return _OPEN if parts[2:3] == ["ecr"] and parts[4] != account else None


def name_eks_image(region: str, url_suffix: str, repository: str) -> str:
    """
    Return the URI of an image of EKS in the registry of a region.

    EKS user guide, "View Amazon container image registries for Amazon EKS add-ons".
    """
    return f"{_EKS_REGISTRIES.get(region, _EKS)}.dkr.ecr.{region}.{url_suffix}/{repository}:latest"


def targets_of_repository(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a repository by the URI of an image in it, in the account and region of its registry."""
    found = _REGISTRY.match(str(parameters["Image"]))
    assert found is not None
    arn = account.arn("ecr", f"repository/{found['repository']}")
    yield f"arn:{arn.split(':')[1]}:ecr:{found['region']}:{found['account']}:repository/{found['repository']}", {}


def targets_of_eks_cluster(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a cluster, with its tags; it need not be there."""
    name = str(parameters.get("name") or parameters["clusterName"])
    found = account.find_cluster_part(name)
    yield account.arn("eks", f"cluster/{name}"), _tag(found[1] if found else {})


def targets_of_cluster_part(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name a part of a cluster, with its tags; of one that is not there the service itself says so."""
    cluster = str(parameters["name"])
    for parameter, kind in _KINDS.items():
        if parameter in parameters and (found := account.find_cluster_part(cluster, kind, str(parameters[parameter]))):
            yield found[0], _tag(found[1])


def _tag(tags: Mapping[str, str]) -> Mapping[str, str]:
    return {f"aws:ResourceTag/{key}": value for key, value in tags.items()}
