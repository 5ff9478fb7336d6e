"""Reads a saved notebook without Jupyter, and says why it must not be committed."""

import ast
import json
import sys

PACKAGES = {"boto3", "matplotlib"}
"""Packages beside the standard library; every release of SageMaker's own SDK broke the notebooks of the one before."""


def read_cells(path):
    """Return the cells of a notebook, each source as one text."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return [{**cell, "source": "".join(cell["source"])} for cell in document["cells"]]


def find_faults(path):
    """Yield why a notebook must not be committed: outputs of a run, cells without an id, other packages."""
    document, cells = json.loads(path.read_text(encoding="utf-8")), read_cells(path)
    if (document["nbformat"], document["nbformat_minor"]) != (4, 5):
        yield "format must be 4.5"
    if len({cell.get("id") for cell in cells} - {None}) != len(cells):
        yield "each cell must have an id of its own"
    if len([cell for cell in cells if "parameters" in cell["metadata"].get("tags", ())]) != 1:
        yield "one cell must have the tag parameters"
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        if cell["outputs"] or cell["execution_count"] is not None:
            yield f"{cell['id']} must be saved without outputs and numbers"
        for node in ast.walk(ast.parse(cell["source"])):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
            for name in {name.partition(".")[0] for name in names} - PACKAGES - sys.stdlib_module_names:
                yield f"{cell['id']} must import {', '.join(sorted(PACKAGES))} alone, got {name}"
