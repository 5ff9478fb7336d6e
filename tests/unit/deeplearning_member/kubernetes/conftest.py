"""A job of pods without machines: nodes of tests/unit/node_lab.py, which share one folder as their file system."""

import json
import os

import pytest

from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.kubernetes.pod import Pod
from deeplearning_member.kubernetes.pods import PodService
from deeplearning_member.signed_file import Signer
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.ssh import HOST_KEY, read_host_key
from tests.unit.local_aws import hear_events
from tests.unit.node_lab import REGION, StillClock

DEFINITION = JobDefinition("train_digits", ("python3", "train.py"))
CLUSTER = "Stack-0123abcd"
JOB_SECRET = "5e" * 32
JOB_UID = "8f0c2f4e-0d2a-4c5b-9d8e-2f3a4b5c6d7e"


class Pods:
    """Pods of one Job on one clock; each start of an index is another pod, with an address and a key of its own."""

    def __init__(self, lab, shared, count):
        self.lab, self.shared, self.count = lab, shared, count
        self.clock = StillClock()
        self.services = {}
        self.started = 0
        shared.mkdir()
        (shared / ".mounted").touch()

    @property
    def folder(self):
        return self.shared / ".deeplearning" / DEFINITION.name / JOB_UID

    def name(self, index):
        return f"train-digits-{index}-{self.started:05d}"

    def describe(self, index):
        return Pod(self.name(index), index, JOB_UID, self.count, DEFINITION, JOB_SECRET)

    def node(self, index):
        """Return a pod that has just started, with the shared file system mounted."""
        self.started += 1
        machine = self.lab.node(self.started)
        mount = machine.path("/mnt/efs")
        mount.symlink_to(self.shared)
        settings = self.lab.settings(
            NodeRole.WORKER if index else NodeRole.MASTER,
            cluster=DEFINITION.name,
            state_table="",
            event_cluster=CLUSTER,
            file_system=FileSystemSettings("claim", "/mnt/efs", "", "/mnt/efs"),
        )
        identity = Identity(self.name(index), f"10.0.0.{self.started}", ())
        return Node(settings, identity, machine.root, machine.programs, self.clock)

    def start(self, *indices):
        """Start the pods of these indices, in place of those that were there."""
        for index in indices:
            node = self.node(index)
            node.path(HOST_KEY).parent.mkdir(parents=True, exist_ok=True)
            node.path(HOST_KEY).write_text(os.urandom(8).hex())
            member = Member(node.identity.instance_id, node.identity.address, 2, read_host_key(node))
            folder = ClusterFolder(node, JOB_UID, Signer(JOB_SECRET))
            self.services[index] = node, PodService(node, folder, member, {"PATH": "/opt/conda/bin"})

    def form(self, *indices):
        """Start the pods of these indices, and let all install the membership."""
        self.start(*indices)
        self.turn()
        self.turn()

    def turn(self, *indices):
        """Let these pods, or all, follow the membership once; return what the last one read."""
        states = [self.services[index][1].follow() for index in indices or sorted(self.services)]
        return states[-1]

    def membership(self, index):
        """Return the generation that a pod has installed, and its members."""
        text = self.services[index][0].path("/opt/deeplearning/membership.json").read_text()
        document = json.loads(text)
        return document["generation"], [member["instance_id"] for member in document["members"]]


@pytest.fixture
def pods(lab, tmp_path):
    """Three pods of a job; none has started."""
    return Pods(lab, tmp_path / "shared", 3)


@pytest.fixture
def heard(lab, monkeypatch):
    """Return how to read the events that pods have sent."""
    monkeypatch.setenv("AWS_REGION", REGION)
    return hear_events(lab.clients.sqs, lab.clients.events)
