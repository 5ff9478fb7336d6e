"""Clusters of EMR that calls name, from the Service Authorization Reference, "Amazon Elastic MapReduce"."""

from collections.abc import Iterator

from cdk_rehearsal.iam.account import Account, Parameters, Target


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
