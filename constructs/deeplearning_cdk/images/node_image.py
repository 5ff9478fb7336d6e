"""The images that nodes start from: which AMI, who logs in, what is on it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from deeplearning_cdk.images.ami_id import read_ami_id
from deeplearning_cdk.images.props import (
    PYTORCH_AMAZON_LINUX,
    PYTORCH_UBUNTU,
    AmiId,
    ImageName,
    Interpreter,
    LoginUser,
    Packages,
    ParameterName,
    RegionName,
    RootDevice,
    require_ubuntu,
)
from deeplearning_cdk.nodes.instance_catalog import Architecture, DriverBranch
from deeplearning_cdk.props.check import check_fields, checked

FileSystemMode = Literal["nfs4", "efs"]

_UBUNTU_PACKAGES = {"mount.nfs4": ("nfs-common",)}
_AMAZON_LINUX_PACKAGES = {"mount.efs": ("amazon-efs-utils",)}


@dataclass(frozen=True, kw_only=True)
class NodeImage:
    """
    One image for all nodes. Make it with one of the class methods.

    Attributes:
        parameter: Public SSM parameter that holds the AMI id, read at each deployment; empty with `ami_ids`.
        ami_ids: AMI id by region, or under `*` for any region; empty with `parameter`.
        machine_image: An image of the CDK; None with either.
        login_user: Who logs in and trains.
        architecture: Processor architecture of the image.
        file_system_mode: `nfs4` (plain NFS 4.1 inside the security groups) or `efs` (efs-utils: access point, IAM
            and TLS).
        interpreter: Python 3.10 or newer that runs the agent.
        root_device: Name of the root device.
        packages: Packages that a node installs where the command is missing: command -> packages; `{kernel}` in a
            name stands for the release of the running kernel.
        has_packages: Whether nodes need no Internet for `packages`: the image has them already, or is configured for
            a mirror in the VPC.
        is_tried: Whether this choice is known to work on AWS from its vendor's notes.
    """

    parameter: Literal[""] | ParameterName = ""
    ami_ids: Mapping[RegionName, AmiId] = field(default_factory=dict)
    machine_image: ec2.IMachineImage | None = None
    login_user: LoginUser
    architecture: Architecture = "x86_64"
    file_system_mode: FileSystemMode = "nfs4"
    interpreter: Interpreter = "/usr/bin/python3"
    root_device: RootDevice = "/dev/sda1"
    packages: Packages = field(default_factory=dict)
    has_packages: bool = False
    is_tried: bool = True

    def __post_init__(self) -> None:
        """Refuse what could not be written into user data as it is."""
        check_fields(self)
        if [bool(self.parameter), bool(self.ami_ids), self.machine_image is not None].count(True) != 1:
            raise ValueError("image must come from one source, got several or none; use a class method of NodeImage")

    @classmethod
    @checked
    def deep_learning_ubuntu(
        cls, name: ImageName = PYTORCH_UBUNTU, *, architecture: Architecture = "x86_64", has_packages: bool = False
    ) -> "NodeImage":
        """
        Take an AWS Deep Learning AMI on Ubuntu.

        Args:
            name: Its name in `/aws/service/deeplearning/ami/<architecture>/<name>/latest/ami-id`.
                Default: PyTorch with the open NVIDIA driver on Ubuntu 24.04.
            architecture: Processor architecture. Default: x86_64.
            has_packages: Nodes need no Internet for its packages. Default: they do.
        """
        return cls(
            parameter=f"/aws/service/deeplearning/ami/{architecture}/{name}/latest/ami-id",
            login_user="ubuntu",
            architecture=architecture,
            packages=_UBUNTU_PACKAGES,
            has_packages=has_packages,
        )

    @classmethod
    @checked
    def deep_learning_amazon_linux(
        cls, name: ImageName = PYTORCH_AMAZON_LINUX, *, architecture: Architecture = "x86_64"
    ) -> "NodeImage":
        """
        Take an AWS Deep Learning AMI on Amazon Linux 2023; its file system is mounted with IAM and TLS.

        Args:
            name: Its name in `/aws/service/deeplearning/ami/<architecture>/<name>/latest/ami-id`.
                Default: PyTorch with the open NVIDIA driver.
            architecture: Processor architecture. Default: x86_64.
        """
        return cls(
            parameter=f"/aws/service/deeplearning/ami/{architecture}/{name}/latest/ami-id",
            login_user="ec2-user",
            architecture=architecture,
            file_system_mode="efs",
            # The distribution's own python3 is 3.9. Release notes name the framework's Python on PyTorch images, and
            # 3.12 on base images.
            interpreter="/opt/pytorch/bin/python" if "pytorch" in name else "/usr/bin/python3.12",
            root_device="/dev/xvda",
            packages=_AMAZON_LINUX_PACKAGES,
        )

    @classmethod
    @checked
    def ubuntu(cls, *, architecture: Architecture = "x86_64", has_packages: bool = False) -> "NodeImage":
        """
        Take Canonical's stock Ubuntu 24.04: no driver, no framework.

        Args:
            architecture: Processor architecture. Default: x86_64.
            has_packages: Nodes need no Internet for its packages. Default: they do.
        """
        name = "amd64" if architecture == "x86_64" else "arm64"
        return cls(
            parameter=f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{name}/hvm/ebs-gp3/ami-id",
            login_user="ubuntu",
            architecture=architecture,
            packages=_UBUNTU_PACKAGES,
            has_packages=has_packages,
        )

    @classmethod
    @checked
    def from_ssm_parameter(
        cls,
        parameter: ParameterName,
        *,
        login_user: LoginUser,
        architecture: Architecture = "x86_64",
        file_system_mode: FileSystemMode = "nfs4",
        interpreter: Interpreter | None = None,
        root_device: RootDevice | None = None,
        packages: Packages | None = None,
        has_packages: bool = False,
    ) -> "NodeImage":
        """
        Take the image whose AMI id an SSM parameter holds; it is read at each deployment.

        Args:
            parameter: Full name of the parameter.
            login_user: Who logs in and trains.
            architecture: Processor architecture. Default: x86_64.
            file_system_mode: `efs` for an image with efs-utils. Default: plain NFS 4.1.
            interpreter: Python 3.10 or newer. Default: Ubuntu's `/usr/bin/python3`; other images must name theirs.
            root_device: Name of the root device. Default: Ubuntu's `/dev/sda1`; other images must name theirs.
            packages: What to install where a command is missing. Default: nothing.
            has_packages: Nodes need no Internet for its packages. Default: they do.

        Raises:
            ValueError: A value is of another form, or the image is not Ubuntu's by its login user and lacks one.
        """
        for prop, value in (("interpreter", interpreter), ("root_device", root_device)):
            if value is None:
                require_ubuntu(prop, login_user, "name that of the image")
        return cls(
            parameter=parameter,
            login_user=login_user,
            architecture=architecture,
            file_system_mode=file_system_mode,
            interpreter=interpreter or "/usr/bin/python3",
            root_device=root_device or "/dev/sda1",
            packages=packages or {},
            has_packages=has_packages,
        )

    @classmethod
    @checked
    def from_ami_id(
        cls,
        ami_id: AmiId | Mapping[RegionName, AmiId],
        *,
        login_user: LoginUser,
        like: "NodeImage | None" = None,
        has_packages: bool = False,
    ) -> "NodeImage":
        """
        Take an image by its id, so that nodes launched later start from the same bytes.

        Args:
            ami_id: The id, or an id for each region.
            login_user: Who logs in and trains.
            like: The image that this one was made from; interpreter, packages, root device and file-system
                mode are taken from it. Default: stock Ubuntu with the login user `ubuntu`; other images must name one.
            has_packages: Nodes need no Internet for its packages. Default: they do.

        Raises:
            ValueError: A value is of another form, or the image is not Ubuntu's by its login user and like none.
        """
        if like is None:
            require_ubuntu("like", login_user, "pass the image that it was made from or is most like")
        ids = {"*": ami_id} if isinstance(ami_id, str) else dict(ami_id)
        base = like or cls.ubuntu()
        return replace(
            base, parameter="", machine_image=None, ami_ids=ids, login_user=login_user, has_packages=has_packages
        )

    @classmethod
    @checked
    def from_machine_image(
        cls, image: ec2.IMachineImage, *, like: "NodeImage", has_packages: bool = False
    ) -> "NodeImage":
        """
        Take an image of the CDK, such as one that `ec2.MachineImage.lookup` finds.

        Args:
            image: The image; one of a parameter is read at each deployment, unless it is cached in context.
            like: The image whose system it has: login user, interpreter, root device, packages, file-system mode.
            has_packages: Nodes need no Internet for its packages. Default: they do.
        """
        return replace(like, parameter="", ami_ids={}, machine_image=image, has_packages=has_packages)

    @checked
    def with_nvidia_driver(self, branch: DriverBranch) -> "NodeImage":
        """Add the proprietary NVIDIA driver of a branch, installed at boot where `nvidia-smi` is missing."""
        names = (
            f"nvidia-headless-{branch}-server",
            f"nvidia-utils-{branch}-server",
            "nvidia-modprobe",
            # The agent fills in the running kernel: the archive's newest headers can be of a later one.
            "linux-headers-{kernel}",
        )
        return replace(self, packages={**self.packages, "nvidia-smi": names}, is_tried=False)

    def read_ami_id(self, scope: Construct) -> str:
        """
        Return the AMI id in the stack of a construct, as a token where a parameter holds it.

        Raises:
            ValueError: No id was given for the stack's region, or the image is not of Linux.
        """
        return read_ami_id(scope, self.parameter, self.ami_ids, self.machine_image)
