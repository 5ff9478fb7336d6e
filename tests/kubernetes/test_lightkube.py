"""The client of the command line, lightkube, understands a control plane as `deeplearning-cdk` uses it."""

import base64
from dataclasses import replace

import pytest
from lightkube import ApiError, Client, KubeConfig, codecs
from lightkube.config.models import Cluster, User
from lightkube.resources.apps_v1 import DaemonSet
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, Pod, Secret
from lightkube.types import CascadeType, PatchType

from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from deeplearning_contract.jobs.kubernetes_job import JOB_LABEL
from tests.kubernetes.client import MANAGER
from tests.kubernetes.lab import SETTINGS


def open_client(lab, token):
    """Return a client with a token."""
    authority = base64.b64encode(lab.plane.authority.read_bytes()).decode()
    cluster = Cluster(server=lab.plane.endpoint, certificate_auth_data=authority)
    configuration = KubeConfig.from_one(cluster=cluster, user=User(token=token), context_name="lab")
    return Client(configuration, namespace=lab.namespace, field_manager=MANAGER, trust_env=False)


@pytest.fixture
def client(lab):
    """A client with the token of a submitter."""
    return open_client(lab, "submitter")


def test_a_job_is_applied_followed_and_stopped(lab, client):
    made = client.apply(codecs.from_dict(lab.make("trained")))
    assert (made.metadata.generation, made.spec.completionMode) == (1, "Indexed")
    assert client.apply(codecs.from_dict(lab.make("trained"))).metadata.generation == 1
    pods = lab.until(lambda: lab.get_running("trained", 2))
    found = list(client.list(Pod, labels={JOB_LABEL: "trained"}))
    assert {pod.metadata.name for pod in found} == {pod["metadata"]["name"] for pod in pods}
    name = pods[0]["metadata"]["name"]
    lab.kubelet.logs[name] = "epoch 1\nepoch 2\n"
    assert [line.rstrip("\n") for line in client.log(name, follow=True)] == ["epoch 1", "epoch 2"]
    assert any(event.reason == "Scheduled" for event in client.list(Event))
    client.patch(Job, "trained", {"spec": {"suspend": True}}, patch_type=PatchType.MERGE)
    lab.until(lambda: lab.list_ends("trained") == ["Suspended/JobSuspended"])
    assert client.get(Job, "trained").status.active is None
    client.delete(Job, "trained", cascade=CascadeType.FOREGROUND)
    lab.until(lambda: lab.admin.get("jobs", lab.namespace, "trained") is None)


def test_a_watch_sees_a_job_end(lab, client):
    pods = lab.run("watched")
    lab.kubelet.end(pods[0], 0)
    lab.await_end("watched")
    seen = client.watch(Job, fields={"metadata.name": "watched"}, resource_version="0")
    kind, job = next(iter(seen))
    assert (kind, job.status.conditions[-1].reason) == ("ADDED", "SuccessPolicy")


def test_a_refusal_has_its_code_and_its_words(lab, client):
    with pytest.raises(ApiError, match="cannot list resource") as refusal:
        list(client.list(Secret, namespace="kube-system"))
    assert refusal.value.status.code == 403
    with pytest.raises(ApiError, match=r'jobs\.batch "absent" not found') as refusal:
        client.get(Job, "absent")
    assert refusal.value.status.code == 404


def test_an_administrator_applies_all_that_jobs_need_with_the_plugins_of_devices(lab):
    settings = replace(SETTINGS, namespace=lab.namespace, efa_count=1, has_nvidia_plugin=False)
    administrator = open_client(lab, lab.plane.token)
    objects = make_cluster_objects(settings, {"start_pod.py": "print()"})
    applied = [administrator.apply(codecs.from_dict(each), force=True) for each in objects]
    plugins = [each for each in applied if isinstance(each, DaemonSet)]
    assert [each.status.desiredNumberScheduled >= 0 for each in plugins] == [True, True]
