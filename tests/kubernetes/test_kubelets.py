"""The kubelets of the rehearsal, whose pods are those of a recorded host."""

import json
import re
import threading
from dataclasses import dataclass, field

import pytest

from cdk_rehearsal.kubernetes.api_client import ApiClient
from cdk_rehearsal.kubernetes.container_logs import LogServer
from cdk_rehearsal.kubernetes.kubelet import Kubelets
from cdk_rehearsal.kubernetes.node_status import KubernetesNode
from cdk_rehearsal.kubernetes.pods import ImageError, VolumeError
from tests.kubernetes.client import locate
from tests.kubernetes.conftest import NUMBERS
from tests.kubernetes.lab import SETTINGS, TAINT, Lab, get_disruptions
from tests.real_time import GENEROUS_SECONDS, wait_until

KUBELET = "cdk_rehearsal.kubernetes.kubelet"
KILLED, TERMINATED = 137, 143
SIZE = {"cpu": "8", "memory": "16Gi", "pods": "29", "ephemeral-storage": "100Gi"}
PLUGIN = "example.com/plugin:1"


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
        return status

    def wait(self, seconds=None):
        return self.status if self.ended.wait(seconds) else None

    def stop(self, seconds):
        self.graces.append(seconds)
        return self.end(TERMINATED)

    def kill(self):
        return self.end(KILLED)


