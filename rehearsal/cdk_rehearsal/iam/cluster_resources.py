"""Resources that calls of EKS and EMR name, from the Service Authorization Reference."""

from collections.abc import Iterator, Mapping
from typing import Any

from cdk_rehearsal.iam.account import Account, Parameters, Target

EKS_IMAGES = "602401143452"
"""Account of EKS's images in most regions (EKS user guide, "View Amazon container image registries")."""
_OPEN: Mapping[str, Any] = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "ecr:*", "Resource": "*"}],
}
_KINDS = {
    "nodegroupName": "nodegroup",
    "addonName": "addon",
    "principalArn": "entry",
    "associationId": "association",
}
"""Parameter in the path -> kind of what it names."""


def find_image_policy(arn: str) -> Mapping[str, Any] | None:
    """Return the policy of a repository of EKS's images, from which nodes of every account pull; None for others."""
    return _OPEN if arn.split(":")[2:5:2] == ["ecr", EKS_IMAGES] else None


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


def targets_of_emr_cluster(parameters: Parameters, account: Account) -> Iterator[Target]:
    """Name each cluster of a call of EMR, with its tags."""
    for name in parameters.get("JobFlowIds") or [parameters.get("ClusterId") or parameters["JobFlowId"]]:
        arn = account.arn("elasticmapreduce", f"cluster/{name}")
        tags = account.find_tags(arn)
        yield arn, {f"{prefix}:ResourceTag/{key}": tags[key] for key in tags for prefix in ("elasticmapreduce", "aws")}


def targets_of_job_flow(parameters: Parameters, _account: Account) -> Iterator[Target]:
    """Name the tags of a new cluster of EMR."""
    yield "*", {f"aws:RequestTag/{tag['Key']}": str(tag["Value"]) for tag in parameters.get("Tags", [])}


def list_passed_roles(parameters: Parameters, account: Account) -> Iterator[Target]:
    """List the roles that a request for a cluster hands over: to EMR, and to the cluster's instances."""
    roles = {
        "elasticmapreduce": account.find_role(str(parameters["ServiceRole"])),
        "ec2": account.find_profile_role(str(parameters["JobFlowRole"])),
    }
    for service, role in roles.items():
        if role:  # of one that is not there the service itself says so, whoever calls
            yield role, {"iam:PassedToService": f"{service}.amazonaws.com"}
