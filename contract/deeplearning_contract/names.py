"""
Names that users and the cluster's programs rely on: variables, hosts, files and tags.

`split_name` and `check_link` are the one judgement of names and links in a tree of files, for the machine that packs it
and the one that unpacks it.
"""

from collections.abc import Mapping
from enum import Enum

from deeplearning_contract.document import ContractError, excerpt

WORKERS_PATH_VARIABLE = "DEEPLEARNING_WORKERS_PATH"
WORKERS_COUNT_VARIABLE = "DEEPLEARNING_WORKERS_COUNT"
WORKER_GPU_COUNT_VARIABLE = "DEEPLEARNING_WORKER_GPU_COUNT"
EFS_MOUNT_VARIABLE = "EFS_MOUNT"
CONTRACT_VARIABLES = (
    WORKERS_PATH_VARIABLE,
    WORKERS_COUNT_VARIABLE,
    WORKER_GPU_COUNT_VARIABLE,
    EFS_MOUNT_VARIABLE,
)

STATE_DIRECTORY = "/opt/deeplearning"
WORKERS_FILE = "/opt/deeplearning/workers"
HOSTFILE = "/opt/deeplearning/hostfile"
MEMBERSHIP_FILE = "/opt/deeplearning/membership.json"
DISCOVER_HOSTS = "/opt/deeplearning/discover_hosts"
READY_HOSTS = "/opt/deeplearning/ready_hosts"
NOTICE_FILE = "/opt/deeplearning/notice"
SETTINGS_FILE = "/opt/deeplearning/settings.json"
AGENT_DIRECTORY = "/opt/deeplearning/agent"
ENVIRONMENT_FILE = "/opt/deeplearning/environment"
WORKER_ADDRESSES_FILE = "/opt/deeplearning/worker_addresses"
"""Workers file with addresses instead of names, for launchers that accept no names."""
DATA_DIRECTORY = "/opt/deeplearning/data"
"""Folder with an entry for each source of data, on every node; the data may be on any disk."""
ENVIRONMENT_DIRECTORY = "/opt/deeplearning/environments"
PROVISION_FILE = "/opt/deeplearning/provision/status.json"
PROVISION_SERVICE = "deeplearning-provision.service"
IDLE_SERVICE = "deeplearning-idle.service"
JOBS_FOLDER = "jobs"
"""Folder below the shared file system, with a folder for each job."""
METRICS_PATH_VARIABLE = "DEEPLEARNING_METRICS_PATH"
SAMPLES_PER_SECOND = "samples_per_second"
"""Key of the JSON line `{"samples_per_second": ...}` that rank 0 of a job writes to the file in the variable."""
AGENT_LOG = "/var/log/deeplearning-agent.log"
BOOTSTRAP_LOG = "/var/log/deeplearning-bootstrap.log"

AGENT_SERVICE = "deeplearning-agent.service"
MASTER_HOST = "deeplearning-master"
RENDEZVOUS_PORT = 29400
"""Port of the rendezvous of torchrun's nodes on the master."""

CLUSTER_TAG = "deeplearning:cluster"
ROLE_TAG = "deeplearning:role"
CANDIDATE_TAG = "deeplearning:candidate"
"""Tag of a group with the candidate whose nodes it has; it names the candidate's content, never its position."""
FIRST_CANDIDATE = "0"
EMR_CLUSTER_TAG = "aws:elasticmapreduce:job-flow-id"
EMR_ROLE_TAG = "aws:elasticmapreduce:instance-group-role"
"""Tags that EMR sets on each instance (EMR management guide, "Tag clusters")."""
EMR_INFO_DIRECTORY = "/mnt/var/lib/info"
"""Folder with EMR's description of an instance and its cluster."""
EMR_PRIMARY = "MASTER"
"""EMR's name of the role of the primary node."""
_MODELS_FOLDER = "pretrained-models"

