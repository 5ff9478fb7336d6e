"""Choices that cannot work on EMR are refused at synthesis, with a way out."""

import re

import pytest
from aws_cdk import Duration, Size

from deeplearning_cdk import Network, NodeImage, Software
from deeplearning_cdk.emr.plan import RELEASES
from deeplearning_cdk.emr.training import EmrTraining


@pytest.mark.parametrize(
    ("props", "rule", "remedy"),
    [
        (
            {"instance_type": ["g5.12xlarge", "g6.12xlarge"]},
            "instance_type must be a text or an InstanceType or an InstanceTypeFacts, got a list",
            (
                "pass one type: the members are in uniform instance groups, because "
                "ranks on the mixed types of an instance fleet "
            ),
        ),
        *(
            (
                {"instance_type": name},
                f"instance_type must have GPUs that the open NVIDIA driver of the image supports, got {name}",
                f"take {successor}, or train on it with TrainingCluster",
            )
            for name, successor in {
                "p2.8xlarge": "g5.48xlarge",
                "p3.8xlarge": "g5.12xlarge",
                "p3dn.24xlarge": "g5.12xlarge",
                "g3.8xlarge": "g5.12xlarge",
                "g3s.xlarge": "g5.xlarge",
            }.items()
        ),
        (
            {"instance_type": "trn1.32xlarge"},
            "instance_type must have NVIDIA GPUs or no accelerators on EMR, got trn1.32xlarge with those of AWS",
            "take g5.12xlarge, or train on it with TrainingCluster",
        ),
        ({"instance_type": "g5.huge"}, "instance_type must be an instance type of the catalogue of ", ""),
        (
            {"members": 1},
            "members must be from 2 to 1000, got 1",
            "count the primary too; for one node, take TrainingCluster",
        ),
        (
            {"release": "emr-6.15.0"},
            "release must be emr-7.x.y, got 'emr-6.15.0'",
            "earlier ones have another Amazon Linux; write emr-7.14.0",
        ),
        (
            {"release": "emr-7.0.0", "image": "emr"},
            f"release must be one of {', '.join(RELEASES)}, got 'emr-7.0.0'",
            "write emr-7.14.0, or take a newer deeplearning-cdk",
        ),
        (
            {"release": "emr-7.99.0"},
            f"release must be one of {', '.join(RELEASES)}, got 'emr-7.99.0'",
            "write emr-7.14.0, or take a newer deeplearning-cdk",
        ),
        (
            {"image": "ami-xyz"},
            "image must be emr or the id of an AMI made from a Deep Learning AMI, got 'ami-xyz'",
            "write emr, or ami- and 8 or 17 hex digits; docs/guides/emr.md has the commands that make such an AMI",
        ),
        *(
            (
                {"applications": ("Hadoop", name), "image": "ami-0123456789abcdef0"},
                f"applications must be without Hue and Zeppelin on an image of your own, got {name}",
                "they fail to start on one made from a Deep Learning AMI, so leave them out or take image emr",
            )
            for name in ("Hue", "ZEPPELIN")
        ),
        (
            {"restart": "a b"},
            "restart must be letters, digits, dots, hyphens and underscores, got 'a b'",
            "write e.g. 2",
        ),
        (
            {"root_volume": Size.gibibytes(200)},
            "root_volume must be whole GiB from 15 to 100, got 200 GiB",
            "EMR takes no other; pass e.g. Size.gibibytes(100), and put data on /efs",
        ),
        (
            {"stop_when_idle": Duration.seconds(59)},
            "stop_when_idle must be whole seconds from 60 seconds to 7 days, got 59 seconds",
            "write e.g. Duration.hours(1)",
        ),
        (
            {"network": Network(isolated=True)},
            "network.isolated must be left out on EMR, got True",
            "leave it out: EMR installs packages from its own buckets, so members need a route to the Internet",
        ),
        (
            {"network": Network(efa=False)},
            "network.efa must be left out on EMR, got False",
            "leave it out: EMR attaches no EFA, and NCCL uses TCP",
        ),
        (
            {"software": Software(image=NodeImage.ubuntu())},
            "software.image must be left out on EMR, got a NodeImage",
            "leave it out: pass image to EmrTraining: emr or an AMI id",
        ),
        (
            {"software": Software(image_release="2")},
            "software.image_release must be left out on EMR, got '2'",
            "leave it out: a release of EMR keeps its image, and so does an AMI id",
        ),
    ],
    ids=repr,
)
def test_wrong_choices_are_refused_with_a_way_out(make_stack, props, rule, remedy):
    with pytest.raises(ValueError, match="^" + re.escape(f"{rule}; {remedy}".removesuffix("; "))):
        EmrTraining(make_stack(), "Training", **props)


def test_a_root_volume_below_that_of_the_deep_learning_ami_is_refused_with_an_image_of_ones_own(make_stack):
    stack = make_stack()
    with pytest.raises(
        ValueError, match=r"^root_volume must be at least 75 GiB for /aws/service/deeplearning/.*, got 74"
    ):
        EmrTraining(stack, "Training", image="ami-0123456789abcdef0", root_volume=74)
