"""Names that users and the cluster's programs rely on: variables, hosts, files and tags."""

from collections.abc import Mapping
from enum import Enum

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
"""Tag of a group with its position, from 0, in the order in which the groups of its role get capacity."""
FIRST_CANDIDATE = "0"
EMR_CLUSTER_TAG = "aws:elasticmapreduce:job-flow-id"
EMR_ROLE_TAG = "aws:elasticmapreduce:instance-group-role"
"""Tags that EMR sets on each instance (EMR management guide, "Tag clusters")."""
EMR_INFO_DIRECTORY = "/mnt/var/lib/info"
"""Folder with EMR's description of an instance and its cluster."""
EMR_PRIMARY = "MASTER"
"""EMR's name of the role of the primary node."""


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
