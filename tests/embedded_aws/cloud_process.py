"""
Runs an embedded AWS in a process of its own for the tests; moto's state and patches stay here.

Reads one JSON command a line from standard input; writes one JSON line for each answer and each observation.
"""

import contextlib
import copy
import dataclasses
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from cdk_rehearsal.assembly import read_stack
from cdk_rehearsal.embedded_aws.base.capacity_pools import CapacityPool
from cdk_rehearsal.embedded_aws.base.cloud_options import CloudOptions, ScalingPace
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.base.message_faults import MessageFaults
from cdk_rehearsal.embedded_aws.base.reservations import Reservation
from cdk_rehearsal.embedded_aws.base.training_limits import TrainingLimits
from cdk_rehearsal.embedded_aws.cloud import EmbeddedAws
from cdk_rehearsal.embedded_aws.sagemaker.containers import MountError
from cdk_rehearsal.errors import AssemblyError, RehearsalError
from cdk_rehearsal.iam.given_policies import GivenPolicies
from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from deeplearning_rehearsal.lab_clusters import KubernetesHost
from tests.shared_documents import share_botocore, share_moto

_writing = threading.Lock()


def write(kind, **content):
    """Write a line for the test."""
    with _writing:
        sys.stdout.write(json.dumps({"kind": kind, **content}, default=str) + "\n")
        sys.stdout.flush()


class RecordingHost:
    """Records machines instead of booting them."""

    def boot(self, machine):
        """Tell the test about the machine."""
        write("boot", machine=dataclasses.asdict(machine) | {"user_data": machine.user_data.decode()})

    def power_off(self, instance_id):
        """Tell the test that the machine has ended."""
        write("power_off", instance_id=instance_id)


class RunningProcess:
    """A process that plays a container, in a folder that plays its root."""

    def __init__(self, order, folder, on_line):
        self.root = folder
        self._process = subprocess.Popen(
            order.command,
            env={**order.environment, "ROOT": str(folder), "HOST": order.name},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, args=[on_line], daemon=True)
        self._reader.start()

    def _read(self, on_line):
        for line in self._process.stdout:
            on_line(line.rstrip("\n"))

    def wait(self, seconds=None):
        """Return the exit status as a shell does; None while it runs."""
        try:
            status = self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join()
        return status if status >= 0 else 128 - status

    def stop(self, seconds):
        """End it as SageMaker does."""
        self._process.terminate()
        status = self.wait(seconds)
        return self.kill() if status is None else status

    def kill(self):
        """End it and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        return self.wait()


class PlayedContainers:
    """Runs the containers of training jobs as processes of this machine, and tells the test of each."""

    def __init__(self):
        self._top = Path(tempfile.mkdtemp(prefix="played-containers-"))

    def start(self, order, on_line):
        """Start a process; a folder whose name has `missing` in it cannot be mounted."""
        mounts = [dataclasses.asdict(mount) for mount in order.mounts]
        write("container", order={"name": order.name, "address": order.address, "image": order.image}, mounts=mounts)
        if any("missing" in mount.folder for mount in order.mounts):
            raise MountError("no such folder")
        folder = Path(tempfile.mkdtemp(dir=self._top))
        for path in order.folders:
            (folder / path.lstrip("/")).mkdir(parents=True)
        for path, content in order.files.items():
            (folder / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (folder / path.lstrip("/")).write_bytes(content)
        return RunningProcess(order, folder, on_line)

    def separate(self, addresses):
        """Tell the test which addresses do not reach each other."""
        write("separate", addresses=list(addresses))

    def remove(self, container):
        """End and remove a process's folder."""
        container.kill()
        shutil.rmtree(container.root)


