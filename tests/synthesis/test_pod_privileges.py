"""Limits of the roles of a cluster on EKS: each refuses what it is there for, and what IAM cannot limit is known."""

import pytest

from deeplearning_rehearsal.privileges.must_deny import judge_call
from deeplearning_rehearsal.privileges.template_rights import read_template_rights
from tests.gates.presets import PRESETS
from tests.submitting_app import SUBMITTER, add_submitter
from tests.synthesis.altered_rights import allow, call, check_denials, drop, edit, list_allowed, loosen

JOBS, NODES, NETWORK, CONTROL_PLANE = "AddonsJobRole", "NodesRole", "NetworkRole", "ControlPlaneRole"
SOURCE = "arn:{partition}:s3:::cdk-hnb659fds-assets-{account}-{region}/deeplearning-jobs/{cluster}/source.tar.gz"
INTERFACE = "arn:{partition}:ec2:{region}:{account}:network-interface/eni-0123456789abcdef0"
BUS = "arn:{partition}:events:{region}:{account}:event-bus/default"
INSTANCE = "arn:{partition}:ec2:{region}:{account}:instance/i-0123456789abcdef0"
OWNER = "aws:ResourceTag/deeplearning:cluster"
INTERFACE_CALLS = {
    "attach": "ec2:AttachNetworkInterface",
    "detach": "ec2:DetachNetworkInterface",
    "change": "ec2:ModifyNetworkInterfaceAttribute",
}
PERMITTED = (
    call("read the source of a job", JOBS, "s3:GetObject", SOURCE),
    call("upload a source", SUBMITTER, "s3:PutObject", SOURCE),
    call(
        "report a failed job",
        JOBS,
        "events:PutEvents",
        BUS,
        **{"events:source": "deeplearning-cdk.{cluster}", "events:detail-type": "Deep Learning Job Failed"},
    ),
    call(
        "mount the file system by its access point",
        NODES,
        "elasticfilesystem:ClientMount",
        "{granted:elasticfilesystem:ClientMount}",
        **{"elasticfilesystem:AccessPointArn": "{condition:elasticfilesystem:AccessPointArn}"},
    ),
    call("join the cluster", NODES, "eks:DescribeCluster", "{granted:eks:DescribeCluster}"),
    call(
        "delete an interface of the subnet",
        NETWORK,
        "ec2:DeleteNetworkInterface",
        INTERFACE,
        **{"ec2:Subnet": "{condition:ec2:Subnet}"},
    ),
    *(
        call(
            f"{name} an interface of the subnet", NETWORK, action, INTERFACE, **{"ec2:Subnet": "{condition:ec2:Subnet}"}
        )
        for name, action in INTERFACE_CALLS.items()
    ),
    *(
        call(f"{name} an interface of a node", NETWORK, action, INSTANCE, **{OWNER: "{cluster}"})
        for name, action in INTERFACE_CALLS.items()
    ),
    call(
        "tag an interface of the subnet",
        NETWORK,
        "ec2:CreateTags",
        INTERFACE,
        **{"ec2:Subnet": "{condition:ec2:Subnet}"},
    ),
    call(
        "tag an interface at its creation",
        NETWORK,
        "ec2:CreateTags",
        "arn:{partition}:ec2:{region}:{account}:network-interface/*",
        **{"ec2:CreateAction": "CreateNetworkInterface"},
    ),
    call(
        "tag a node of Kubernetes",
        CONTROL_PLANE,
        "ec2:CreateTags",
        INSTANCE,
        **{"aws:TagKeys": "kubernetes.io/cluster/sample"},
    ),
)
"""Calls that differ from forbidden ones by a name alone."""
BEYOND_IAM = (
    call(
        "pull any image of the account, which a pod of a submitter may name",
        NODES,
        "ecr:BatchGetImage",
        "arn:{partition}:ecr:{region}:{account}:repository/payments",
    ),
    call(
        "tag another instance of the account as one of a cluster",
        CONTROL_PLANE,
        "ec2:CreateTags",
        INSTANCE,
        **{"aws:TagKeys": "kubernetes.io/cluster/other"},
    ),
)
"""
Rights that nobody needs here, and that stay: the images of a submitter's pods are not known to the stack.

EKS tags instances before they have a tag of the cluster (EKS user guide, "Amazon EKS cluster IAM role").
"""


@pytest.fixture(scope="module")
def template(synthesize):
    """Return a cluster on EKS with a submitter."""
    (template,) = synthesize(PRESETS["eks"], add_submitter).values()
    return template


@pytest.fixture
def rights(template):
    """Return its rights."""
    return read_template_rights(template)


@pytest.mark.parametrize("permitted", [*PERMITTED, *BEYOND_IAM], ids=lambda each: each.name)
def test_what_pods_and_nodes_need_and_what_iam_cannot_limit_is_allowed(rights, permitted):
    (verdict,) = judge_call(rights, permitted)
    assert verdict.decision.is_allowed


@pytest.mark.parametrize(
    ("role", "change", "found"),
    [
        (
            NODES,
            allow("s3:GetObject", "*"),
            {
                "read the source of another cluster's job",
                "read another bucket",
                "read the source of a job as a node",
            },
        ),
        (JOBS, allow("s3:GetObject", "arn:aws:s3:::payroll/*"), {"read another bucket"}),
        (
            JOBS,
            drop("events:PutEvents", "ForAllValues:StringEquals"),
            {"send an event about another cluster", "send an event of another kind"},
        ),
        (
            NODES,
            loosen("elasticfilesystem:ClientMount", "StringEquals", "StringLike"),
            {"mount the file system past its access point"},
        ),
        (
            NETWORK,
            drop("ec2:DeleteNetworkInterface", "ArnEquals"),
            {
                "attach an interface of another subnet",
                "change the security groups of an interface of another subnet",
                "delete an interface of another subnet",
                "detach an interface of another subnet",
                "tag an interface of another subnet",
                "take an address of an interface of another subnet",
            },
        ),
        (
            NETWORK,
            drop("ec2:AttachNetworkInterface", "StringEquals"),
            {
                "attach an interface to an instance of another cluster",
                "change the interface of an instance of another cluster",
                "detach an interface from an instance of another cluster",
            },
        ),
        (
            NETWORK,
            loosen("ec2:AttachNetworkInterface", "StringEquals", "StringLike"),
            {
                "attach an interface to an instance of another cluster",
                "change the interface of an instance of another cluster",
                "detach an interface from an instance of another cluster",
            },
        ),
        (
            CONTROL_PLANE,
            drop("ec2:CreateTags", "ForAnyValue:StringLike"),
            {"tag an instance with what is no tag of Kubernetes"},
        ),
        (
            NODES,
            allow("eks-auth:AssumeRoleForPodIdentity", "*"),
            {"get the credentials of another cluster's pods"},
        ),
        (
            SUBMITTER,
            allow("eks:*", "*"),
            {
                "let somebody into the cluster",
                "give somebody the whole cluster",
                "give pods another role",
                "open the API server to everyone",
                "delete the cluster",
                "change the number of nodes",
                "read another cluster's endpoint",
                "describe the cluster as a pod or a submitter",
            },
        ),
    ],
)
def test_a_limit_that_is_missing_is_found_by_the_forbidden_calls(rights, role, change, found):
    assert list_allowed(edit(rights, role, change)) == found


def test_each_forbidden_call_is_denied_for_want_of_the_right_alone(rights):
    check_denials(rights, SUBMITTER)
