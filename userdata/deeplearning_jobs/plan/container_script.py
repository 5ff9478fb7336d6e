"""The end of a script whose program runs in a container: what the container sees of its host."""

import shlex

from deeplearning_contract.names import DATA_DIRECTORY, STATE_DIRECTORY
from deeplearning_jobs.plan.job import Job

PASSED_PREFIXES = (
    "CUDA_",
    "DEEPLEARNING_",
    "DMLC_",
    "EFS_MOUNT",
    "FI_",
    "GLOO_",
    "GROUP_",
    "HOROVOD_",
    "LOCAL_",
    "MASTER_",
    "NCCL_",
    "OMP_",
    "RANK",
    "ROLE_",
    "TF_CONFIG",
    "TORCHELASTIC_",
    "WORLD_SIZE",
)
"""Of what launchers set; the user's own variables are named one by one."""


def container_lines(job: Job) -> list[str]:
    """
    Return the lines that start `"$@"` in the job's container.

    The user inside is the user outside: files on the shared file system keep their owner, and the job's processes are
    found and stopped like those of any other job.
    """
    mount = shlex.quote(job.mount_point)
    options = "--rm --init --network host --ipc host --ulimit memlock=-1"
    options += " --gpus all" if job.layout.has_gpus else ""
    names = " ".join(f"--env {name}" for name in job.variables)
    return [
        f'set -- {shlex.quote(job.request.container)} "$@"',
        "# Data lies on the shared file system, on another, or on a disk of this host.",
        f"for entry in {DATA_DIRECTORY}/*; do",
        '    [ -e "$entry" ] || continue',
        '    place=$(readlink "$entry" || echo "$entry")',
        "    # Staged data is a link of its own, which is switched: only what is above it is resolved.",
        '    place=$(readlink -f "${place%/*}")/${place##*/}',
        f'    case $place in {mount}/*) ;; *) set -- --volume "$place:$place" "$@" ;; esac',
        "done",
        *(
            ["# EFA's devices, where this host has them.", *_device_lines()]
            if any(host.efa_cards for host in job.layout.hosts)
            else []
        ),
        f"passed=$(env | sed -nE 's/^(({'|'.join(PASSED_PREFIXES)})[A-Za-z0-9_]*)=.*/--env \\1/p')",
        "# shellcheck disable=SC2086 # Names of variables, to be split.",
        f'exec docker run {options} --user "$(id -u):$(id -g)" \\',
        f"    --volume {mount}:{mount} --volume {STATE_DIRECTORY}:{STATE_DIRECTORY}:ro \\",
        f'    --workdir "$PWD" --env HOME=/tmp {names} $passed "$@"',
    ]


def _device_lines() -> list[str]:
    return ['[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"']
