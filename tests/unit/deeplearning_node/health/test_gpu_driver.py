"""The driver of a node against the CUDA of the software of jobs, with packages as pip leaves them."""

import sys

import pytest

from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpu_driver import check_driver

OLD, NEW = "535.183.01", "580.95.05"
# An interpreter with these packages alone, whose libcuda supports a version of CUDA.
PYTHON = """#!{python}
import ctypes, sys
own = [path for path in sys.path if "site-packages" not in path]
sys.path[:] = [{packages!r}, *own]
class Library:
    def __init__(self, name):
        assert name == "libcuda.so.1"
        if not {library}:
            raise OSError(name)
    def cuDriverGetVersion(self, version):
        version._obj.value = {library}
ctypes.CDLL = Library
assert sys.argv[1:3] == ["-I", "-c"]
exec(sys.argv[3])
"""


def torch(cuda):
    """Return PyTorch's files; its version.py is that of 2.7.1 and 2.13.0."""
    version = (
        f"from typing import Optional\n__version__ = '0'\ncuda: Optional[str] = {cuda!r}\nhip: Optional[str] = None\n"
    )
    return {"torch/__init__.py": "raise SystemExit('a check imports no framework')", "torch/version.py": version}


def runtime(name, version):
    """Return the metadata of a package of NVIDIA's, which TensorFlow needs, and PyTorch from PyPI."""
    folder = f"{name.replace('-', '_')}-{version}.dist-info"
    return {f"{folder}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}


@pytest.fixture
def check(lab, tmp_path):
    """Return a function that holds a driver against the packages of an environment."""

    def check(driver, files, library=0, newer_driver="buy a newer driver"):
        packages, python = tmp_path / "packages", tmp_path / "python"
        packages.mkdir()
        for name, text in files.items():
            (packages / name).parent.mkdir(exist_ok=True)
            (packages / name).write_text(text)
        python.write_text(PYTHON.format(python=sys.executable, packages=str(packages), library=library))
        python.chmod(0o755)
        body = f"[ \"$*\" = '--query-gpu=driver_version --format=csv,noheader' ] || exit 2\n{driver}"
        node = lab.node(0)
        lab.program(0, "nvidia-smi", body)
        check_driver(node.programs, str(python), newer_driver)

    return check


@pytest.mark.parametrize(
    ("driver", "files", "words"),
    [
        (OLD, torch("13.0"), "CUDA 13.0 of the software of jobs needs NVIDIA driver 580 or newer, the host has 535"),
        ("470.256.02", torch("12.6"), "CUDA 12.6 .* needs NVIDIA driver 525 or newer, the host has 470.256.02"),
        ("418.87.00", torch("11.8"), "CUDA 11.8 .* needs NVIDIA driver 450"),
        ("470.256.02", runtime("nvidia-cuda-runtime-cu12", "12.3.101"), "CUDA 12.3 .* needs NVIDIA driver 525"),
        (OLD, runtime("nvidia-cuda-runtime", "13.0.96") | torch("12.6"), "CUDA 13.0 .* needs NVIDIA driver 580"),
    ],
)  # fmt: skip
def test_a_driver_older_than_cuda_needs_is_a_failure_that_names_both(check, driver, files, words):
    with pytest.raises(StageFailure, match=words):
        check(f"echo {driver}; echo {driver}", files)


@pytest.mark.parametrize(
    ("driver", "newer_driver", "remedy"),
    [
        (
            OLD,
            "buy a newer driver",
            (
                "take software for an older CUDA, such as torch==2.7.1 with CUDA 12.6 for driver 525, or buy a newer "
                "driver, or put NVIDIA's cuda-compat-13-0 into the image"
            ),
        ),
        (
            "470.256.02",
            "",
            (
                "take software for an older CUDA, such as torch==2.7.1+cu118 from PyTorch's own index for driver 450, "
                "or put NVIDIA's cuda-compat-13-0 into the image"
            ),
        ),
        ("418.87.00", "", "put NVIDIA's cuda-compat-13-0 into the image"),
    ],
)
def test_the_remedy_names_software_that_the_driver_supports_and_how_to_get_another_driver(
    check, driver, newer_driver, remedy
):
    with pytest.raises(StageFailure) as caught:
        check(f"echo {driver}", torch("13.0"), newer_driver=newer_driver)
    assert caught.value.remedy == remedy


@pytest.mark.parametrize(
    ("driver", "files"),
    [
        (NEW, torch("13.2")),
        (OLD, torch("12.8")),
        ("470.256.02", torch("11.8")),
        ("470.256.02", torch(None)),
        ("470.256.02", {}),
        (OLD, torch("99.0")),
    ],
)
def test_a_driver_that_is_new_enough_passes_and_so_does_software_without_cuda(check, driver, files):
    check(f"echo {driver}", files)


def test_a_library_of_nvidia_that_supports_newer_cuda_on_the_old_driver_passes(check):
    check(f"echo {OLD}", torch("13.0"), library=13000)


def test_a_driver_that_does_not_answer_is_left_to_the_check_of_the_gpus(check):
    check("exit 9", torch("13.0"))


def test_a_node_without_the_interpreter_passes(lab):
    node = lab.node(0)
    lab.program(0, "nvidia-smi", f"echo {OLD}")
    check_driver(node.programs, "/no/python", "")
