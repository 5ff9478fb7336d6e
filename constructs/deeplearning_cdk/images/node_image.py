"""Machine images of nodes: AMI, login user and software."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from aws_cdk import Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from deeplearning_cdk.catalog.instance_catalog import Architecture, DriverBranch
from deeplearning_cdk.props.check import Rule, check_fields, checked, names_checked
from deeplearning_cdk.props.regions import RegionName
from deeplearning_cdk.props.rules import matching

PYTORCH_UBUNTU = "oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04"
PYTORCH_AMAZON_LINUX = "oss-nvidia-driver-gpu-pytorch-2.13-amazon-linux-2023"
BASE_UBUNTU_ARM64 = "base-oss-nvidia-driver-gpu-ubuntu-22.04"

_UBUNTU_INTERPRETER, _UBUNTU_ROOT_DEVICE = "/usr/bin/python3", "/dev/sda1"
_UBUNTU_PACKAGES = {"mount.nfs4": ("nfs-common",)}
_AMAZON_LINUX_PACKAGES = {"mount.efs": ("amazon-efs-utils",)}
_EARLY_PYTHON = re.compile(r"/python(2(\.[0-9]+)?|3\.[0-9])$")
_PATH = r"(/[A-Za-z0-9._-]+)+"

# Most of these values are written into user data unchanged, so their rules allow no special characters.
FileSystemMode = Literal["nfs4", "efs"]
LoginUser = Annotated[
    str, matching(r"[a-z_][a-z0-9_-]{0,31}", "be the name of a user", "write the image's user, e.g. ubuntu")
]
Interpreter = Annotated[
    str,
    matching(_PATH, "be an absolute path", "write e.g. /usr/bin/python3"),
    Rule(
        must="be Python 3.10 or newer",
        remedy="earlier ones do not run the agent: name a newer one of the image, or use another image",
        is_kept=lambda path: _EARLY_PYTHON.search(path) is None,
    ),
]
RootDevice = Annotated[str, matching(r"/dev/[a-z0-9]{1,32}", "be the name of a device", "write e.g. /dev/sda1")]
ParameterName = Annotated[
    str,
    matching(
        _PATH, "be the full name of an SSM parameter, from its /", "list yours with `aws ssm describe-parameters`"
    ),
]
AmiId = Annotated[
    str,
    matching(
        r"ami-[0-9a-f]{8}([0-9a-f]{9})?",
        "be ami- and 8 or 17 hex digits",
        "write e.g. ami-0123456789abcdef0",
        takes_tokens=True,
    ),
]
AmiIds = Mapping[Literal["*"] | RegionName, AmiId]
"""AMI id by region, or under `*` for every region."""

PackageName = Annotated[str, matching(r"[A-Za-z0-9{][A-Za-z0-9{}._+:-]{0,99}", "be a package", "write e.g. nfs-common")]
CommandName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", "be a command", "write e.g. mount.nfs4")]
Packages = Mapping[CommandName, tuple[PackageName, ...]]
"""Packages to install where a command is missing."""

ImageName = Annotated[
    str,
    matching(r"[A-Za-z0-9._-]{1,128}", "be the name of a Deep Learning AMI", "copy it from the image's release notes"),
]
"""Name of a Deep Learning AMI in the path of its public SSM parameter."""


@names_checked
@dataclass(frozen=True, kw_only=True)
class NodeImage:
    """
    Machine image of every node, created with one of the class methods.

    Attributes:
        parameter: SSM parameter with the AMI id, read at each deployment; empty with another source.
        ami_ids: AMI id by region, or under `*` for every region; empty with another source.
        machine_image: Machine image of the CDK; None with another source.
        login_user: User that logs in and runs the training.
        architecture: Processor architecture of the image.
        file_system_mode: `nfs4` (plain NFS 4.1 inside the security groups) or `efs` (efs-utils: access point, IAM
            and TLS).
        interpreter: Python 3.10 or newer that runs the agent.
        root_device: Name of the root device.
        packages: Packages that a node installs where the command is missing: command -> packages; `{kernel}` in a
            name is replaced by the release of the running kernel.
        has_packages: True if nodes need no Internet access for `packages`: the image has them already, or is configured
            for a mirror in the VPC.
        is_tried: True if the release notes of the image's vendor confirm that it works on AWS.
    """

    parameter: Literal[""] | ParameterName = ""
    ami_ids: AmiIds = field(default_factory=dict)
    machine_image: ec2.IMachineImage | None = None
    login_user: LoginUser
    architecture: Architecture = "x86_64"
    file_system_mode: FileSystemMode = "nfs4"
    interpreter: Interpreter = _UBUNTU_INTERPRETER
    root_device: RootDevice = _UBUNTU_ROOT_DEVICE
    packages: Packages = field(default_factory=dict)
    has_packages: bool = False
    is_tried: bool = True

    def __post_init__(self) -> None:
        check_fields(self)
        if [bool(self.parameter), bool(self.ami_ids), self.machine_image is not None].count(True) != 1:
            raise ValueError(
                "software.image must come from one source, got several or none; use a class method of NodeImage"
            )
        named = _find_architecture(self.parameter)
        if named not in ("", self.architecture):
            raise ValueError(
                f"architecture must be that of the image, got {self.architecture} for {self.parameter}; pass "
                f"architecture={named!r}"
            )

    @classmethod
    @checked
    def deep_learning_ubuntu(
        cls, name: ImageName = PYTORCH_UBUNTU, *, architecture: Architecture = "x86_64", has_packages: bool = False
    ) -> "NodeImage":
        """
        Use an AWS Deep Learning AMI on Ubuntu.

        Args:
            name: Its name in `/aws/service/deeplearning/ami/<architecture>/<name>/latest/ami-id`.
                Default: PyTorch with the open NVIDIA driver on Ubuntu 24.04.
            architecture: Processor architecture. Default: x86_64.
            has_packages: Nodes need no Internet access for its packages. Default: they do.
        """
        return _make_ubuntu(_name_deep_learning_parameter(name, architecture), architecture, has_packages=has_packages)

    @classmethod
    @checked
    def deep_learning_amazon_linux(
        cls, name: ImageName = PYTORCH_AMAZON_LINUX, *, architecture: Architecture = "x86_64"
    ) -> "NodeImage":
        """
        Use an AWS Deep Learning AMI on Amazon Linux 2023; its file system is mounted with IAM and TLS.

        Args:
            name: Its name in `/aws/service/deeplearning/ami/<architecture>/<name>/latest/ami-id`.
                Default: PyTorch with the open NVIDIA driver.
            architecture: Processor architecture. Default: x86_64.
        """
        return cls(
            parameter=_name_deep_learning_parameter(name, architecture),
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
        Use Canonical's stock Ubuntu 24.04, without driver and framework.

        Args:
            architecture: Processor architecture. Default: x86_64.
            has_packages: Nodes need no Internet access for its packages. Default: they do.
        """
        name = "amd64" if architecture == "x86_64" else "arm64"
        parameter = f"/aws/service/canonical/ubuntu/server/24.04/stable/current/{name}/hvm/ebs-gp3/ami-id"
        return _make_ubuntu(parameter, architecture, has_packages=has_packages)

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
        Use the image whose AMI id is in an SSM parameter, which is read at each deployment.

        Args:
            parameter: Full name of the parameter.
            login_user: User that logs in and runs the training.
            architecture: Processor architecture. Default: x86_64.
            file_system_mode: `efs` for an image with efs-utils. Default: plain NFS 4.1.
            interpreter: Python 3.10 or newer. Default: Ubuntu's `/usr/bin/python3`; other images must name theirs.
            root_device: Name of the root device. Default: Ubuntu's `/dev/sda1`; other images must name theirs.
            packages: Packages to install where a command is missing. Default: nothing.
            has_packages: Nodes need no Internet access for its packages. Default: they do.

        Raises:
            ValueError: A value breaks its rule, or the login user is not `ubuntu` and interpreter or root device is
                missing.
        """
        for prop, value in (("interpreter", interpreter), ("root_device", root_device)):
            if value is None:
                _require_ubuntu(prop, login_user, "name that of the image")
        return cls(
            parameter=parameter,
            login_user=login_user,
            architecture=architecture,
            file_system_mode=file_system_mode,
            interpreter=interpreter or _UBUNTU_INTERPRETER,
            root_device=root_device or _UBUNTU_ROOT_DEVICE,
            packages=packages or {},
            has_packages=has_packages,
        )

    @classmethod
    @checked
    def from_ami_id(
        cls,
        ami_id: AmiId | AmiIds,
        *,
        login_user: LoginUser,
        like: "NodeImage | None" = None,
        has_packages: bool = False,
    ) -> "NodeImage":
        """
        Use an image by its id; nodes launched later start from the same AMI.

        Args:
            ami_id: The id, or an id for each region.
            login_user: User that logs in and runs the training.
            like: Image from which this one was made; interpreter, packages, root device and file-system mode are copied
                from it. Default: stock Ubuntu with the login user `ubuntu`; other images need one.
            has_packages: Nodes need no Internet access for its packages. Default: they do.

        Raises:
            ValueError: A value breaks its rule, or the login user is not `ubuntu` and `like` is missing.
        """
        if like is None:
            _require_ubuntu("like", login_user, "pass the image that it was made from or is most like")
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
        Use a machine image of the CDK, such as one that `ec2.MachineImage.lookup` finds.

        Args:
            image: The image; one of a parameter is read at each deployment, unless it is cached in context.
            like: Image with the same system: login user, interpreter, root device, packages, file-system mode.
            has_packages: Nodes need no Internet access for its packages. Default: they do.
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
        if self.machine_image is not None:
            return _read_machine_image(scope, self.machine_image)
        if self.parameter:
            return ssm.StringParameter.value_for_typed_string_parameter_v2(
                scope, self.parameter, ssm.ParameterValueType.AWS_EC2_IMAGE_ID
            )
        return self.ami_ids["*"] if "*" in self.ami_ids else _select_by_region(scope, self.ami_ids)


def _find_architecture(parameter: str) -> Architecture | Literal[""]:
    """Return the architecture that the name of a public parameter of AWS has; empty if it has none."""
    if not parameter.startswith("/aws/service/"):
        return ""
    words = set(re.split(r"[/-]", parameter))
    return "arm64" if "arm64" in words else "x86_64" if words & {"x86_64", "amd64"} else ""


def _make_ubuntu(parameter: str, architecture: Architecture, *, has_packages: bool) -> NodeImage:
    return NodeImage(
        parameter=parameter,
        login_user="ubuntu",
        architecture=architecture,
        packages=_UBUNTU_PACKAGES,
        has_packages=has_packages,
    )


def _name_deep_learning_parameter(name: str, architecture: Architecture) -> str:
    return f"/aws/service/deeplearning/ami/{architecture}/{name}/latest/ami-id"


def _require_ubuntu(prop: str, login_user: str, remedy: str) -> None:
    """Check that an image with another login user than Ubuntu's does not use Ubuntu's defaults."""
    if login_user != "ubuntu":
        raise ValueError(f"{prop} must be given with login_user {login_user!r}, got none; {remedy}")


def _select_by_region(scope: Construct, ami_ids: Mapping[str, str]) -> str:
    region = Stack.of(scope).region
    if Token.is_unresolved(region):
        raise ValueError(
            "software.image must have one AMI id in a stack without a region, got one a region; set env.region"
        )
    if region not in ami_ids:
        raise ValueError(f"software.image must have an AMI id for {region}, got {sorted(ami_ids)}; add it")
    return ami_ids[region]


def _read_machine_image(scope: Construct, image: ec2.IMachineImage) -> str:
    found = image.get_image(scope)
    if found.os_type == ec2.OperatingSystemType.WINDOWS:
        raise ValueError("software.image must be of Linux, got one of Windows; take Ubuntu or Amazon Linux")
    return found.image_id
