"""The stand-in says what it does not do, and answers whatever it is sent."""

import contextlib
import json
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from cdk_rehearsal.kubernetes.stand_in.api.requests import parse_path
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.selectors import parse_label_selector, read_quantity
from cdk_rehearsal.kubernetes.stand_in.controllers.indexes import read_indexes, show_indexes
from deeplearning_contract.jobs.kubernetes_cluster import make_cluster_objects
from tests.kubernetes.client import APPLY, MERGE, STRATEGIC, Client, locate
from tests.kubernetes.conftest import open_plane
from tests.kubernetes.lab import SETTINGS, START_FILES

KINDS = ("jobs", "pods", "persistentvolumeclaims", "persistentvolumes", "configmaps", "nodes")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "a"]), inner, max_size=2),
    max_leaves=4,
)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory):
    """A stand-in without nodes."""
    plane = open_plane(tmp_path_factory.mktemp("stand-in"))
    yield Client(plane, plane.token)
    plane.stop()


def make_job(**spec):
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a", "command": ["a"]}]}}
    spec = {"completionMode": "Indexed", "completions": 1, "template": template, **spec}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a", "namespace": "default"}, "spec": spec}


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"completionMode": "NonIndexed"}, "spec.completionMode NonIndexed"),
        ({"managedBy": "kueue.x-k8s.io/multikueue"}, "spec.managedBy kueue.x-k8s.io/multikueue"),
    ],
)
def test_what_the_stand_in_does_not_do_is_refused_by_name(stand_in, values, path):
    answer = stand_in.apply(make_job(**values))
    words = f"the stand-in of Kubernetes does not implement {path}; rehearse with release binaries "
    assert (answer.code, answer.message) == (501, f"{words}(KUBERNETES_BINARIES=<folder>)")


def test_the_device_plugins_of_a_cluster_are_kept(stand_in):
    settings = replace(SETTINGS, efa_count=4, has_nvidia_plugin=False)
    objects = make_cluster_objects(settings, START_FILES)
    for each in (each for each in objects if each["kind"] == "DaemonSet"):
        first, second = stand_in.apply(each), stand_in.apply(each)
        assert (first.code, second.code) == (201, 200), first
        assert [each.document["metadata"]["generation"] for each in (first, second)] == [1, 1]
    found = stand_in.do("GET", "/apis/apps/v1/namespaces/kube-system/daemonsets")["items"]
    assert [each["metadata"]["name"] for each in found] == ["aws-efa-k8s-device-plugin", "nvidia-device-plugin"]


def test_an_unknown_field_outside_of_applies_is_left_out_with_a_warning_or_refused(stand_in):
    account = {"metadata": {"name": "careless", "namespace": "default"}, "automount": True}
    answer = stand_in.call("POST", locate("serviceaccounts", "default"), account)
    assert (answer.code, "automount" in answer.document) == (201, False)
    assert answer.warnings == ('299 - "unknown field \\"automount\\""',)
    answer = stand_in.call("POST", locate("serviceaccounts", "default") + "?fieldValidation=Strict", account)
    assert answer.code == 400
    assert answer.message.endswith('strict decoding error: unknown field "automount"')


def test_an_object_of_an_older_version_is_not_written(stand_in):
    path = locate("configmaps", "default", "settings")
    made = stand_in.do("POST", locate("configmaps", "default"), {"metadata": {"name": "settings"}, "data": {"a": "1"}})
    stand_in.do("PUT", path, {**made, "data": {"a": "2"}})
    answer = stand_in.call("PUT", path, {**made, "data": {"a": "3"}})
    assert (answer.code, answer.reason) == (409, "Conflict")
    assert stand_in.do("GET", path)["data"] == {"a": "2"}


