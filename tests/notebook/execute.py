"""Executes a notebook from top to bottom with the packages of a notebook instance: `execute.py NOTEBOOK PARAMETERS`."""

import sys
import tempfile
from pathlib import Path

import nbclient
import nbformat
from jupyter_client.manager import AsyncKernelManager

START_SECONDS = 600
"""Longest start of the kernel, which ends a hang alone."""


def main(path, parameters):
    """Replace the cell of the parameters, run all cells in the notebook's folder, and save it with its outputs."""
    notebook = nbformat.read(path, as_version=4)
    (cell,) = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", ())]
    cell.source = parameters
    # By TCP, others on this machine could send code to the kernel. A socket's path has room for about 100 characters.
    with tempfile.TemporaryDirectory(prefix="kernel-") as sockets:
        manager = AsyncKernelManager(kernel_name="python3", transport="ipc", ip=f"{sockets}/kernel")
        client = nbclient.NotebookClient(
            notebook,
            km=manager,
            timeout=None,
            startup_timeout=START_SECONDS,
            resources={"metadata": {"path": str(path.parent)}},
        )
        try:
            client.execute()
        finally:
            nbformat.write(notebook, path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="utf-8"))
