#!/usr/bin/env python3
"""
Launcher of an MXNet program over SSH: the scheduler on this host, servers and workers on the hosts of a file.

It takes the flags of the launch.py that came with MXNet, for its SSH launcher:

    launch.py -n $DEEPLEARNING_WORKERS_COUNT -H $DEEPLEARNING_WORKERS_PATH python3 train_mxnet.py --kv-store dist_sync

The program starts in this folder on every host, so it must be on the shared file system. Hosts may be names or
addresses; MXNet's processes connect by address. When a worker or a server fails, a host is lost, or this program ends,
all processes on all hosts are ended.
"""

import argparse
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue

SSH = (
    *("ssh", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=6"),
)
FORWARDED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH")
FORWARDED_PREFIXES = ("DEEPLEARNING_", "EFS_MOUNT", "KMP_", "MXNET_", "NCCL_", "OMP_", "PS_")
PER_HOST = ("DEEPLEARNING_WORKER_GPU_COUNT",)
"""Variables of the contract that apply to one host only."""
GRACE_SECONDS = 10
"""Time for a program to end after SIGTERM, in seconds."""
GUARD = (
    'exec 3<&0; setsid "$@" < /dev/null & program=$!; '
    '{ cat <&3; kill -s TERM -- "-$program"; sleep ' + str(GRACE_SECONDS) + '; kill -s KILL -- "-$program"; } '
    '> /dev/null 2>&1 & guard=$!; wait "$program"; status=$?; kill "$guard"; exit "$status"'
)
"""Shell command that runs the program, and ends it with its children when standard input is closed."""


@dataclass
class Part:
    """Process of the job."""

    name: str
    command: list[str]
    environment: dict[str, str]
    process: "subprocess.Popen[bytes] | None" = field(default=None)


def main() -> int:
    """Run the job; return its exit status."""
    options = parse_arguments(sys.argv[1:])
    try:
        hosts = [(host, socket.gethostbyname(host)) for host in read_hosts(options.hostfile)]
    except OSError as error:
        sys.stderr.write(f"launch.py: every host of {options.hostfile} must have an address, got: {error}\n")
        return 2
    if not hosts:
        sys.stderr.write(f"launch.py: {options.hostfile} must list at least one host, got none\n")
        return 2
    parts = plan_parts(options, hosts, dict(os.environ), str(Path.cwd()))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: sys.exit(128 + got))
    try:
        return run_parts(parts)
    finally:
        end_parts(parts)


def parse_arguments(words: list[str]) -> argparse.Namespace:
    """Parse the flags; all arguments after the program belong to it."""
    parser = argparse.ArgumentParser(description="Run an MXNet program on several hosts.", allow_abbrev=False)
    parser.add_argument("-n", "--num-workers", type=int, required=True, help="total number of workers")
    parser.add_argument("-s", "--num-servers", type=int, help="total number of servers (default: as many as workers)")
    parser.add_argument(
        "-H", "--hostfile", type=Path, required=True, help="file with one host per line; `host slots=4` is accepted"
    )
    parser.add_argument("--launcher", default="ssh", help="only ssh")
    parser.add_argument("--env", action="append", default=[], metavar="NAME:VALUE", help="variable for all processes")
    parser.add_argument("--sync-dst-dir", help="refused: the hosts share a file system")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="the program and its arguments")
    options = parser.parse_args(words)
    if options.num_servers is None:
        options.num_servers = options.num_workers
    if options.num_workers < 1 or options.num_servers < 1:
        parser.error(f"-n and -s must be at least 1, got {options.num_workers} and {options.num_servers}")
    if options.launcher != "ssh":
        parser.error(f"--launcher must be ssh, got {options.launcher}; use `deeplearning run` for other launchers")
    if options.sync_dst_dir:
        parser.error("--sync-dst-dir must not be given: all hosts see the same files under $EFS_MOUNT; work there")
    if any(":" not in pair for pair in options.env):
        parser.error(f"--env must be NAME:VALUE, got {' '.join(options.env)}")
    if not options.command:
        parser.error("a program must be given, such as python3 train_mxnet.py")
    if options.command[0] == "python" and not shutil.which("python"):
        options.command[0] = "python3"  # Ubuntu's name of Python.
    return options


