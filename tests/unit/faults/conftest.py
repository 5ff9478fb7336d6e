"""Nodes and clients whose AWS, time and disk can be broken; the clock is the test's own, and no test waits for real."""

import getpass
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import botocore.endpoint
import botocore.loaders
import pytest
from moto.moto_api._internal.models import moto_api_backend

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "deeplearning_contract"))

from fault_proxy import FaultProxy, VirtualClock

from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import FileSystemSettings
from deeplearning_contract.settings import NodeSettings
from deeplearning_node import aws_clients
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.instance_metadata import Identity
from deeplearning_node.node import Node
from deeplearning_node.programs import Programs
from tests.real_time import GENEROUS_SECONDS
from tests.unit.local_aws import ask_moto, create_state_table

CLUSTER = "training"
INSTANCE = "i-0123456789abcdef0"
SOURCE = "fs-0123.efs.eu-west-1.amazonaws.com:/"


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def empty_moto():
    """Return what hands a call to a moto with no trace of the last test."""
    moto_api_backend.reset()
    return ask_moto


@pytest.fixture
def proxy(empty_moto, clock, monkeypatch):
    """Lead every AWS client through a proxy to an empty moto; botocore's own pauses pass on the test's clock."""
    found = FaultProxy(empty_moto, spent=clock.spend)
    monkeypatch.setattr(botocore.endpoint, "time", SimpleNamespace(sleep=clock.wait))
    for limit in ("CONNECT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(aws_clients, limit, GENEROUS_SECONDS)  # Real time ends no call; a stall does, without any.
    with found.serve():
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        yield found


@pytest.fixture
def clients(proxy):
    found = AwsClients("eu-west-1")
    found.session.register("before-send", proxy.answer)
    return found


@pytest.fixture
def table(clients, proxy):
    create_state_table(clients.dynamodb)
    proxy.clear()
    return "state"


class Machine:
    """A node's file tree below a temporary folder, and its programs as tiny executables."""

    def __init__(self, directory, clock):
        self.root = directory / "root"
        self.fakes = directory / "programs"
        self.clock = clock
        for folder in ("etc/ssh", "mnt", "run", "var"):
            (self.root / folder).mkdir(parents=True)
        self.fakes.mkdir()
        for name in ("sh", "mkdir", "ls", "chown", "test", "cat", "touch", "sleep", "env"):
            (self.fakes / name).symlink_to(shutil.which(name))
        self.program("mountpoint", 'test -e "$2/.mounted"')
        self.program("mount", 'echo "$@" >>"$FAKES/mount.calls"; for target; do :; done; touch "$target/.mounted"')
        self.program("runuser", 'shift 3; exec "$@"')

    def program(self, name, body):
        """Replace a program; None removes it."""
        path = self.fakes / name
        path.unlink(missing_ok=True)
        if body is not None:
            path.write_text(f"#!/bin/sh\nFAKES='{self.fakes}'\n{body}\n")
            path.chmod(0o755)

    def calls(self, name):
        path = self.fakes / f"{name}.calls"
        return path.read_text().splitlines() if path.exists() else []

    def node(self, role=NodeRole.MASTER, programs=None, **changes):
        values = {
            "cluster": CLUSTER,
            "role": role,
            "region": "eu-west-1",
            "state_table": "state",
            "master_queue_url": "",
            "worker_queue_url": "",
            "report_queue_url": "",
            "report_sender": "",
            "signal_url": "",
            "login_user": getpass.getuser(),
            "file_system": FileSystemSettings("nfs4", SOURCE, "nfsvers=4.1", "/mnt/efs"),
            "expected_gpu_count": 0,
            "packages": {},
            "setup_seconds": 3000,
        }
        return Node(
            NodeSettings(**values | changes),
            Identity(INSTANCE, "10.0.0.9", ("10.0.0.0/16",)),
            self.root,
            programs or Programs(str(self.fakes)),
            self.clock,
        )


@pytest.fixture
def machine(tmp_path, clock):
    return Machine(tmp_path, clock)
