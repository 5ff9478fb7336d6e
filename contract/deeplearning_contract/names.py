"""Names that users and the cluster's programs rely on: variables, hosts, files and tags."""

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
"""The workers file with addresses instead of names, for launchers that take no names."""
DATA_DIRECTORY = "/opt/deeplearning/data"
"""Each source of data is an entry of it, on every node, wherever the data lies."""
ENVIRONMENT_DIRECTORY = "/opt/deeplearning/environments"
PROVISION_FILE = "/opt/deeplearning/provision/status.json"
PROVISION_SERVICE = "deeplearning-provision.service"
IDLE_SERVICE = "deeplearning-idle.service"
JOBS_FOLDER = "jobs"
"""Below the shared file system: a folder for each job."""
METRICS_PATH_VARIABLE = "DEEPLEARNING_METRICS_PATH"
SAMPLES_PER_SECOND = "samples_per_second"
"""Rank 0 of a job writes the JSON line `{"samples_per_second": ...}` to the file that the variable names."""
AGENT_LOG = "/var/log/deeplearning-agent.log"
BOOTSTRAP_LOG = "/var/log/deeplearning-bootstrap.log"

AGENT_SERVICE = "deeplearning-agent.service"
MASTER_HOST = "deeplearning-master"
RENDEZVOUS_PORT = 29400
"""Where torchrun's nodes meet on the master."""

CLUSTER_TAG = "deeplearning:cluster"
ROLE_TAG = "deeplearning:role"
CANDIDATE_TAG = "deeplearning:candidate"
"""Of the groups of a role: their place in the order in which they are asked for capacity, from 0."""
FIRST_CANDIDATE = "0"


class NodeRole(str, Enum):
    """What a node is for; the value of the `deeplearning:role` tag."""

    MASTER = "master"
    WORKER = "worker"


def host_name(rank: int) -> str:
    """Return the host name of a rank, from 0, among the members that train: `deeplearning-worker1` for rank 0."""
    return f"deeplearning-worker{rank + 1}"
