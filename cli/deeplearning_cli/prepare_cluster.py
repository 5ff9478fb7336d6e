"""`deeplearning-cdk prepare-cluster`: creates the objects of Kubernetes that every job of a stack on EKS needs."""

import argparse
import importlib.util
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.kubernetes_jobs import KubernetesPlatform, require_kubernetes
from deeplearning_cli.jobs.output import print_progress
from deeplearning_cli.jobs.platform import describe
from deeplearning_cli.kubernetes.client import KubernetesApi
from deeplearning_contract.jobs.kubernetes_cluster import (
    CLAIM,
    EFA,
    GPU,
    START_FILES,
    VOLUME,
    make_cluster_objects,
    split_label,
)
from deeplearning_contract.jobs.submission import KubernetesSettings

POLL_SECONDS = 1.0
BIND_SECONDS = 60.0
"""Longest wait for the volume and its claim; the controller binds them at once."""
DEVICE_SECONDS = 600.0
"""Longest wait for the GPUs and EFA interfaces of nodes, whose plugins start when their images are there."""
_STORAGE = ("PersistentVolume", "PersistentVolumeClaim")
_DELETE_VOLUME = f"kubectl delete pv {VOLUME}"


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "prepare-cluster",
        help="create what the jobs of a cluster on EKS need, once",
        description="Create the objects of Kubernetes that the jobs of a stack on EKS need: the namespace, the account "
        "of pods, the volume of the shared file system and its claim, the start program, and the device plugins that "
        "the nodes' image lacks. Wait until the claim is bound and the nodes show their GPUs and EFA interfaces. Run "
        "it as one of the stack's administrators, once, and again after an upgrade; a second run changes nothing, and "
        "a bound volume keeps its capacity.",
        epilog="exit status: 0 prepared, 1 the claim is not bound or a node lacks devices, 2 could not be prepared; "
        "--json prints {platform, cluster, objects[], volume, lacks[]}; example: deeplearning-cdk prepare-cluster",
    )
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Apply the objects, and wait until the volume is bound and the nodes have their devices."""
    try:
        platform = require_kubernetes(find_platform(open_cloud(arguments)), "prepare-cluster")
        applied = _apply(platform, as_json=arguments.json)
        volume, lacks = await_volume(platform.api, platform.kubernetes)
        if not arguments.json:
            print(format_volume(volume), flush=True)
        lacks = lacks or await_devices(platform.api, platform.kubernetes)
    except UnavailableError as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        print(describe(platform, objects=applied, volume=volume, lacks=lacks))
    for each in lacks:
        print_progress(each)
    return 1 if lacks else 0


def _apply(platform: KubernetesPlatform, *, as_json: bool) -> list[str]:
    """Apply the objects, and return their names; a bound volume and its claim stay as they are."""
    settings, applied = platform.kubernetes, []
    is_bound = check_storage(platform.api, settings)
    for each in make_cluster_objects(settings, read_start_files()):
        name = f"{each['kind']} {each['metadata']['name']}"
        is_kept = is_bound and each["kind"] in _STORAGE
        if not is_kept:
            platform.api.apply(each)
        applied.append(name)
        if not as_json:
            print(f"{'bound already' if is_kept else 'applied'}: {name}", flush=True)
    return applied


def read_start_files() -> dict[str, str]:
    """Return the files of the start program: data of the wheel, or files of the checkout."""
    constructs = importlib.util.find_spec("deeplearning_cdk")  # Its folder; nothing of it is imported.
    folders = constructs.submodule_search_locations if constructs is not None else None
    installed = Path(next(iter(folders or [])), "_payload")
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "userdata"
    return {name: (folder / name).read_text(encoding="utf-8") for name in START_FILES}


def check_storage(api: KubernetesApi, settings: KubernetesSettings) -> bool:
    """
    Return whether the volume is bound to the claim of this namespace, so that neither needs a change.

    Kubernetes lets neither of them change then: a claim grows only where its class provisions volumes, and EFS does not
    enforce the capacity (Kubernetes documentation, "Persistent Volumes", "Expanding Persistent Volumes Claims").

    Raises:
        UnavailableError: They can never be bound as they are; the message has the commands that mend it. Volumes are
            retained, so no file is lost.
    """
    volume, claim = api.find("PersistentVolume", VOLUME), api.find("PersistentVolumeClaim", CLAIM)
    delete_claim = f"kubectl -n {settings.namespace} delete pvc {CLAIM}"
    if claim is not None and claim.get("status", {}).get("phase") == "Lost":
        raise UnavailableError(
            f"claim {CLAIM} must have its volume, got none, because it was deleted; run: {delete_claim}, then "
            "prepare-cluster again; no file is lost"
        )
    if claim is not None and claim["spec"].get("volumeName", VOLUME) != VOLUME:
        raise UnavailableError(
            f"claim {CLAIM} must be of the volume {VOLUME}, got {claim['spec']['volumeName']}; if no job needs it, "
            f"run: {delete_claim}, then prepare-cluster again"
        )
    if volume is None:
        return False
    phase, spec = volume.get("status", {}).get("phase"), volume["spec"]
    if phase in ("Released", "Failed"):
        raise UnavailableError(
            f"volume {VOLUME} must be free or bound, got {phase}, because its claim or its namespace was deleted; run: "
            f"{_DELETE_VOLUME}, then prepare-cluster again; no file is lost"
        )
    owner = spec.get("claimRef", {}).get("namespace", settings.namespace)
    if owner != settings.namespace:
        raise UnavailableError(
            f"volume {VOLUME} must be that of the namespace {settings.namespace}, got {owner}; when no job runs there, "
            f"run: kubectl -n {owner} delete pvc {CLAIM} && {_DELETE_VOLUME}, then prepare-cluster again; no file is "
            "lost"
        )
    handle = spec.get("csi", {}).get("volumeHandle")
    if handle != settings.volume_handle:
        raise UnavailableError(
            f"volume {VOLUME} must be that of the file system {settings.volume_handle}, got {handle}; when no job "
            f"runs, run: {delete_claim} && {_DELETE_VOLUME}, then prepare-cluster again; no file is lost"
        )
    return phase == "Bound" and claim is not None


def await_volume(api: KubernetesApi, settings: KubernetesSettings) -> tuple[dict[str, Any], list[str]]:
    """Return the volume, and what is wrong if the claim of the namespace is not bound to it within a minute."""
    give_up = time.monotonic() + BIND_SECONDS
    while True:
        volume, claim = api.find("PersistentVolume", VOLUME), api.find("PersistentVolumeClaim", CLAIM)
        if volume is None or claim is None:
            missing = f"volume {VOLUME}" if volume is None else f"claim {CLAIM}"
            raise UnavailableError(f"{missing} must exist, got none; it was deleted meanwhile")
        volume = {"status": {}, **volume}
        phases = volume["status"].get("phase", "Pending"), claim.get("status", {}).get("phase", "Pending")
        if phases == ("Bound", "Bound") and claim["spec"].get("volumeName") == VOLUME:
            return volume, []
        if time.monotonic() > give_up:
            said = (
                f"claim {CLAIM} of {settings.namespace} must be bound to the volume {VOLUME}, got a claim that is "
                f"{phases[1]} and a volume that is {phases[0]}; see: kubectl -n {settings.namespace} describe pvc "
                f"{CLAIM}"
            )
            return volume, [said]
        time.sleep(POLL_SECONDS)


def await_devices(api: KubernetesApi, settings: KubernetesSettings) -> list[str]:
    """
    Return the nodes of members that lack a device which jobs ask for, after ten minutes at most, each with a remedy.

    Nodes that do not exist, because their group is empty, are not waited for.
    """
    wanted = {name: count for name, count in ((GPU, settings.gpu_count), (EFA, settings.efa_count)) if count}
    give_up, shown = time.monotonic() + DEVICE_SECONDS, ""
    while wanted:
        nodes = api.list_objects("Node", split_label(settings))
        lacks = [each for node in nodes for each in _list_lacks(node, wanted)]
        if not lacks:
            return []
        if time.monotonic() > give_up:
            return lacks
        waits = f"waiting for device plugins: {lacks[0].partition(';')[0]}"
        if waits != shown:
            print_progress(waits)
            shown = waits
        time.sleep(POLL_SECONDS)
    return []


def _list_lacks(node: Mapping[str, Any], wanted: Mapping[str, int]) -> list[str]:
    found = node.get("status", {}).get("allocatable", {})
    name = node["metadata"]["name"]
    return [
        f"node {name} must have {count} of {device}, got {found.get(device, 0)}; see: kubectl -n kube-system get pods "
        f"-o wide --field-selector spec.nodeName={name}"
        for device, count in wanted.items()
        if int(found.get(device, 0)) < count
    ]


def format_volume(volume: dict[str, Any]) -> str:
    """Return the line of the volume as `kubectl get pv` has it."""
    spec = volume["spec"]
    claim = spec.get("claimRef", {})
    return "  ".join(
        [
            str(volume["metadata"]["name"]),
            str(spec["capacity"]["storage"]),
            "RWX",
            str(spec["persistentVolumeReclaimPolicy"]),
            str(volume["status"].get("phase", "Pending")),
            f"{claim.get('namespace', '')}/{claim.get('name', CLAIM)}",
            str(spec["storageClassName"]),
        ]
    )
