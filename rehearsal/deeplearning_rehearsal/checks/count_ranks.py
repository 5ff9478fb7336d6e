"""
Counts the ranks of a job, on nodes that need no more than Python's standard library.

    deeplearning run --launcher tf-ps -- python3 count_ranks.py [STEPS]

Each worker resolves every name of the hosts file, and reports to the chief over TCP. The chief waits for all workers,
compares the addresses with those of the job, takes the steps that no earlier run has taken, and prints the number of
ranks and their hosts as one line of JSON. All workers answer in each step, so that one that is lost ends the job; a
checkpoint follows. The other processes end with the chief.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

_SECONDS = 60.0
"""Longest wait of the chief for the next worker, and of a worker for the chief."""
_PAUSE_SECONDS = 0.2
_STEP_SECONDS = 0.5


def resolve(name: str) -> str:
    """Return the address of a host, empty for an unknown one."""
    try:
        return socket.gethostbyname(name)
    except OSError:
        return ""


def connect(chief: tuple[str, int]) -> socket.socket:
    """Return a connection to the chief, which may not listen yet; OSError when it does not in time."""
    give_up = time.monotonic() + _SECONDS
    while time.monotonic() < give_up:
        with contextlib.suppress(OSError):
            return socket.create_connection(chief, _SECONDS)
        time.sleep(_PAUSE_SECONDS)
    return socket.create_connection(chief, _SECONDS)


def work(chief: tuple[str, int], index: int) -> None:
    """Report a worker to the chief, and answer in each step."""
    names = Path(os.environ["DEEPLEARNING_WORKERS_PATH"]).read_text().split()
    content = {"index": index, "host": socket.gethostname(), "names": [[name, resolve(name)] for name in names]}
    with connect(chief) as connection:
        connection.sendall(f"{json.dumps(content)}\n".encode())
        while step := connection.recv(1):
            connection.sendall(step)


def count(chief: tuple[str, int], hosts: list[str], workers: int, steps: int) -> None:
    """Wait for the workers, take the steps, print the hosts; exits where a worker is missing or has other addresses."""
    reports: dict[int, dict[str, Any]] = {}
    with contextlib.ExitStack() as open_connections:
        server = open_connections.enter_context(socket.create_server(chief))
        server.settimeout(_SECONDS)
        connections = []
        while len(reports) < workers:
            try:
                connection, _ = server.accept()
            except TimeoutError:
                sys.exit(f"{workers} ranks must report, got {sorted(reports)}")
            connections.append(open_connections.enter_context(connection))
            with connection.makefile() as stream:
                content = json.loads(stream.readline())
            reports[content["index"]] = content
        for index, content in sorted(reports.items()):
            if [address for _, address in content["names"]] != hosts:
                found = content["names"]
                sys.exit(f"rank {index} must find the hosts {', '.join(hosts)} in the hosts file, got {found}")
        take_steps(steps, connections)
    result = {"ranks": len(reports), "hosts": [content["host"] for _, content in sorted(reports.items())]}
    print(json.dumps(result), flush=True)  # noqa: T201 - the program's result


def has_answer(connection: socket.socket) -> bool:
    """Return whether a worker answers."""
    connection.settimeout(_SECONDS)
    try:
        connection.sendall(b".")
        return bool(connection.recv(1))
    except OSError:
        return False


def take_steps(count: int, connections: list[socket.socket]) -> None:
    """Let all workers answer in each step, those before a resumed job's checkpoint left out, and write a checkpoint."""
    begin = json.loads(Path(path).read_text()) if (path := os.environ.get("DEEPLEARNING_RESUME_FROM")) else 0
    for step in range(begin + 1, count + 1):
        time.sleep(_STEP_SECONDS)
        for connection in connections:
            if not has_answer(connection):
                sys.exit(f"all ranks must answer in step {step}, one has ended")
        folder = Path(os.environ["DEEPLEARNING_CHECKPOINT_PATH"])
        (folder / ".step").write_text(json.dumps(step))
        (folder / ".step").replace(folder / f"epochs-{step:05d}")


def main() -> None:
    """Do what the process of `TF_CONFIG` has to do."""
    config = json.loads(os.environ["TF_CONFIG"])
    cluster, task = config["cluster"], config["task"]
    address, _, port = cluster["chief"][0].rpartition(":")
    if task["type"] == "chief":
        hosts = [server.rpartition(":")[0] for server in cluster["ps"]]  # One a host, in the order of the hosts file.
        count((address, int(port)), hosts, len(cluster["worker"]), int(sys.argv[1]) if sys.argv[1:] else 0)
        return
    if task["type"] == "worker":
        work((address, int(port)), task["index"])
    signal.pause()


if __name__ == "__main__":
    main()