class RecordedCluster:
    """A control plane that runs nothing, and tells the test of what it is told."""

    endpoint, authority = "https://10.0.0.4", "LS0tLS1CRUdJTg=="

    def __init__(self, order):
        self.order, self.nodes = order, {}

    def add_node(self, node):
        """Tell the test of a node; one that the test calls lost does not get in."""
        self.nodes[node.machine.instance_id] = node
        fields = {field.name for field in dataclasses.fields(node)} - {"machine", "find_fault", "taints"}
        shown = {name: getattr(node, name) for name in fields}
        machine = dataclasses.asdict(node.machine) | {"user_data": node.machine.user_data.decode()}
        write("node", node=shown | {"taints": [dataclasses.asdict(each) for each in node.taints]}, machine=machine)

    def remove_node(self, instance_id):
        """Tell the test of a node that is gone."""
        self.nodes.pop(instance_id, None)
        write("node_gone", instance_id=instance_id)

    def drain_node(self, instance_id, seconds):
        """Tell the test of a node that is drained; pods of a cluster that is called full never end."""
        write("drained", instance_id=instance_id)
        return self.order.name != "full"

    def change_node(self, node):
        """Tell the test of the labels and taints of a node."""
        taints = [dataclasses.asdict(each) for each in node.taints]
        write("changed", name=node.name, labels=dict(node.labels), taints=taints)

    def grant(self, principal, policy, namespaces):
        """Tell the test of a policy."""
        write("grant", principal=principal, policy=policy, namespaces=list(namespaces))

    def stop(self):
        """Tell the test of the end."""
        write("stopped", name=self.order.name)


class AnsweringCluster(RecordedCluster):
    """A control plane whose API server answers, with the rights that its access entries give."""

    def __init__(self, order):
        super().__init__(order)
        self._folder = Path(tempfile.mkdtemp(prefix="answering-cluster-"))
        host = KubernetesHost(self._folder, SimpleNamespace(), lambda *_: None, ControlPlane)
        self._cluster = host.start(order)
        self.endpoint, self.authority = self._cluster.endpoint, self._cluster.authority

    def grant(self, principal, policy, namespaces):
        """Give a policy."""
        super().grant(principal, policy, namespaces)
        self._cluster.grant(principal, policy, namespaces)

    def stop(self):
        """End the control plane."""
        self._cluster.stop()
        shutil.rmtree(self._folder)
        super().stop()


class RecordedClusters:
    """
    Starts recorded clusters.

    One named `broken` does not start, one named `slow` when it may, and one named `answering` has an API server.
    """

    def __init__(self):
        self.running = {}
        self._may_start = threading.Event()

    def let_start(self):
        """Let the slow one start."""
        self._may_start.set()

    def start(self, order):
        """Start a cluster."""
        if order.name == "broken":
            raise RehearsalError("no port is free")
        if order.name == "slow":
            self._may_start.wait()
        self.running[order.name] = (AnsweringCluster if order.name == "answering" else RecordedCluster)(order)
        return self.running[order.name]

    def review(self, cluster, token):
        """Return the user whom EKS sees behind a token."""
        user = self.running[cluster].order.review(token)
        return None if user is None else dataclasses.asdict(user)

    def find_faults(self, cluster):
        """Return instance id -> why the node is not ready."""
        return {name: node.find_fault() for name, node in self.running[cluster].nodes.items()}


clusters = RecordedClusters()


def find_pod_credentials(aws, **pod):
    """Return the credentials of pods of a service account."""
    credentials = aws.find_pod_credentials(**pod)
    return None if credentials is None else dataclasses.asdict(credentials)


def observe(observation):
    """Pass an observation on to the test."""
    write("observation", topic=observation.topic, subject=observation.subject, text=observation.text)


