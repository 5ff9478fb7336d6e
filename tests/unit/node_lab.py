"""A node without a machine: its file tree below a temporary folder, its programs as tiny executables, AWS as moto."""

import contextlib
import copy
import functools
import getpass
import hashlib
import itertools
import json
import os
import shutil
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.sqs.models import sqs_backends

from deeplearning_agent.coordination.queues import POLL_SECONDS
from deeplearning_agent.master import Master
from deeplearning_agent.membership.member_monitor import MemberHealth
from deeplearning_agent.worker import Worker
from deeplearning_contract.cluster_state import ClusterState, Phase, get_request, put_request
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_contract.settings import NodeSettings
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.deadline import Clock, Deadline
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.programs import ProgramError, Programs
from tests.unit.local_aws import create_state_table, empty_aws
from tests.unit.loopback import SignalServer
from tests.unit.virtual_time import Scheduler, VirtualClock

CLUSTER = "master-of-names"
"""It holds the word master (D24): roles come from settings, never from names."""
REGION = "eu-west-1"
ROLE_ID = "AROAEXAMPLEEXAMPLE123"
COREUTILS = ("sh", "mkdir", "mv", "ls", "chown", "test", "cat", "sed", "touch", "env", "sleep")
PROGRAMS = {
    "mountpoint": 'test -e "$2/.mounted"',
    "mount": 'for target; do :; done; echo "$@" >>"$FAKES/mount.calls"; touch "$target/.mounted"',
    "runuser": 'shift 3; exec "$@"',
    "nvidia-smi": """
        case "$1" in
          --query-gpu=*) echo "0, GPU-1, 0, [N/A], No"; echo "1, GPU-2, 0, [N/A], No" ;;
          *) echo "GPU 0: NVIDIA H100 (UUID: GPU-1)"; echo "GPU 1: NVIDIA H100 (UUID: GPU-2)" ;;
        esac""",
    "ssh-keyscan": """
        for address; do :; done
        key="${FAKES%/programs*}/node${FAKES##*programs}/etc/ssh/ssh_host_ed25519_key"
        echo "$address ssh-ed25519 $(cksum "$key" | sed 's/[^0-9]//g')AAAAAAAAAAAAAAAA"
        """,
    "systemctl": 'echo "$@" >>"$FAKES/systemctl.calls"',
    "visudo": 'grep -q "^Defaults env_keep" "$3"',
    "ssh-keygen": """
        case "$1" in
          -q) eval last=\\${$#}; echo "secret of $last" >"$last"; echo "ssh-ed25519 unused" >"$last.pub" ;;
          -y) eval last=\\${$#}; sum=$(cksum "$last" | sed 's/[^0-9]//g')
              echo "ssh-ed25519 ${sum}AAAAAAAAAAAAAAAA comment" ;;
        esac""",
}


class Stopped(BaseException):
    """Ends an agent, which by itself never ends."""


class StoppingClock(Clock):
    """Ends the agent as soon as it would wait."""

    def wait(self, seconds):
        raise Stopped


