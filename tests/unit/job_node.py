"""
`deeplearning` as one node of the job lab has it: `job_node.py FOLDER ADDRESS ARGUMENT...`.

The nodes share this machine and its processes. Every process carries the variable LAB with its lab and its node, by
which each node sees its own processes alone, and no test another's.

`job_node.py --serve SOCKET` answers for all nodes what hosts ask one another, each time in a child of its own: most of
the time of a short command is the start of its Python. CLIENT takes the place of such a command.
"""

import os
import signal
import socket
import sys
import traceback
from pathlib import Path

from deeplearning_command.cluster import node_facts
from deeplearning_command.jobs import stop
from deeplearning_command.main import main
from deeplearning_jobs.hosts import processes as job_processes
from deeplearning_node.programs import Programs

ASKED = (node_facts, stop)
"""Modules of the commands that hosts ask one another for, which the server has before it is asked."""
CLIENT = """
import _socket, os, sys
server = _socket.socket(_socket.AF_UNIX)
server.connect(sys.argv[1])
files = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
words = "\\0".join([os.environ["PATH"], *sys.argv[2:]]).encode()
server.sendmsg([words], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
answer = server.recv(1)
sys.exit(answer[0] if answer else 1)
"""
"""A program whose arguments are the socket and those of this one; it passes its files on and ends with the status."""


def run_as_node(folder, address, arguments):
    """Run a subcommand as the node of an address."""
    lab = f"{folder}@{address}"
    os.environ["LAB"] = lab
    read_mark = job_processes._read_mark

    def read_own_mark(process):
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        return read_mark(process) if f"LAB={lab}".encode() in variables else ""

    job_processes._read_mark = read_own_mark
    search_path = f"{folder}/programs:{os.environ['PATH']}"
    return main(arguments, folder / address, Programs(search_path))


def serve(path):
    """Answer until this process is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    server = socket.socket(socket.AF_UNIX)
    server.bind(f"{path}.new")
    server.listen(128)
    Path(f"{path}.new").rename(path)
    while True:
        connection, _ = server.accept()
        if os.fork() == 0:
            os._exit(answer(connection))
        connection.close()


def answer(connection):
    """Run one command with the files of the client, and tell it the status; a client that was killed hears nothing."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    words, files, _, _ = socket.recv_fds(connection, 1 << 16, 3)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ["PATH"], folder, address, *arguments = words.decode().split("\0")
    status = 1
    try:
        status = run_as_node(Path(folder), address, arguments)
    except SystemExit as end:
        status = int(end.code or 0)
    except Exception:  # noqa: BLE001 - an interpreter would print it too
        traceback.print_exc()
    sys.stderr.flush()
    connection.send(bytes([status]))
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    sys.exit(run_as_node(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