DATA_SETS: Mapping[str, Mapping[str, str]] = {
    # Staged by examples/mask_rcnn/stage_data.sh. Read by TensorPack's COCODetection
    # (examples/FasterRCNN/dataset/coco.py) below DATA.BASEDIR. The backbone is that of the predecessor's
    # prepare-s3-bucket.sh and of TensorPack's README (BACKBONE.WEIGHTS), the other model that of its guide.
    "coco-2017": {
        "train": "train2017",
        "val": "val2017",
        "train annotations": "annotations/instances_train2017.json",
        "val annotations": "annotations/instances_val2017.json",
        "backbone": f"{_MODELS_FOLDER}/ImageNet-R50-AlignPadding.npz",
        "model": f"{_MODELS_FOLDER}/COCO-R50FPN-MaskRCNN-Standard.npz",
    },
}
"""Name of a data set, also in the cluster's props -> name of a part for jobs -> its path in the data."""


class NodeRole(str, Enum):
    """Role of a node; the value of the `deeplearning:role` tag."""

    MASTER = "master"
    WORKER = "worker"


def find_role(tags: Mapping[str, str]) -> NodeRole | None:
    """Return the role of the node with these tags; None if it is no node of a cluster."""
    if (group := tags.get(EMR_ROLE_TAG)) is not None:
        return NodeRole.MASTER if group == EMR_PRIMARY else NodeRole.WORKER
    return NodeRole(tags[ROLE_TAG]) if ROLE_TAG in tags else None


def host_name(rank: int) -> str:
    """Return the host name of a rank, from 0, among the members that train: `deeplearning-worker1` for rank 0."""
    return f"deeplearning-worker{rank + 1}"


def shared_membership(cluster: str, cluster_id: str) -> str:
    """
    Return the path of the membership of a cluster on EMR, below the root of its shared file system.

    EMR's id is part of it, because a cluster and its replacement are up at the same time.
    """
    return f".deeplearning/{cluster}/{cluster_id}/membership.json"


MOST_NAME_BYTES, MOST_LINK_BYTES = 255, 4080
"""Most bytes of a name and of a link in a tree of files (EFS User Guide, "Quotas for Amazon EFS file systems")."""
MOST_PATH_BYTES = 3500
"""Most bytes of a path: Linux takes 4,095 (path_resolution(7), PATH_MAX), and the tree is below a folder."""
MOST_PARTS = 256
"""Most folders above each other; EFS takes 1,000 (the same page), and Python 1,000 calls (sys.setrecursionlimit)."""


def split_name(name: str) -> tuple[str, ...]:
    """
    Split the name of a tree's member into folders and file; empty for the root itself.

    ContractError when it is absolute, contains `..`, is too long, or has a part that is no valid file name.
    """
    if name.startswith("/"):
        raise ContractError(f"a name must not be absolute, got {name!r}")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    for part in parts:
        if part == "..":
            raise ContractError(f"a name must not contain '..', got {name!r}")
        if "\0" in part or _count_bytes(part) > MOST_NAME_BYTES:
            raise ContractError(f"a part of a name must be at most {MOST_NAME_BYTES} bytes without NUL, got {name!r}")
    if len(parts) > MOST_PARTS or _count_bytes(name) > MOST_PATH_BYTES:
        raise ContractError(
            f"a path must be at most {MOST_PATH_BYTES} bytes and {MOST_PARTS} folders, got {excerpt(name)}"
        )
    return parts


def check_link(parts: tuple[str, ...], target: str) -> None:
    """
    Raise ContractError for a symbolic link that could lead out of the tree, even through other links.

    A link may first ascend and then descend: its folder is a real one, so it ascends to a real one, and every link on
    the way down obeys the same rule.
    """
    steps = [step for step in target.split("/") if step not in ("", ".")]
    climbs = next((index for index, step in enumerate(steps) if step != ".."), len(steps))
    if not target or target.startswith("/") or climbs > len(parts) - 1 or ".." in steps[climbs:]:
        raise ContractError(f"a link must stay inside, got {'/'.join(parts)!r} -> {target!r}")
    if "\0" in target or _count_bytes(target) > MOST_LINK_BYTES:
        raise ContractError(f"a link must be at most {MOST_LINK_BYTES} bytes without NUL, got {'/'.join(parts)!r}")


def _count_bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))
