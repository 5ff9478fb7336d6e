"""A container as a node: what it needs from its image and from SageMaker, and its preparation."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from deeplearning_agent.boot.steps import install_command, run_stage
from deeplearning_contract.jobs.training_job import INPUT_FOLDER, MODEL_FOLDER
from deeplearning_contract.membership import Member
from deeplearning_contract.names import DATA_DIRECTORY, PROVISION_FILE
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_contract.settings import NodeSettings
from deeplearning_member.sagemaker.training_job import TrainingJob
from deeplearning_node.atomic_file import write_file
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpus import count_gpus
from deeplearning_node.health.node_check import check_health
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.programs import Programs, system_path
from deeplearning_node.provision_status import DONE, ENVIRONMENT_STEP, Step, name_steps, read_boot
from deeplearning_node.ssh import read_host_key, wait_for_sshd

SSHD = "/usr/sbin/sshd"
_PACKAGES = {
    SSHD: "openssh-server",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "ssh-keyscan": "openssh-client",
    "ip": "iproute2",
    "bash": "bash",
    "runuser": "util-linux",
}
"""Program -> the package of Debian and Ubuntu that has it."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_OF_A_SHELL = frozenset({"_", "HOME", "HOSTNAME", "LOGNAME", "OLDPWD", "PWD", "SHELL", "SHLVL", "TERM", "USER"})
PROBE_SECONDS = 10


def open_container(root: Path, settings: NodeSettings, job: TrainingJob) -> Node:
    """Return this container as a node of the job; StageFailure when its image lacks a program."""
    programs = Programs(system_path(os.environ.get("PATH", "")))
    if lacking := [program for program in _PACKAGES if not programs.has(program)]:
        packages = " ".join(dict.fromkeys(_PACKAGES[program] for program in lacking))
        raise StageFailure(
            f"the image lacks {', '.join(lacking)}",
            f"install them in the image (apt-get install {packages})",
            stage="check the image",
        )
    data = tuple(source for source in settings.needs.data if source.name in job.channels)
    mine = replace(
        settings,
        cluster=job.name,
        role=job.role,
        region=os.environ.get("AWS_REGION", ""),
        needs=replace(settings.needs, data=data),
    )
    address = _read_address(programs, job.interface)
    return Node(mine, Identity(job.host, address, ()), root, programs, Clock())


def prepare_container(node: Node, deadline: Deadline) -> Member:
    """
    Prepare the container to join; StageFailure when a step fails.

    Effects: the links to the shared file system and to the data, the command, the status of provisioning, the host key,
    and the SSH server, a child of this process.
    """
    clock, needs = node.clock, node.settings.needs
    run_stage(clock, "find the shared file system", lambda: _link_shared(node))
    run_stage(clock, "find the data", lambda: _link_data(node, needs))
    gpu_count = run_stage(clock, "count GPUs", lambda: count_gpus(node))
    run_stage(clock, "check the container's health", lambda: check_health(node, fewest_gpus=gpu_count))
    run_stage(clock, "install the command", lambda: install_command(node))
    run_stage(clock, "report the provisioning", lambda: _report_provisioned(node, needs))
    host_key = run_stage(clock, "make the SSH identity", lambda: read_host_key(node))
    run_stage(clock, "start sshd", lambda: _start_sshd(node))
    run_stage(clock, "wait for sshd", lambda: wait_for_sshd(node, host_key, deadline))
    return Member(node.identity.instance_id, node.identity.address, gpu_count, host_key)


def list_variables(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """
    Return the variables of the container for logins, which have none of those of its first process.

    They are those of the image, such as `PATH`, and of SageMaker, such as the address of the credentials; and
    `SM_MODEL_DIR`, as in SageMaker's own images, the folder of the model.
    """
    found = {name: text for name, text in environment.items() if _NAME.fullmatch(name) and name not in _OF_A_SHELL}
    return {"SM_MODEL_DIR": MODEL_FOLDER, **{name: text for name, text in found.items() if text.isprintable()}}


def _read_address(programs: Programs, interface: str) -> str:
    argv = ["ip", "-oneline", "-4", "address", "show", "dev", interface]
    words = programs.run(argv, timeout_seconds=PROBE_SECONDS).split()
    if "inet" not in words:
        raise StageFailure(f"{interface} must have an IPv4 address, got none", "", stage="read the network")
    return words[words.index("inet") + 1].partition("/")[0]


def _link_shared(node: Node) -> None:
    settings = node.settings.file_system
    if not node.path(settings.source).is_dir():
        raise StageFailure(
            f"the channel {settings.source} is missing", "start the job with deeplearning-cdk submit from this stack"
        )
    _link(node.path(settings.mount_point), node.path(settings.source))


def _link_data(node: Node, needs: JobNeeds) -> None:
    for source in needs.data:
        _link(node.path(f"{DATA_DIRECTORY}/{source.name}"), node.path(f"{INPUT_FOLDER}/data/{source.name}"))


def _link(path: Path, target: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() and not path.is_symlink() and not any(path.iterdir()):
        path.rmdir()  # An empty mount point of the image.
    if path.exists() or path.is_symlink():
        raise StageFailure(f"the image must not contain {path}, it does", "remove it, or take another mount point")
    path.symlink_to(target)


def _report_provisioned(node: Node, needs: JobNeeds) -> None:
    """Report that nothing is left to do: the image has the environment, and SageMaker brings the data."""
    details = dict.fromkeys(name_steps(needs), "a channel of the training job")
    if ENVIRONMENT_STEP in details:
        details[ENVIRONMENT_STEP] = "part of the image"
    steps = {name: Step(DONE, detail).to_document() for name, detail in details.items()}
    document = {"boot": read_boot(node.root), "steps": steps}
    write_file(node.path(PROVISION_FILE), json.dumps(document, indent=2) + "\n")


def _start_sshd(node: Node) -> None:
    node.path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)  # For sshd's separation of privileges.
    # sshd requires its full path. As a daemon it would keep the output of the container open.
    silent = subprocess.DEVNULL
    subprocess.Popen([SSHD, "-D"], stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
