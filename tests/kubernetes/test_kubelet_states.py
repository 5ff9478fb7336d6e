"""Kubelets of a rehearsal tell of pods that cannot start or are killed, and nothing of those of a lost node."""

import threading
import time

import pytest

from cdk_rehearsal.kubernetes.api_client import ApiClient, locate
from cdk_rehearsal.kubernetes.container_logs import LogServer
from cdk_rehearsal.kubernetes.kubelet import Kubelets, KubernetesNode
from cdk_rehearsal.kubernetes.pods import ImageError, VolumeError
from tests.kubernetes.conftest import NUMBERS
from tests.real_time import GENEROUS_SECONDS

KILLED = 137


class Pod:
    """A pod that runs until it is killed."""

    def __init__(self, root):
        self.address, self.root = "127.0.0.1", root
        self._ended = threading.Event()

    def wait(self, seconds=None):
        return KILLED if self._ended.wait(seconds) else None

    def stop(self, _seconds):
        return self.kill()

    def kill(self):
        self._ended.set()
        return KILLED


class Host:
    """Starts pods unless it has an error; keeps those that were removed."""

    def __init__(self, root):
        self.root, self.error, self.removed = root, None, []

    def start(self, _order, _on_line):
        if self.error is not None:
            raise self.error
        return Pod(self.root)

    def remove(self, pod):
        self.removed.append(pod)


class Node:
    """A node with a pod bound to it."""

    def __init__(self, plane, root, number):
        self.api = ApiClient(plane.endpoint, plane.authority, plane.token)
        self.host, self.name, self.namespace = Host(root), f"ip-10-9-0-{number}", f"kubelets-{number}"
        folder = plane.authority.parent
        self._logs = LogServer(folder / "server.crt", folder / "server.key")
        self.kubelets = Kubelets(self.api, self.host, self._logs, lambda _name, _text: None)
        self.api.call("POST", locate("namespaces"), {"metadata": {"name": self.namespace}})
        self.kubelets.join(KubernetesNode(name=self.name, address="127.0.0.1", labels={}, find_fault=lambda: ""))

    def create_pod(self, error=None):
        self.host.error = error
        container = {"name": "member", "image": "registry/absent:1", "command": ["sleep", "60"]}
        spec = {"nodeName": self.name, "restartPolicy": "Never", "containers": [container]}
        pod = {"metadata": {"name": "train-0"}, "spec": spec}
        self.api.call("POST", locate("pods", self.namespace), pod)

    def await_state(self, kind, reason=""):
        """Return the state of the container when it is of a kind, and has the reason if one is given."""
        give_up = time.monotonic() + GENEROUS_SECONDS
        while True:
            status = self.api.call("GET", locate("pods", self.namespace, "train-0"))["status"]
            for container in status.get("containerStatuses", ()):
                state = container["state"].get(kind)
                if state is not None and (not reason or state.get("reason") == reason):
                    return state
            assert time.monotonic() < give_up, status
            time.sleep(0.05)

    def list_events(self):
        return [(each["reason"], each["message"]) for each in self.api.list("events", self.namespace)]

    def close(self):
        self.kubelets.close()
        self._logs.close()
        self.api.call("DELETE", locate("pods", self.namespace, "train-0"), {"gracePeriodSeconds": 0})
        self.api.call("DELETE", locate("nodes", name=self.name))


@pytest.fixture
def node(plane, tmp_path):
    made = Node(plane, tmp_path, next(NUMBERS))
    yield made
    made.close()


def test_an_image_that_cannot_be_pulled_is_reported_with_the_words_of_the_runtime_and_then_backs_off(node):
    """The events are those of aws/amazon-vpc-cni-k8s#3526."""
    node.create_pod(ImageError("rpc error: code = NotFound desc = not found"))
    assert "NotFound" in node.await_state("waiting", "ErrImagePull")["message"]
    message = node.await_state("waiting", "ImagePullBackOff")["message"]
    pulling = 'Back-off pulling image "registry/absent:1": ErrImagePull: rpc error: code = NotFound desc = not found'
    assert message == pulling
    assert set(node.list_events()) >= {
        ("Failed", 'Failed to pull image "registry/absent:1": rpc error: code = NotFound desc = not found'),
        ("Failed", "Error: ErrImagePull"),
        ("Failed", "Error: ImagePullBackOff"),
    }


def test_a_volume_that_cannot_be_mounted_is_reported_in_an_event_while_the_container_is_being_created(node):
    node.create_pod(VolumeError("MountVolume.SetUp failed"))
    assert node.await_state("waiting") == {"reason": "ContainerCreating"}
    assert ("FailedMount", "MountVolume.SetUp failed") in node.list_events()


def test_a_container_that_the_kernel_kills_for_want_of_memory_has_that_reason(node):
    node.create_pod()
    node.await_state("running")
    node.kubelets.kill("train-0", "OOMKilled")
    ended = node.await_state("terminated")
    assert (ended["exitCode"], ended["reason"]) == (KILLED, "OOMKilled")


def test_of_a_lost_node_nobody_says_that_its_pods_have_ended(node):
    node.create_pod()
    node.await_state("running")
    node.kubelets.lose(node.name)
    assert len(node.host.removed) == 1
    pod = node.api.call("GET", locate("pods", node.namespace, "train-0"))
    assert pod["status"]["phase"] == "Running"
