"""Container image with the software environment of jobs, for services that run containers."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from aws_cdk import aws_ecr_assets as ecr_assets
from constructs import Construct

from deeplearning_cdk.catalog.instance_catalog import InstanceTypeFacts, NodeInstanceType, describe_instance_type
from deeplearning_cdk.coordination.payload import find_payload, keep_folder, pack_agent
from deeplearning_cdk.network.interfaces import describe_hardware
from deeplearning_cdk.nodes.environment_choice import choose_environment
from deeplearning_cdk.props.check import Rule, check_prop, checked
from deeplearning_cdk.props.rules import matching
from deeplearning_cdk.software.job_environment import CONTAINER_IMAGE, JobEnvironment
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import SYSTEM_PYTHON, EnvironmentSettings, JobNeeds, ScriptSettings, compact

DEFAULT_BASE = "public.ecr.aws/docker/library/ubuntu:24.04"
"""Docker's official image of Ubuntu, in Amazon ECR Public."""
_SCRIPT = "container_build.sh"
_DOCKERFILE = f"""FROM {{base}}
RUN --mount=type=bind,target=/context sh /context/{_SCRIPT}
ENV PATH=/opt/deeplearning/environments/current/bin:$PATH
ENV NVIDIA_VISIBLE_DEVICES=all
ENV NVIDIA_DRIVER_CAPABILITIES=compute,utility
"""
_PLATFORMS = {"x86_64": ecr_assets.Platform.LINUX_AMD64, "arm64": ecr_assets.Platform.LINUX_ARM64}

BuiltEnvironment = Annotated[
    JobEnvironment,
    Rule(
        must="be Horovod's or a requirements file",
        remedy="take JobEnvironment.with_horovod() or from_requirements(…); conda has images of its own",
        is_kept=lambda environment: environment.kind in ("horovod", "requirements"),
    ),
]
"""Environment that the build can install in an image."""

BaseImage = Annotated[
    str, matching(CONTAINER_IMAGE, "be the name of an image", "write e.g. ubuntu:24.04, or a name with a digest")
]
"""Image that the Dockerfile names, so it must be known at synthesis."""


def choose_built_environment(
    image: str | None,
    environment: JobEnvironment | None,
    facts: InstanceTypeFacts,
    *,
    has_old_hosts: bool = False,
) -> JobEnvironment | None:
    """
    Check the environment of an image that the stack builds, or choose one; None for an image of the user's.

    With `has_old_hosts` the driver is the service's, and may be older than the newest CUDA needs.

    Raises:
        ValueError: The build cannot install it, it cannot work on the type, or there is an image of the user's too.
    """
    if image is None:
        check_prop("software.environment", environment, BuiltEnvironment | None)
        return choose_environment(
            environment,
            None,
            (facts,),
            DEFAULT_BASE,
            SYSTEM_PYTHON,
            isolated=False,
            has_old_hosts=has_old_hosts,
        )
    if environment is not None:
        raise ValueError(
            "software.environment must be left out with image, got both; the image brings the software of jobs"
        )
    return None


class TrainingImage(Construct):
    """
    Container image with the environment that nodes of a cluster install, for AWS Batch, ECS, EKS or SageMaker.

    `cdk deploy` builds it with Docker, or the program in `CDK_DOCKER`, and pushes it to the repository of the CDK's
    bootstrap stack. Its tag is the SHA-256 of what it is built from, and the repository does not let tags move.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        environment: Environment of jobs. Default: Horovod with PyTorch, as on nodes of the type.
        instance_type: Type on which containers run; its GPUs and its processor determine the build. Default:
            g5.12xlarge.
        base: Image of Debian or Ubuntu with Python 3.10 or newer, or with apt-get to install it. Default: Ubuntu 24.04.

    Attributes:
        asset: The asset; `asset.repository.grant_pull(role)` allows a role to pull the image.
        image_uri: The image, with registry and tag.

    Raises:
        ValueError: The environment cannot be built or cannot work on the type; the message names the prop, the rule and
            a way out.
    """

    @checked
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        environment: BuiltEnvironment | None = None,
        instance_type: NodeInstanceType = "g5.12xlarge",
        base: BaseImage = DEFAULT_BASE,
    ) -> None:
        super().__init__(scope, construct_id)
        facts = describe_instance_type("instance_type", instance_type)
        chosen = choose_environment(environment, None, (facts,), base, SYSTEM_PYTHON, isolated=False)
        if chosen is None:
            raise ValueError(
                f"environment must be given for {facts.name}, got none; there is no default for the accelerators of "
                f"{facts.accelerator}: pass JobEnvironment.from_requirements(…)"
            )
        hardware = {role.value: describe_hardware(facts) for role in NodeRole}
        folder = _make_context(base, chosen, JobNeeds(hardware=hardware))
        self.asset = ecr_assets.DockerImageAsset(
            self, "Asset", directory=str(folder), platform=_PLATFORMS[facts.architecture]
        )
        self.image_uri = self.asset.image_uri


def _make_context(base: str, environment: JobEnvironment, needs: JobNeeds) -> Path:
    """Return the folder of the build context; the program that installs environments on nodes reads `node.json`."""
    content = Path(environment.path).read_bytes() if environment.path else b""
    file = ScriptSettings("", "", hashlib.sha256(content).hexdigest()) if content else None
    settings = EnvironmentSettings(environment.kind, file, horovod=environment.horovod, framework=environment.framework)
    node = {
        "cluster": "",
        "role": NodeRole.MASTER.value,
        "instance_id": "image",
        "login_user": "root",
        "mount_point": "/opt/deeplearning/shared",
        "expected_gpu_count": 0,
        "needs": compact(replace(needs, environment=settings)),
    }
    files = {
        "Dockerfile": _DOCKERFILE.format(base=base).encode(),
        _SCRIPT: find_payload(_SCRIPT).read_bytes(),
        "node.json": json.dumps(node, indent=2, sort_keys=True).encode(),
        "agent.zip": Path(pack_agent().path).read_bytes(),
    }
    if file is not None:
        files[f"files/{file.sha256[:16]}-requirements.txt"] = content
    return keep_folder(files)
