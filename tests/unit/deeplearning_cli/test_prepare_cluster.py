"""`deeplearning-cdk prepare-cluster` with an API server that is played."""

import json
from dataclasses import replace

import pytest

from deeplearning_cli import prepare_cluster as module
from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.main import main
from deeplearning_contract.jobs.submission import SubmissionSettings
from tests.unit.deeplearning_cli.kubernetes_server import ApiServer
from tests.unit.deeplearning_cli.test_kubernetes_jobs import REGION, SESSION, Account
from tests.unit.deeplearning_contract.test_kubernetes_job import KUBERNETES, SUBMISSION

VOLUME, CLAIM = ("persistentvolumes", "nfs-data"), ("persistentvolumeclaims", "nfs-external")
DEVICES = {"nvidia.com/gpu": "8", "vpc.amazonaws.com/efa": "4"}
NODE = "ip-10-0-1-2.ec2.internal"


@pytest.fixture
def server(tmp_path):
    found = ApiServer(tmp_path)
    yield found
    found.close()


@pytest.fixture
def account(server, monkeypatch):
    """The account of a stack on EKS; no wait of the command lasts."""
    kubernetes = replace(KUBERNETES, endpoint=server.endpoint, authority=server.authority)
    found = Account(replace(SUBMISSION, kubernetes=kubernetes))
    clients = {"ssm": found, "s3": found, "sts": SESSION.client("sts")}
    monkeypatch.setattr(module, "open_cloud", lambda _: CloudAccess(clients.__getitem__, REGION, None))
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(module, "BIND_SECONDS", 0.0)
    monkeypatch.setattr(module, "DEVICE_SECONDS", 0.0)
    return found


def change(account, **more):
    """Deploy the stack again, with other settings."""
    account.submission = replace(account.submission, kubernetes=replace(account.submission.kubernetes, **more))


def add_node(server, name=NODE, *, labels=None, **devices):
    labels = {"deeplearning/member": "true"} if labels is None else labels
    status = {"allocatable": {"cpu": "96", **DEVICES, **devices}}
    server.objects["nodes", name] = {"metadata": {"name": name, "uid": name, "labels": labels}, "status": status}


def list_changes(server):
    return [(plural, name) for method, plural, name, *_ in server.requests if method in ("PATCH", "POST", "DELETE")]


def refuse(capsys, server):
    """Run the command, which must change nothing, and return why it is refused."""
    before = len(list_changes(server))
    assert main(["prepare-cluster"]) == 2
    assert len(list_changes(server)) == before
    return capsys.readouterr().err


