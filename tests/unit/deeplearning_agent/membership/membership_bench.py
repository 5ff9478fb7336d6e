"""A master without a machine, for tests of formation and membership."""

import tempfile
from pathlib import Path

from botocore.exceptions import ClientError, EndpointConnectionError
from model_settings import CLUSTER, make_settings

from deeplearning_agent.membership.controller import MembershipController
from deeplearning_agent.membership.formation import Formation
from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.membership.replacements import Replacements
from deeplearning_agent.membership.worker_reports import WorkerReports
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from tests.unit.node_lab import StillClock

MEMORY = Path("/dev/shm")
"""Fastest place for disks, on a machine that has it."""
BROKEN = Reason("broken")
SPOT = Reason("spot")


class Bench:
    """A master with a folder, a clock, the keys that answer on the network, and the health that a probe finds."""

    def __init__(self, minimum=0, workers=2, gpus=2):
        folder = tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None)
        self._folder = folder
        self.clock = StillClock()
        self.minimum = minimum
        settings = make_settings(NodeRole.MASTER, setup_seconds=900, has_script=False)
        identity = Identity(name(0), "10.0.0.10", ("10.0.0.0/16",))
        self.node = Node(settings, identity, Path(folder.name), self, self.clock)
        self.node.path("/opt/deeplearning").mkdir(parents=True)
        self.keys = {}
        self.scans = 0
        self.probed = None
        self.found = MemberHealth()
        self.ordered = []
        self.refusals = 0
        self.is_gone = False
        self.is_complete = None
        self.autoscaling = self
        self.restart()
        for number in range(1, workers + 1):
            self.join(number, gpus)

    def restart(self):
        """Let the agent start anew with what is on the disk."""
        self.reports = WorkerReports(self.node)
        self.formation = Formation(self.node, self, self.node.limit(self.node.settings.setup_seconds))
        self.replacements = Replacements(self.node, self, self.reports)
        self.controller = MembershipController(self.node, self.reports, self, self.replacements)

    def run(self, argv, *, timeout_seconds):
        """Stand for ssh-keyscan."""
        assert (argv[:-2], timeout_seconds) == (["ssh-keyscan", "-T", "5", "-t"], 15)
        assert argv[-2] == "ed25519"
        self.scans += 1
        key = self.keys.get(argv[-1])
        banner = f"# {argv[-1]}:22 SSH-2.0-OpenSSH_9.2\n"
        return f"{banner}{argv[-1]} {key} comment\n" if key else banner

    def probe(self, members, others=()):
        self.probed = (members, others)
        return self.found

    def collect(self, is_done, _until):
        self.is_complete = is_done()
        return self.is_complete

    def set_instance_health(self, *, InstanceId, **health):  # noqa: N803 - boto3's name
        assert health == {"HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}
        if self.is_gone:
            raise ClientError({"Error": {"Code": "ValidationError", "Message": f"{InstanceId} not found"}}, "Set")
        if self.refusals:
            self.refusals -= 1
            raise EndpointConnectionError(endpoint_url="autoscaling")
        self.ordered.append(InstanceId)

    def report(self, number, stage, sequence=1, **changes):
        """Record a worker's report."""
        self.reports.record(NodeReport(CLUSTER, name(number), stage, sequence=sequence, **changes))

    def join(self, number, gpus=2, sequence=1, address=""):
        self.report(number, ReportStage.JOINED, sequence, member=member(number, gpus, address))

    def fail(self, *numbers, reason=BROKEN, sequence=2):
        for number in numbers:
            self.report(number, ReportStage.FAILED, sequence, reason=reason)

    def leave(self, number, reason=SPOT):
        self.report(number, ReportStage.LEAVING, 2, reason=reason)

    def acknowledge(self, *numbers, generation=1):
        for number in numbers:
            self.report(number, ReportStage.READY, generation=generation)

    def state(self, workers=2, phase=Phase.FORMED, **changes):
        """Return the state record with so many members beside the master."""
        members = tuple(member(number) for number in range(workers + 1))
        has_formed = phase is Phase.FORMED
        values = {"members": members, "has_formed": has_formed, "worker_minimum": self.minimum, **changes}
        return ClusterState(CLUSTER, 3, 1, phase, workers + 1, tuple(m.instance_id for m in members), **values)

    def leave_out(self, *numbers):
        """Return the workers that are left out of those that launched."""
        state = self.state(len(numbers), Phase.LAUNCHED, members=())
        return self.formation.collect_joined(state, [name(n) for n in numbers], self.formation.deadline)

    def collect_ready(self, state=None, look=None):
        """Return the change after a look for acknowledgements of a published membership."""
        state, limit = state or self.state(phase=Phase.PUBLISHED), self.formation.ready_by
        return self.formation.collect_ready(state, limit, limit, look or self.controller.look)

    def plan(self, workers=2, after=0):
        """Return the numbers of the members that leave and that join a formed cluster, `after` seconds later."""
        self.clock.now += after
        change = self.controller.plan_change(self.state(workers))
        return set(map(number_of, change.left)), [number_of(joined.instance_id) for joined in change.joined]


def number_of(instance_id):
    return int(instance_id.rpartition("-")[2], 16)


def name(number):
    return f"i-{number:017x}"


def member(number, gpus=2, address=""):
    return Member(name(number), address or f"10.0.0.{10 + number}", gpus, f"ssh-ed25519 {number:020d}host")
