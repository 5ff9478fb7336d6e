"""A pod of a job as a node: what Kubernetes tells it, and its preparation."""

import json
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from deeplearning_agent.boot.instance_store import LOCAL_LINK
from deeplearning_contract.document import read_record
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.kubernetes_job import (
    DEFINITION_VARIABLE,
    INDEX_VARIABLE,
    JOB_UID_VARIABLE,
    MEMBERS_VARIABLE,
    POD_VARIABLE,
    SIGNING_VARIABLE,
    SOURCES_VARIABLE,
)
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import DataSettings
from deeplearning_contract.settings import NodeSettings
from deeplearning_member.container import find_programs, read_address
from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.node_facts import COMMAND_FILE

_INTERFACE = "eth0"
"""Name of the interface of a pod, whose plugins for networks call it so (CNI specification, CNI_IFNAME)."""
_NAME = re.compile(r".+-([0-9]+)-[a-z0-9]{5}")
"""Name of a pod of an Indexed Job (Kubernetes documentation, "Jobs", "Completion mode")."""


@dataclass(frozen=True)
class Pod:
    """A pod of a job."""

    name: str
    index: int  # Its completion index; that of the master is 0
    job_uid: str  # Id of the Job; one that is submitted again has another
    members: int  # Pods of the job
    definition: JobDefinition  # The job that they run
    secret: str = field(repr=False)  # Secret of the job's members
    sources: tuple[DataSettings, ...] = ()  # Data in S3 that they bring

    @property
    def role(self) -> NodeRole:
        """Role of this pod."""
        return NodeRole.WORKER if self.index else NodeRole.MASTER

    @classmethod
    def read(cls, environment: Mapping[str, str] = os.environ) -> "Pod":
        """Read the variables of the pod; StageFailure when one is absent or malformed."""
        try:
            return cls(
                name=environment[POD_VARIABLE],
                index=int(environment[INDEX_VARIABLE]),
                job_uid=environment[JOB_UID_VARIABLE],
                members=int(environment[MEMBERS_VARIABLE]),
                definition=JobDefinition.from_json(environment[DEFINITION_VARIABLE]),
                secret=environment[SIGNING_VARIABLE],
                sources=tuple(
                    read_record(DataSettings, source, SOURCES_VARIABLE)
                    for source in json.loads(environment.get(SOURCES_VARIABLE, "[]"))
                ),
            )
        except (KeyError, ValueError) as error:  # ContractError is a ValueError.
            raise StageFailure(
                f"variables of the pod could not be read: {error}",
                "start the job with deeplearning-cdk submit",
                stage="read the pod",
            ) from error


def read_index(name: str) -> int:
    """Return the completion index in the name of a pod; -1 for another name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else -1


def open_pod(root: Path, settings: NodeSettings, pod: Pod) -> Node:
    """Return this pod as a node of its job; StageFailure when its image lacks a program."""
    programs = find_programs()
    mine = replace(
        settings,
        cluster=pod.definition.name,
        role=pod.role,
        region=os.environ.get("AWS_REGION", ""),
        needs=replace(settings.needs, data=pod.sources),
    )
    return Node(mine, Identity(pod.name, read_address(programs, _INTERFACE), ()), root, programs, Clock())


def begin_data(node: Node) -> None:
    """
    Begin to bring the data of the job, beside the formation; the job waits for them.

    Effects: a process that stages them as on EC2, and writes the status of each.
    """
    if not node.settings.needs.data:
        return
    node.path(LOCAL_LINK).mkdir(parents=True, exist_ok=True)
    words = [str(node.path(COMMAND_FILE)), "data", "--stage"]
    silent = subprocess.DEVNULL
    subprocess.Popen(words, stdin=silent, stdout=silent, stderr=silent, start_new_session=True)
