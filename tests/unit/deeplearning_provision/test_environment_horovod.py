"""How Horovod is built: what its build reads, what it is built with, and what is said when that is missing."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_agent.programs import Programs
from deeplearning_provision import horovod_plan
from deeplearning_provision.environment_interpreter import ask_interpreter
from deeplearning_provision.horovod_build import WRAPPER, build_horovod
from deeplearning_provision.horovod_plan import Framework, HorovodPlan, find_mpi, needs_cxx17, plan_horovod
from deeplearning_provision.horovod_trial import TRIALS, try_horovod
from deeplearning_provision.pip_program import Pip
from deeplearning_provision.steps import ProvisionFailure
from deeplearning_provision.transcript import Transcript
from tests.unit.deeplearning_provision.environment_lab import HOROVOD, link_programs, make_image

CPU = HorovodPlan("0.28.1", {"torch": "1.13.1"}, {}, "", is_cuda=False, is_cxx17=False, jobs=4)
CUDA_FILES = ("usr/local/cuda/bin/nvcc", "usr/local/cuda/include/nccl.h")
FAKE_PYTHON = """#!/bin/sh
echo "$@" >>"$(dirname "$0")/calls"
if [ "$3" = wheel ]; then printf 'PATH=%s\nCXX=%s\n' "$PATH" "$CXX" >"$(dirname "$0")/variables"; fi
"""


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    return make_image(tmp_path_factory.mktemp("image") / "image")


@pytest.fixture
def interpreter(image):
    return ask_interpreter(image, Programs())


@pytest.fixture
def compilers(tmp_path):
    """A search path with what Horovod's build takes, and no MPI."""
    return link_programs(tmp_path / "compilers", ["sh", "g++", "make", "dirname"])


def touch(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("#!/bin/sh\n")
        (root / path).chmod(0o755)


def test_the_build_is_told_every_framework_and_transport(tmp_path):
    assert CPU.variables(tmp_path, Path("/scratch/g++17")) == {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MPI": "1",
        "MAKEFLAGS": "-j4",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
    }


def test_new_pytorch_brings_the_compiler_wrapper_and_an_mpi_elsewhere_its_own_path(tmp_path):
    plan = replace(CPU, is_cxx17=True, mpi="/opt/amazon/openmpi/bin")
    variables = plan.variables(tmp_path, Path("/scratch/g++17"))
    assert variables["CXX"] == "/scratch/g++17"
    assert variables["HOROVOD_WITH_MPI"] == "1"
    assert "HOROVOD_WITHOUT_MPI" not in variables
    assert variables["LDFLAGS"] == "-Wl,-rpath,/opt/amazon/openmpi/lib:/opt/amazon/openmpi/lib64"


def test_gpus_are_served_by_nccl(tmp_path):
    touch(tmp_path, *CUDA_FILES)
    variables = replace(CPU, is_cuda=True).variables(tmp_path, Path("/scratch/g++17"))
    assert {name: variables[name] for name in variables if "CUDA" in name or "NCCL" in name or "GPU" in name} == {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": "/usr/local/cuda",
        "HOROVOD_NCCL_HOME": "/usr/local/cuda",
        "HOROVOD_NCCL_LINK": "SHARED",
    }


@pytest.mark.parametrize(
    ("version", "is_needed"),
    [("1.13.1", False), ("2.0.1+cu118", False), ("2.1.0", True), ("2.13.0+cpu", True), ("3.0", True), ("main", True)],
)
def test_cxx17_is_asked_for_from_pytorch_2_1(version, is_needed):
    assert needs_cxx17(version) is is_needed


def test_the_wrapper_raises_the_standard_and_keeps_every_other_word(tmp_path):
    wrapper, compiler = tmp_path / "wrapper", tmp_path / "g++"
    wrapper.write_text(WRAPPER)
    compiler.write_text('#!/bin/sh\nfor word; do echo "$word"; done\n')
    for path in (wrapper, compiler):
        path.chmod(0o755)
    words = ["-std=c++11", "-DNAME=two words", "-std=gnu++14", "-std=c++20", "", "a.cc"]
    found = subprocess.run(
        [wrapper, *words], env={"PATH": f"{tmp_path}:/usr/bin:/bin"}, capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == ["-std=c++17", "-DNAME=two words", "-std=c++17", "-std=c++20", "", "a.cc"]


def test_pip_is_asked_for_one_source_without_cache_or_isolation(tmp_path, compilers):
    folder = tmp_path / "venv" / "bin"
    touch(folder, "python")
    (folder / "python").write_text(FAKE_PYTHON)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    programs = Programs(f"{compilers}:/usr/bin:/bin")
    pip = Pip(folder / "python", Transcript(tmp_path / "log", programs), {}, Programs(compilers))
    build_horovod(pip, replace(CPU, is_cxx17=True, mpi="/mpi/bin"), tmp_path / "wheels", scratch, tmp_path)
    install, wheel = (folder / "calls").read_text().splitlines()
    assert install == "-m pip install setuptools<81 wheel cmake<4"
    assert wheel == (
        "-m pip wheel --no-cache-dir --no-build-isolation --no-deps --no-binary horovod "
        f"--wheel-dir {tmp_path}/wheels --requirement {scratch}/horovod.txt"
    )
    digest = horovod_plan.SOURCES["0.28.1"]
    assert (scratch / "horovod.txt").read_text() == f"horovod==0.28.1 --hash=sha256:{digest}\n"
    variables = dict(line.split("=", 1) for line in (folder / "variables").read_text().splitlines())
    assert variables["PATH"].startswith(f"{folder}:/mpi/bin:{compilers}")
    assert variables["CXX"] == f"{scratch}/g++17"


def test_mpi_is_found_in_the_path_and_where_efas_installer_puts_it(tmp_path, compilers):
    touch(tmp_path, "opt/amazon/openmpi/bin/mpicxx")
    without_headers = tmp_path / "opt/amazon/openmpi/bin/mpicxx"
    without_headers.write_text("#!/bin/sh\nexit 1\n")
    assert find_mpi(tmp_path, Programs(compilers)) == ""
    touch(tmp_path, "opt/amazon/openmpi/bin/mpicxx")
    assert find_mpi(tmp_path, Programs(compilers)) == f"{tmp_path}/opt/amazon/openmpi/bin"
    touch(tmp_path, "own/mpicxx")
    assert find_mpi(tmp_path, Programs(f"{compilers}:{tmp_path}/own")) == f"{tmp_path}/own"


def test_the_plan_follows_the_framework_that_is_there(tmp_path, interpreter, compilers):
    plan = plan_horovod("0.28.1", interpreter, tmp_path, Programs(compilers), has_gpus=True)
    assert (plan.frameworks, plan.is_cxx17, plan.is_cuda, plan.mpi) == ({"torch": "2.9.0+cpu"}, True, False, "")


def test_a_framework_without_headers_is_left_out_unless_it_is_the_only_one(
    tmp_path, interpreter, compilers, monkeypatch
):
    both = replace(interpreter, frameworks={"torch": "1.13.1", "tensorflow": "2.15.1"})
    lacks = {"torch": "torch/extension.h", "tensorflow": ""}
    monkeypatch.setattr(
        horovod_plan, "_ask_framework", lambda module, own, _: Framework(own.frameworks[module], "", lacks[module])
    )
    plan = plan_horovod("0.28.1", both, tmp_path, Programs(compilers), has_gpus=False)
    assert plan.frameworks == {"tensorflow": "2.15.1"}
    assert plan.skipped == {"torch": "torch/extension.h is missing"}
    one = replace(both, frameworks={"torch": "1.13.1"})
    with pytest.raises(ProvisionFailure, match=r"torch/extension\.h is missing") as caught:
        plan_horovod("0.28.1", one, tmp_path, Programs(compilers), has_gpus=False)
    assert "libtorch-dev" in caught.value.remedy


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frameworks": {}}, "neither image nor requirements have torch, tensorflow or mxnet"),
        ({"headers": "/nowhere"}, r"cannot be built without Python\.h of 3\.\d+"),
        ({"frameworks": {"mxnet": "1.9.1"}}, "mxnet cannot be imported"),
    ],
)
def test_what_is_missing_is_said(tmp_path, interpreter, compilers, change, message):
    with pytest.raises(ProvisionFailure, match=message) as caught:
        plan_horovod("0.28.1", replace(interpreter, **change), tmp_path, Programs(compilers), has_gpus=False)
    assert caught.value.is_final


