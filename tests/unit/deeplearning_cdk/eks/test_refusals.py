"""Choices that cannot work on EKS are refused at synthesis, with a way out."""

import re

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam

from deeplearning_cdk import (
    EksTraining,
    EnvironmentCache,
    InstanceTypeFacts,
    JobEnvironment,
    Lustre,
    Network,
    NodeImage,
    Purchase,
    SharedFileSystem,
    Software,
    Storage,
)
from tests.unit.deeplearning_cdk.eks.conftest import ADMIN, IMAGE

GROUP = "arn:aws:resource-groups:us-east-1:111122223333:group/mine"


@pytest.mark.parametrize(
    ("props", "rule", "remedy"),
    [
        ({"initial_members": 3}, "initial_members must not exceed members, got 3 > 2", "lower it or raise members"),
        (
            {"instance_type": "trn1.32xlarge"},
            "instance_type must have NVIDIA GPUs or no accelerators on EKS, got trn1.32xlarge with those of AWS",
            "take p3dn.24xlarge, or train on it with TrainingCluster",
        ),
        (
            {"instance_type": InstanceTypeFacts(name="g4ad.4xlarge", accelerator="AMD", gpu_count=1)},
            "instance_type must have NVIDIA GPUs or no accelerators on EKS, got g4ad.4xlarge with those of AMD",
            "take p3dn.24xlarge, or train on it with TrainingCluster",
        ),
        (
            {"instance_type": "vt1.24xlarge"},
            "instance_type must have NVIDIA GPUs or no accelerators on EKS, got vt1.24xlarge with others",
            "take ",
        ),
        *(
            (
                {"instance_type": retired, "image": IMAGE},
                f"instance_type must have GPUs that EKS's images support, got {retired}",
                f"take {successor}, or train on it with TrainingCluster",
            )
            for retired, successor in (
                ("g2.8xlarge", "g5.12xlarge"),
                ("g3.8xlarge", "g5.12xlarge"),
                ("p2.8xlarge", "g5.48xlarge"),
            )
        ),
        ({"instance_type": "g5.huge"}, "instance_type must be an instance type of the catalogue of ", ""),
        (
            {"system_instance_type": "g5.xlarge"},
            "system_instance_type must be without accelerators, got g5.xlarge",
            "it runs DNS and drivers alone, so take m7i.large",
        ),
        *(
            # awslabs/amazon-eks-ami, eni-max-pods.txt: 4, 4 and 8 pods.
            (
                {"system_instance_type": small},
                f"system_instance_type must have addresses for the nine pods of the add-ons, got {small}",
                "take m7i.large",
            )
            for small in ("t3.nano", "t3.micro", "m7g.medium")
        ),
        ({"members": 0}, "members must be from 1 to 450, got 0", "a managed node group has no more; take fewer"),
        ({"members": 451}, "members must be from 1 to 450, got 451", "a managed node group has no more; take fewer"),
        *(
            ({"version": version}, f"version must be one of 1.33, 1.34, 1.35, 1.36, got '{version}'", "write 1.35, or ")
            for version in ("1.32", "1.37", "latest")
        ),
        ({"node_image": "ubuntu"}, "node_image must be one of bottlerocket, amazon-linux, got 'ubuntu'", ""),
        ({"image_disk": 49}, "image_disk must be whole GiB from 50 to 16384, got 49", "it holds the images of pods; "),
        *(
            ({"api_from": [text]}, f"api_from[0] must not be everyone, got '{text}'", "write the address that https://")
            for text in ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/7")
        ),
        ({"api_from": ["54.240.193.130"]}, "api_from[0] must be an IPv4 network, got '54.240.193.130'", "write the "),
        ({"api_from": ["::/0"]}, "api_from[0] must be an IPv4 network, got '::/0'", "write the address that "),
        *(
            # EKS user guide, "Configure network access to cluster API server endpoint": no reserved addresses.
            (
                {"api_from": ["54.240.193.130/32", text]},
                f"api_from[1] must be of public addresses, got '{text}'",
                "EKS takes no private and no reserved ones: ",
            )
            for text in ("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "192.168.1.0/24", "203.0.113.7/32", "224.0.0.0/8")
        ),
        *(
            (
                {"administrators": [arn]},
                f"administrators[0] must be the ARN of an IAM role or user, got '{arn}'",
                "write e.g. arn:aws:iam::",
            )
            for arn in (
                "Admin",
                "arn:aws:iam::111122223333:root",
                "arn:aws:sts::111122223333:assumed-role/Admin/me",
                "arn:aws:iam::111122223333:role/aws-service-role/eks.amazonaws.com/Linked",
            )
        ),
        (
            {"administrators": [ADMIN, ADMIN]},
            f"administrators must name each principal once, got {ADMIN} twice",
            "leave the second one out",
        ),
        (
            {"namespace": "Training"},
            "namespace must be a DNS label of lower-case letters, digits and hyphens, got ",
            "",
        ),
        ({"namespace": "kube-system"}, "namespace must not be one of Kubernetes itself, got 'kube-system'", "write "),
        ({"queue": "Team_A"}, "queue must be a DNS label of lower-case letters, digits and hyphens, got 'Team_A'", ""),
        (
            {"shared_capacity": "85GB"},
            "shared_capacity must be a whole number with one of Ki, Mi, Gi, Ti, Pi, got ",
            "",
        ),
        (
            {"claim_capacity": "86Gi"},
            "claim_capacity must not exceed shared_capacity 85Gi, got 86Gi",
            "such a claim stays Pending, so lower it, leave it out, or raise shared_capacity",
        ),
        ({"claim_capacity": "1Ti"}, "claim_capacity must not exceed shared_capacity 85Gi, got 1Ti", "such a claim "),
        ({"image": "$(reboot)"}, "image must be the URI of a container image, got '$(reboot)'", "write "),
        (
            {"image": IMAGE, "software": Software(environment=JobEnvironment.with_horovod())},
            "software.environment must be left out with image, got both",
            "the image brings the software of jobs",
        ),
        (
            {"software": Software(environment=JobEnvironment.none())},
            "software.environment must be Horovod's or a requirements file, got a JobEnvironment",
            "take ",
        ),
        (
            {"software": Software(image=NodeImage.ubuntu())},
            "software.image must be left out on EKS, got a NodeImage",
            "leave it out: pass node_image, and image for ",
        ),
        ({"software": Software(image_release="2")}, "software.image_release must be left out on EKS, got '2'", ""),
        (
            {"software": Software(environment_cache=EnvironmentCache("team"))},
            "software.environment_cache must be left out on EKS, got an EnvironmentCache",
            "leave it out: ",
        ),
        ({"network": Network(isolated=True)}, "network.isolated must be left out on EKS, got True", "leave it out: "),
        (
            {"storage": Storage(lustre=Lustre())},
            "storage.lustre must be left out on EKS, got a Lustre",
            "leave it out: pods mount the shared file system ",
        ),
        (
            {"purchase": Purchase.spot(max_price=3.5)},
            "purchase must be without max_price on EKS, got 3.5",
            "a managed node group pays up to the on-demand price",
        ),
        (
            {"purchase": Purchase.reservation_group(GROUP)},
            f"purchase must name one reservation on EKS, got '{GROUP}'",
            "a launch template lets nodes launch on demand ",
        ),
        (
            {"purchase": Purchase.capacity_block("cr-0123456789abcdef0")},
            "network.availability_zone must be that of the reservation in purchase, got none for cr-0123456789abcdef0",
            "",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_choices_are_refused_with_a_way_out(make_stack, props, rule, remedy):
    with pytest.raises(ValueError, match="^" + re.escape(f"{rule}; {remedy}".removesuffix("; "))):
        EksTraining(make_stack(), "Training", **props)


def make_vpc(stack, *zones):
    return ec2.Vpc.from_vpc_attributes(
        stack,
        "Vpc",
        vpc_id="vpc-1",
        availability_zones=list(zones),
        private_subnet_ids=[f"subnet-{index}" for index in range(len(zones))],
    )


def test_a_vpc_with_one_zone_is_refused(make_stack):
    """EKS user guide, "VPC and subnet considerations": the subnets of a cluster are in at least two zones."""
    stack = make_stack()
    with pytest.raises(ValueError, match="must") as caught:
        EksTraining(stack, "Training", network=Network(vpc=make_vpc(stack, "us-east-1a")))
    assert str(caught.value) == (
        "network.vpc must have a private subnet in a second zone on EKS, got none beside 'us-east-1a'; EKS puts an "
        "interface of the control plane there, so add one of at least 16 addresses"
    )


def test_a_file_system_that_is_mounted_without_iam_is_refused(make_stack):
    stack = make_stack()
    vpc = make_vpc(stack, "us-east-1a", "us-east-1b")
    shared = SharedFileSystem(stack, "Shared", vpc=vpc, subnet=vpc.private_subnets[0])
    with pytest.raises(ValueError, match=r"^storage\.file_system must be of mode efs, because the driver of EKS "):
        EksTraining(stack, "Training", network=Network(vpc=vpc), storage=Storage(file_system=shared))


def test_a_policy_or_a_group_cannot_submit(make_stack):
    """EKS API reference, CreateAccessEntry: the principal is a role or a user."""
    stack = make_stack()
    training = EksTraining(stack, "Training", image=IMAGE)
    for grantee in (iam.ManagedPolicy(stack, "People"), iam.Group(stack, "Team")):
        with pytest.raises(ValueError, match=r"^grantee must be an IAM role or user on EKS, got a.*; .*pass each role"):
            training.grant_submit(grantee)


def test_a_stack_name_that_leaves_the_cluster_no_room_is_refused(make_app):
    """EKS API reference, CreateCluster: a name has at most 100 characters."""
    EksTraining(cdk.Stack(make_app(), "a" * 82), "Training", image=IMAGE)
    with pytest.raises(ValueError, match=r"^stack_name must leave the name of the cluster at most 100 characters on "):
        EksTraining(cdk.Stack(make_app(), "a" * 83), "Training", image=IMAGE)
