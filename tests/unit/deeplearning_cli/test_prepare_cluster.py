"""`deeplearning-cdk prepare-cluster` as an administrator of the rehearsal's Kubernetes."""

import json
from contextlib import contextmanager
from functools import partial

import pytest

from cdk_rehearsal.kubernetes.stand_in.controllers.volumes import VolumeController
from deeplearning_cli import prepare_cluster as module
from deeplearning_cli.main import main
from deeplearning_contract.jobs.submission import SubmissionSettings
from tests.kubernetes.client import MERGE, locate

VOLUME, CLAIM = ("persistentvolumes", "nfs-data"), ("persistentvolumeclaims", "nfs-external")
DEVICES = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
MEMBER = {"deeplearning/member": "true"}
NODE = "ip-10-0-1-2.ec2.internal"


@pytest.fixture(autouse=True)
def _devices(account, monkeypatch):
    """Let jobs ask for GPUs and for EFA interfaces; no wait of the command takes many steps."""
    account.change(gpu_count=8, efa_count=4)
    for name in ("BIND_SECONDS", "DEVICE_SECONDS"):
        monkeypatch.setattr(module, name, 3.0)


@pytest.fixture
def prepared(cluster, capsys):
    """The namespace of a cluster that is prepared once."""
    assert main(["prepare-cluster"]) == 0
    capsys.readouterr()
    return cluster.namespace


@contextmanager
def stop_binding():
    """Let no controller bind volumes, nor write their phases."""
    with pytest.MonkeyPatch.context() as patch:
        for step in ("_look_for_volume", "_keep_bound", "_set_phase"):
            patch.setattr(VolumeController, step, lambda *_: None)
        yield


def delete(cluster, plural, name):
    """Delete an object at once, whatever protects it."""
    path = locate(plural, cluster.namespace if plural == CLAIM[0] else "", name)
    cluster.admin.call("DELETE", path)
    cluster.admin.call("PATCH", path, {"metadata": {"finalizers": None}}, MERGE)


@pytest.fixture
def refuse(cluster, capsys):
    """Run the command, which must change nothing, and return why it is refused."""

    def read_version():
        return cluster.admin.do("GET", locate("namespaces"))["metadata"]["resourceVersion"]

    def refuse():
        before = read_version()
        assert main(["prepare-cluster"]) == 2
        assert read_version() == before
        return capsys.readouterr().err

    return refuse