class StillClock(Clock):
    """A clock that stands until the test, or whoever waits, moves it."""

    def __init__(self):
        self.now = 1000.0

    def read(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


class TickingClock(Clock):
    """A clock on which every look takes a second, and on which waiting takes no time of the test."""

    def __init__(self, limit=100_000):
        self.now = 1000.0
        self.limit = limit

    def read(self):
        self.now += 1
        return self.now

    def wait(self, seconds):
        self.now += max(0.0, seconds)
        if self.now > self.limit:
            raise Stopped


class EverybodyAnswers:
    """Stands for the monitor of the members: there is no network behind their addresses."""

    def probe(self, _members, _others=()):
        return MemberHealth()


@dataclass(frozen=True)
class SlowDriver(Programs):
    """
    A node's programs, of which nvidia-smi takes 30 s; no time of the test passes.

    So long it took without persistence mode with eight GPUs that nobody used (Azure/aks-gpu#105, AgentBaker#2829).
    """

    def run(self, argv, *, timeout_seconds, environment=None):
        if argv[0] == "nvidia-smi" and timeout_seconds < 30:
            raise ProgramError("nvidia-smi took too long", is_late=True)
        return super().run(argv, timeout_seconds=timeout_seconds, environment=environment)


class Lab:
    """One cluster's queues, table and nodes."""

    def __init__(self, directory, signals):
        self.directory = directory
        self.signals = signals
        self.calls = Counter()
        self.scheduler = Scheduler(0)
        self.changes = {}
        self.clients = copy.copy(make_shared_clients(os.environ.get("AWS_ENDPOINT_URL")))
        self.queues = {
            name: self.clients.sqs.create_queue(
                QueueName=f"{name}-queue", Attributes={"VisibilityTimeout": "0" if name == "worker" else "30"}
            )["QueueUrl"]
            for name in ("master", "worker", "report")
        }
        create_state_table(self.clients.dynamodb)

    def settings(self, role, **changes):
        is_master = role is NodeRole.MASTER
        values = {
            "cluster": CLUSTER,
            "role": role,
            "region": REGION,
            "state_table": "state",
            "master_queue_url": self.queues["master"],
            "worker_queue_url": self.queues["worker"],
            "report_queue_url": self.queues["report"],
            "report_sender": ROLE_ID if is_master else "",
            "signal_url": self.signals.url if is_master else "",
            "login_user": getpass.getuser(),
            "file_system": FileSystemSettings(
                "nfs4", "fs-0123.efs.eu-west-1.amazonaws.com:/", "nfsvers=4.1", "/mnt/efs"
            ),
            "expected_gpu_count": 2,
            "packages": {"mount": ("nfs-common",)},
            "setup_seconds": 3300,
        }
        return NodeSettings(**values | self.changes | changes)

    def node(self, index, clock=None, **changes):
        """Return node 0, the master, or a worker; its file tree is made at the first call."""
        root = self.directory / f"node{index}"
        fakes = self.directory / f"programs{index}"
        if not root.exists():
            for folder in ("etc/ssh", "etc/sudoers.d", "mnt", "run/systemd/system", "tmp", "var"):
                (root / folder).mkdir(parents=True)
            (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
            (root / "etc/bash.bashrc").write_text('[ -z "${PS1-}" ] && return\n')
            (root / "etc/fstab").write_text("LABEL=root / ext4 defaults 0 1")
            fakes.mkdir()
            for name in (*COREUTILS, "grep", "cksum"):
                (fakes / name).symlink_to(shutil.which(name))
            for name, body in PROGRAMS.items():
                self.program(index, name, body)
        role = NodeRole.WORKER if index else NodeRole.MASTER
        identity = Identity(self.instance(index), f"10.0.{index // 200}.{9 + index % 200}", ("10.0.0.0/8",))
        return Node(self.settings(role, **changes), identity, root, Programs(str(fakes)), clock or StoppingClock())

    def program(self, index, name, body):
        """Replace one program of a node; None removes it."""
        path = self.directory / f"programs{index}" / name
        path.unlink(missing_ok=True)
        if body is not None:
            path.write_text(f"#!/bin/sh\nFAKES='{path.parent}'\n{body}\n")
            path.chmod(0o755)

    def calls_of(self, name):
        """Return the arguments of each call of a program of node 0 that records them."""
        path = self.directory / "programs0" / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    @staticmethod
    def instance(index):
        return f"i-{index:017x}"

    def write_state(self, count, phase=Phase.LAUNCHED, **changes):
        """Write the item as the adjuster would; return it."""
        found = self.read_state()
        state = ClusterState(
            CLUSTER, found.revision + 1 if found else 1, 1, phase, count, tuple(self.instance(i) for i in range(count))
        )
        state = replace(state, **{"worker_minimum": min(1, count - 1), **changes})
        self.clients.dynamodb.put_item(**put_request("state", state))
        return state

    def read_state(self):
        item = self.clients.dynamodb.get_item(**get_request("state", CLUSTER)).get("Item")
        return ClusterState.from_item(item) if item else None

    def agent(self, index, clock=None, poll_seconds=0, **changes):
        """Return the agent of a node, its AWS calls counted and its SenderId filled in, which moto keeps constant."""
        clients = AwsClients(REGION)
        clients.session.register("before-call", lambda model, **_: self.calls.update([model.name]))
        clients.session.register("after-call.sqs.ReceiveMessage", fill_sender)
        agent = (Worker if index else Master)(self.node(index, clock, **changes), clients, poll_seconds)
        agent.monitor = EverybodyAnswers()
        return agent

    def run(self, agent):
        """Run an agent until it would wait."""
        with pytest.raises(Stopped):
            agent.run()

    def start(self, index, **changes):
        """Run an agent beside the others, in virtual time."""
        clock = VirtualClock(self.scheduler)

        def poll(params, **_):
            """Wait for a message on the agent's clock; moto waits for real, and would keep the others from running."""
            queue = sqs_backends[DEFAULT_ACCOUNT_ID][REGION].queues[params["QueueUrl"].rpartition("/")[2]]
            limit = Deadline.after(clock, params.pop("WaitTimeSeconds", 0))
            clock.wait(0.01)  # A call takes time, so that an agent that spins stops no clock.
            while not queue.messages and not limit.is_over:
                limit.pause(1)

        agent = self.agent(index, clock, POLL_SECONDS, **changes)
        agent.clients.session.register("before-parameter-build.sqs.ReceiveMessage", poll)
        self.scheduler.start(self.instance(index), agent.run)
        return agent

    def send(self, queue, body):
        self.clients.sqs.send_message(QueueUrl=self.queues[queue], MessageBody=body)

    def bodies(self, queue):
        """Take all visible messages of a queue."""
        found = []
        for _ in itertools.repeat(None):
            messages = self.clients.sqs.receive_message(QueueUrl=self.queues[queue], MaxNumberOfMessages=10)
            found += [json.loads(message["Body"]) for message in messages.get("Messages", [])]
            if "Messages" not in messages:
                return found
        return None

    def read(self, index, path):
        return (self.directory / f"node{index}" / path.lstrip("/")).read_text()

    def digests(self, index):
        """Return the digest, permissions and owner of every file of a node."""
        root = self.directory / f"node{index}"
        return {
            str(path.relative_to(root)): (
                hashlib.sha256(path.read_bytes()).hexdigest(),
                oct(path.stat().st_mode),
                path.stat().st_uid,
            )
            for path in sorted(root.rglob("*"))
            if path.is_file() and not path.is_relative_to(root / "run")
        }


def check_variables(node, count, gpu_count):
    """Check that every kind of shell of a node has the variables of the contract."""

    def read(path):
        return node.path(path).read_text()

    plain = (
        f"DEEPLEARNING_WORKERS_PATH=/opt/deeplearning/workers\nDEEPLEARNING_WORKERS_COUNT={count}\n"
        f"DEEPLEARNING_WORKER_GPU_COUNT={gpu_count}\nEFS_MOUNT=/mnt/efs\n"
    )
    assert read("/opt/deeplearning/environment") == plain
    assert plain in read("/etc/environment")
    assert f"export DEEPLEARNING_WORKERS_COUNT={count}\n" in read("/etc/profile.d/deeplearning.sh")
    bashrc = read("/etc/bash.bashrc")
    assert bashrc.index("/etc/profile.d/deeplearning.sh") < bashrc.index("return"), "Debian's returns at once over ssh"
    assert read("/etc/sudoers.d/deeplearning") == (
        'Defaults env_keep += "DEEPLEARNING_WORKERS_PATH DEEPLEARNING_WORKERS_COUNT '
        'DEEPLEARNING_WORKER_GPU_COUNT EFS_MOUNT"\n'
    )
    assert node.path("/etc/sudoers.d/deeplearning").stat().st_mode & 0o777 == 0o440
    assert f'"DEEPLEARNING_WORKERS_COUNT={count}"' in read("/etc/systemd/system.conf.d/deeplearning.conf")


@functools.cache
def make_shared_clients(_endpoint):
    """Return the clients by which the labs of an endpoint themselves call AWS; a lab changes a copy of its own."""
    clients = AwsClients(REGION)
    _ = clients.sqs, clients.dynamodb
    return clients


def fill_sender(parsed, **_):
    for message in parsed.get("Messages", []):
        try:
            document = json.loads(message["Body"])
        except ValueError:
            document = {}
        document = document if isinstance(document, dict) else {}
        sender = f"{ROLE_ID}:{document.get('sent_by') or document.get('instance_id')}"
        message.setdefault("Attributes", {})["SenderId"] = sender


@pytest.fixture(scope="session")
def make_lab():
    @contextlib.contextmanager
    def make(directory, endpoint=None):
        with empty_aws(endpoint), contextlib.closing(SignalServer()) as signals:
            lab = Lab(directory, signals)
            yield lab
            lab.scheduler.close()

    return make


@pytest.fixture
def lab(make_lab, tmp_path):
    with make_lab(tmp_path) as lab:
        yield lab


@pytest.fixture
def served_lab(make_lab, tmp_path, aws_server_url):
    """A lab whose AWS the processes that a test starts can reach."""
    with make_lab(tmp_path, aws_server_url) as lab:
        yield lab


@pytest.fixture
def ticking_clock():
    return TickingClock


@pytest.fixture
def stopped():
    return Stopped


@pytest.fixture
def agent_folder(tmp_path_factory):
    """A folder with what the agent's zip holds of ours."""
    root, folder = Path(__file__).parents[2], tmp_path_factory.mktemp("agent")
    for module in (*(root / "userdata").glob("*/__init__.py"), root / "contract/deeplearning_contract/__init__.py"):
        (folder / module.parent.name).symlink_to(module.parent)
    return folder


@pytest.fixture
def agent_modules():
    """Name and file of each module that the agent runs: its own and those of the spine."""
    root = Path(__file__).parents[2] / "userdata"
    paths = (
        path for room in ("deeplearning_agent", "deeplearning_node") for path in sorted((root / room).rglob("*.py"))
    )
    return {".".join(path.relative_to(root).with_suffix("").parts): path for path in paths}
