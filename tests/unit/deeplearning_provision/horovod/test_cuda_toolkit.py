"""Choice of the CUDA toolkit that compiles Horovod, the toolkit's files, and frameworks that the GPUs cannot run."""

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_node.programs import Programs
from deeplearning_provision.horovod import cuda_home
from deeplearning_provision.horovod.build import write_program
from deeplearning_provision.horovod.cuda_home import make_cuda_home
from deeplearning_provision.horovod.cuda_toolkit import (
    CUDA_HOME,
    IMAGE,
    PYPI,
    UBUNTU,
    UBUNTU_HEADERS,
    CudaToolkit,
    choose_toolkit,
    read_nvcc_version,
)
from deeplearning_provision.horovod.framework_facts import Framework, ask_framework, check_architecture
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.python.interpreter import ask_interpreter
from deeplearning_provision.python.pip import Pip
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.environment_lab import make_image, write_nvcc

VOLTA = ("sm_50", "sm_60", "sm_70", "sm_75", "sm_80", "sm_86", "sm_90")
PIN = 'cuda-toolkit[cublas,cudart,nvrtc]==13.2.1; platform_system == "Linux"'
UBUNTU_RELEASE = 'ID=ubuntu\nVERSION_ID="24.04"\n'


def fill(root, **files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)


@pytest.fixture
def wheels(tmp_path):
    """NVIDIA's wheels of a PyTorch for CUDA 12, as folders."""
    folder = tmp_path / "site-packages" / "nvidia"
    paths = ("nccl/include/nccl.h", "nccl/lib/libnccl.so.2", "cuda_runtime/lib/libcudart.so.12")
    fill(folder, **dict.fromkeys(paths, ""))
    return folder


@pytest.fixture
def torch_12(wheels):
    return Framework("2.7.1+cu126", "12.6", kernels=VOLTA, nvidia=(str(wheels),))


@pytest.fixture
def torch_13(wheels):
    shutil.rmtree(wheels / "cuda_runtime")
    fill(wheels, **{"cu13/lib/libcudart.so.13": ""})
    return Framework("2.15.0+cu132", "13.2", kernels=("sm_75",), nvidia=("/nowhere", str(wheels)), toolkit=PIN)


@pytest.fixture
def root(tmp_path):
    (tmp_path / "root" / "etc").mkdir(parents=True)
    return tmp_path / "root"


def choose(framework, root, capability="8.0"):
    return choose_toolkit("torch", framework, root, Programs(os.environ["PATH"]), capability)


# --- Kernels ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernels", "capability", "is_right"),
    [
        (VOLTA, "7.0", True),
        (("sm_75", "sm_80"), "7.0", False),
        (("sm_70",), "7.5", True),
        (("sm_75",), "8.0", False),
        (("sm_86",), "8.0", False),
        (("sm_80",), "8.9", True),
        (("sm_90", "compute_90"), "10.0", True),
        (("sm_90a", "compute_90a"), "10.0", False),
        (("sm_90a",), "9.0", True),
        (("sm_100f",), "10.3", False),
        (("sm_100",), "10.0", True),
        (("compute_80",), "7.5", False),
        (("gfx90a",), "9.0", False),
        ((), "7.0", True),
        (("sm_75",), "", True),
    ],
)
def test_a_kernel_runs_on_its_major_version_and_ptx_on_everything_later(kernels, capability, is_right):
    framework = Framework("2.15.0", "13.2", kernels=kernels)
    if is_right:
        check_architecture("torch", framework, capability)
    else:
        with pytest.raises(ProvisionFailure, match=f"has no kernels for GPUs of compute capability {capability}, it"):
            check_architecture("torch", framework, capability)


@pytest.mark.parametrize(
    ("module", "kernels", "capability", "remedy"),
    [
        ("torch", ("sm_75",), "7.0", "pin torch==2.7.1, which has kernels from sm_50 to sm_90"),
        ("torch", ("sm_80", "sm_90"), "12.0", "pin a later version of torch, or use another instance type"),
        ("tensorflow", ("sm_80",), "7.0", "pin an earlier version of tensorflow, or use another instance type"),
    ],
)
def test_the_remedy_names_a_version_that_has_them(module, kernels, capability, remedy):
    with pytest.raises(ProvisionFailure) as caught:
        check_architecture(module, Framework("1.0", "12.0", kernels=kernels), capability)
    assert caught.value.remedy == remedy


