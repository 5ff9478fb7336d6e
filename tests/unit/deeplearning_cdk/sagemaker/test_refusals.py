"""Choices that cannot work on SageMaker are refused at synthesis, with a way out."""

import re

import pytest
from aws_cdk import Duration
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import (
    DataSource,
    EnvironmentCache,
    JobEnvironment,
    LustreFileSystem,
    Network,
    NodeImage,
    SageMakerTraining,
    SharedFileSystem,
    Software,
    Storage,
)

IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/team/train:1"


@pytest.mark.parametrize(
    ("props", "rule", "remedy"),
    [
        *(
            (
                {"instance_type": name},
                f"instance_type must have GPUs that current images support, got {old}",
                f"take {new}",
            )
            for name, old, new in (
                ("p2.8xlarge", "p2.8xlarge", "g5.48xlarge"),
                ("ml.p3.8xlarge", "p3.8xlarge", "g5.12xlarge"),
                ("ml.p3dn.24xlarge", "p3dn.24xlarge", "g5.12xlarge"),
                ("g3.8xlarge", "g3.8xlarge", "g5.12xlarge"),
            )
        ),
        (
            {"instance_type": "ml.trn1.32xlarge"},
            "instance_type must have NVIDIA GPUs or no accelerators on SageMaker, got trn1.32xlarge with those of AWS",
            "take g5.12xlarge",
        ),
        (
            {"instance_type": "c5.large"},
            "instance_type must be one of SageMaker's training jobs, got c5.large",
            "take one of c5.18xlarge, c5.2xlarge",
        ),
        (
            {"instance_type": "i3.large"},
            "instance_type must be one of SageMaker's training jobs, got i3.large",
            "take one of g5.12xlarge",
        ),
        ({"instance_type": "ml.g5.huge"}, "instance_type must be an instance type of the catalogue of ", ""),
        ({"members": 0}, "members must be from 1 to 256, got 0", "take fewer, with more GPUs each"),
        ({"members": 257}, "members must be from 1 to 256, got 257", "take fewer, with more GPUs each"),
        *(
            (
                {"image": name},
                f"image must be the URI of an image in Amazon ECR, of at most 255 characters, got {name!r}",
                "push the image there, and write account.dkr.ecr.region.amazonaws.com/repository:tag",
            )
            for name in ("ubuntu:24.04", "public.ecr.aws/docker/library/ubuntu:24.04")
        ),
        (
            {"image": f"{IMAGE}{'x' * 255}"},
            "image must be the URI of an image in Amazon ECR, of at most 255 characters",
            "",
        ),
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
            {"volume_size": 200},
            "volume_size must be left out for g5.12xlarge, got 200",
            "SageMaker uses its own disks, which have a fixed size",
        ),
        (
            {"volume_size": 29},
            "volume_size must be whole GiB from 30 to 16384, got 29",
            "pass e.g. Size.gibibytes(200)",
        ),
        (
            {"max_run": Duration.days(29)},
            "max_run must be whole seconds from 60 seconds to 28 days, got 41760 minutes",
            "write e.g. ",
        ),
        (
            {"spot_wait": Duration.hours(23)},
            "spot_wait must be at least max_run of 1440 minutes, got 1380 minutes",
            "it includes the run, so raise it or lower max_run",
        ),
        (
            {"spot_wait": Duration.days(2), "keep_warm": Duration.hours(1)},
            "keep_warm must be left out with spot_wait, got 60 minutes",
            "SageMaker keeps no spot instances, so leave one of them out",
        ),
        (
            {"keep_warm": Duration.hours(7)},
            "keep_warm must be whole seconds from 60 seconds to 6 hours, got 420 minutes",
            "write e.g. ",
        ),
        (
            {"max_pending": Duration.minutes(29)},
            "max_pending must be whole seconds from 30 minutes to 28 days, got 29 minutes",
            "write e.g. ",
        ),
        (
            {"max_pending": Duration.hours(1), "instance_type": "m5.xlarge"},
            "max_pending must be left out for a type without accelerators, got 60 minutes with m5.xlarge",
            "SageMaker ignores it there",
        ),
        (
            {"network": Network(isolated=True)},
            "network.isolated must be left out on SageMaker, got True",
            "leave it out: containers call S3 alone, so pass a network.vpc with a gateway endpoint and no other route",
        ),
        (
            {"network": Network(efa=False)},
            "network.efa must be left out on SageMaker, got False",
            "leave it out: the image of jobs has no EFA software, and NCCL uses TCP",
        ),
        (
            {"software": Software(image=NodeImage.ubuntu())},
            "software.image must be left out on SageMaker, got a NodeImage",
            "leave it out: pass image, the URI of a container's image",
        ),
        (
            {"software": Software(image_release="2")},
            "software.image_release must be left out on SageMaker, got '2'",
            "leave it out: an image is built again when its content changes",
        ),
        (
            {"software": Software(environment_cache=EnvironmentCache("team"))},
            "software.environment_cache must be left out on SageMaker, got an EnvironmentCache",
            "leave it out: the environment is part of the image",
        ),
        (
            {"storage": Storage(data=[DataSource("coco", "team-data", "coco/train.tar.gz")])},
            "storage.data must have no archives on SageMaker, which unpacks nothing, got 'coco/train.tar.gz' of coco",
            "upload its content below a prefix",
        ),
        *(
            (
                {"storage": Storage(data=[DataSource(name, "team-data")])},
                f"storage.data must not have the names deeplearning-agent and deeplearning-shared, got {name!r}",
                "rename it",
            )
            for name in ("deeplearning-agent", "deeplearning-shared")
        ),
        (
            {"storage": Storage(data=[DataSource(f"set-{number}", "team-data") for number in range(19)])},
            "storage.data must have at most 18 sources on SageMaker, got 19",
            "declare a prefix that holds several of them",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_wrong_choices_are_refused_with_a_way_out(make_stack, props, rule, remedy):
    with pytest.raises(ValueError, match="^" + re.escape(f"{rule}; {remedy}".removesuffix("; "))):
        SageMakerTraining(make_stack(), "Training", **props)


@pytest.fixture
def network(make_stack):
    stack = make_stack()
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-east-1a"], private_subnet_ids=["subnet-1"]
    )
    return stack, vpc, ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1")


@pytest.mark.parametrize(
    "choice", [{"mode": "efs"}, {"access_point_id": "fsap-0123456789abcdef0", "file_system_id": "fs-01234567"}], ids=str
)
def test_a_file_system_that_requires_tls_and_iam_is_refused(network, choice):
    """SageMaker API reference, FileSystemDataSource: it names a file system and a folder, and no access point."""
    stack, vpc, _ = network
    shared = SharedFileSystem(stack, "Shared", vpc=vpc, subnet=vpc.private_subnets[0], **choice)
    with pytest.raises(ValueError, match=r"^storage\.file_system must be of mode nfs4 without an access point, "):
        SageMakerTraining(stack, "Training", network=Network(vpc=vpc), storage=Storage(file_system=shared))


def test_a_lustre_whose_dns_name_has_no_id_is_refused(network):
    stack, vpc, group = network
    lustre = LustreFileSystem.from_attributes(
        stack, "Lustre", dns_name="scratch.example.com", mount_name="abc", security_group=group
    )
    with pytest.raises(
        ValueError, match=r"^file system of storage\.lustre must be fs- and 8 or 17 hex digits, got 'sc"
    ):
        SageMakerTraining(stack, "Training", network=Network(vpc=vpc), storage=Storage(lustre=lustre))