class RecordedHost:
    """Starts recorded pods, or raises what a test planted."""

    def __init__(self, folder):
        self._folder, self.pods, self.removed, self.fault = folder, {}, [], None

    def start(self, order, on_line):
        if self.fault:
            raise self.fault
        root = self._folder / order.uid
        for path, content in order.files.items():
            (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
            (root / path.lstrip("/")).write_bytes(content)
        self.pods[order.name] = RecordedPod(order, root, on_line)
        return self.pods[order.name]

    def require_pull(self, image, node):
        if self.fault:
            raise self.fault

    def remove(self, pod):
        self.removed.append(pod)
        pod.kill()


class Site:
    """A cluster with one node of members, and a job of one pod."""

    def __init__(self, plane, logs, folder):
        number = next(NUMBERS)
        self.node, self.said, self.fault = f"ip-10-9-{number}-5.ec2.internal", [], ""
        self.lab, self.host = Lab(plane, number), RecordedHost(folder)
        self.lab.prepare()
        api = ApiClient(plane.endpoint, plane.authority, plane.token)
        self.kubelets = Kubelets(api, self.host, logs, lambda lane, text: self.said.append((lane, text)))
        self._seen = self.lab.admin.do("GET", locate("pods", self.lab.namespace))["metadata"]["resourceVersion"]

    def join(self):
        node = KubernetesNode(
            name=self.node,
            address="127.0.0.1",
            labels={"deeplearning/member": "true"},
            taints=[TAINT],
            capacity=SIZE,
            allocatable=SIZE,
            resources={"nvidia.com/gpu": 2},
            plugged={PLUGIN: {"vpc.amazonaws.com/efa": 4}},
            find_fault=lambda: self.fault,
        )
        self.kubelets.join(node)

    def run(self):
        """Return a pod that runs, as the API server has it and as the host does."""
        self.join()
        self.lab.submit("train", members=1)
        pod = self.await_phase("Running")
        return pod, self.host.pods[pod["metadata"]["name"]]

    def await_change(self, kind, matches):
        """Return a pod in the first state that matches, however short it is, after those already returned."""
        query = f"watch=true&resourceVersion={self._seen}"
        for line in self.lab.admin.stream(f"{locate('pods', self.lab.namespace)}?{query}"):
            event = json.loads(line)
            pod = event["object"]
            self._seen = pod["metadata"]["resourceVersion"]
            if event["type"] in kind and matches(pod):
                return pod
        raise AssertionError("the watch has ended")

    def await_phase(self, phase):
        return self.await_change(("ADDED", "MODIFIED"), lambda pod: pod["status"].get("phase") == phase)

    def await_wait(self, reason):
        """Return why the container of a pod waits, once the reason is this one."""
        pod = self.await_change(("MODIFIED",), lambda pod: get_state(pod).get("waiting", {}).get("reason") == reason)
        return get_state(pod)["waiting"]

    def list_events(self):
        return {(each["reason"], each["message"]) for each in self.lab.admin.list("events", self.lab.namespace)}

    def find_node(self):
        conditions = self.lab.admin.get("nodes", "", self.node)["status"]["conditions"]
        return {each["type"]: each for each in conditions}["Ready"]

    def close(self):
        self.kubelets.close()
        self.lab.close()


def get_state(pod):
    """Return the state of the container of a pod; nothing before there is one."""
    return next((each["state"] for each in pod["status"].get("containerStatuses", ())), {})


@pytest.fixture(scope="module")
def logs(plane):
    """The server of the logs of all pods."""
    folder = plane.authority.parent
    opened = LogServer(folder / "server.crt", folder / "server.key")
    yield opened
    opened.close()


@pytest.fixture
def site(plane, logs, tmp_path, monkeypatch):
    """A cluster whose kubelets look for changes at once, and try nothing again before a test lets them."""
    monkeypatch.setattr(f"{KUBELET}._POLL_SECONDS", 0.02)
    monkeypatch.setattr(f"{KUBELET}._RETRY_SECONDS", GENEROUS_SECONDS)
    opened = Site(plane, logs, tmp_path)
    yield opened
    opened.close()


@pytest.fixture
def mend(site, monkeypatch):
    """Return the function that ends the fault of the host, and lets the kubelet try again."""

    def mend():
        site.host.fault = None
        monkeypatch.setattr(f"{KUBELET}._RETRY_SECONDS", 0.0)

    return mend


def test_a_pod_runs_with_what_its_job_says(site):
    pod, running = site.run()
    order = running.order
    expected = (site.lab.namespace, site.node, SETTINGS.service_account)
    assert (order.namespace, order.node, order.service_account) == expected
    assert order.hostname == pod["spec"]["hostname"] == "train-0"
    assert [(each.path, each.driver) for each in order.volumes] == [("/efs", "efs.csi.aws.com")]
    assert any(content == b"print()" for content in order.files.values())
    assert pod["status"]["podIP"] == running.address
    assert get_state(pod)["running"]


def test_the_log_of_a_pod_is_relayed_while_it_runs_and_when_it_has_ended(site):
    pod, running = site.run()
    path = locate("pods", site.lab.namespace, pod["metadata"]["name"], "log")

    def read(query=""):
        return [*site.lab.admin.stream(f"{path}?container=member{query}")]

    running.on_line("epoch 1")
    assert read() == ["epoch 1"]
    running.on_line("epoch 2")
    running.end(0)
    site.await_phase("Succeeded")
    assert read("&tailLines=1") == ["epoch 2"]
    assert re.fullmatch(r"[0-9T:.-]+Z epoch 1\n[0-9T:.-]+Z epoch 2", "\n".join(read("&timestamps=true")))


def test_a_failure_has_its_status_and_the_message_that_the_pod_left(site):
    pod, running = site.run()
    message = pod["spec"]["containers"][0]["terminationMessagePath"]
    (running.root / message.lstrip("/")).write_text("the loss is not a number")
    running.end(3)
    ended = get_state(site.await_phase("Failed"))["terminated"]
    assert (ended["exitCode"], ended["reason"], ended["message"]) == (3, "Error", "the loss is not a number")


def test_a_container_that_the_kernel_kills_for_want_of_memory_has_that_reason(site):
    pod, _ = site.run()
    site.kubelets.kill(pod["metadata"]["name"], "OOMKilled")
    ended = get_state(site.await_phase("Failed"))["terminated"]
    assert (ended["exitCode"], ended["reason"]) == (KILLED, "OOMKilled")


def test_a_pod_that_is_deleted_gets_the_time_of_its_job_to_end(site):
    pod, running = site.run()
    site.lab.suspend("train", is_suspended=True)
    site.await_change(("DELETED",), lambda _: True)
    assert running.graces == [pod["spec"]["terminationGracePeriodSeconds"]]


def test_an_image_that_cannot_be_pulled_is_reported_in_the_runtimes_words_backs_off_and_is_pulled_later(site, mend):
    """The events are those of aws/amazon-vpc-cni-k8s#3526."""
    error = "rpc error: code = NotFound desc = not found"
    site.host.fault = ImageError(error)
    site.join()
    site.lab.submit("train", members=1)
    assert site.await_wait("ErrImagePull")["message"] == error
    pulling = f'Back-off pulling image "{SETTINGS.image}": ErrImagePull: {error}'
    assert site.await_wait("ImagePullBackOff")["message"] == pulling
    assert site.list_events() >= {
        ("Failed", f'Failed to pull image "{SETTINGS.image}": {error}'),
        ("Failed", "Error: ErrImagePull"),
        ("Failed", "Error: ImagePullBackOff"),
    }
    mend()
    site.await_phase("Running")


def test_a_volume_that_cannot_be_mounted_is_reported_in_an_event_and_is_mounted_later(site, mend):
    site.host.fault = VolumeError("MountVolume.SetUp failed")
    site.join()
    site.lab.submit("train", members=1)
    assert site.await_wait("ContainerCreating") == {"reason": "ContainerCreating"}
    assert ("FailedMount", "MountVolume.SetUp failed") in site.list_events()
    mend()
    site.await_phase("Running")


def test_a_node_is_ready_when_its_fault_is_gone(site):
    site.fault = "cni plugin not initialized"
    site.join()
    ready = site.find_node()
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "KubeletNotReady", site.fault)
    site.lab.submit("train", members=1)
    waiting = site.await_change(("ADDED", "MODIFIED"), lambda pod: pod["status"].get("conditions"))
    assert [each["reason"] for each in waiting["status"]["conditions"]] == ["Unschedulable"]
    site.fault = ""
    site.await_phase("Running")
    assert (site.node, "node is Ready") in site.said


