"""
The scripts that a run's processes go through, made for one run: no name, path or interface of them is hard-coded.

- `rank` starts a rank's program: its log, its network interface, its variables.
- `start` starts a launcher, such as mpirun, with the run's own programs first in `PATH`.
- `bin/ssh` keeps the check of host keys on, which launchers turn off.
"""

import shlex

from deeplearning_contract.names import WORKER_ADDRESSES_FILE
from deeplearning_jobs.plan.container_script import container_lines
from deeplearning_jobs.plan.job import RANK_VARIABLE, TASK_VARIABLE, Job
from deeplearning_jobs.plan.network_environment import INTERFACE_VARIABLES

RANK, START, SSH, ADDRESSES = "rank", "start", "bin/ssh", "addresses"
CLUSTER_FILE = "cluster.json"
"""Who the processes of a TensorFlow job are."""
OPENMPI_FOLDER = "/opt/amazon/openmpi/bin"
"""Where AWS's EFA installer, and so a deep-learning image, has Open MPI."""
TENSORFLOW_LAUNCHERS = ("tf-ps", "tf-multiworker")
RANK_SOURCES = {
    "horovod": ("HOROVOD_RANK", "horovodrun"),
    "mpi": ("OMPI_COMM_WORLD_RANK", "mpirun"),
    "torchrun": ("RANK", "torchrun"),
}
"""Launcher -> the variable by which it tells a rank, and who sets it; the plan sets the rank for the others."""


def base_files(job: Job) -> dict[str, str]:
    """Return the files of every run: path -> text."""
    files = {job.path(RANK): make_rank_script(job)}
    if not job.request.elastic and not job.is_on_one_host:
        files[job.path(ADDRESSES)] = "".join(f"{host.address}\n" for host in job.layout.hosts)
    return files


def make_rank_script(job: Job) -> str:
    """Return the script that a rank's program is started by: `rank PROGRAM [ARGUMENT...]`."""
    is_inside = has_container_start(job)
    lines = [
        "#!/bin/sh",
        f"# Starts one rank of {job.name}. usage: rank PROGRAM [ARGUMENT...]",
        "set -u",
        *_log_lines(job),
        *([] if is_inside else interface_lines(job)),
        *export_lines(job),
        *_config_lines(job),
        *_directory_lines(job),
    ]
    return _join([*lines, *(container_lines(job) if job.request.container and not is_inside else ['exec "$@"'])])


def make_start_script(job: Job) -> str:
    """Return the script that a launcher is started by: `start LAUNCHER [ARGUMENT...]`."""
    lines = [
        "#!/bin/sh",
        f"# Starts the launcher of {job.name}. usage: start LAUNCHER [ARGUMENT...]",
        "set -u",
    ]
    if has_container_start(job):
        return _join([*lines, *interface_lines(job), *export_lines(job), *_directory_lines(job), *container_lines(job)])
    if job.request.launcher == "mpi":
        lines.append(f'[ ! -d {OPENMPI_FOLDER} ] || PATH={OPENMPI_FOLDER}:"$PATH"')
    first = [shlex.quote(folder) for folder in (job.path("bin"), job.request.python) if folder]
    lines += [f'export PATH={":".join(first)}:"$PATH"']
    if job.request.launcher == "torchrun":
        lines += [
            "# An environment may have PyTorch without having its command in PATH.",
            'command -v torchrun > /dev/null || { shift && set -- python3 -m torch.distributed.run "$@"; }',
        ]
    return _join(
        [
            *lines,
            "# By its full path: so mpirun finds its own parts on the other hosts.",
            'launcher=$(command -v "$1") || {',
            '    echo "deeplearning: $1 must be installed on $(uname -n), got none in PATH=$PATH" >&2',
            '    echo "declare it in the environment of the cluster, or take an image that has it" >&2',
            "    exit 127",
            "}",
            "shift",
            'exec "$launcher" "$@"',
        ]
    )


