"""A container of a training job as a node: what SageMaker brings, and where the programs of jobs look for it."""

import os
from dataclasses import replace
from pathlib import Path

from deeplearning_agent.boot.steps import run_stage
from deeplearning_contract.jobs.training_job import INPUT_FOLDER
from deeplearning_contract.membership import Member
from deeplearning_contract.names import DATA_DIRECTORY
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_contract.settings import NodeSettings
from deeplearning_member.container import find_programs, read_address, start_member
from deeplearning_member.sagemaker.training_job import TrainingJob
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node


def open_container(root: Path, settings: NodeSettings, job: TrainingJob) -> Node:
    """Return this container as a node of the job; StageFailure when its image lacks a program."""
    programs = find_programs()
    data = tuple(source for source in settings.needs.data if source.name in job.channels)
    mine = replace(
        settings,
        cluster=job.name,
        role=job.role,
        region=os.environ.get("AWS_REGION", ""),
        needs=replace(settings.needs, data=data),
    )
    address = read_address(programs, job.interface)
    return Node(mine, Identity(job.host, address, ()), root, programs, Clock())


def prepare_container(node: Node, deadline: Deadline) -> Member:
    """
    Prepare the container to join; StageFailure when a step fails.

    Effects: the links to the shared file system and to the data, and those of `start_member`.
    """
    run_stage(node.clock, "find the shared file system", lambda: _link_shared(node))
    run_stage(node.clock, "find the data", lambda: _link_data(node, node.settings.needs))
    return start_member(node, "a channel of the training job", deadline)


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
