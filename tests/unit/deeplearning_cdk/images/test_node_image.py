"""Images say everything that a node depends on, and nothing that could break user data."""

import json
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from cdk_rehearsal.image_families import find_root_volume
from deeplearning_cdk import InstanceTypeFacts, JobEnvironment, NodeImage, Software, TrainingCluster
from deeplearning_cdk.images.node_image import BASE_UBUNTU_ARM64, PYTORCH_UBUNTU
from deeplearning_cdk.nodes.image_choice import find_least_volume
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import plan, props_of, warn
from tests.unit.deeplearning_cdk.test_public_api import VARIANTS


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, r"software\.image must come from one source, got several or none"),
        ({"parameter": "image"}, "parameter must be the full name of an SSM parameter"),
        *(
            ({"parameter": "/image", "login_user": user}, "login_user must be the name of a user, got")
            for user in ("", "Root", "ubuntu\nSETTINGS", "a b", "$(id)", "x" * 33)
        ),
        *(
            ({"parameter": "/image", "interpreter": path}, "interpreter must be an absolute path, got")
            for path in ("python3", "/usr/bin/python3 -c", '/usr/bin/"python3', "/a/../b c")
        ),
        *(
            (
                {"parameter": "/image", "interpreter": f"/usr/bin/{name}"},
                rf"^interpreter must be Python 3\.10 or newer, got '/usr/bin/{name}'; ",
            )
            for name in ("python2", "python2.7", "python3.6", "python3.9")
        ),
    ],
)
def test_an_image_that_nodes_could_not_use_is_refused(values, said):
    with pytest.raises(ValueError, match=said):
        NodeImage(**{"login_user": "ubuntu", **values})


@pytest.mark.parametrize("ami_id", ["ami-xyz", "ami-123", "0123456789abcdef0"])
@pytest.mark.defect("D52")
def test_ami_id_must_be_hexadecimal(ami_id):
    with pytest.raises(ValueError, match="ami_id must be ami- and 8 or 17 hex digits, got"):
        NodeImage.from_ami_id(ami_id, login_user="ubuntu")


@pytest.mark.parametrize(
    ("name", "interpreter"),
    [
        ("oss-nvidia-driver-gpu-pytorch-2.13-amazon-linux-2023", "/opt/pytorch/bin/python"),
        ("base-oss-nvidia-driver-gpu-amazon-linux-2023", "/usr/bin/python3.12"),
    ],
)
def test_amazon_linux_runs_the_agent_with_the_python_that_release_notes_name(name, interpreter):
    assert NodeImage.deep_learning_amazon_linux(name).interpreter == interpreter


def test_own_image_keeps_what_its_base_has():
    image = NodeImage.from_ami_id(
        "ami-0123456789abcdef0", login_user="ec2-user", like=NodeImage.deep_learning_amazon_linux()
    )
    assert image.file_system_mode == "efs"
    assert image.root_device == "/dev/xvda"
    assert image.parameter == ""


def test_id_of_the_stacks_region_is_taken_and_a_region_without_one_refused(make_stack):
    ids = {"us-east-1": "ami-00000001", "eu-west-1": "ami-00000002"}
    both = NodeImage.from_ami_id(ids, login_user="ubuntu")
    assert both.read_ami_id(make_stack(region="eu-west-1")) == "ami-00000002"
    image = NodeImage.from_ami_id({"us-east-1": "ami-00000001"}, login_user="ubuntu")
    with pytest.raises(ValueError, match=r"software\.image must have an AMI id for eu-west-1"):
        image.read_ami_id(make_stack(region="eu-west-1"))
    with pytest.raises(ValueError, match=r"software\.image must have one AMI id in a stack without a region"):
        image.read_ami_id(make_stack())


@pytest.mark.defect("D65")
def test_images_are_found_in_any_region():
    images = (NodeImage.deep_learning_ubuntu(), NodeImage.deep_learning_amazon_linux(), NodeImage.ubuntu())
    assert all(image.parameter.startswith("/aws/service/") and not image.ami_ids for image in images)


@pytest.mark.defect("D51")
def test_packages_are_named_by_what_the_image_lacks():
    assert NodeImage.ubuntu().packages == {"mount.nfs4": ("nfs-common",)}
    assert NodeImage.deep_learning_amazon_linux().packages == {"mount.efs": ("amazon-efs-utils",)}


