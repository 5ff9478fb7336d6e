"""`deeplearning-cdk prepare-cluster`: creates the objects of Kubernetes that every job of a stack on EKS needs."""

import argparse
import importlib.util
import time
from pathlib import Path
from typing import Any

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_cli.jobs.finding import find_platform
from deeplearning_cli.jobs.kubernetes_jobs import require_kubernetes
from deeplearning_cli.jobs.platform import describe
from deeplearning_cli.kubernetes.client import KubernetesApi
from deeplearning_contract.jobs.kubernetes_cluster import CLAIM, START_FILES, VOLUME, make_cluster_objects

POLL_SECONDS = 1.0
BIND_SECONDS = 60.0
"""Longest wait for the volume and its claim; the controller binds them at once."""


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "prepare-cluster",
        help="create what the jobs of a cluster on EKS need, once",
        description="Create the objects of Kubernetes that the jobs of a stack on EKS need: the namespace, the account "
        "of pods, the volume of the shared file system and its claim, the start program, and the device plugins that "
        "the nodes' image lacks. Run it as one of the stack's administrators, once, and again after an upgrade; a "
        "second run changes nothing.",
        epilog="exit status: 0 prepared, 1 the claim is not bound, 2 could not be prepared; --json prints {platform, "
        "cluster, objects[], volume}; example: deeplearning-cdk prepare-cluster",
    )
    add_place(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Apply the objects, and wait until the volume is bound."""
    applied = []
    try:
        platform = require_kubernetes(find_platform(open_cloud(arguments)), "prepare-cluster")
        for each in make_cluster_objects(platform.kubernetes, read_start_files()):
            platform.api.apply(each)
            applied.append(f"{each['kind']} {each['metadata']['name']}")
            if not arguments.json:
                print(f"applied: {applied[-1]}", flush=True)
        volume = await_volume(platform.api)
    except UnavailableError as error:
        return report_error(error, as_json=arguments.json)
    print(describe(platform, objects=applied, volume=volume) if arguments.json else format_volume(volume))
    return 0 if volume["status"].get("phase") == "Bound" else 1


def read_start_files() -> dict[str, str]:
    """Return the files of the start program: data of the wheel, or files of the checkout."""
    constructs = importlib.util.find_spec("deeplearning_cdk")  # Its folder; nothing of it is imported.
    folders = constructs.submodule_search_locations if constructs is not None else None
    installed = Path(next(iter(folders or [])), "_payload")
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "userdata"
    return {name: (folder / name).read_text(encoding="utf-8") for name in START_FILES}


def await_volume(api: KubernetesApi) -> dict[str, Any]:
    """Return the volume when it is bound, or after a minute as it is then."""
    give_up = time.monotonic() + BIND_SECONDS
    while True:
        volume = api.find("PersistentVolume", VOLUME)
        if volume is None:
            raise UnavailableError(f"volume {VOLUME} must exist, got none; it was deleted meanwhile")
        if volume.get("status", {}).get("phase") == "Bound" or time.monotonic() > give_up:
            return {"status": {}, **volume}
        time.sleep(POLL_SECONDS)


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