TORCH = """
__version__ = "2.15.0+cu132"
class version: cuda = "13.2"
class _C:
    @staticmethod
    def _cuda_getArchFlags(): return "sm_75 sm_80 compute_80"
"""


def test_a_framework_is_asked_for_its_kernels_its_wheels_and_its_pin(tmp_path):
    python = make_image(tmp_path / "image")
    (packages,) = (tmp_path / "image" / "lib").glob("python*/site-packages")
    fill(packages, **{"torch/__init__.py": TORCH, "nvidia/nccl/include/nccl.h": ""})
    (metadata,) = packages.glob("torch-*.dist-info")
    (metadata / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: 2.15.0\nRequires-Dist: filelock\nRequires-Dist: {PIN}\n"
    )
    found = ask_framework("torch", ask_interpreter(python, Programs()), Programs())
    assert found == Framework(
        *("2.15.0+cu132", "13.2", "", ("sm_75", "sm_80", "compute_80"), (str(packages / "nvidia"),), PIN)
    )


# --- The choice ---------------------------------------------------------------------------------------


def test_the_toolkit_of_the_image_is_used_when_its_major_version_is_the_frameworks(root, wheels, torch_12):
    write_nvcc(root / CUDA_HOME[1:], "12.9")
    found = choose(torch_12, root)
    assert (found.kind, found.compiler, found.requirements) == (IMAGE, "g++", ())
    assert (found.nccl_headers, found.nccl) == (f"{wheels}/nccl/include", f"{wheels}/nccl/lib/libnccl.so.2")
    fill(root, **{"usr/include/nccl.h": ""})
    found = choose(Framework("2.9.0", "12.8"), root)
    assert (found.kind, found.nccl_headers, found.nccl) == (IMAGE, "/usr/include", ""), "the framework brings none"


def test_cuda_13_takes_nvcc_from_pypi_in_the_release_that_the_framework_pins(root, torch_13):
    found = choose(torch_13, root)
    assert (found.kind, found.compiler) == (PYPI, "g++")
    parts = "cuda-toolkit[nvcc,nvvm,crt,cudart,cccl]"
    assert found.requirements == (f"{parts}==13.2.1",)
    assert found.architectures == ("75", "80", "86", "90")
    assert found.runtime.endswith("cu13/lib/libcudart.so.13")
    assert choose(replace(torch_13, toolkit=""), root).requirements == (f"{parts}==13.2.*",)


def test_a_toolkit_of_another_major_version_in_the_image_is_not_used(root, torch_12, torch_13):
    write_nvcc(root / CUDA_HOME[1:], "12.9")
    assert choose(torch_13, root).kind == PYPI
    write_nvcc(root / CUDA_HOME[1:], "13.2")
    fill(root, **{"etc/os-release": UBUNTU_RELEASE})
    assert choose(replace(torch_13, cuda="12.6"), root).kind == UBUNTU


def test_cuda_12_takes_nvcc_of_ubuntu_with_the_compiler_that_it_takes(root, torch_12):
    fill(root, **{"etc/os-release": UBUNTU_RELEASE})
    found = choose(torch_12, root, "7.0")
    assert (found.kind, found.compiler) == (UBUNTU, "g++-12")
    assert found.requirements == UBUNTU_HEADERS
    assert found.architectures == ("70", "75", "80", "86", "90")
    assert choose(torch_12, root, "5.2").architectures == ("52", "70", "75", "80", "86", "90")


