"""Build in a root of its own: a distribution with nothing but Python and apt, as a stock image has them."""

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from aws_cdk import App, Stack

from cdk_rehearsal.cache import fill_once
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.lab.images.base_root import ARCHIVE_KEYRING, ENCLOSED, bootstrap_root, install_missing_packages
from cdk_rehearsal.lab.images.container_image import read_dockerfile
from deeplearning_cdk import JobEnvironment, TrainingImage
from tests.horovod_builds import build_program
from tests.horovod_builds.build_program import RESULT
from tests.horovod_builds.build_rows import HOROVOD, BuildOutcome, BuildRow

PRODUCT, CONTRACT = "/opt/product", "/opt/contract"
"""Folders of the root with the modules of node programs, and with the contract that they import."""
CONTEXT = "/context"
"""Folder of the root with the context of a container image."""
_ENTER = Path(__file__).with_name("enter_root.sh")
_SYSTEM_PYTHON = "/usr/bin/python3"
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PARTIAL_CUDA = ("bin/nvcc", "include/cuda_runtime.h")
_LAST_LINES = 6
_NO_WHEEL = re.compile(r"No matching distribution found for (\S+)")
"""As pip writes it."""
_UBUNTU, _KEYRING_SUITE = "noble", "trixie"
_KEYRING_PACKAGE, _KEYRING = "ubuntu-archive-keyring", "usr/share/keyrings/ubuntu-archive-keyring.gpg"
"""Of Debian 13: brings the keys of Ubuntu's archive, which Debian's signature vouches for."""


def prepare_root(cache: Path, suite: str, report: Callable[[str], None]) -> Path:
    """Return the root of a release, made when the cache does not hold it: some 100 MB of downloads."""
    install_missing_packages(report)
    keyring = prepare_root(cache, _KEYRING_SUITE, report) / _KEYRING if suite == _UBUNTU else ARCHIVE_KEYRING
    packages = ("apt", "python3", "ca-certificates", *((_KEYRING_PACKAGE,) if suite == _KEYRING_SUITE else ()))
    components = "main,universe,multiverse" if suite == _UBUNTU else "main"

    def fill(work: Path) -> Path:
        root, log = work / "root", cache / "build.log"
        bootstrap_root(root, suite, packages, f"--components={components}", keyring=keyring, log=log, report=report)
        return root

    key = f"{suite}-{hashlib.sha256(repr((packages, components)).encode()).hexdigest()[:16]}"
    return fill_once(cache, key, fill, report)


def try_row(row: BuildRow, cache: Path, out: Path, report: Callable[[str], None]) -> BuildOutcome:
    """Build and try; leaves `NAME.log` in `out` and, while it runs, has a folder of up to 8 GB beside it."""
    work = out / f"{row.name}.work"
    shutil.rmtree(work, ignore_errors=True)
    try:
        root = prepare_root(cache, row.suite, report)
        if row.has_partial_cuda:
            _plant_cuda(work / "upper" / "usr/local/cuda")
        return _build(row, root, cache, work, report)
    except UnavailableError as error:
        return BuildOutcome({}, str(error), is_unavailable=True)
    finally:
        if (log := work / "upper/build/build.log").exists():
            shutil.copyfile(log, out / f"{row.name}.log")
        shutil.rmtree(work, ignore_errors=True)


def _build(row: BuildRow, root: Path, cache: Path, work: Path, report: Callable[[str], None]) -> BuildOutcome:
    python, binds = _SYSTEM_PYTHON, find_binds(cache, os.environ)
    if row.has_host_python and sys.base_prefix != "/usr":
        python = f"{sys.base_prefix}/bin/python3"
        binds[sys.base_prefix] = sys.base_prefix
    step = {}
    if row.image_type:
        context = make_context(row, work / "app")
        binds[str(context)] = CONTEXT
        (run,), variables = read_dockerfile((context / "Dockerfile").read_text())
        step = {"run": run.command, "path": variables["PATH"]}
    program = Path(build_program.__file__).read_text()
    document = json.dumps(asdict(row) | step | {"python": python, "horovod": HOROVOD})
    variables = {
        name: value for name, value in os.environ.items() if name.startswith("PIP_") or name.endswith("_proxy")
    }
    variables |= {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": f"{PRODUCT}:{CONTRACT}",
    }
    words = [f"{source}={target}" for source, target in binds.items()]
    work.mkdir(parents=True, exist_ok=True)
    command = [*ENCLOSED, "--uts", "sh", str(_ENTER), str(root), str(work), *words, "--", "env", "-i"]
    command += [*(f"{name}={value}" for name, value in variables.items()), _SYSTEM_PYTHON, "-c", program, document]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    lines = []
    for line in process.stdout or ():
        lines.append(line.rstrip())
        if not line.startswith(RESULT):
            report(f"{row.name}: {line.rstrip()}")
    return read_outcome(row, process.wait(), lines)


