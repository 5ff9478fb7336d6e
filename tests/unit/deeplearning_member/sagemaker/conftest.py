"""A training job without machines: nodes of tests/unit/node_lab.py, which share one folder as their file system."""

import json
import os

import pytest

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.jobs.training_job import SHARED_FOLDER
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_member.sagemaker.meeting import Meeting
from deeplearning_member.sagemaker.training_job import TrainingJob
from deeplearning_member.signed_file import Signer
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.ssh import HOST_KEY, read_host_key
from tests.unit.node_lab import StillClock

JOB = "0123abcd-train-20260102030405"
JOB_SECRET = "5e" * 32
DEFINITION = JobDefinition("train", ("python3", "train.py"))


class Containers:
    """Containers of one training job on one clock."""

    def __init__(self, lab, shared, count):
        self.lab, self.shared, self.count = lab, shared, count
        self.clock = StillClock()
        self.is_stopped = False
        shared.mkdir()

    @property
    def hosts(self):
        return tuple(f"algo-{number}" for number in range(1, self.count + 1))

    @property
    def folder(self):
        return self.shared / ".deeplearning" / JOB

    def describe(self, number, **changes):
        """Write SageMaker's description of a job to a container, and return what the container reads."""
        folder = self.root(number) / "opt/ml/input/config"
        folder.mkdir(parents=True, exist_ok=True)
        hosts = sorted(self.hosts)  # As texts, like SageMaker's
        resources = {"current_host": f"algo-{number}", "hosts": hosts, "network_interface_name": "eth0", **changes}
        parameters = {"deeplearning_job_0": json.dumps(DEFINITION.to_document()), "deeplearning_secret": JOB_SECRET}
        (folder / "resourceconfig.json").write_text(json.dumps(resources))
        (folder / "hyperparameters.json").write_text(json.dumps(parameters))
        (folder / "inputdataconfig.json").write_text(json.dumps({"deeplearning-shared": {}, "train": {}}))
        return TrainingJob.read(self.root(number), JOB)

    def root(self, number):
        return self.lab.node(number - 1).root

    def node(self, number, **changes):
        """Return a container with the shared file system in its channel."""
        node = self.lab.node(number - 1)
        channel = node.path(SHARED_FOLDER)
        if not channel.exists():
            channel.parent.mkdir(parents=True)
            channel.symlink_to(self.shared)
        role = NodeRole.MASTER if number == 1 else NodeRole.WORKER
        settings = self.lab.settings(
            role, cluster=JOB, file_system=FileSystemSettings("channel", SHARED_FOLDER, "", "/mnt/efs"), **changes
        )
        if not node.path("/mnt/efs").exists():
            node.path("/mnt/efs").symlink_to(channel)
        return Node(settings, Identity(f"algo-{number}", f"10.0.0.{number}", ()), node.root, node.programs, self.clock)

    def meet(self, number):
        """Return the meeting of a container that has just started, with a key of its own."""
        node = self.node(number)
        node.path(HOST_KEY).unlink(missing_ok=True)
        node.path(HOST_KEY).parent.mkdir(parents=True, exist_ok=True)
        node.path(HOST_KEY).write_text(os.urandom(8).hex())
        member = Member(node.identity.instance_id, node.identity.address, 2, read_host_key(node))
        meeting = Meeting(node, member, self.hosts, Signer(JOB_SECRET), lambda: self.is_stopped)
        meeting.begin()
        return meeting

    def membership(self, number):
        """Return the members that a container has installed, with their keys."""
        document = json.loads(self.node(number).path("/opt/deeplearning/membership.json").read_text())
        return {member["instance_id"]: member["host_key"] for member in document["members"]}


@pytest.fixture
def containers(lab, tmp_path):
    """Three containers of a training job; none has started."""
    return Containers(lab, tmp_path / "shared", 3)
