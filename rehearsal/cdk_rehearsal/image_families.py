"""Families of public machine images: the SSM parameters that name them, their login users, and what is on them."""

import json
import re
from collections.abc import Iterable

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.machine import ImagePart

_FAMILIES = (
    (re.compile(r"/aws/service/deeplearning/ami/(x86_64|arm64)/[a-z0-9.-]*ubuntu-[0-9.]+/latest/ami-id"), "ubuntu"),
    (
        re.compile(r"/aws/service/deeplearning/ami/(x86_64|arm64)/[a-z0-9.-]*amazon-linux-[0-9]+/latest/ami-id"),
        "ec2-user",
    ),
    (re.compile(r"/aws/service/canonical/ubuntu/server(-minimal)?/[a-z0-9.]+/.*/ami-id"), "ubuntu"),
    (re.compile(r"/aws/service/ami-amazon-linux-latest/[a-z0-9._-]+"), "ec2-user"),
)
"""Public parameters that name an image, and the image's login user. Whether AWS has each name cannot be told here."""
_PARTS: tuple[tuple[re.Pattern[str], ImagePart], ...] = (
    (re.compile(r"/aws/service/deeplearning/ami/.*"), "compilers"),
    (re.compile(r"/aws/service/deeplearning/ami/[^/]+/[^/]*nvidia-driver-gpu-pytorch-.*"), "pytorch"),
    (re.compile(r"/aws/service/deeplearning/ami/[^/]+/base-[^/]*amazon-linux-2023/.*"), "python3.12"),
    (re.compile(r"/aws/service/deeplearning/ami/[^/]+/[^/]*amazon-linux-2023/.*"), "amazon-linux"),
    (re.compile(r"/aws/service/ami-amazon-linux-latest/al2023-.*"), "amazon-linux"),
    (re.compile(r"/aws/service/canonical/ubuntu/server(-minimal)?/(20|22)[.]04/.*"), "ubuntu-22.04"),
)
"""
Public parameters, and what their images have beyond what all images have.

Deep Learning AMIs have compilers, which the release notes list among their packages (cpp 13.2 in
https://docs.amazonaws.cn/dlami/latest/devguide/aws-deep-learning-ami-gpupt210ossarm64-ul2404-2026-10-09.html), and
EFA's installer with its OpenMPI (`efa_version`, such as in
https://docs.amazonaws.cn/dlami/latest/devguide/aws-deep-learning-ami-gpubaseoss-ul2404-2026-09-16.html). The notes name
each image's Python: `/opt/pytorch/bin/python` with PyTorch, `/usr/bin/python3.12` for the base
images on Amazon Linux 2023 (`python_location`, such as
https://docs.amazonaws.cn/dlami/latest/devguide/aws-deep-learning-ami-gpupt213oss-al2023-2026-10-05.md and
https://docs.amazonaws.cn/dlami/latest/devguide/aws-deep-learning-ami-gpubaseoss-al2023-2026-09-04.md).
"""

_ROOT_VOLUMES = (
    (re.compile(r"/aws/service/deeplearning/ami/x86_64/base-oss-[^/]*amazon-linux-2023/.*"), ("/dev/xvda", 75)),
)
"""
Public parameters, and root device and size of its snapshot in GiB, where they are known.

75 GiB is the snapshot of Deep Learning Base OSS Nvidia Driver GPU AMI (Amazon Linux 2023) 20260927.
"""

_PARAMETER = re.compile(r"/aws/service/[A-Za-z0-9/._-]+")


def find_login_user(parameter: str) -> str | None:
    """Return the login user of the image that a public parameter names; None for a parameter that is not known."""
    return next((user for pattern, user in _FAMILIES if pattern.fullmatch(parameter)), None)


def find_parts(parameter: str) -> frozenset[ImagePart]:
    """Return what the image of a public parameter has beyond what all images have."""
    return frozenset(part for pattern, part in _PARTS if pattern.fullmatch(parameter))


def find_root_volume(parameter: str) -> tuple[str, int]:
    """Return root device and snapshot size in GiB of the image of a public parameter; 0 where it is unknown."""
    return next((volume for pattern, volume in _ROOT_VOLUMES if pattern.fullmatch(parameter)), ("", 0))


def find_architecture(parameter: str) -> str:
    """Return the architecture of the image of a public parameter, which each of them names."""
    return "arm64" if re.search(r"[/-]arm64(/|$)", parameter) else "x86_64"


def takes_instance_store(parameter: str) -> bool:
    """
    Return whether the image of a public parameter combines the devices of the instance store when it boots.

    Deep Learning AMIs do, by `dlami-nvme.service`, before user data runs (DLAMI release notes of 2026, `nvme_location
    /opt/dlami/nvme`; public scripts that stop the unit before they format a device).
    """
    return parameter.startswith("/aws/service/deeplearning/ami/")


def find_image_parts(stacks: Iterable[AssemblyStack]) -> frozenset[ImagePart]:
    """Return what the images have that templates name by public parameters, in whatever place."""
    texts = (json.dumps(template) for stack in stacks for template in stack.templates)
    return frozenset(part for text in texts for name in _PARAMETER.findall(text) for part in find_parts(name))