def answer(aws, command):
    """Carry out one command."""
    if command["do"] == "deploy":
        stack = read_stack(Path(command["assembly"]), command.get("stack"))
        aws.deploy(stack, change_template=partial(set_size, size=command["size"]))
        return {"endpoint": aws.endpoint, "overrides": aws.overrides}
    if command["do"] == "wait":
        return dataclasses.asdict(aws.wait(command["seconds"], command.get("stack", "")))
    if command["do"] == "report":
        return {
            "calls": dataclasses.asdict(aws.calls()),
            "invocations": [dataclasses.asdict(entry) for entry in aws.invocations()],
            "activities": aws.activities(),
        }
    acts = (aws.fail_instance, aws.send_event, aws.interrupt_training, aws.kill_container, aws.begin_reservation)
    by_name = {act.__name__: act for act in acts} | {
        "mint": partial(mint, aws),
        "find_pod_credentials": partial(find_pod_credentials, aws),
        "find_mount_obstacle": lambda volume, **node: aws.find_mount_obstacle(volume=tuple(volume), **node),
        "find_pull_denial": aws.find_pull_denial,
        "may_write_volume": lambda volume, **node: aws.may_write_volume(volume=tuple(volume), **node),
        "review": clusters.review,
        "find_faults": clusters.find_faults,
        "let_start": clusters.let_start,
        "limit_training": lambda **limits: aws.limit_training(TrainingLimits(**limits)),
        "count_actions": partial(count_actions, aws),
    }
    return by_name[command.pop("do")](**command)


def mint(aws, role):
    """Return credentials of a role."""
    return dataclasses.asdict(aws._principals.mint(aws.place, role_arn=role, session="someone", kind="other"))


def count_actions(aws, kind="training"):
    """Return the actions of callers of a kind that the authorizer has decided, with their counts."""
    counts = {}
    for call, count in aws.authorizer.record.counts().items():
        if call.kind == kind:
            counts[call.action] = counts.get(call.action, 0) + count
    return counts


def set_size(template, size):
    """Set the size of the workers' group; None: as the template says."""
    changed, listing = copy.deepcopy(template), {}
    for name in ("DesiredCapacity", "MaxSize") if size is not None else ():
        changed["Resources"]["WorkerGroup"]["Properties"][name] = listing[f"WorkerGroup.{name}"] = str(size)
    return changed, listing


def check_metric(namespace, name, dimensions):
    """Take every metric but one."""
    if (namespace, name) == ("Sample", "Unwritten"):
        raise AssemblyError(f"nothing writes {name} by {', '.join(dimensions)}")


def open_cloud(options):
    """Start an embedded AWS with options given as JSON."""
    faults = [
        LaunchFault(**fault | {"ordinals": frozenset(fault["ordinals"]) if "ordinals" in fault else None})
        for fault in options.pop("faults", [])
    ]
    pace = ScalingPace(**options.pop("pace", {}))
    if "message_faults" in options:
        options["message_faults"] = MessageFaults(**options["message_faults"])
    if "training_limits" in options:
        options["training_limits"] = TrainingLimits(**options["training_limits"])
    if "policies" in options:
        options["policies"] = GivenPolicies(**options["policies"])
    if "node_modules" in options:
        options["node_modules"] = Path(options["node_modules"])
    if options.pop("has_local_targets", False):
        options["find_target"] = lambda _: "127.0.0.1"
    retries = tuple(options.pop("retry_seconds", (60.0, 120.0)))
    aws = EmbeddedAws(
        address="127.0.0.1",
        port=0,
        machines=RecordingHost(),
        containers=PlayedContainers(),
        clusters=clusters if options.pop("has_clusters", True) else None,
        observer=observe,
        options=CloudOptions(
            pace=pace,
            faults=faults,
            pools=[CapacityPool(**pool) for pool in options.pop("pools", [])],
            reservations=[Reservation(**each) for each in options.pop("reservations", [])],
            retry_seconds=retries,
            label_instance=lambda tags, group: tags.get("deeplearning:role", group),
            check_metric=check_metric,
            **options,
        ),
    )
    aws.start()
    return aws


def main():
    """Serve commands until standard input ends."""
    aws = None
    for line in sys.stdin:
        command = json.loads(line)
        try:
            if command["do"] == "open":
                if aws is not None:
                    aws.stop()
                aws = open_cloud(command["options"])
                write("answer", value=None)
            else:
                write("answer", value=answer(aws, command))
        except RehearsalError as error:
            write("error", text=str(error))
    if aws is not None:
        aws.stop()


if __name__ == "__main__":
    # As tests/conftest.py does: botocore's and moto's documents stay.
    gc.set_threshold(20_000, 20, 20)
    share_botocore(setattr)
    share_moto(setattr)
    main()