@pytest.mark.parametrize("release", ["", "ID=debian\n", 'ID=ubuntu\nVERSION_ID="22.04"\n'])
def test_cuda_12_elsewhere_is_refused_with_what_there_is(root, torch_12, release):
    fill(root, **{"etc/os-release": release})
    write_nvcc(root / CUDA_HOME[1:], "13.2")
    message = (
        r"no nvcc for CUDA 12\.6 of torch 2\.7\.1\+cu126; /usr/local/cuda has 13\.2, PyPI has 13 and later, "
        r"Ubuntu 24\.04 has 12\.0"
    )
    with pytest.raises(ProvisionFailure, match=message) as caught:
        choose(torch_12, root)
    assert caught.value.remedy.startswith("use an image with CUDA 12 in /usr/local/cuda, or Ubuntu 24.04")
    assert caught.value.is_final


def test_a_framework_without_its_runtime_and_nccl_is_refused_with_one_that_has_them(root, torch_12):
    fill(root, **{"usr/include/nccl.h": ""})
    message = r"brings no CUDA runtime and NCCL of its own, nvcc in .* is missing and nccl\.h of the image is /usr/incl"
    with pytest.raises(ProvisionFailure, match=message) as caught:
        choose(replace(torch_12, nvidia=()), root)
    assert "torch==2.7.1 and tensorflow[and-cuda]==2.15.1 bring them" in caught.value.remedy


def test_an_nvcc_that_does_not_run_or_says_nothing_is_none(root):
    assert read_nvcc_version(root, Programs()) == ""
    nvcc = root / CUDA_HOME[1:] / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    for text in ("#!/bin/sh\nexit 1\n", "#!/bin/sh\n"):
        write_program(nvcc, text)
        assert read_nvcc_version(root, Programs()) == ""


# --- The home -----------------------------------------------------------------------------------------

PIP = """#!/bin/sh
echo "$@" >>"{folder}/calls"
while [ "$1" != --target ]; do shift; done
cp -r "{folder}/index" "$2"
"""
APT = """#!/bin/sh
[ "$1 $2" = "download nvidia-cuda-toolkit" ] || exit 1
touch nvidia-cuda-toolkit_12.0_amd64.deb
"""
DPKG = """#!/bin/sh
[ "$1" = --extract ] && [ -f "$2" ] && cp -r "{folder}/package" "$3"
"""


@pytest.fixture
def pip(tmp_path, monkeypatch):
    """A pip that copies a folder, an apt-get that downloads an empty package and a dpkg-deb that copies its content."""
    monkeypatch.setattr(cuda_home, "install_system_packages", lambda *_: None)
    folder = tmp_path / "programs"
    folder.mkdir()
    for name, text in (("python", PIP), ("apt-get", APT), ("dpkg-deb", DPKG)):
        write_program(folder / name, text.format(folder=tmp_path))
    programs = Programs(f"{folder}:/usr/bin:/bin")
    return Pip(folder / "python", Transcript(tmp_path / "log", programs), {}, programs, "3.12.3")


@pytest.fixture
def scratch(tmp_path):
    (tmp_path / "scratch").mkdir()
    return tmp_path / "scratch"


def list_files(home):
    return sorted(str(path.relative_to(home)) for path in home.rglob("*") if not path.is_dir() or path.is_symlink())


def make_toolkit(kind, wheels, requirements):
    libraries = (
        f"{wheels}/nccl/include",
        f"{wheels}/nccl/lib/libnccl.so.2",
        f"{wheels}/cuda_runtime/lib/libcudart.so.12",
    )
    return CudaToolkit(kind, "12.6", requirements, "g++", ("70",), *libraries)


def test_the_home_of_pypi_is_nvidias_folder_with_the_frameworks_libraries(tmp_path, pip, scratch, wheels):
    paths = ("bin/nvcc", "nvvm/bin/cicc", "include/cuda.h", "lib/libcudart.so.13")
    fill(tmp_path / "index" / "nvidia" / "cu13", **dict.fromkeys(paths, ""))
    home = make_cuda_home(make_toolkit(PYPI, wheels, ("cuda-toolkit[nvcc]==13.2.1",)), pip, scratch, print)
    assert list_files(home) == [
        "bin/nvcc",
        "include/cuda.h",
        "include/nccl.h",
        "lib",
        "lib64/libcudadevrt.a",
        "lib64/libcudart.so",
        "lib64/libcudart_static.a",
        "lib64/libnccl.so",
        "nvvm/bin/cicc",
    ]
    assert (home / "lib64/libnccl.so").readlink() == wheels / "nccl/lib/libnccl.so.2"
    assert (home / "lib64/libcudart.so").readlink() == wheels / "cuda_runtime/lib/libcudart.so.12"
    assert (home / "lib64/libcudart_static.a").read_text() == "INPUT(-lcudart)\n"
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call == f"-m pip install --no-compile --target {scratch}/cuda-packages cuda-toolkit[nvcc]==13.2.1"


