"""
Nodes, an image and a package index for the tests of environments: real Python, pip and compiler, no network.

The image is a virtual environment, as the PyTorch images have one. The packages are a few lines each, with a build
backend of their own, so that nothing need be fetched to build them; every compilation leaves a line.
"""

import base64
import contextlib
import dataclasses
import getpass
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pip
import pytest

from deeplearning_contract.setting_parts import EnvironmentSettings, HardwareSettings, JobNeeds, ScriptSettings
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import ENVIRONMENT_STEP
from deeplearning_provision.environments.kinds import build_or_install
from deeplearning_provision.status import Status

BACKEND = """
import base64, hashlib, os, subprocess, sysconfig, zipfile

NAME, VERSION, MODULES = {name!r}, {version!r}, {modules!r}

def get_requires_for_build_wheel(config_settings=None):
    return []

def prepare_metadata_for_build_wheel(folder, config_settings=None):
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    os.mkdir(os.path.join(folder, info))
    with open("PKG-INFO") as read, open(os.path.join(folder, info, "METADATA"), "w") as write:
        write.write(read.read())
    return info

def build_wheel(folder, config_settings=None, metadata_directory=None):
    with open(os.environ["BUILD_LOG"], "a") as log:
        variables = sorted(f"{{name}}={{value}}" for name, value in os.environ.items() if name.startswith("HOROVOD"))
        log.write(" ".join([NAME, *variables]) + "\\n")
    files = dict(MODULES)
    if os.path.exists("native.c"):
        suffix = sysconfig.get_config_var("EXT_SUFFIX")
        include = sysconfig.get_path("include")
        command = [os.environ.get("CC", "gcc"), "-shared", "-fPIC", "-I", include, "native.c", "-o", "native" + suffix]
        subprocess.run(command, check=True)
        files["native" + suffix] = open("native" + suffix, "rb").read()
    info = f"{{NAME}}-{{VERSION}}.dist-info"
    files[info + "/METADATA"] = open("PKG-INFO").read()
    files[info + "/WHEEL"] = "Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "/RECORD"] = ""
    name = f"{{NAME}}-{{VERSION}}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name
"""
NATIVE = """
#include <Python.h>
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "native", 0, -1, 0};
PyMODINIT_FUNC PyInit_native(void) {
    PyObject *made = PyModule_Create(&module);
    PyModule_AddIntConstant(made, "answer", 42);
    return made;
}
"""
HOROVOD = {
    "horovod/__init__.py": "",
    "horovod/torch.py": ("import torch\nSum = 1\ndef init(): pass\ndef allreduce(tensor, op): return tensor\n"),
}
TORCH = """
class version: cuda = None
__version__ = '2.9.0+cpu'
def ones(count):
    class Tensor:
        def tolist(self): return [1.0] * count
    return Tensor()
"""


def make_index(folder):
    """Fill a folder with the packages that pip finds."""
    folder.mkdir()
    for name, version, needs in (("pure", "1.0", ["inner"]), ("inner", "0.9", []), ("held", "2.0", [])):
        write_wheel(folder, name, version, {f"{name}.py": f"version = {version!r}\n"}, needs)
    for name in ("cloudpickle", "psutil", "pyyaml", "packaging", "cffi", "numpy", "setuptools", "wheel", "cmake"):
        write_wheel(folder, name, "3.0", {f"{name}.py": ""})
    write_source(folder, "native", "1.0", {}, {"native.c": NATIVE})
    write_source(folder, "broken", "1.0", {}, {"native.c": "#error this cannot be compiled\n"})
    return write_source(folder, "horovod", "0.28.1", HOROVOD, {})