# --- Images of the CDK --------------------------------------------------------------------------------


def test_an_image_of_the_cdk_is_taken_with_the_system_of_another(make_stack):
    machine = ec2.MachineImage.generic_linux({"us-east-1": "ami-0123456789abcdef0"})
    like = NodeImage.deep_learning_amazon_linux()
    image = NodeImage.from_machine_image(machine, like=like)
    assert (image.login_user, image.root_device, image.file_system_mode) == ("ec2-user", "/dev/xvda", "efs")
    assert (image.interpreter, image.packages) == (like.interpreter, like.packages)
    assert image.read_ami_id(make_stack(region="us-east-1")) == "ami-0123456789abcdef0"


def test_an_image_of_a_parameter_of_the_cdk_is_read_by_the_template(make_stack, read_stack):
    machine = ec2.MachineImage.from_ssm_parameter("/team/image", os=ec2.OperatingSystemType.LINUX)
    stack = make_stack()
    image = NodeImage.from_machine_image(machine, like=NodeImage.ubuntu())
    TrainingCluster(stack, "Cluster", **props_of({"software.image": image, "workers.instance_type": "m5.large"}))
    synthesis = read_stack(stack)
    reference = synthesis.launch_data(NodeRole.WORKER)["ImageId"]["Ref"]
    assert synthesis.template["Parameters"][reference]["Default"] == "/team/image"
    # Nothing is read by a function, so nothing is pinned.
    assert not synthesis.of_type("Custom::PinnedImage")


def test_another_source_takes_the_place_of_an_image_of_the_cdk():
    machine = ec2.MachineImage.generic_linux({"us-east-1": "ami-0123456789abcdef0"})
    made = NodeImage.from_machine_image(machine, like=NodeImage.from_ami_id("ami-00000001", login_user="ubuntu"))
    assert (made.ami_ids, made.parameter, made.machine_image) == ({}, "", machine)
    again = NodeImage.from_ami_id("ami-00000002", login_user="ubuntu", like=made)
    assert (again.ami_ids, again.machine_image) == ({"*": "ami-00000002"}, None)


def test_an_image_of_windows_is_refused(make_stack):
    windows = ec2.MachineImage.generic_windows({"us-east-1": "ami-0123456789abcdef0"})
    image = NodeImage.from_machine_image(windows, like=NodeImage.ubuntu())
    with pytest.raises(ValueError, match=r"software\.image must be of Linux, got one of Windows; take Ubuntu"):
        image.read_ami_id(make_stack(region="us-east-1"))


@pytest.mark.parametrize("image", [ec2.MachineImage.latest_amazon_linux2023(), ec2.MachineImage.lookup(name="ubuntu*")])
def test_an_image_without_login_user_is_refused_with_the_remedy(image):
    expected = r"software\.image must be a NodeImage, got an? \w+; .*NodeImage\.from_machine_image\(image, like="
    with pytest.raises(ValueError, match=expected):
        Software(image=image)


CLUSTERS = {
    "stock": VARIANTS["default"],
    "ubuntu": VARIANTS["capacity-block"],
    "amazon-linux": VARIANTS["amazon-linux"],
    "own-of-amazon-linux": {
        "software.image": NodeImage.from_ami_id(
            "ami-0123456789abcdef0", login_user="ec2-user", like=NodeImage.deep_learning_amazon_linux()
        )
    },
}
ROOT_DEVICES = {"ubuntu": "/dev/sda1", "ec2-user": "/dev/xvda"}


