"""
Build in a root of its own, with the product's modules on the path.

Installs what builds Horovod as a node does, then a framework, plans, builds, tries, and reduces over two ranks; or
carries out the step of a container image's Dockerfile, and reduces over two ranks in its environment.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

from deeplearning_node.programs import Programs
from deeplearning_provision.horovod.build import NEEDS, build_horovod, try_horovod
from deeplearning_provision.horovod.cuda_toolkit import parse_nvcc_version
from deeplearning_provision.horovod.plan import plan_horovod
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.python.interpreter import ask_interpreter
from deeplearning_provision.python.pip import Pip
from deeplearning_provision.steps import ProvisionFailure, describe_failure
from deeplearning_provision.system_packages import (
    COMPILER,
    ENSUREPIP,
    HEADERS,
    MAKE,
    install_system_packages,
    name_packages,
)

RESULT = "RESULT "
"""Prefix of the line with the facts."""

TWO_RANKS = """
import sys, {module} as framework, horovod.{module} as hvd
hvd.init()
total = hvd.allreduce(framework.ones(2) * (hvd.rank() + 1), op=hvd.Sum).numpy().tolist()
sys.exit(0 if hvd.size() == 2 and total == [3.0, 3.0] else f"{{hvd.size()}} ranks reduced to {{total}}")
"""


def report_line(line):
    print(line, flush=True)


def read_cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def describe_compilers(plan, programs):
    found = {plan.compiler: programs.run([plan.compiler, "-dumpfullversion", "-dumpversion"], timeout_seconds=60)}
    nvcc = Path("/build/scratch/cuda/bin/nvcc")
    if nvcc.exists():
        found["nvcc"] = parse_nvcc_version(programs.run([str(nvcc), "--version"], timeout_seconds=60))
    return {name: version.strip() for name, version in found.items()}


def install_framework(row, pip):
    for number, framework in enumerate(row["frameworks"], 1):
        report_line(f"installing {framework}")
        try:
            pip.run("install", framework, *NEEDS)
        except ProvisionFailure:
            if number == len(row["frameworks"]):
                raise
        else:
            return


def build(row):
    folder, programs = Path("/build"), Programs()
    transcript = Transcript(folder / "build.log", programs, {"HOME": "/root"})
    version = ask_interpreter(Path(row["python"]), programs).version
    packages = name_packages((COMPILER, MAKE, HEADERS, ENSUREPIP), programs, version)
    install_system_packages(programs, transcript, [*packages, *filter(None, [row["compiler"]])], report_line)
    if row["compiler"]:
        Path("/usr/local/bin/g++").symlink_to(f"/usr/bin/{row['compiler']}")
    subprocess.run([row["python"], "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    pip = Pip(python, transcript, {}, programs, version)
    install_framework(row, pip)
    interpreter = ask_interpreter(python, programs)
    plan = plan_horovod(row["horovod"], interpreter, Path("/"), programs, capability=row["capability"])
    (folder / "scratch").mkdir()
    before = read_cpu_seconds()
    build_horovod(pip, plan, folder / "wheels", folder / "scratch", report_line)
    seconds = read_cpu_seconds() - before
    (wheel,) = (folder / "wheels").glob("horovod-*.whl")
    pip.run("install", "--no-index", "--no-deps", str(wheel))
    report_line("trying it")
    try_horovod(python, plan, transcript)
    (module,) = plan.frameworks
    nccl = ask_nccl(python, module, transcript)
    reduce_over_two_ranks(python, module, transcript)
    return {
        "framework": f"{module} {plan.frameworks[module]}",
        "compilers": describe_compilers(plan, programs),
        "toolkit": plan.toolkit.kind if plan.toolkit else "",
        "standard": plan.standard,
        "has_nccl": bool(nccl),
        "nccl": nccl,
        "ranks": 2,
        "bytes": wheel.stat().st_size,
        "seconds": round(seconds),
    }


def build_image(row):
    """Carry out the RUN line, and read what it built in the environment of the ENV line."""
    outside = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        ["sh", "-c", row["run"]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=outside
    )
    line = ""
    for line in process.stdout:
        report_line(line.rstrip())
    if process.wait() != 0:
        raise ProvisionFailure(line.strip(), "read the lines before it")
    left = sorted(path.name for path in Path("/opt/deeplearning").iterdir())
    if left != ["environments"]:
        raise ProvisionFailure(f"/opt/deeplearning must have nothing but the environments, got {left}", "delete it")
    programs = Programs(row["path"])
    python = Path(shutil.which("python", path=programs.search_path))
    manifest = json.loads((python.parents[1] / "complete.json").read_text())
    plan = manifest["horovod"]
    ((module, version),) = plan["frameworks"].items()
    transcript = Transcript(Path("/build/build.log"), programs, {"HOME": "/root"})
    reduce_over_two_ranks(python, module, transcript)
    nccl = ask_nccl(python, module, transcript)
    return {
        "framework": f"{module} {version}",
        "compilers": {"g++": programs.run(["g++", "-dumpfullversion"], timeout_seconds=60).strip()},
        "toolkit": plan["toolkit"]["kind"] if plan["toolkit"] else "",
        "standard": plan["standard"],
        "has_nccl": bool(nccl),
        "nccl": nccl,
        "ranks": 2,
        "seconds": round(manifest["seconds"]),
    }


def ask_nccl(python, module, transcript):
    ask = f"import horovod.{module} as hvd; print(int(hvd.nccl_built()))"
    return int(transcript.run([str(python), "-c", ask], timeout_seconds=300).splitlines()[-1])


def reduce_over_two_ranks(python, module, transcript):
    script = Path("/build/two_ranks.py")
    script.write_text(TWO_RANKS.format(module=module))
    command = [str(python.with_name("horovodrun")), "--gloo", "-np", "2", "-H", "localhost:2", str(python), str(script)]
    transcript.run(command, timeout_seconds=300, environment={"CUDA_VISIBLE_DEVICES": ""})


def main():
    try:
        row = json.loads(sys.argv[1])
        facts = build_image(row) if row["image_type"] else build(row)
    except ProvisionFailure as error:
        facts = {"failure": str(describe_failure(error)), "may_pass": not error.is_final}
    print(RESULT + json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
