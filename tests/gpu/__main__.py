"""
`python -m tests.gpu`, which `make gpu-trial` does: tries nodes' programs on this machine's NVIDIA GPU.

It needs root, one NVIDIA GPU with its driver, PyTorch with CUDA, the CUDA toolkit, g++, make and sshd, and a package
index that pip reaches. Files of the node are in namespaces of its own; a lock of `deeplearning run` stays in /tmp.
Exit status: 0 when all was as expected, 1 when something was not, 2 when something is missing.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack

from deeplearning_cdk import TrainingImage
from deeplearning_cdk.catalog.instance_catalog import read_catalog
from deeplearning_node.programs import Programs, system_path
from tests.gpu.needs import PyTorch, find_missing, probe_pytorch
from tests.gpu.trial import FOLDERS, RESULT

OUT = Path("build/gpu-trial")
NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
"""Of processes too: `deeplearning run` refuses to start beside the job of another cluster, such as a rehearsed one."""
_DIFFERENT, _MISSING = 1, 2


def main(words: Sequence[str] | None = None) -> int:
    """Try, print the table, write the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    parser.add_argument("--pytorch", default="", metavar="PYTHON", help="default: /opt/pytorch's, then the system's")
    named = parser.parse_args(words).pytorch
    programs = Programs(system_path(os.environ.get("PATH", "")))
    pytorch = probe_pytorch(named, programs)
    if missing := find_missing(pytorch, programs, is_root=os.geteuid() == 0):
        print("\n".join(missing))
        return _MISSING
    with tempfile.TemporaryDirectory() as folder:
        context = make_context(Path(folder), choose_type(pytorch))
        results = run_trial(context, pytorch)
    if not results:
        return _DIFFERENT
    OUT.mkdir(parents=True, exist_ok=True)
    results |= {"day": dt.datetime.now(tz=dt.UTC).date().isoformat(), "pytorch": asdict(pytorch)}
    (OUT / "results.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(render_table(results))
    return 0 if all(results["checks"].values()) else _DIFFERENT


def choose_type(pytorch: PyTorch) -> str:
    """Return the instance type that is most like this machine: its GPU's capability first, then the number of GPUs."""
    found = [facts for facts in read_catalog().values() if facts.compute_capability == pytorch.capability]
    if not found:
        print(f"missing: an instance type with GPUs of capability {pytorch.capability}; upgrade the catalogue")
        raise SystemExit(_MISSING)
    return min(found, key=lambda facts: (facts.gpu_count != pytorch.gpus, len(facts.efa_cards), facts.name)).name


def make_context(work: Path, instance_type: str) -> Path:
    """Synthesize the training image of a type, and return its folder with agent.zip and node.json."""
    app = App(outdir=str(work / "cdk.out"))
    TrainingImage(Stack(app, "Images"), "Image", instance_type=instance_type)
    app.synth()
    (context,) = (path.parent for path in work.rglob("Dockerfile"))
    return context


def run_trial(context: Path, pytorch: PyTorch) -> dict[str, Any]:
    """Run the trial in namespaces of its own, and return its results; empty when it ended early."""
    command = ["unshare", *NAMESPACES, sys.executable, "-m", "tests.gpu.trial"]
    document = json.dumps({"context": str(context), "prefix": pytorch.prefix})
    made = [folder for folder in FOLDERS if not folder.exists()]
    results: dict[str, Any] = {}
    with subprocess.Popen([*command, document], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            if line.startswith(RESULT):
                results = json.loads(line.removeprefix(RESULT))
            else:
                print(line, end="", flush=True)
    for folder in made:
        with contextlib.suppress(OSError):
            folder.rmdir()
    return results if process.returncode == 0 else {}


def render_table(results: dict[str, Any]) -> str:
    """Return a line for each check and each figure."""
    rows = [(name, "as expected" if holds else "DIFFERENT") for name, holds in results["checks"].items()]
    rows += [(name, ", ".join(map(str, values))) for name, values in results["figures"].items()]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name.ljust(width)}  {value}" for name, value in rows)


if __name__ == "__main__":
    sys.exit(main())