@pytest.mark.defect("D50")
@pytest.mark.parametrize("name", CLUSTERS)
def test_every_image_that_can_be_chosen_has_its_id_its_familys_device_and_its_interpreter(synthesize, name):
    """The predecessor had a choice of two images, one of which had no id, and one device for both."""
    image, synthesis = plan(CLUSTERS[name]).image, synthesize(**CLUSTERS[name])
    pins = synthesis.of_type("Custom::PinnedImage")
    assert [pin["Properties"]["Parameter"] for pin in pins.values()] == ([image.parameter] if image.parameter else [])
    for role in NodeRole:
        launch = synthesis.launch_data(role)
        assert launch["ImageId"] == ({"Fn::GetAtt": [next(iter(pins)), "ImageId"]} if pins else "ami-0123456789abcdef0")
        assert [volume["DeviceName"] for volume in launch["BlockDeviceMappings"]] == [ROOT_DEVICES[image.login_user]]
        assert image.interpreter in json.dumps(launch["UserData"])
        settings = synthesis.settings(role)
        assert (settings.login_user, settings.file_system.kind) == (image.login_user, image.file_system_mode)
    # A parameter of the template would be read anew at each deployment.
    assert not [each for each in synthesis.template.get("Parameters", {}).values() if "Image" in str(each)]
    assert "{{resolve:ssm" not in str(synthesis.template)


@pytest.mark.defect("D50")
def test_an_image_of_another_family_needs_the_one_that_it_was_made_from():
    with pytest.raises(ValueError, match=r"^like must .*got .*; pass the image that it was made from or is most like$"):
        NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ec2-user")


# --- Images that the user names, judged as the default is -----------------------------------------------

UNSUPPORTED = {
    "p3dn": (NodeImage.deep_learning_ubuntu(), "p3dn.24xlarge", "no current AWS image supports p3dn.24xlarge: "),
    "p3dn on Amazon Linux": (
        NodeImage.deep_learning_amazon_linux(),
        "p3dn.24xlarge",
        "no current AWS image supports p3dn.24xlarge: ",
    ),
    "p3dn by parameter": (
        NodeImage.from_ssm_parameter(NodeImage.deep_learning_ubuntu().parameter, login_user="ubuntu"),
        "p3dn.24xlarge",
        "no current AWS image supports p3dn.24xlarge: ",
    ),
    "retired": (NodeImage.deep_learning_ubuntu(), "p2.xlarge", "no current AWS image supports p2.xlarge: "),
    "fractional GPU": (NodeImage.deep_learning_ubuntu(), "g6f.xlarge", "the image does not support g6f.xlarge: "),
    "no driver": (NodeImage.ubuntu(), "g5.12xlarge", "the image does not support g5.12xlarge: "),
}


@pytest.mark.parametrize(("image", "kind", "said"), UNSUPPORTED.values(), ids=list(UNSUPPORTED))
@pytest.mark.parametrize("role", ["workers", "master"])
def test_an_image_that_does_not_support_a_type_gets_the_warning_of_the_default(make_stack, image, kind, said, role):
    props = {
        "workers.instance_type": "m5.xlarge",
        "software.image": image,
        "software.environment": JobEnvironment.none(),
        f"{role}.instance_type": kind,
    }
    warnings = [text for text in warn(make_stack(), props) if said in text]
    assert len(warnings) == 1
    assert "[ack: deeplearning_cdk:imageNotTried]" in warnings[0]


SUPPORTED = {
    "default": (None, "p3dn.24xlarge"),
    "driver at boot": (NodeImage.ubuntu().with_nvidia_driver(580), "p3dn.24xlarge"),
    "listed family": (NodeImage.deep_learning_ubuntu(), "g5.12xlarge"),
    "own image": (
        NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu", like=NodeImage.deep_learning_ubuntu()),
        "p3dn.24xlarge",
    ),
    "proprietary driver": (NodeImage.deep_learning_ubuntu("base-proprietary-nvidia-driver-gpu-x"), "p3dn.24xlarge"),
    "CPU type": (NodeImage.deep_learning_ubuntu(), "m5.large"),
    "newer type": (
        NodeImage.deep_learning_ubuntu(),
        InstanceTypeFacts(name="p9.48xlarge", gpu_count=8, compute_capability="10.0"),
    ),
    "Arm": (NodeImage.deep_learning_ubuntu(BASE_UBUNTU_ARM64, architecture="arm64"), "g5g.xlarge"),
}


@pytest.mark.parametrize(("image", "kind"), SUPPORTED.values(), ids=list(SUPPORTED))
def test_an_image_that_may_support_a_type_gets_no_warning(make_stack, image, kind):
    props = {"workers.instance_type": kind, "software.image": image, "software.environment": JobEnvironment.none()}
    assert not [text for text in warn(make_stack(), props) if "the image does not support" in text]
    assert not [text for text in warn(make_stack(), props) if "which has no driver for its GPUs" in text]


