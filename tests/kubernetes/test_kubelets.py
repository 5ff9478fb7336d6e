"""The kubelets of the rehearsal, whose pods are those of a recorded host, on a stand-in of the control plane."""

import re
import threading
from dataclasses import dataclass, field

import pytest

from cdk_rehearsal.kubernetes.api_client import MERGE, ApiClient, locate
from cdk_rehearsal.kubernetes.container_logs import LogServer
from cdk_rehearsal.kubernetes.control_plane import ControlPlane
from cdk_rehearsal.kubernetes.kubelet import Kubelets, KubernetesNode
from cdk_rehearsal.kubernetes.pods import ImageError, VolumeError
from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from tests.kubernetes.conftest import VERSION
from tests.kubernetes.lab import SETTINGS, START_FILES, TAINT, Lab
from tests.real_time import wait_until

NODE = "ip-10-0-0-5.ec2.internal"
NAMESPACE = SETTINGS.namespace


@dataclass
class RecordedPod:
    """A pod that ends when a test says so."""

    order: object
    root: object
    on_line: object
    address: str = "10.0.0.101"
    status: int | None = None
    graces: list = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def end(self, status):
        self.status = status
        self.ended.set()

    def wait(self, seconds=None):
        return self.status if self.ended.wait(seconds) else None

    def stop(self, seconds):
        self.graces.append(seconds)
        self.end(143)
        return 143

    def kill(self):
        self.end(137)
        return 137


class RecordedHost:
    """Starts recorded pods, or raises what a test planted."""

    def __init__(self, folder):
        self._folder, self.pods, self.fault = folder, {}, None

    def start(self, order, on_line):
        if self.fault:
            raise self.fault
        root = self._folder / order.uid
        for path, content in order.files.items():
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).write_bytes(content)
        self.pods[order.name] = RecordedPod(order, root, on_line)
        return self.pods[order.name]

    def remove(self, pod):
        pod.kill()


class Site:
    """A control plane with one node of members."""

    def __init__(self, folder):
        self.plane = ControlPlane(folder / "plane", version=VERSION, review={}.get)
        self.api = ApiClient(self.plane.endpoint, self.plane.authority, self.plane.token)
        self.host, self.said, self.fault = RecordedHost(folder), [], ""
        certificates = self.plane.authority.parent
        self.logs = LogServer(certificates / "server.crt", certificates / "server.key")
        self.kubelets = Kubelets(self.api, self.host, self.logs, lambda lane, text: self.said.append((lane, text)))
        for each in make_cluster_objects(SETTINGS, START_FILES):
            self.api.apply(each, "deeplearning-cdk")

    def join(self):
        labels, resources = {"deeplearning/member": "true"}, {"nvidia.com/gpu": 2}
        node = KubernetesNode(
            name=NODE,
            address="127.0.0.1",
            labels=labels,
            taints=[TAINT],
            resources=resources,
            find_fault=lambda: self.fault,
        )
        self.kubelets.join(node)

    def submit(self):
        job = Lab.make(Named, "train", members=1)
        self.api.call("POST", locate("jobs", NAMESPACE), job)
        return wait_until(self.find_pod)

    def find_pod(self):
        return next(iter(self.api.list("pods", NAMESPACE)), None)

    def await_phase(self, phase):
        return wait_until(lambda: (pod := self.find_pod()) and pod["status"]["phase"] == phase and pod)

    def run(self):
        self.join()
        self.submit()
        pod = self.await_phase("Running")
        return pod, self.host.pods[pod["metadata"]["name"]]

    def get_state(self, pod):
        return next(iter(pod["status"]["containerStatuses"]))["state"]

    def find_events(self, reason):
        return [each["message"] for each in self.api.list("events", NAMESPACE) if each["reason"] == reason]

    def find_node(self):
        return {each["type"]: each for each in self.api.find("nodes", "", NODE)["status"]["conditions"]}["Ready"]

    def close(self):
        self.kubelets.close()
        self.logs.close()
        self.plane.stop()


class Named:
    """The settings with which `Lab.make` makes a Job."""

    settings = SETTINGS


@pytest.fixture
def site(tmp_path):
    opened = Site(tmp_path)
    yield opened
    opened.close()


def test_a_pod_runs_with_what_its_job_says(site):
    pod, running = site.run()
    order = running.order
    assert (order.namespace, order.node, order.service_account) == (NAMESPACE, NODE, SETTINGS.service_account)
    assert order.hostname == pod["spec"]["hostname"] == "train-0"
    assert [(each.path, each.driver) for each in order.volumes] == [("/efs", "efs.csi.aws.com")]
    assert any(content == b"print()" for content in order.files.values())
    assert pod["status"]["podIP"] == running.address
    assert site.get_state(pod)["running"]


def test_the_log_of_a_pod_is_relayed_while_it_runs_and_when_it_has_ended(site):
    pod, running = site.run()
    running.on_line("epoch 1")
    path = f"{locate('pods', NAMESPACE, pod['metadata']['name'], 'log')}?container=member"
    assert site.api.read_text(path) == "epoch 1\n"
    running.on_line("epoch 2")
    running.end(0)
    site.await_phase("Succeeded")
    assert site.api.read_text(f"{path}&tailLines=1") == "epoch 2\n"
    assert re.fullmatch(r"[0-9T:.-]+Z epoch 1\n[0-9T:.-]+Z epoch 2\n", site.api.read_text(f"{path}&timestamps=true"))


def test_a_failure_has_its_status_and_the_message_that_the_pod_left(site):
    pod, running = site.run()
    message = pod["spec"]["containers"][0]["terminationMessagePath"]
    (running.root / message.lstrip("/")).write_text("the loss is not a number")
    running.end(3)
    ended = site.get_state(site.await_phase("Failed"))["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "the loss is not a number")


def test_a_pod_that_is_deleted_gets_the_time_of_its_job_to_end(site):
    pod, running = site.run()
    name, grace = pod["metadata"]["name"], pod["spec"]["terminationGracePeriodSeconds"]
    site.api.call("PATCH", locate("jobs", NAMESPACE, "train"), {"spec": {"suspend": True}}, MERGE)
    wait_until(lambda: site.api.find("pods", NAMESPACE, name) is None)
    assert running.graces == [grace]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [(ImageError("not found"), "Failed"), (VolumeError("MountVolume.SetUp failed"), "FailedMount")],
)
def test_a_pod_that_cannot_start_says_why_and_starts_when_it_can(site, fault, reason):
    site.host.fault = fault
    site.join()
    site.submit()
    wait_until(lambda: any(str(fault) in words for words in site.find_events(reason)))
    site.host.fault = None
    site.await_phase("Running")


def test_a_node_is_ready_when_its_fault_is_gone(site):
    site.fault = "cni plugin not initialized"
    site.join()
    ready = site.find_node()
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "KubeletNotReady", site.fault)
    assert site.submit()["spec"].get("nodeName") is None
    site.fault = ""
    site.await_phase("Running")
    assert (NODE, "node is Ready") in site.said


def test_a_node_that_is_lost_says_nothing_of_its_pods(site):
    _, running = site.run()
    site.kubelets.lose(NODE)
    assert running.status == 137
    site.kubelets.close()
    assert site.find_pod()["status"]["phase"] == "Running"
