"""
Scripts that start the processes of one run; no name, path or interface in them is hard-coded.

- `rank` starts a rank's program: its log, its network interface, its variables, its container.
- `start` starts a launcher's own program, such as mpirun, with the run's programs first in `PATH`.
- `bin/ssh` keeps the check of host keys, which launchers turn off.
"""

import shlex
from collections.abc import Sequence

from deeplearning_contract.names import DATA_DIRECTORY, STATE_DIRECTORY, WORKER_ADDRESSES_FILE
from deeplearning_jobs.launchers.launcher import Launcher, Starter
from deeplearning_jobs.plan.job import ADDRESSES, HOSTFILE, RANK, RANK_VARIABLE, SSH, START, TASK_VARIABLE, Draft, Job
from deeplearning_jobs.plan.network_environment import INTERFACE_VARIABLES

PASSED_PREFIXES = ("CUDA_", "DEEPLEARNING_", "EFS_MOUNT", "FI_", "GLOO_", "NCCL_")
"""Prefixes of variables that containers receive with any launcher; each launcher's record adds its own."""


def make_scripts(job: Job, launcher: Launcher, draft: Draft, prefixes: tuple[str, ...]) -> dict[str, str]:
    """Return the scripts of a run, path -> text; `prefixes` are those of variables that every container receives."""
    container = _container_lines(job, draft, prefixes) if job.definition.container else []
    is_outside = launcher.starts_in_container(job)
    files = {job.path(RANK): _make_rank_script(job, launcher, draft.rank_lines, container)}
    if not job.definition.elastic and not job.is_on_one_host:
        files[job.path(ADDRESSES)] = "".join(f"{host.address}\n" for host in job.layout.hosts)
    if launcher.starter:
        files[job.path(START)] = _make_start_script(job, launcher.starter, container if is_outside else [])
    if launcher.is_central and not job.definition.elastic:
        files[job.path(SSH)] = _make_ssh_shim(job)
        files[job.path(HOSTFILE)] = "".join(f"{host.name} slots={job.layout.slots}\n" for host in job.layout.hosts)
    return files


def _make_rank_script(job: Job, launcher: Launcher, rank_lines: Sequence[str], container: Sequence[str]) -> str:
    is_inside = launcher.starts_in_container(job)
    lines = [
        "#!/bin/sh",
        f"# Starts one rank of {job.name}. usage: rank PROGRAM [ARGUMENT...]",
        "set -u",
        *_log_lines(job, launcher.starter),
        *([] if is_inside else _interface_lines(job)),
        *_export_lines(job),
        *rank_lines,
        *_directory_lines(job),
    ]
    return _join([*lines, *(container if container and not is_inside else ['exec "$@"'])])


def _make_start_script(job: Job, starter: Starter, container: Sequence[str]) -> str:
    lines = [
        "#!/bin/sh",
        f"# Starts the launcher of {job.name}. usage: start LAUNCHER [ARGUMENT...]",
        "set -u",
    ]
    if container:
        return _join([*lines, *_interface_lines(job), *_export_lines(job), *_directory_lines(job), *container])
    if starter.folder:
        lines.append(f'[ ! -d {starter.folder} ] || PATH={starter.folder}:"$PATH"')
    first = [shlex.quote(folder) for folder in (job.path("bin"), job.request.python) if folder]
    return _join(
        [
            *lines,
            f'export PATH={":".join(first)}:"$PATH"',
            *starter.fallback,
            "# By its full path, from which mpirun finds its own parts on the other hosts.",
            'launcher=$(command -v "$1") || {',
            '    echo "deeplearning: $1 must be installed on $(uname -n), got none in PATH=$PATH" >&2',
            '    echo "declare it in the environment of the cluster, or use an image that has it" >&2',
            "    exit 127",
            "}",
            "shift",
            'exec "$launcher" "$@"',
        ]
    )