def test_of_a_lost_node_nobody_says_that_its_pods_have_ended(site):
    pod, running = site.run()
    site.kubelets.lose(site.node)
    assert (running.status, site.host.removed) == (KILLED, [running])
    site.kubelets.close()
    assert site.lab.admin.get("pods", site.lab.namespace, pod["metadata"]["name"])["status"]["phase"] == "Running"


def make_plugin(namespace):
    """Return the DaemonSet of a device plugin, which names no command."""
    template = {"spec": {"containers": [{"name": "plugin", "image": PLUGIN}], "tolerations": [{"operator": "Exists"}]}}
    template["metadata"] = {"labels": {"app": "plugin"}}
    spec = {"selector": {"matchLabels": {"app": "plugin"}}, "template": template}
    metadata = {"name": "plugin", "namespace": namespace}
    return {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": metadata, "spec": spec}


def test_a_node_has_the_resources_of_a_plugin_once_its_pod_runs_which_nobody_starts(site):
    site.join()
    path = locate("nodes", name=site.node)
    assert "vpc.amazonaws.com/efa" not in site.lab.admin.do("GET", path)["status"]["allocatable"]
    site.lab.admin.apply(make_plugin(site.lab.namespace))
    site.await_phase("Running")
    site.lab.until(lambda: site.lab.admin.do("GET", path)["status"]["allocatable"].get("vpc.amazonaws.com/efa") == "4")
    assert site.host.pods == {}
    site.lab.submit("train", members=1)
    site.await_change(("MODIFIED",), lambda pod: pod["status"].get("phase") == "Running" and "hostname" in pod["spec"])
    site.lab.admin.do("DELETE", locate("daemonsets", site.lab.namespace, "plugin"), {"propagationPolicy": "Background"})


def test_a_plugin_whose_image_the_node_may_not_pull_finds_nothing_until_it_may(site, mend):
    """The chart aws-efa-k8s-device-plugin has its image in us-west-2, whatever the region of the nodes is."""
    site.host.fault = ImageError("unexpected status from HEAD request: 403 Forbidden")
    site.join()
    site.lab.admin.apply(make_plugin(site.lab.namespace))
    assert "403 Forbidden" in site.await_wait("ErrImagePull")["message"]
    path = locate("nodes", name=site.node)
    assert "vpc.amazonaws.com/efa" not in site.lab.admin.do("GET", path)["status"]["allocatable"]
    mend()
    wait_until(lambda: site.lab.admin.do("GET", path)["status"]["allocatable"].get("vpc.amazonaws.com/efa") == "4")
    site.lab.admin.do("DELETE", locate("daemonsets", site.lab.namespace, "plugin"), {"propagationPolicy": "Background"})


def test_a_container_without_a_command_waits_with_the_reason(site):
    site.join()
    job = site.lab.make("train", members=1)
    del job["spec"]["template"]["spec"]["containers"][0]["command"]
    if site.lab.plane.is_stand_in:
        assert site.lab.submitter.apply(job).code == 501
        return
    assert site.lab.submitter.apply(job).code == 201
    assert "names" in site.await_wait("CreateContainerError")["message"]


def test_a_kubelet_that_dies_is_in_the_report(site):
    site.host.fault = KeyError("command")
    site.join()
    site.lab.submit("train", members=1)
    wait_until(lambda: (site.node, "kubelet has died: KeyError('command')") in site.said)


def test_a_node_registers_with_its_status(site):
    site.fault = "cni plugin not initialized"
    posted = []
    call = ApiClient.call

    def record(client, method, path, body=None, kind="application/json"):
        posted.append((method, path, body))
        return call(client, method, path, body, kind)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApiClient, "call", record)
        site.join()
    (status,) = [body["status"] for method, path, body in posted if (method, path) == ("POST", "/api/v1/nodes")]
    states = {each["type"]: each["status"] for each in status["conditions"]}
    assert states == {"Ready": "False", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
    assert status["allocatable"]["cpu"] == "8"


def test_a_pod_above_a_limit_of_its_own_is_evicted_and_its_failure_counts(site):
    pod, _ = site.run()
    words = 'Container member exceeded its local ephemeral storage limit "1Gi". '
    site.kubelets.evict(pod["metadata"]["name"], words)
    ended = site.await_phase("Failed")
    assert (ended["status"]["reason"], ended["status"]["message"]) == ("Evicted", words)
    assert not get_disruptions(ended)
    assert site.lab.await_end("train")[-1] == "Failed/MaxFailedIndexesExceeded"


@pytest.mark.parametrize(
    ("resource", "condition", "taint"),
    [
        ("memory", "MemoryPressure", "node.kubernetes.io/memory-pressure"),
        ("ephemeral-storage", "DiskPressure", "node.kubernetes.io/disk-pressure"),
    ],
)
def test_a_node_under_pressure_evicts_its_pods_takes_no_other_and_no_retry_is_spent(
    site, monkeypatch, resource, condition, taint
):
    monkeypatch.setattr(f"{KUBELET}._RENEW_SECONDS", 0.1)
    pod, _ = site.run()
    site.kubelets.press(site.node, resource)
    ended = site.await_phase("Failed")
    assert get_disruptions(ended) == ["TerminationByKubelet"]
    assert ended["status"]["message"] == f"The node was low on resource: {resource}. "
    node = locate("nodes", name=site.node)
    states = {each["type"]: each["status"] for each in site.lab.admin.do("GET", node)["status"]["conditions"]}
    assert states[condition] == "True"
    site.lab.until(lambda: taint in [each["key"] for each in site.lab.admin.do("GET", node)["spec"].get("taints", ())])
    assert site.lab.list_ends("train") == []
    site.kubelets.relieve(site.node)
    uid = pod["metadata"]["uid"]
    site.lab.until(lambda: any(each["metadata"]["uid"] != uid for each in site.lab.list_pods("train")))
    successor = site.await_change(
        ("ADDED", "MODIFIED"), lambda each: each["metadata"]["uid"] != uid and each["status"].get("phase") == "Running"
    )
    assert successor["metadata"]["annotations"]["batch.kubernetes.io/job-index-failure-count"] == "0"