def test_conditions_of_a_status_are_merged_by_their_type(stand_in):
    stand_in.do("POST", locate("nodes"), {"metadata": {"name": "merged"}})
    path = locate("nodes", name="merged", part="status")
    for kind in ("Ready", "DiskPressure"):
        condition = {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        stand_in.do("PATCH", path, {"status": {"conditions": [condition]}}, STRATEGIC)
    found = stand_in.do("GET", path)["status"]["conditions"]
    assert sorted(each["type"] for each in found) == ["DiskPressure", "Ready"]
    stand_in.do("DELETE", locate("nodes", name="merged"))


def test_a_deleted_namespace_is_emptied(stand_in):
    stand_in.do("POST", locate("namespaces"), {"metadata": {"name": "short"}})
    stand_in.do("POST", locate("configmaps", "short"), {"metadata": {"name": "inside"}})
    stand_in.do("DELETE", locate("namespaces", name="short"))
    while stand_in.get("namespaces", "", "short"):
        pass
    assert stand_in.get("configmaps", "short", "inside") is None


def make_sample(plural):
    """Return an object of a kind with much in it."""
    job = make_job(successPolicy={"rules": [{"succeededIndexes": "0"}]}, backoffLimitPerIndex=1, suspend=True)
    job["spec"]["podFailurePolicy"] = {
        "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
    }
    pod = {"serviceAccountName": "default", "nodeSelector": {"a": "b"}, "tolerations": [{"operator": "Exists"}]}
    container = {
        "name": "a",
        "image": "a",
        "command": ["a"],
        "resources": {"limits": {"cpu": "1"}},
        "env": [{"name": "A", "value": "a"}],
    }
    affinity = {"labelSelector": {"matchLabels": {"a": "b"}}, "topologyKey": "kubernetes.io/hostname"}
    pod["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [affinity]}}
    storage = {"accessModes": ["ReadWriteMany"], "storageClassName": "a"}
    contents = {
        "jobs": job,
        "pods": {"spec": {**pod, "restartPolicy": "Never", "containers": [container]}},
        "persistentvolumeclaims": {"spec": {**storage, "resources": {"requests": {"storage": "1Gi"}}}},
        "persistentvolumes": {
            "spec": {**storage, "capacity": {"storage": "1Gi"}, "csi": {"driver": "a", "volumeHandle": "a"}}
        },
        "configmaps": {"data": {"a": "b"}},
        "nodes": {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}, "status": {"allocatable": {"cpu": "1"}}},
    }
    return {**contents[plural], "metadata": {"name": "fuzz", "labels": {"a": "b"}}}


@st.composite
def spoilt_objects(draw):
    """An object with one part replaced by something else."""
    plural = draw(st.sampled_from(KINDS))
    root = {"": make_sample(plural)}
    place, step = root, ""
    while isinstance(place[step], dict | list) and place[step] and draw(st.integers(0, 5)):
        place = place[step]
        step = draw(st.sampled_from([*place] if isinstance(place, dict) else range(len(place))))
    place[step] = draw(values)
    return plural, root[""]


@settings(max_examples=400)
@given(
    method=st.sampled_from(["POST", "PUT", "PATCH", "DELETE"]),
    kind=st.sampled_from([APPLY, MERGE, STRATEGIC, "application/json-patch+json"]),
    spoilt=spoilt_objects(),
)
def test_whatever_is_sent_is_answered_with_a_status(stand_in, method, kind, spoilt):
    plural, document = spoilt
    namespace = "" if plural in ("persistentvolumes", "nodes") else "default"
    stand_in.call("POST", locate(plural, namespace), make_sample(plural))
    path = f"{locate(plural, namespace, '' if method == 'POST' else 'fuzz')}?fieldManager=fuzz"
    answer = stand_in.call(method, path, document, kind)
    assert "the stand-in of Kubernetes failed" not in answer.message, answer
    assert answer.code != 500 or answer.message.startswith("failed to create typed patch object")
    assert stand_in.call("GET", "/api/v1/pods").code == 200
    stand_in.call("DELETE", locate(plural, namespace, "fuzz"), {"gracePeriodSeconds": 0})


@given(st.text(alphabet="abc=!(), in\x00é", max_size=20))
def test_any_selector_is_read_or_refused(text):
    with contextlib.suppress(ApiError):
        parse_label_selector(text)


@given(st.text(max_size=12))
def test_any_quantity_is_read_or_refused(text):
    with contextlib.suppress(ApiError):
        read_quantity(text)


@given(st.text(alphabet="/apisv1namebatchjobs.%", max_size=40))
def test_any_path_is_known_or_not_found(path):
    with contextlib.suppress(ApiError):
        parse_path(path)


@given(st.sets(st.integers(0, 40)))
def test_indexes_are_read_as_they_are_shown(indexes):
    assert read_indexes(show_indexes(indexes)) == indexes


def test_indexes_are_shown_as_kubernetes_does():
    assert show_indexes({1, 3, 4, 5, 7, 8}) == "1,3-5,7,8"


@pytest.mark.parametrize(
    ("text", "amount"), [("85Gi", 85 * 2**30), ("100m", 0.1), ("2", 2), ("1e3", 1000), ("1.5k", 1500)]
)
def test_quantities_have_binary_and_decimal_units(text, amount):
    assert float(read_quantity(text)) == amount


def test_versions_are_distinguished_from_real_ones(stand_in):
    assert stand_in.do("GET", "/version")["gitVersion"] == "v1.35.0+stand-in"
    assert json.dumps(stand_in.do("GET", "/apis")).count('"name": "batch"') == 1