def test_a_cluster_is_prepared_twice_with_the_same_objects(cluster, capsys):
    assert main(["prepare-cluster"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].split() == [
        *("nfs-data", "85Gi", "RWX", "Retain", "Bound"),
        *(f"{cluster.namespace}/nfs-external", "nfs-external"),
    ]
    files = cluster.find("configmaps", "deeplearning")
    assert "start_pod.py BUCKET KEY" in files["data"]["start_pod.py"]
    assert "fetch_agent.py BUCKET KEY" in files["data"]["fetch_agent.py"]
    assert main(["prepare-cluster", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["objects"][:2] == [f"Namespace {cluster.namespace}", "ServiceAccount deeplearning"]
    assert found["lacks"] == []
    assert cluster.find("configmaps", "deeplearning") == files


# --- Volume and claim ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "claim"), [("Available", "Pending"), ("Bound", "Pending"), ("Bound", "Lost")])
def test_a_claim_that_is_not_bound_is_no_success(cluster, capsys, phase, claim):
    cluster.script = [
        partial(cluster.set_status, *VOLUME, phase=phase),
        partial(cluster.set_status, *CLAIM, phase=claim),
    ]
    with stop_binding():
        assert main(["prepare-cluster"]) == 1
    done = capsys.readouterr()
    assert phase in done.out
    assert done.err.strip() == (
        f"claim nfs-external of {cluster.namespace} must be bound to the volume nfs-data, got a claim that is {claim} "
        f"and a volume that is {phase}; see: kubectl -n {cluster.namespace} describe pvc nfs-external"
    )


@pytest.mark.parametrize("capacity", ["1Ti", "10Gi"])
def test_another_capacity_leaves_a_bound_volume_and_its_claim_as_they_are(cluster, account, prepared, capsys, capacity):
    """A bound claim is refused with 403, because its class provisions no volumes; EFS enforces no capacity."""
    before = cluster.find(*VOLUME), cluster.find(*CLAIM)
    account.change(shared_capacity=capacity, claim_capacity=capacity)
    assert main(["prepare-cluster"]) == 0
    assert (cluster.find(*VOLUME), cluster.find(*CLAIM)) == before
    assert "bound already: PersistentVolume nfs-data\n" in capsys.readouterr().out


def test_another_capacity_is_applied_as_long_as_nothing_is_bound(cluster, account):
    with stop_binding():
        assert main(["prepare-cluster"]) == 1
    account.change(shared_capacity="1Ti")
    assert main(["prepare-cluster"]) == 0
    assert cluster.find(*VOLUME)["spec"]["capacity"] == {"storage": "1Ti"}


@pytest.mark.parametrize("phase", ["Released", "Failed"])
@pytest.mark.usefixtures("prepared")
def test_a_volume_without_its_claim_is_refused_with_the_way_out(cluster, refuse, phase):
    """A volume that is retained stays Released (Kubernetes documentation, "Persistent Volumes", "Retain")."""
    delete(cluster, *CLAIM)
    with stop_binding():
        cluster.set_status(*VOLUME, phase=phase)
        assert (
            f"volume nfs-data must be free or bound, got {phase}, because its claim or its namespace was deleted; run: "
            "kubectl delete pv nfs-data, then prepare-cluster again; no file is lost"
        ) in refuse()
    delete(cluster, *VOLUME)
    assert main(["prepare-cluster"]) == 0


def test_a_claim_without_its_volume_is_refused_with_the_way_out(cluster, prepared, refuse):
    delete(cluster, *VOLUME)
    cluster.until(lambda: cluster.find(*CLAIM)["status"]["phase"] == "Lost")
    assert f"run: kubectl -n {prepared} delete pvc nfs-external, then" in refuse()


def test_a_claim_of_another_volume_is_refused(cluster, prepared, refuse):
    claim = cluster.find(*CLAIM)
    delete(cluster, *CLAIM)
    delete(cluster, *VOLUME)
    metadata = {"namespace": prepared, "name": CLAIM[1]}
    other = {"metadata": metadata, "spec": {**claim["spec"], "volumeName": "pvc-0123"}}
    cluster.admin.do("POST", locate(CLAIM[0], prepared), other)
    assert "claim nfs-external must be of the volume nfs-data, got pvc-0123; if no job needs it" in refuse()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"namespace": "vision"}, "namespace vision, got {0}; when no job runs there"),
        (
            {"volume_handle": "fs-2::fsap-2"},
            "file system fs-2::fsap-2, got fs-0123456789abcdef0::fsap-0123456789abcdef0; when no job runs",
        ),
    ],
    ids=["namespace", "file system"],
)
def test_a_volume_of_another_namespace_or_file_system_is_refused(account, prepared, refuse, change, said):
    """
    Kubernetes gives a bound volume back to its claim, so that the claim of another namespace stays Pending.

    The source of a volume cannot change (Kubernetes API reference, PersistentVolumeSpec).
    """
    account.change(**change)
    assert (
        f"volume nfs-data must be that of the {said}, run: kubectl -n {{0}} delete pvc nfs-external && kubectl delete "
        "pv nfs-data, then prepare-cluster again; no file is lost"
    ).format(prepared) in refuse()


# --- Devices of nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "found"), [("vpc.amazonaws.com/efa", "0"), ("vpc.amazonaws.com/efa", "3"), ("nvidia.com/gpu", "0")]
)
def test_a_node_that_lacks_a_device_is_no_success_and_is_named(cluster, capsys, device, found):
    cluster.kubelet.join(NODE, MEMBER, DEVICES)
    cluster.kubelet.join("ip-10-0-1-3.ec2.internal", MEMBER, {**DEVICES, device: found})
    assert main(["prepare-cluster"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"node ip-10-0-1-3.ec2.internal must have {DEVICES[device]} of {device}, got {found}; see: kubectl -n "
        "kube-system get pods -o wide --field-selector spec.nodeName=ip-10-0-1-3.ec2.internal"
    )
    assert main(["prepare-cluster", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lacks"] == [said]


def test_the_command_waits_until_each_node_shows_its_devices(cluster, capsys):
    cluster.kubelet.join(NODE, MEMBER, {**DEVICES, "vpc.amazonaws.com/efa": "0"})
    cluster.script = [cluster.kubelet.step, partial(cluster.set_status, "nodes", NODE, allocatable=DEVICES)]
    assert main(["prepare-cluster"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"waiting for device plugins: node {NODE} must have 4 of vpc.amazonaws.com/efa, got 0"
    ]


def test_nodes_of_others_and_devices_that_no_job_asks_for_are_not_waited_for(cluster, account):
    cluster.kubelet.join(NODE, {}, {"nvidia.com/gpu": "0"})
    assert main(["prepare-cluster"]) == 0
    account.change(gpu_count=0, efa_count=0)
    cluster.kubelet.join("ip-10-0-1-3.ec2.internal", MEMBER, dict.fromkeys(DEVICES, "0"))
    assert main(["prepare-cluster"]) == 0


def test_a_cluster_elsewhere_needs_no_preparation(account, capsys):
    account.submission = SubmissionSettings("ec2", "Train", "ubuntu", "assets", "deeplearning-jobs/Train/")
    assert main(["prepare-cluster"]) == 2
    assert "prepare-cluster must be left out on ec2; it is for stacks on EKS" in capsys.readouterr().err
