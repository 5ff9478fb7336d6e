"""The props of images with their rules; most of them are written into user data as they are."""

from collections.abc import Mapping
from typing import Annotated

from deeplearning_cdk.props.rules import matching

PYTORCH_UBUNTU = "oss-nvidia-driver-gpu-pytorch-2.12-ubuntu-24.04"
PYTORCH_AMAZON_LINUX = "oss-nvidia-driver-gpu-pytorch-2.9-amazon-linux-2023"
BASE_UBUNTU_ARM64 = "base-oss-nvidia-driver-gpu-ubuntu-22.04"

_PATH = r"(/[A-Za-z0-9._-]+)+"

LoginUser = Annotated[
    str, matching(r"[a-z_][a-z0-9_-]{0,31}", "be the name of a user", "write the image's user, e.g. ubuntu")
]
"""Who logs in and trains."""

Interpreter = Annotated[str, matching(_PATH, "be an absolute path", "write e.g. /usr/bin/python3")]
"""Python that runs the agent."""

RootDevice = Annotated[str, matching(r"/dev/[a-z0-9]{1,32}", "be the name of a device", "write e.g. /dev/sda1")]
"""Name of an image's root device."""

ParameterName = Annotated[
    str,
    matching(
        _PATH, "be the full name of an SSM parameter, from its /", "list yours with `aws ssm describe-parameters`"
    ),
]
"""Name of the parameter that holds an AMI id."""

AmiId = Annotated[
    str,
    matching(
        r"ami-[0-9a-f]{8}([0-9a-f]{9})?",
        "be ami- and 8 or 17 hex digits",
        "write e.g. ami-0123456789abcdef0",
        takes_tokens=True,
    ),
]
"""Id of an image."""

RegionName = Annotated[str, matching(r"\*|[a-z]{2,4}(-[a-z]+)+-[0-9]", "be a region", "write e.g. us-east-1")]
PackageName = Annotated[str, matching(r"[A-Za-z0-9{][A-Za-z0-9{}._+:-]{0,99}", "be a package", "write e.g. nfs-common")]
CommandName = Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,99}", "be a command", "write e.g. mount.nfs4")]
Packages = Mapping[CommandName, tuple[PackageName, ...]]
"""What to install where a command is missing; it is written into user data as it is."""

ImageName = Annotated[
    str,
    matching(r"[A-Za-z0-9._-]{1,128}", "be the name of a Deep Learning AMI", "copy it from the image's release notes"),
]
"""A name between the slashes of AWS's parameters."""


def require_ubuntu(prop: str, login_user: str, remedy: str) -> None:
    """Refuse to take what Ubuntu has for an image with the login user of another distribution."""
    if login_user != "ubuntu":
        raise ValueError(f"{prop} must be given with login_user {login_user!r}, got none; {remedy}")