def read_hosts(path: Path) -> list[str]:
    """Return the host names in a file, without comments and text after the name."""
    lines = (line.partition("#")[0].split() for line in path.read_text().splitlines())
    return [words[0] for words in lines if words]


def plan_parts(
    options: argparse.Namespace, hosts: list[tuple[str, str]], environment: dict[str, str], folder: str
) -> list[Part]:
    """
    Return all processes: the scheduler first, then servers and workers, distributed over the hosts in turn.

    Args:
        options: The flags.
        hosts: Name and address of each.
        environment: Variables of this process.
        folder: Working directory of the program.
    """
    address = find_address(hosts[0][1])
    shared = {
        "DMLC_PS_ROOT_URI": address,
        "DMLC_PS_ROOT_PORT": str(find_port(address)),
        "DMLC_NUM_WORKER": str(options.num_workers),
        "DMLC_NUM_SERVER": str(options.num_servers),
        **dict(pair.split(":", 1) for pair in options.env),
    }
    guarded = ["sh", "-c", GUARD, "sh", *options.command]
    own = {**environment, **shared, "DMLC_ROLE": "scheduler", "DMLC_NODE_HOST": address}
    parts = [Part("scheduler", guarded, own)]
    forwarded = {name: value for name, value in environment.items() if is_forwarded(name)}
    for role, count in (("server", options.num_servers), ("worker", options.num_workers)):
        for number in range(count):
            host, node = hosts[number % len(hosts)]
            variables = {**forwarded, **shared, "DMLC_ROLE": role, "DMLC_NODE_HOST": node}
            program = ["env", *(f"{name}={value}" for name, value in variables.items()), *guarded]
            text = f"cd {shlex.quote(folder)} && exec {shlex.join(program)}"
            parts.append(Part(f"{role}-{number} on {host}", [*SSH, host, text], environment))
    return parts


def is_forwarded(name: str) -> bool:
    """Return whether a variable of this process is passed to the others."""
    return name in FORWARDED or (name.startswith(FORWARDED_PREFIXES) and name not in PER_HOST)


def find_address(other: str) -> str:
    """Return this host's address towards another host; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((other, 9))
        return probe.getsockname()[0]


def find_port(address: str) -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind((address, 0))
        return probe.getsockname()[1]


def run_parts(parts: list[Part]) -> int:
    """
    Start all processes and wait until every worker has ended, or any process has failed.

    Returns:
        0, or the status of the first process that failed.
    """
    ended: Queue[Part] = Queue()
    for part in parts:
        part.process = subprocess.Popen(
            part.command, stdin=subprocess.PIPE, env=part.environment, start_new_session=True
        )
        threading.Thread(target=_report_end, args=(part, ended), daemon=True).start()
    workers = [part for part in parts if part.name.startswith("worker")]
    while any(part.process is not None and part.process.poll() is None for part in workers):
        try:
            part = ended.get(timeout=1)  # A wait with a timeout, so that signals are handled.
        except Empty:
            continue
        status = part.process.wait() if part.process else 0
        if status != 0:
            sys.stderr.write(f"launch.py: {part.name} ended with status {status}; everything else is ended\n")
            return status if status > 0 else 128 - status
    return next((status for part in workers if (status := part.process.wait() if part.process else 0) != 0), 0)


def _report_end(part: Part, ended: "Queue[Part]") -> None:
    if part.process:
        part.process.wait()
        ended.put(part)


def end_parts(parts: list[Part]) -> None:
    """
    End the remaining processes.

    After the last worker, servers and scheduler end by themselves; the others end when their standard input is closed,
    on any host.
    """
    running = [part.process for part in parts if part.process and part.process.poll() is None]
    is_done = all(part.process and part.process.poll() == 0 for part in parts if part.name.startswith("worker"))
    give_up = time.monotonic() + (GRACE_SECONDS if is_done else 0)
    while time.monotonic() < give_up and any(process.poll() is None for process in running):
        time.sleep(0.1)
    for process in running:
        if process.stdin:
            process.stdin.close()
    give_up = time.monotonic() + 2 * GRACE_SECONDS
    while time.monotonic() < give_up and any(process.poll() is None for process in running):
        time.sleep(0.1)
    for process in running:
        process.kill()


if __name__ == "__main__":
    raise SystemExit(main())
