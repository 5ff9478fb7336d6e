#!/usr/bin/env python3
"""
Generator of scripts for a parameter-server job: one per host that starts it there, and one that stops it.

It takes the flags of the generate_trainer.py that came with the CloudFormation template, and passes unknown flags to
the training script:

    python3 generate_trainer.py --workers_file_path $DEEPLEARNING_WORKERS_PATH \\
        --worker_count $DEEPLEARNING_WORKERS_COUNT --worker_gpu_count $DEEPLEARNING_WORKER_GPU_COUNT \\
        --trainer_script_dir $EFS_MOUNT/tensorflow --training_script $EFS_MOUNT/train_parameter_server.py \\
        --batch_size 128 --data_dir=$EFS_MOUNT/cifar10_data --train_dir=$EFS_MOUNT/cifar10_train \\
        --log_dir $EFS_MOUNT/tensorflow/logs --max_steps 600
    while read -u 10 host; do ssh $host "bash $EFS_MOUNT/tensorflow/$host.sh"; done 10< $DEEPLEARNING_WORKERS_PATH

Every host gets a parameter server and one worker per GPU, or one worker without GPUs; the first host also gets the
chief, which distributes the steps. Each process finds the others through TF_CONFIG and writes to its own file in the
log folder. Free ports of each host are read over SSH when the scripts are generated. Servers and workers end when the
chief has ended, or with `bash $host.stop.sh`, which ends only this job's processes on its host.
"""

import argparse
import json
import os
import secrets
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10")
FIND_PORTS = """
import random, socket, sys
# Below the ports that connections take by themselves, or one of them may have taken a port before the job starts.
with open('/proc/sys/net/ipv4/ip_local_port_range') as limits:
    last = min(32768, int(limits.read().split()[0])) - 1
found = []
for port in random.sample(range(10000, last), 2000):
    with socket.socket() as probe:
        try:
            probe.bind(('', port))
        except OSError:
            continue
    found.append(port)
    if len(found) == int(sys.argv[1]):
        break
print(*found)
"""
STOP = """#!/bin/bash
# Ends what {job} has started on {host}; only that: its processes carry the job's name in their environment.
find_processes() {{
    grep -lsazxF {mark} /proc/[0-9]*/environ | tr -dc '0-9\n'
}}
touch {ended}
processes=$(find_processes)
[ -z "$processes" ] || kill $processes 2> /dev/null
for ((try = 0; try < 50; try++)); do
    processes=$(find_processes)
    [ -n "$processes" ] || exit 0
    sleep 0.2
done
kill -KILL $processes
"""
START = """#!/bin/bash
# Starts the processes of {job} on {host} and returns at once. Written by generate_trainer.py.
[ ! -r /etc/profile ] || . /etc/profile
export DEEPLEARNING_JOB={job} PYTHONUNBUFFERED=1
mkdir -p {logs} || exit 1
start() {{ # NAME GPUS TF_CONFIG
    echo "$1 writes to "{logs}"/$1"
    TF_CONFIG=$3 CUDA_VISIBLE_DEVICES=$2 setsid bash -c {watch} {ended} "$1" {program} \\
        > {logs}/"$1" 2>&1 < /dev/null &
}}
"""
WATCH = """
"${@:2}" & program=$!
trap 'kill $program; exit 143' TERM
while kill -0 $program 2> /dev/null && [ ! -e "$0" ]; do sleep 0.5; done
kill $program 2> /dev/null
for ((try = 0; try < 50; try++)); do kill -0 $program 2> /dev/null && sleep 0.2 || break; done
kill -KILL $program 2> /dev/null
wait $program; status=$?
case $1 in chief*) touch "$0" ;; esac
exit $status
"""
"""Script that runs a program, ends it when the chief has ended, and marks the end of the chief."""