def test_missing_compilers_are_named_with_their_packages(tmp_path, interpreter):
    with pytest.raises(ProvisionFailure, match=r"without g\+\+, make") as caught:
        plan_horovod("0.28.1", interpreter, tmp_path, Programs(str(tmp_path)), has_gpus=False)
    assert "g++ make python3-dev on Ubuntu" in caught.value.remedy


def test_an_unknown_version_is_refused(tmp_path, interpreter, compilers):
    with pytest.raises(ProvisionFailure, match=r"horovod must be one of 0\.28\.1, got 0\.29"):
        plan_horovod("0.29", interpreter, tmp_path, Programs(compilers), has_gpus=False)


@pytest.fixture
def cuda_framework(monkeypatch):
    monkeypatch.setattr(horovod_plan, "_ask_framework", lambda *_: Framework("2.9.0+cu129", "12.9", ""))


@pytest.mark.usefixtures("cuda_framework")
def test_a_cuda_framework_on_gpu_nodes_is_not_given_a_cpu_horovod(tmp_path, interpreter, compilers):
    def plan(*, has_gpus):
        return plan_horovod("0.28.1", interpreter, tmp_path, Programs(compilers), has_gpus=has_gpus)

    with pytest.raises(ProvisionFailure, match="without CUDA's compiler and NCCL's headers, looked for below"):
        plan(has_gpus=True)
    touch(tmp_path, CUDA_FILES[0])
    with pytest.raises(ProvisionFailure, match="cannot move GPU memory without NCCL's headers"):
        plan(has_gpus=True)
    touch(tmp_path, CUDA_FILES[1])
    assert plan(has_gpus=True).is_cuda
    assert not plan(has_gpus=False).is_cuda


def test_a_horovod_that_does_not_reduce_is_refused(tmp_path, image):
    (packages,) = (image.parents[1] / "lib").glob("python*/site-packages")
    for name, text in HOROVOD.items():
        (packages / name).write_text(text)
    transcript = Transcript(tmp_path / "log", Programs())
    try_horovod(image, CPU, transcript)
    (packages / "horovod/torch.py").write_text(HOROVOD["horovod/torch.py"].replace("return tensor", "return [2.0]"))
    with pytest.raises(ProvisionFailure, match=r"was built for torch 1\.13\.1 and does not work with it"):
        try_horovod(image, CPU, transcript)
    assert set(TRIALS) == set(horovod_plan.FRAMEWORKS)
