"""An EMR cluster without machines: the nodes of tests/unit/node_lab.py, which share one folder as their file system."""

import json
from dataclasses import replace

import pytest

from deeplearning_contract.membership import Member
from deeplearning_contract.names import NodeRole
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.emr.service import MemberService
from deeplearning_node.ssh import read_host_key
from tests.unit.metadata_server import imds  # noqa: F401 - pytest finds fixtures by their names
from tests.unit.node_lab import CLUSTER, StillClock, agent_folder, lab, make_lab, ticking_clock  # noqa: F401

CLUSTER_ID = "j-2AXXXXXXGAPLF"


class EmrCluster:
    """Nodes of one EMR cluster on one clock, each with the service that it would run."""

    def __init__(self, lab, shared, count):  # noqa: F811 - the fixture
        self.lab, self.shared, self.count = lab, shared, count
        self.clock = StillClock()
        self.services = {}
        self.folder = shared / ".deeplearning" / CLUSTER / CLUSTER_ID
        shared.mkdir()
        (shared / ".mounted").touch()

    def node(self, index, clock=None, **changes):
        """Return a node with what EMR writes on it; node 0 is the primary one."""
        node = self.lab.node(index, clock or self.clock, **changes)
        efs, info = node.path("/mnt/efs"), node.path("/mnt/var/lib/info")
        if not efs.exists():
            efs.symlink_to(self.shared)
            info.mkdir(parents=True)
            node.path("/proc").mkdir(exist_ok=True)
            groups = [{"instanceRole": "Master", "requestedInstanceCount": 1}]
            groups += [{"instanceRole": "Core", "requestedInstanceCount": self.count - 1}]
            flow = {"jobFlowId": CLUSTER_ID, "masterPrivateDnsName": "ip-10-0-0-9", "instanceGroups": groups}
            (info / "job-flow.json").write_text(json.dumps(flow))
            (info / "instance.json").write_text(json.dumps({"isMaster": index == 0, "instanceGroupId": "ig-1"}))
        return node

    def make_service(self, index, clock=None, cluster_id=CLUSTER_ID, *, is_primary=False, **changes):
        node = self.node(index, clock, **changes)
        if is_primary:
            node = replace(node, settings=replace(node.settings, role=NodeRole.MASTER))
        member = Member(node.identity.instance_id, node.identity.address, 2, read_host_key(node))
        return MemberService(node, ClusterFolder(node, cluster_id), member)

    def start(self, *indices, **changes):
        """Start or restart the services of nodes."""
        for index in indices:
            self.services[index] = self.make_service(index, **changes)

    def turn(self, times=1):
        """Let every running service follow the cluster once in ten seconds."""
        for _ in range(times):
            for service in self.services.values():
                service.follow()
            self.clock.wait(10)

    def form(self, *indices):
        """Start the services of nodes, and let all follow the cluster for half a minute."""
        self.start(*indices)
        self.turn(3)

    def announcement(self, index):
        return self.folder / "members" / f"{self.lab.instance(index)}.json"

    def generation(self, index):
        """Return generation and instances of the membership on a node's own disk."""
        document = json.loads(self.lab.read(index, "/opt/deeplearning/membership.json"))
        ids = [self.lab.instance(index) for index in range(100)]
        return document["generation"], [ids.index(member["instance_id"]) for member in document["members"]]


@pytest.fixture
def cluster(lab, tmp_path):  # noqa: F811 - the fixture
    """Three instances that are requested; none has started."""
    return EmrCluster(lab, tmp_path / "shared", 3)
