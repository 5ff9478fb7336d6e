"""Rights of calls on clusters of EKS, whose parameters are in the path of a request."""

import pytest

from cdk_rehearsal.embedded_aws.base.request import SignedRequest, name_operation, read_parameters
from cdk_rehearsal.iam.operations import find_needs

ARN = "arn:aws:eks:us-east-1:123456789012:"
PRINCIPAL = "arn:aws:iam::123456789012:role/team/Researchers"
PARTS = {
    ("sample",): (f"{ARN}cluster/sample", {"team": "learning"}),
    ("sample", "nodegroup", "members"): (f"{ARN}nodegroup/sample/members/u1", {}),
    ("sample", "addon", "coredns"): (f"{ARN}addon/sample/coredns/u2", {}),
    ("sample", "entry", PRINCIPAL): (f"{ARN}access-entry/sample/role/123456789012/Researchers/u3", {}),
    ("sample", "association", "a-1"): (f"{ARN}podidentityassociation/sample/a-1", {}),
}


class AccountWithCluster:
    """An account with one cluster."""

    account_id = "123456789012"

    def arn(self, service, resource):
        return f"arn:aws:{service}:us-east-1:{self.account_id}:{resource}"

    def find_cluster_part(self, *path):
        return PARTS.get(path)

    def find_key(self, arn):
        return ""


@pytest.mark.parametrize(
    ("service", "method", "path", "operation", "resource"),
    [
        ("eks", "GET", "/clusters", "ListClusters", "*"),
        ("eks", "GET", "/clusters/sample", "DescribeCluster", f"{ARN}cluster/sample"),
        ("eks", "GET", "/clusters/gone", "DescribeCluster", f"{ARN}cluster/gone"),
        ("eks", "GET", "/clusters/sample/addons", "ListAddons", f"{ARN}cluster/sample"),
        ("eks", "GET", "/clusters/sample/addons/coredns", "DescribeAddon", f"{ARN}addon/sample/coredns/u2"),
        (
            "eks",
            "POST",
            "/clusters/sample/node-groups/members/update-config",
            "UpdateNodegroupConfig",
            f"{ARN}nodegroup/sample/members/u1",
        ),
        (
            "eks",
            "GET",
            "/clusters/sample/access-entries/arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Fteam%2FResearchers",
            "DescribeAccessEntry",
            f"{ARN}access-entry/sample/role/123456789012/Researchers/u3",
        ),
        (
            "eks",
            "GET",
            "/clusters/sample/pod-identity-associations/a-1",
            "DescribePodIdentityAssociation",
            f"{ARN}podidentityassociation/sample/a-1",
        ),
        (
            "eks-auth",
            "POST",
            "/clusters/sample/assume-role-for-pod-identity",
            "AssumeRoleForPodIdentity",
            f"{ARN}cluster/sample",
        ),
    ],
)
def test_a_call_needs_its_action_on_what_its_path_names(service, method, path, operation, resource):
    """Service Authorization Reference, "Amazon Elastic Kubernetes Service" and "Amazon EKS Auth"."""
    request = SignedRequest(method, path, "", {}, b"")
    assert name_operation(service, request) == operation
    (need,) = find_needs(f"{service}.{operation}", read_parameters(service, request), AccountWithCluster())
    assert (need.action, need.resource) == (f"{service}:{operation}", resource)


def test_a_call_on_a_part_that_is_not_there_needs_nothing():
    assert find_needs("eks.DescribeAddon", {"name": "sample", "addonName": "gone"}, AccountWithCluster()) == ()


def test_conditions_see_the_tags_of_a_cluster():
    (need,) = find_needs("eks.DescribeCluster", {"name": "sample"}, AccountWithCluster())
    assert need.context == {"aws:ResourceTag/team": "learning"}
