"""The packages of a cluster's environment: found in its cloud assembly, downloaded by the host."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.errors import UnavailableError
from deeplearning_contract.setting_parts import EnvironmentSettings
from deeplearning_rehearsal.software.downloads import prepare_horovod, prepare_packages
from deeplearning_rehearsal.template.environment_override import TORCH, choose_framework
from deeplearning_rehearsal.template.user_data import find_environment


def prepare_job_packages(stack: AssemblyStack, cache: Path, tell: Callable[[str], None]) -> tuple[Path, ...]:
    """
    Return the folders with the packages of the stack's environment; they are downloaded when the cache has them not.

    Args:
        stack: The stack.
        cache: Folder that keeps downloads.
        tell: Told a line for every slow step.

    Returns:
        None at all for a stack without an environment, which downloads nothing.

    Raises:
        UnavailableError: The nodes of the rehearsal could not make such an environment.
    """
    environment = find_environment(stack.template)
    if environment is None:
        return ()
    if environment.kind == "horovod":
        return (prepare_horovod(cache, choose_framework(environment.framework) or TORCH, environment.horovod, tell),)
    wheels = prepare_packages(cache, _find_requirements(stack, environment), tell)
    return (wheels, prepare_horovod(cache, "", environment.horovod, tell)) if environment.horovod else (wheels,)


def _find_requirements(stack: AssemblyStack, environment: EnvironmentSettings) -> Path:
    if environment.kind != "requirements" or environment.file is None:
        raise UnavailableError(
            f"environment must be Horovod's or a requirements file in the rehearsal, got {environment.kind}; "
            "its nodes have neither conda nor containers"
        )
    digest = environment.file.sha256
    for asset in stack.assets:
        if asset.packaging == "file" and hashlib.sha256(asset.path.read_bytes()).hexdigest() == digest:
            return asset.path
    raise UnavailableError(f"environment must be an asset of the assembly, got SHA-256 {digest}; synthesize again")