def make_context(row: BuildRow, work: Path) -> Path:
    """Synthesize the row's image, and return the context that Docker would get."""
    work.mkdir(parents=True)
    requirements = work / "requirements.txt"
    requirements.write_text("".join(f"{line}\n" for line in row.frameworks))
    environment = JobEnvironment.from_requirements(str(requirements), horovod=HOROVOD) if row.frameworks else None
    app = App(outdir=str(work / "cdk.out"))
    TrainingImage(Stack(app, "Images"), "Image", environment=environment, instance_type=row.image_type)
    app.synth()
    (context,) = (path.parent for path in work.rglob("Dockerfile"))
    return context


def read_outcome(row: BuildRow, status: int, lines: list[str]) -> BuildOutcome:
    """
    Return what a build's last lines say of it.

    A framework that pip's index does not offer here, or a network that does not answer, is nobody's mistake; a package
    that the product itself names must be there.
    """
    results = [json.loads(line.removeprefix(RESULT)) for line in lines if line.startswith(RESULT)]
    if status != 0 or not results:
        return BuildOutcome({}, f"ended with status {status}: {' | '.join(lines[-_LAST_LINES:])}")
    facts = results[-1]
    failure = facts.get("failure", "")
    if failure and (absent := _NO_WHEEL.search(failure)) and absent[1] in row.frameworks:
        said = f"pip's index offers no {' and no '.join(row.frameworks)} for the Python that builds"
        return BuildOutcome({}, said, is_unavailable=True)
    if failure:
        return BuildOutcome({}, failure, is_unavailable=facts.get("may_pass", False))
    return BuildOutcome(facts, seconds=facts["seconds"])


def find_binds(cache: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """
    Return what of this machine the root sees, source -> target: the product, names, certificates, and pip's sources.

    Raises:
        UnavailableError: The product's modules are not here, as where this package was installed from its wheel.
    """
    specs = [importlib.util.find_spec(name) for name in ("deeplearning_provision", "deeplearning_contract")]
    origins = [Path(spec.origin).parents[1] for spec in specs if spec is not None and spec.origin is not None]
    if len(origins) < len(specs):
        raise UnavailableError(
            "the modules of the nodes are not importable here; run it in a checkout, after make setup"
        )
    downloads = cache / "pip"
    downloads.mkdir(parents=True, exist_ok=True)
    binds = {**dict(zip(map(str, origins), (PRODUCT, CONTRACT), strict=True)), str(downloads): "/root/.cache/pip"}
    binds |= {str(path): str(path) for path in (Path("/etc/resolv.conf"), _CERTIFICATES) if path.exists()}
    home = Path(environment.get("HOME", "/root"))
    files = {Path("/etc/pip.conf"): "/etc/pip.conf", home / ".config/pip/pip.conf": "/root/.config/pip/pip.conf"}
    binds |= {str(path): target for path, target in files.items() if path.exists()}
    words = [environment.get("PIP_FIND_LINKS", ""), *(path.read_text() for path in files if path.exists())]
    folders = {Path(word.removeprefix("file://")) for word in " ".join(words).split()}
    # An index of files has its packages beside it.
    found = {folder.parent if folder.name == "simple" else folder for folder in folders if folder.is_absolute()}
    return binds | {str(folder): str(folder) for folder in sorted(found) if folder.is_dir()}


def _plant_cuda(home: Path) -> None:
    for name in _PARTIAL_CUDA:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("#!/bin/sh\nexit 1\n")
        (home / name).chmod(0o755)