def test_a_cluster_is_prepared_twice_with_the_same_objects(account, server, capsys):
    assert main(["prepare-cluster"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[-1].split() == [
        *("nfs-data", "85Gi", "RWX", "Retain", "Bound"),
        *("kubeflow-dist-train/nfs-external", "nfs-external"),
    ]
    first = json.dumps(sorted(map(str, server.objects)))
    files = server.get("configmaps", "deeplearning")["data"]
    assert "start_pod.py BUCKET KEY" in files["start_pod.py"]
    assert "fetch_agent.py BUCKET KEY" in files["fetch_agent.py"]
    assert main(["prepare-cluster", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["objects"][:2] == ["Namespace kubeflow-dist-train", "ServiceAccount deeplearning"]
    assert found["lacks"] == []
    assert json.dumps(sorted(map(str, server.objects))) == first


# --- Volume and claim ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "claim"), [("Available", "Pending"), ("Bound", "Pending"), ("Bound", "Lost")])
def test_a_claim_that_is_not_bound_is_no_success(account, server, capsys, phase, claim):
    server.phase, server.claim_phase = phase, claim
    assert main(["prepare-cluster"]) == 1
    done = capsys.readouterr()
    assert phase in done.out
    assert done.err.strip() == (
        "claim nfs-external of kubeflow-dist-train must be bound to the volume nfs-data, got a claim that is "
        f"{claim} and a volume that is {phase}; see: kubectl -n kubeflow-dist-train describe pvc nfs-external"
    )


def test_another_namespace_is_refused_while_the_volume_is_that_of_the_former_one(account, server, capsys):
    """Kubernetes puts the reference of a bound volume back, so that the claim of the other namespace stays Pending."""
    assert main(["prepare-cluster"]) == 0
    capsys.readouterr()
    change(account, namespace="vision")
    del server.objects[CLAIM]  # The server that is played has no namespaces.
    assert (
        "volume nfs-data must be that of the namespace vision, got kubeflow-dist-train; when no job runs there, run: "
        "kubectl -n kubeflow-dist-train delete pvc nfs-external && kubectl delete pv nfs-data, then prepare-cluster "
        "again; no file is lost"
    ) in refuse(capsys, server)


@pytest.mark.parametrize("capacity", ["1Ti", "10Gi"])
def test_another_capacity_leaves_a_bound_volume_and_its_claim_as_they_are(account, server, capsys, capacity):
    """A bound claim is refused with 403, because its class provisions no volumes; EFS enforces no capacity."""
    assert main(["prepare-cluster"]) == 0
    change(account, shared_capacity=capacity, claim_capacity=capacity)
    server.requests.clear()
    capsys.readouterr()
    assert main(["prepare-cluster"]) == 0
    assert not {VOLUME, CLAIM} & {*list_changes(server)}
    assert "bound already: PersistentVolume nfs-data\n" in capsys.readouterr().out


def test_another_capacity_is_applied_as_long_as_nothing_is_bound(account, server):
    server.phase = server.claim_phase = "Pending"
    assert main(["prepare-cluster"]) == 1
    change(account, shared_capacity="1Ti", claim_capacity="1Ti")
    server.phase = server.claim_phase = "Bound"
    assert main(["prepare-cluster"]) == 0
    assert server.get(*VOLUME)["spec"]["capacity"] == {"storage": "1Ti"}


@pytest.mark.parametrize("phase", ["Released", "Failed"])
def test_a_volume_without_its_claim_is_refused_with_the_way_out(account, server, capsys, phase):
    """A volume that is retained stays Released (Kubernetes documentation, "Persistent Volumes", "Retain")."""
    assert main(["prepare-cluster"]) == 0
    server.get(*VOLUME)["status"]["phase"] = phase
    del server.objects[CLAIM]
    capsys.readouterr()
    assert (
        f"volume nfs-data must be free or bound, got {phase}, because its claim or its namespace was deleted; run: "
        "kubectl delete pv nfs-data, then prepare-cluster again; no file is lost"
    ) in refuse(capsys, server)
    del server.objects[VOLUME]
    assert main(["prepare-cluster"]) == 0


def test_a_claim_without_its_volume_is_refused_with_the_way_out(account, server, capsys):
    assert main(["prepare-cluster"]) == 0
    server.get(*CLAIM)["status"]["phase"] = "Lost"
    del server.objects[VOLUME]
    capsys.readouterr()
    assert "run: kubectl -n kubeflow-dist-train delete pvc nfs-external, then" in refuse(capsys, server)


def test_a_claim_of_another_volume_is_refused(account, server, capsys):
    assert main(["prepare-cluster"]) == 0
    server.get(*CLAIM)["spec"]["volumeName"] = "pvc-0123"
    capsys.readouterr()
    assert "claim nfs-external must be of the volume nfs-data, got pvc-0123; if no job needs it" in refuse(
        capsys, server
    )


def test_another_file_system_is_refused_while_the_volume_is_that_of_the_former_one(account, server, capsys):
    """The source of a volume cannot change (Kubernetes API reference, PersistentVolumeSpec)."""
    assert main(["prepare-cluster"]) == 0
    change(account, volume_handle="fs-2::fsap-2")
    capsys.readouterr()
    assert (
        "volume nfs-data must be that of the file system fs-2::fsap-2, got fs-0123456789abcdef0::"
        "fsap-0123456789abcdef0; when no job runs, run: kubectl -n kubeflow-dist-train delete pvc nfs-external && "
        "kubectl delete pv nfs-data, then prepare-cluster again; no file is lost"
    ) in refuse(capsys, server)


# --- Devices of nodes ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "count", "found"),
    [("vpc.amazonaws.com/efa", 4, "0"), ("vpc.amazonaws.com/efa", 4, "3"), ("nvidia.com/gpu", 8, "0")],
)
@pytest.mark.usefixtures("account")
def test_a_node_that_lacks_a_device_is_no_success_and_is_named(server, capsys, device, count, found):
    add_node(server)
    add_node(server, "ip-10-0-1-3.ec2.internal", **{device: found})
    assert main(["prepare-cluster"]) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said == (
        f"node ip-10-0-1-3.ec2.internal must have {count} of {device}, got {found}; see: kubectl -n kube-system get "
        "pods -o wide --field-selector spec.nodeName=ip-10-0-1-3.ec2.internal"
    )
    assert main(["prepare-cluster", "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["lacks"] == [said]


def test_the_command_waits_until_each_node_shows_its_devices(account, server, capsys, monkeypatch):
    monkeypatch.setattr(module, "DEVICE_SECONDS", 60.0)
    add_node(server, **{"vpc.amazonaws.com/efa": "0"})
    monkeypatch.setattr(module.time, "sleep", lambda _: add_node(server))
    assert main(["prepare-cluster"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"waiting for device plugins: node {NODE} must have 4 of vpc.amazonaws.com/efa, got 0"
    ]


def test_nodes_of_others_and_devices_that_no_job_asks_for_are_not_waited_for(account, server):
    add_node(server, labels={}, **{"nvidia.com/gpu": "0"})
    assert main(["prepare-cluster"]) == 0
    change(account, gpu_count=0, efa_count=0)
    add_node(server, **{"nvidia.com/gpu": "0", "vpc.amazonaws.com/efa": "0"})
    assert main(["prepare-cluster"]) == 0


# --- Elsewhere ----------------------------------------------------------------------------------------


def test_a_cluster_elsewhere_needs_no_preparation(account, server, capsys):
    account.submission = SubmissionSettings("ec2", "Train", "ubuntu", "assets", "deeplearning-jobs/Train/")
    assert main(["prepare-cluster"]) == 2
    assert "prepare-cluster must be left out on ec2; it is for stacks on EKS" in capsys.readouterr().err