def write_wheel(folder, name, version, modules, needs=()):
    info = f"{name}-{version}.dist-info"
    files = {
        **modules,
        f"{info}/METADATA": describe(name, version, needs),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={sign(text)},{len(text)}\n" for path, text in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for inner, text in files.items():
            wheel.writestr(inner, text)
    return path


def sign(text):
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


def write_source(folder, name, version, modules, files):
    top = f"{name}-{version}"
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    content = {
        **files,
        "pyproject.toml": project,
        "PKG-INFO": describe(name, version),
        "backend.py": BACKEND.format(name=name, version=version, modules=modules),
    }
    path = folder / f"{top}.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for inner, text in content.items():
            entry = tarfile.TarInfo(f"{top}/{inner}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def describe(name, version, needs=()):
    return f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n" + "".join(
        f"Requires-Dist: {need}\n" for need in needs
    )


def make_image(folder, *, with_torch=True, with_horovod=False):
    """
    Make the Python of an image: pip, a package and perhaps PyTorch in an environment of its own.

    A Horovod beside PyTorch is another framework's unless it is asked for.
    """
    python = folder / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)
    modules = {"held": ("1.0", "version = '1.0'\n")}
    if with_torch:
        modules["torch"] = ("2.9.0+cpu", TORCH)
        modules["horovod"] = ("0.28.1", "raise ImportError('built for another framework')\n")
    for name, (version, text) in modules.items():
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text(text)
        info = packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(describe(name, version))
    if with_horovod:
        for name, text in {**HOROVOD, "horovod/torch/mpi_lib_v2.so": ""}.items():
            path = packages / name.replace("torch.py", "torch/__init__.py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    for header in ("torch/extension.h", "pybind11/pybind11.h") if with_torch else ():
        path = packages / "torch" / "include" / header
        path.parent.mkdir(parents=True)
        path.touch()
    return python


class BuildOnce:
    """
    In the place of the builder: an environment is built for real once, and copied where the same is made again.

    For tests of what comes after a build. A copy lies elsewhere than it was made, which Python does not mind.
    """

    def __init__(self, build, folder):
        self._build = build
        self._folder = folder
        self._made = {}

    def __call__(self, site, interpreter, recipe):
        if recipe.digest not in self._made:
            manifest = self._build(site, interpreter, recipe)
            shutil.copytree(site.local / manifest.key, self._folder / manifest.key, symlinks=True)
            self._made[recipe.digest] = manifest
            return manifest
        manifest = dataclasses.replace(self._made[recipe.digest], built_by=site.facts.instance_id)
        shutil.copytree(self._folder / manifest.key, site.local / manifest.key, symlinks=True)
        manifest.write(site.local / manifest.key)
        return manifest


class StopWaiting(Exception):  # noqa: N818 - no error
    """Ends a node that would wait."""


class LookingClock(Clock):
    """Real time; what a node does instead of waiting is the test's."""

    def __init__(self, on_wait=None):
        self.on_wait = on_wait

    def wait(self, seconds):
        if self.on_wait is None:
            raise StopWaiting
        self.on_wait()


@dataclasses.dataclass
class NodeStand:
    """A node: its tree, what it knows, and what it says."""

    root: Path
    facts: NodeFacts
    programs: Programs
    clock: Clock

    def provide(self):
        """Bring the environment; return what the status says at the end."""
        status = Status(self.root, self.clock)
        try:
            build_or_install(self.facts, status, self.root, self.programs, self.clock)
        finally:
            self.step = status.get(ENVIRONMENT_STEP)
        return self.step

    @property
    def current(self):
        return self.root / "opt/deeplearning/environments/current"

    @property
    def log(self):
        return (self.root / "opt/deeplearning/provision/environment.log").read_text()

    def ask(self, code):
        """Run a line of Python in the node's environment."""
        command = [str(self.current / "bin" / "python"), "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Stand:
    """A cluster: a shared folder, an index, an image and nodes."""

    def __init__(self, folder, index, image):
        self.folder = folder
        self.index = index
        self.image = image
        self.shared = folder / "shared"
        self.build_log = folder / "builds.log"
        self.shared.mkdir(parents=True)

    def node(
        self, number, text="pure\n", *, horovod="", clock=None, image=None, search_path=None, encoding="utf-8", **needs
    ):
        """Return node 0, the master, or a worker; it has fetched the requirements already."""
        root = self.folder / f"node{number}"
        file = ScriptSettings("bucket", "requirements.txt", hashlib.sha256(text.encode(encoding)).hexdigest())
        settings = EnvironmentSettings("requirements", file, "", horovod, cache=needs.pop("cache", None))
        facts = make_facts(number, needs.pop("settings", settings), **needs)
        local = root / "opt/deeplearning/environments"
        if not root.exists():
            local.mkdir(parents=True)
            (root / "mnt").mkdir()
            (root / "mnt/efs").symlink_to(self.shared)
            (root / "opt/pytorch").symlink_to(image or self.image)
        (local / f"{file.sha256[:16]}-requirements.txt").write_bytes(text.encode(encoding))
        path = search_path or f"{make_managers(self.folder / 'managers')}:{os.environ['PATH']}"
        return NodeStand(root, facts, Programs(path), clock or LookingClock())

    def builds(self):
        """Return what was built from source, a line each."""
        return self.build_log.read_text().splitlines() if self.build_log.exists() else []

    @property
    def kept(self):
        """The folder of environments on the shared file system."""
        return self.shared / ".deeplearning/environments"

    @property
    def folders(self):
        """Return the environments of the shared file system."""
        return sorted(path for path in self.kept.iterdir() if path.is_dir())

    @property
    def manifest(self):
        (folder,) = self.folders
        return json.loads((folder / "complete.json").read_text())

    @contextlib.contextmanager
    def pip_settings(self):
        """Let pip see the stand's index and nothing of this machine."""
        with pytest.MonkeyPatch.context() as patch:
            for name in [name for name in os.environ if name.startswith("PIP_")]:
                patch.delenv(name)
            patch.setenv("PIP_CONFIG_FILE", "/dev/null")
            patch.setenv("PIP_NO_INDEX", "1")
            patch.setenv("PIP_NO_COMPILE", "1")
            patch.setenv("PIP_FIND_LINKS", str(self.index))
            patch.setenv("HOME", str(self.folder))
            patch.setenv("BUILD_LOG", str(self.build_log))
            yield self


def make_managers(folder):
    """Make package managers that install nothing: a test never changes the machine that it runs on."""
    folder.mkdir(exist_ok=True)
    for name in ("apt-get", "dnf", "dpkg-query", "rpm", "sudo"):
        path = folder / name
        if not path.exists():
            path.write_text(f'#!/bin/sh\necho "{name} $@" >>{folder}/calls\necho E: this is a test; exit 100\n')
            path.chmod(0o755)
    return str(folder)


def make_facts(number, settings, *, capability="", cluster="digits"):
    hardware = {"worker": HardwareSettings("p5.48xlarge", 8, 32, 32, capability)} if capability else {}
    return NodeFacts(
        cluster=cluster,
        role="worker" if number else "master",
        instance_id=f"i-{number:017x}",
        login_user=getpass.getuser(),
        mount_point="/mnt/efs",
        expected_gpu_count=0,
        region="eu-west-1",
        needs=JobNeeds(hardware, environment=settings),
    )


def link_programs(folder, names):
    """Return a search path that has only these programs."""
    folder.mkdir()
    for name in names:
        (folder / name).symlink_to(shutil.which(name))
    return str(folder)


def write_nvcc(home, version):
    """Write a CUDA home whose nvcc says a version and does no more."""
    nvcc = home / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True, exist_ok=True)
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {version}, V{version}.99'\n")
    nvcc.chmod(0o755)