def parse_arguments(words: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Parse the flags, and return those of the training script in their order."""
    parser = argparse.ArgumentParser(description="Write scripts that start a parameter-server job.", allow_abbrev=False)
    parser.add_argument("--workers_file_path", type=Path, required=True, help="file with the hosts, one per line")
    parser.add_argument("--worker_count", type=int, required=True, help="number of hosts that take part")
    parser.add_argument("--worker_gpu_count", type=int, required=True, help="workers per host; 0: one, on the CPU")
    parser.add_argument("--trainer_script_dir", type=Path, required=True, help="shared folder of the scripts")
    parser.add_argument("--training_script", nargs="+", required=True, help="training script, and its first arguments")
    parser.add_argument("--log_dir", type=Path, default=Path("/tmp"), help="output folder (default: %(default)s)")  # noqa: S108 - the predecessor's default
    return parser.parse_known_args(words)


def choose_hosts(lines: str, count: int) -> tuple[list[str], list[str]]:
    """
    Return the hosts that take part, and the others.

    Raises:
        ValueError: The file lists fewer hosts, or a host twice.
    """
    hosts = [line.split()[0] for line in lines.splitlines() if line.strip()]
    if not 1 <= count <= len(hosts):
        raise ValueError(f"--worker_count must be 1 to {len(hosts)}, the hosts of the workers file, got {count}")
    if len(set(hosts)) != len(hosts):
        raise ValueError(f"--workers_file_path must list each host once, got {' '.join(hosts)}")
    return hosts[:count], hosts[count:]


def ask_for_ports(host: str, count: int) -> list[int]:
    """
    Return free ports of a host, read over SSH.

    Raises:
        ValueError: The host returned too few.
    """
    command = [*SSH, host, shlex.join(["python3", "-c", FIND_PORTS, str(count)])]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, timeout=60)
    ports = [int(word) for word in answer.stdout.split()] if answer.returncode == 0 else []
    if len(ports) != count:
        raise ValueError(f"{host} must offer {count} free ports, got {ports}: {answer.stderr.strip()}")
    return ports


def plan_cluster(hosts: Sequence[str], workers: int, ask: Callable[[str, int], list[int]]) -> dict[str, list[str]]:
    """
    Return TF_CONFIG's cluster: every process with its host and port, the same for all.

    Args:
        hosts: Hosts that take part; the first has the chief.
        workers: Workers per host.
        ask: Function that returns free ports of a host.
    """
    with ThreadPoolExecutor(32) as pool:
        ports = list(pool.map(lambda host: ask(host, workers + 2), hosts))
    cluster: dict[str, list[str]] = {"chief": [f"{hosts[0]}:{ports[0][-1]}"], "ps": [], "worker": []}
    for host, own in zip(hosts, ports, strict=True):
        cluster["ps"].append(f"{host}:{own[0]}")
        cluster["worker"] += [f"{host}:{port}" for port in own[1 : workers + 1]]
    return cluster


def list_tasks(number: int, gpus: int) -> list[tuple[str, int, str]]:
    """Return type, index and visible GPUs of each process of a host; `number` is its place among the hosts."""
    workers = max(1, gpus)
    tasks = [("ps", number, "")]
    tasks += [("worker", number * workers + gpu, str(gpu) if gpus else "") for gpu in range(workers)]
    return [*tasks, ("chief", 0, "")] if number == 0 else tasks


def write_start(
    host: str, tasks: Sequence[tuple[str, int, str]], cluster: dict[str, list[str]], words: dict[str, str]
) -> str:
    """
    Return the script that starts the processes of a host.

    Args:
        host: Its name.
        tasks: Tasks from `list_tasks`.
        cluster: TF_CONFIG's cluster.
        words: Quoted parts of the script.
    """
    text = START.format(host=host, watch=shlex.quote(WATCH), **words)
    if any(kind == "chief" for kind, _, _ in tasks):
        text += f"rm -f {words['ended']}\n"
    for kind, index, visible in tasks:
        config = json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})
        text += f"start {kind}{index} {visible!r} {shlex.quote(config)}\n"
    return text


def write_scripts(options: argparse.Namespace, unknown: Sequence[str], ask: Callable[[str, int], list[int]]) -> str:
    """
    Write all scripts; return the job's name.

    Raises:
        ValueError: The hosts do not match the flags, or have too few free ports.
    """
    hosts, others = choose_hosts(options.workers_file_path.read_text(), options.worker_count)
    if options.worker_gpu_count < 0:
        raise ValueError(f"--worker_gpu_count must be at least 0, got {options.worker_gpu_count}")
    cluster = plan_cluster(hosts, max(1, options.worker_gpu_count), ask)
    folder, logs = options.trainer_script_dir.absolute(), options.log_dir.absolute()
    job = f"generate_trainer/{secrets.token_hex(4)}"
    ended = shlex.quote(str(folder / f".ended-{job.rpartition('/')[2]}"))
    program = shlex.join([sys.executable, *options.training_script, *unknown])
    words = {"job": job, "logs": shlex.quote(str(logs)), "ended": ended, "program": program}
    folder.mkdir(parents=True, exist_ok=True)
    logs.mkdir(parents=True, exist_ok=True)
    for number, host in enumerate(hosts):
        tasks = list_tasks(number, options.worker_gpu_count)
        replace_text(folder / f"{host}.sh", write_start(host, tasks, cluster, words))
        mark = shlex.quote(f"DEEPLEARNING_JOB={job}")
        replace_text(folder / f"{host}.stop.sh", STOP.format(job=job, host=host, mark=mark, ended=ended))
    for host in others:
        replace_text(folder / f"{host}.sh", f"#!/bin/bash\necho '{host} takes no part'\n")
        replace_text(folder / f"{host}.stop.sh", "#!/bin/bash\n")
    return job


def replace_text(path: Path, text: str) -> None:
    """Write a script atomically."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text)
    unfinished.chmod(0o755)
    unfinished.replace(path)


def main() -> int:
    """Write the scripts and print their use."""
    options, unknown = parse_arguments(sys.argv[1:])
    try:
        job = write_scripts(options, unknown, ask_for_ports)
    except (ValueError, OSError, subprocess.TimeoutExpired) as error:
        sys.stderr.write(f"generate_trainer.py: {error}\n")
        return 1
    sys.stderr.write(f"wrote {options.trainer_script_dir}/<host>.sh and <host>.stop.sh of {job}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
