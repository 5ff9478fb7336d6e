"""
`deeplearning` as one node of the job lab has it: `job_node.py FOLDER ADDRESS ARGUMENT...`.

The nodes share this machine and its processes. Every process carries the variable LAB with its lab and its node, by
which each node sees its own processes alone, and no test another's.
"""

import os
import sys
from pathlib import Path

from deeplearning_command.main import main
from deeplearning_jobs.hosts import processes as job_processes
from deeplearning_node.programs import Programs


def run_as_node(folder: Path, address: str, arguments: list[str]) -> int:
    """Run a subcommand as the node of an address."""
    lab = f"{folder}@{address}"
    os.environ["LAB"] = lab
    read_mark = job_processes._read_mark

    def read_own_mark(process: Path) -> str:
        try:
            variables = (process / "environ").read_bytes().split(b"\0")
        except OSError:
            return ""
        return read_mark(process) if f"LAB={lab}".encode() in variables else ""

    job_processes._read_mark = read_own_mark
    search_path = f"{folder}/programs:{os.environ['PATH']}"
    return main(arguments, folder / address, Programs(search_path))


if __name__ == "__main__":
    sys.exit(run_as_node(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