def make_ssh_shim(job: Job) -> str:
    """Return the `ssh` that launchers find first in `PATH`."""
    return _join(
        [
            "#!/bin/sh",
            "# Launchers turn the check of host keys off. The first value of an option wins: this one keeps it on.",
            "# A host that falls silent ends the job after two minutes instead of holding it for ever.",
            "IFS=:",
            "for folder in $PATH; do",
            f'    [ "$folder" = {shlex.quote(job.path("bin"))} ] || [ ! -x "$folder/ssh" ] ||',
            '        exec "$folder/ssh" -o StrictHostKeyChecking=yes -o BatchMode=yes \\',
            '            -o ServerAliveInterval=30 -o ServerAliveCountMax=4 "$@"',
            "done",
            'echo "deeplearning: ssh must be installed on $(uname -n), got none in PATH=$PATH" >&2',
            "exit 127",
        ]
    )


def has_container_start(job: Job) -> bool:
    """Tell whether the launcher itself runs in the container: torchrun comes with PyTorch, which the host may lack."""
    return bool(job.request.container) and job.request.launcher == "torchrun"


def interface_lines(job: Job) -> list[str]:
    """Return the lines that find this host's network interface; a user's own variables are not touched."""
    names = [name for name in INTERFACE_VARIABLES if name not in job.request.environment]
    exports = [f"export {' '.join(f'{name}=$interface' for name in names)}"] if names else []
    exports = [line.replace("=$interface", '="$interface"') for line in exports]
    if job.is_on_one_host:
        return ["# Ranks of one host meet on its loopback interface.", "interface=lo", *exports]
    addresses = shlex.quote(WORKER_ADDRESSES_FILE if job.request.elastic else job.path(ADDRESSES))
    return [
        "# The network interface that carries this host's own address of the cluster.",
        "interface=$(PATH=$PATH:/usr/sbin:/sbin ip -oneline -4 address show | awk '",
        "    NR == FNR { members[$1]; next }",
        '    { sub("/.*", "", $4) }',
        f"    $4 in members {{ print $2; exit }}' {addresses} -)",
        '[ -n "$interface" ] || {',
        f'    echo "deeplearning: $(uname -n) must carry one of the addresses in {addresses}, got:" >&2',
        "    PATH=$PATH:/usr/sbin:/sbin ip -oneline -4 address show >&2",
        "    exit 1",
        "}",
        *exports,
    ]


def export_lines(job: Job) -> list[str]:
    """Return the lines that set the job's and the user's variables, which win over what a launcher sets."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in job.variables.items()]
    if job.request.python and not job.request.container:  # A container has programs of its own.
        lines.append(f'export PATH={shlex.quote(job.request.python)}:"$PATH"')
    return lines


def _log_lines(job: Job) -> list[str]:
    folder = shlex.quote(job.request.folder)
    source = RANK_SOURCES.get(job.request.launcher)
    if source:
        name, launcher = source
        return [
            f'export {RANK_VARIABLE}="${{{name}:?must be set, {launcher} starts this script}}"',
            f'exec >> {folder}/"rank-${RANK_VARIABLE}.log" 2>&1',
        ]
    return [
        f': "${{{TASK_VARIABLE}:?must be set, deeplearning run starts this script}}"',
        f'exec >> {folder}/"${{{RANK_VARIABLE}:+rank-}}${{{RANK_VARIABLE}:-${TASK_VARIABLE}}}.log" 2>&1',
    ]


def _config_lines(job: Job) -> list[str]:
    """Tell TensorFlow who all are, and which of them this process is."""
    if job.request.launcher not in TENSORFLOW_LAUNCHERS:
        return []
    return [
        f"cluster=$(cat {shlex.quote(job.path(CLUSTER_FILE))}) || exit 1",
        f"kind=${{{TASK_VARIABLE}%-*}} number=${{{TASK_VARIABLE}##*-}}",
        r'export TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"$kind\", \"index\": $number}}"',
    ]


def _directory_lines(job: Job) -> list[str]:
    if not job.request.directory:
        return []
    folder = shlex.quote(job.request.directory)
    return [f'cd {folder} 2> /dev/null || echo "deeplearning: $(uname -n) has no "{folder}", this rank is in $PWD"']


def _join(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