def write_package(tmp_path, version):
    package = tmp_path / "package"
    programs = (*("cudafe++", "ptxas", "fatbinary", "nvlink", "bin2c", "cuobjdump", "__nvcc_device_query"), "nvcc")
    fill(package / "usr/bin", **dict.fromkeys(programs, "of /usr/bin"))
    own = package / "usr/lib/nvidia-cuda-toolkit"
    fill(own, **dict.fromkeys(("bin/cicc", "bin/crt/link.stub", "libdevice/libdevice.10.bc"), ""))
    write_nvcc(own, version)
    (own / "bin/nvcc.profile").symlink_to("/etc/nvcc.profile")
    for name in ("cuda_runtime/include/cuda.h", "cuda_nvcc/include/crt/host.h", "cuda_cccl/include/nv/target"):
        fill(tmp_path / "index" / "nvidia", **{name: ""})


def test_the_home_of_ubuntu_is_its_nvcc_with_headers_from_pypi(tmp_path, pip, scratch, wheels, monkeypatch):
    asked = []
    monkeypatch.setattr(cuda_home, "install_system_packages", lambda *words: asked.append(words[2]))
    write_package(tmp_path, "12.0")
    home = make_cuda_home(make_toolkit(UBUNTU, wheels, UBUNTU_HEADERS), pip, scratch, print)
    assert asked == [("g++-12",)]
    assert {
        *("bin/nvcc.profile", "bin/crt/link.stub", "bin/cudafe++", "bin/cuobjdump", "nvvm/bin/cicc"),
        *("nvvm/libdevice/libdevice.10.bc", "include/cuda.h", "include/crt/host.h", "include/nv/target", "lib"),
        *("include/nccl.h", "lib64/libcudart.so", "lib64/libcudart_static.a", "lib64/libnccl.so"),
    } <= set(list_files(home))
    assert "release 12.0" in (home / "bin/nvcc").read_text()
    assert "nvvm/bin" in (home / "bin/nvcc.profile").read_text()
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.endswith(f"--no-deps {' '.join(UBUNTU_HEADERS)}")


@pytest.mark.parametrize(
    ("apt", "is_final"),
    [
        ("echo 'E: Failed to fetch'\nexit 100", False),
        ("echo 'E: Unable to locate package nvidia-cuda-toolkit'\nexit 100", True),
        ("true", False),
    ],
)
def test_a_package_that_cannot_be_had_is_tried_again_unless_ubuntu_has_none(pip, scratch, wheels, apt, is_final):
    write_program(pip.python.with_name("apt-get"), f"#!/bin/sh\n{apt}\n")
    write_program(pip.python, "#!/bin/sh\n")
    with pytest.raises(ProvisionFailure, match="from Ubuntu's archive") as caught:
        make_cuda_home(make_toolkit(UBUNTU, wheels, UBUNTU_HEADERS), pip, scratch, print)
    assert caught.value.is_final is is_final


def test_another_nvcc_than_the_one_whose_headers_are_pinned_is_refused(tmp_path, pip, scratch, wheels):
    write_package(tmp_path, "12.4")
    with pytest.raises(ProvisionFailure, match=r"must have nvcc 12\.0, got 12\.4"):
        make_cuda_home(make_toolkit(UBUNTU, wheels, UBUNTU_HEADERS), pip, scratch, print)


def test_the_images_home_stays_as_it_is_and_only_nccl_is_put_beside(pip, scratch, wheels):
    assert make_cuda_home(make_toolkit(IMAGE, wheels, ()), pip, scratch, print) == Path(CUDA_HOME)
    assert list_files(scratch / "cuda") == ["include/nccl.h", "lib64/libnccl.so"]