def _make_ssh_shim(job: Job) -> str:
    """Return the text of the `ssh` that a launcher on the master finds first in `PATH`."""
    return _join(
        [
            "#!/bin/sh",
            "# Launchers turn the check of host keys off. The first value of an option wins, so this one keeps it.",
            "# A host that becomes silent ends the job after two minutes.",
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


def _interface_lines(job: Job) -> list[str]:
    """Return the lines that find this host's network interface; variables of `--env` are kept."""
    names = [name for name in INTERFACE_VARIABLES if name not in job.definition.env]
    exports = [f"export {' '.join(f'{name}=$interface' for name in names)}"] if names else []
    exports = [line.replace("=$interface", '="$interface"') for line in exports]
    if job.is_on_one_host:
        return ["# Ranks of one host meet on its loopback interface.", "interface=lo", *exports]
    addresses = shlex.quote(WORKER_ADDRESSES_FILE if job.definition.elastic else job.path(ADDRESSES))
    return [
        "# The network interface that carries this host's own address in the cluster.",
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


def _export_lines(job: Job) -> list[str]:
    """Return the lines that set the job's and the user's variables, which override those of the launcher."""
    lines = [f"export {name}={shlex.quote(value)}" for name, value in job.variables.items()]
    if job.request.python and not job.definition.container:  # A container has its own programs.
        lines.append(f'export PATH={shlex.quote(job.request.python)}:"$PATH"')
    return lines


def _log_lines(job: Job, starter: Starter | None) -> list[str]:
    folder = shlex.quote(job.request.folder)
    if starter:
        variable = starter.rank_variable
        return [
            f'export {RANK_VARIABLE}="${{{variable}:?must be set, {starter.program} starts this script}}"',
            f'exec >> {folder}/"rank-${RANK_VARIABLE}.log" 2>&1',
        ]
    return [
        f': "${{{TASK_VARIABLE}:?must be set, deeplearning run starts this script}}"',
        f'exec >> {folder}/"${{{RANK_VARIABLE}:+rank-}}${{{RANK_VARIABLE}:-${TASK_VARIABLE}}}.log" 2>&1',
    ]


def _directory_lines(job: Job) -> list[str]:
    if not job.request.directory:
        return []
    folder = shlex.quote(job.request.directory)
    return [f'cd {folder} 2> /dev/null || echo "deeplearning: $(uname -n) has no "{folder}"; this rank runs in $PWD"']


def _container_lines(job: Job, draft: Draft, prefixes: tuple[str, ...]) -> list[str]:
    """
    Return the lines that start `"$@"` in the job's container.

    The container runs as the login user: files on the shared file system keep their owner, and `deeplearning stop`
    finds the processes as in any other job.
    """
    mount = shlex.quote(job.mount_point)
    options = "--rm --init --network host --ipc host --ulimit memlock=-1"
    options += " --gpus all" if job.layout.has_gpus else ""
    drafted = {name for process in draft.processes for name in process.environment} - job.variables.keys()
    others = sorted(name for name in drafted if not name.startswith(prefixes))
    names = " ".join(f"--env {name}" for name in (*job.variables, *others))
    return [
        f'set -- {shlex.quote(job.definition.container)} "$@"',
        "# Data is on the shared file system, on another, or on a disk of this host.",
        f"for entry in {DATA_DIRECTORY}/*; do",
        '    [ -e "$entry" ] || continue',
        '    place=$(readlink "$entry" || echo "$entry")',
        "    # Staged data is itself a link, which is switched: resolve only the path above it.",
        '    place=$(readlink -f "${place%/*}")/${place##*/}',
        f'    case $place in {mount}/*) ;; *) set -- --volume "$place:$place" "$@" ;; esac',
        "done",
        *(
            [
                "# EFA's devices, where this host has them.",
                '[ ! -d /dev/infiniband ] || set -- --device /dev/infiniband "$@"',
            ]
            if any(host.efa_cards for host in job.layout.hosts)
            else []
        ),
        f"passed=$(env | sed -nE 's/^(({'|'.join(prefixes)})[A-Za-z0-9_]*)=.*/--env \\1/p')",
        "# shellcheck disable=SC2086 # Names of variables, to be split.",
        f'exec docker run {options} --user "$(id -u):$(id -g)" \\',
        f"    --volume {mount}:{mount} --volume {STATE_DIRECTORY}:{STATE_DIRECTORY}:ro \\",
        f'    --workdir "$PWD" --env HOME=/tmp {names} $passed "$@"',
    ]


def _join(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"