@pytest.mark.parametrize(
    ("name", "kind", "maker"),
    [
        (PYTORCH_UBUNTU, "trn1.32xlarge", "NVIDIA"),
        ("neuron-pytorch-ubuntu-24.04", "g5.12xlarge", "AWS"),
    ],
)
def test_a_deep_learning_image_for_accelerators_of_another_maker_is_refused(name, kind, maker):
    said = rf"^software\.image must support the accelerators of workers\.instance_type {kind} \(.*for those of {maker};"
    with pytest.raises(ValueError, match=said):
        plan({"workers.instance_type": kind, "software.image": NodeImage.deep_learning_ubuntu(name)})


def test_an_image_of_neuron_is_taken_for_accelerators_of_aws():
    image = NodeImage.deep_learning_ubuntu("neuron-pytorch-ubuntu-24.04")
    props = {"workers.instance_type": "trn1.32xlarge", "software.environment": JobEnvironment.none()}
    assert plan({**props, "software.image": image}).image is image


@pytest.mark.parametrize(
    ("parameter", "architecture"),
    [
        ("/aws/service/deeplearning/ami/arm64/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id", "arm64"),
        ("/aws/service/ami-amazon-linux-latest/al2023-ami-kernel-default-arm64", "arm64"),
        ("/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id", "x86_64"),
    ],
)
def test_an_architecture_other_than_the_parameter_names_is_refused(parameter, architecture):
    other: Any = "x86_64" if architecture == "arm64" else "arm64"
    with pytest.raises(
        ValueError, match=rf"^architecture must be that of the image, got {other} for {parameter}; pass"
    ):
        NodeImage.from_ssm_parameter(parameter, login_user="ubuntu", architecture=other)
    image = NodeImage.from_ssm_parameter(parameter, login_user="ubuntu", architecture=architecture)
    assert image.architecture == architecture


# --- Root volumes ---------------------------------------------------------------------------------------

AMAZON_LINUX_BASE = NodeImage.deep_learning_amazon_linux("base-oss-nvidia-driver-gpu-amazon-linux-2023")
TOO_SMALL = {
    "Deep Learning AMI": ("g5.12xlarge", None, 8, 18),
    "base of Amazon Linux": ("g5.12xlarge", AMAZON_LINUX_BASE, 74, 75),
    "stock Ubuntu": ("m5.large", None, 7, 8),
    "PyTorch with CUDA": ("p3dn.24xlarge", None, 11, 12),
}


@pytest.mark.parametrize(("kind", "image", "size", "least"), TOO_SMALL.values(), ids=list(TOO_SMALL))
def test_a_root_volume_below_the_images_is_refused(kind, image, size, least):
    """Source: EC2 API reference, EbsBlockDevice."""
    props = {"workers.instance_type": kind, "software.image": image}
    for volume in (size, cdk.Size.gibibytes(size)):
        said = rf"^workers\.volume_size must be at least {least} GiB for /aws/service/.*, got {size} GiB; raise it"
        with pytest.raises(ValueError, match=said):
            plan({**props, "workers.volume_size": volume})
        with pytest.raises(ValueError, match=rf"^master\.volume_size must be at least {least} GiB"):
            plan({**props, "master.volume_size": volume})
    assert plan({**props, "workers.volume_size": least}).roles[NodeRole.WORKER].volume_size == least


def test_a_root_volume_is_not_judged_where_the_image_or_the_size_is_unknown():
    own = NodeImage.from_ami_id("ami-0123456789abcdef0", login_user="ubuntu")
    props = {"workers.instance_type": "m5.large", "software.environment": JobEnvironment.none()}
    assert plan({**props, "software.image": own, "workers.volume_size": 1}).image is own
    size: Any = cdk.Token.as_number({"Ref": "Size"})
    assert plan({**props, "workers.volume_size": size}).roles[NodeRole.WORKER].volume_size == size


def test_the_rehearsal_knows_the_same_snapshots():
    for parameter in (AMAZON_LINUX_BASE.parameter, NodeImage.deep_learning_ubuntu().parameter):
        _, size = find_root_volume(parameter)
        assert size in (0, find_least_volume(parameter))
