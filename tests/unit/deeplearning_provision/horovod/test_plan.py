"""Plan of Horovod's build: the variables that the build reads, its tools, and the errors when one is missing."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_node.programs import Programs
from deeplearning_provision.horovod import plan as horovod_plan
from deeplearning_provision.horovod.build import (
    TRIALS,
    WRAPPER,
    build_horovod,
    list_variables,
    try_horovod,
    write_program,
)
from deeplearning_provision.horovod.cuda_toolkit import CUDA_HOME, IMAGE, PYPI, UBUNTU, CudaToolkit
from deeplearning_provision.horovod.framework_facts import Framework
from deeplearning_provision.horovod.plan import (
    HOROVOD_RECIPE,
    HorovodPlan,
    choose_standard,
    describe_compilers,
    find_mpi,
    plan_horovod,
)
from deeplearning_provision.program_log import Transcript
from deeplearning_provision.python.interpreter import ask_interpreter
from deeplearning_provision.python.pip import Pip
from deeplearning_provision.steps import ProvisionFailure
from tests.unit.deeplearning_provision.environment_lab import HOROVOD, link_programs, make_image, write_nvcc

CPU = HorovodPlan("0.28.1", {"torch": "1.13.1"}, {}, "", None, "", jobs=4)


TOOLKIT = CudaToolkit(PYPI, "13.2", (), "g++", ("75", "80"), "/wheels/nccl/include", "/wheels/nccl.so", "/wheels/rt.so")
GPU = replace(CPU, toolkit=TOOLKIT)
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


@pytest.fixture
def make_plan(tmp_path, interpreter, compilers):
    """Plan a build on a node whose root is the temporary folder, with an interpreter of which some facts differ."""

    def make(*, version="0.28.1", path=compilers, capability="", **change):
        return plan_horovod(version, replace(interpreter, **change), tmp_path, Programs(path), capability=capability)

    return make


def touch(root, *paths):
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        write_program(root / path, "#!/bin/sh\n")


def variables(folder, plan, home=None):
    return list_variables(plan, Path("/venv/bin/python"), folder, home)


def test_the_build_is_given_every_framework_and_transport(tmp_path):
    assert variables(tmp_path, CPU) == {
        "HOROVOD_WITH_PYTORCH": "1",
        "HOROVOD_WITHOUT_TENSORFLOW": "1",
        "HOROVOD_WITHOUT_MXNET": "1",
        "HOROVOD_WITH_GLOO": "1",
        "HOROVOD_WITHOUT_MPI": "1",
        "HOROVOD_WITHOUT_NVTX": "1",
        "HOROVOD_CMAKE": f"{tmp_path}/cmake-without-cuda",
        "MAKEFLAGS": "-j4",
        "CMAKE_POLICY_VERSION_MINIMUM": "3.5",
        "CXXFLAGS": "-include stdexcept",
    }


def test_new_pytorch_brings_the_compiler_wrapper_and_an_mpi_elsewhere_its_own_path(tmp_path):
    found = variables(tmp_path, replace(CPU, standard="17", mpi="/opt/amazon/openmpi/bin"))
    assert found["CXX"] == f"{tmp_path}/cxx"
    assert found["HOROVOD_WITH_MPI"] == "1"
    assert "HOROVOD_WITHOUT_MPI" not in found
    assert found["LDFLAGS"] == "-Wl,-rpath,/opt/amazon/openmpi/lib:/opt/amazon/openmpi/lib64"


@pytest.mark.parametrize("standard", ["17", "20"])
def test_gpus_are_served_by_nccl_and_nvcc_is_given_the_standard_of_the_wrapper(tmp_path, standard):
    found = variables(tmp_path, replace(CPU, standard=standard, toolkit=TOOLKIT), Path("/made/cuda"))
    assert {name: found[name] for name in found if re.search("CUDA|NCCL|GPU|NVCC|CMAKE$", name)} == {
        "HOROVOD_GPU_OPERATIONS": "NCCL",
        "HOROVOD_CUDA_HOME": "/made/cuda",
        "CUDA_HOME": "/made/cuda",
        "HOROVOD_NCCL_INCLUDE": f"{tmp_path}/cuda/include",
        "HOROVOD_NCCL_LIB": f"{tmp_path}/cuda/lib64",
        "HOROVOD_NCCL_LINK": "SHARED",
        "HOROVOD_BUILD_CUDA_CC_LIST": "75,80",
        "NVCC_APPEND_FLAGS": f"-std=c++{standard}",
    }
    assert f"-std=c++{standard} ;;" in (tmp_path / "cxx").read_text()
    assert "stdexcept" not in (tmp_path / "cxx").read_text()
    assert found["CXXFLAGS"] == "-include stdexcept" + (" -include version" if standard == "20" else "")


def test_an_image_with_its_own_nccl_is_built_with_that(tmp_path):
    toolkit = replace(TOOLKIT, kind=IMAGE, nccl_headers="/usr/local/cuda/include", nccl="")
    found = variables(tmp_path, replace(CPU, toolkit=toolkit), Path(CUDA_HOME))
    assert found["HOROVOD_NCCL_HOME"] == "/usr/local/cuda"
    assert "HOROVOD_NCCL_LIB" not in found
    assert "NVCC_APPEND_FLAGS" not in found


def test_nvcc_of_ubuntu_gets_the_compiler_that_it_takes(tmp_path):
    plan = replace(CPU, toolkit=replace(TOOLKIT, kind=UBUNTU, compiler="g++-12"))
    assert variables(tmp_path, plan, tmp_path)["CXX"] == "g++-12"
    variables(tmp_path, replace(plan, standard="17"), tmp_path)
    assert 'exec g++-12 "$@"' in (tmp_path / "cxx").read_text()


@pytest.mark.parametrize(
    ("frameworks", "standard"),
    [
        ({"torch": "1.13.1"}, ""),
        ({"torch": "2.0.1+cu118"}, ""),
        ({"torch": "2.1.0"}, "17"),
        ({"torch": "2.13.0+cpu"}, "17"),
        ({"torch": "2.14.0"}, "20"),
        ({"torch": "3.0"}, "20"),
        ({"torch": "main"}, "20"),
        ({"tensorflow": "2.9.3"}, ""),
        ({"tensorflow": "2.15.1"}, "17"),
        ({"tensorflow": "2.15.1", "torch": "2.15.0"}, "20"),
        ({"mxnet": "1.9.1"}, ""),
    ],
)
def test_the_standard_is_the_highest_that_headers_ask_for(frameworks, standard):
    assert choose_standard(frameworks, 13) == standard


@pytest.mark.parametrize(
    ("compiler", "standard"), [("12", "17"), ("13.3.0", "17"), ("14", "20"), ("15.2.0", "20"), ("", "17")]
)
def test_a_compiler_that_refuses_the_span_of_flatbuffers_is_given_a_standard_that_has_one(
    tmp_path, make_plan, compilers, compiler, standard
):
    """See pull request 7227 of google/flatbuffers; g++ 14.1 is the first that refuses (BehaviorTree.CPP, issue 818)."""
    touch(tmp_path, "new/g++")
    write_program(tmp_path / "new/g++", f"#!/bin/sh\necho {compiler}\ntest -n '{compiler}'\n")
    plan = make_plan(path=f"{tmp_path}/new:{compilers}")
    assert plan.standard == standard
    flags = variables(tmp_path, plan)["CXXFLAGS"]
    assert flags == "-include stdexcept" + (" -include version" if standard == "20" else "")


def test_cmake_and_pytorch_are_kept_from_cuda_where_the_build_is_for_cpus(tmp_path):
    list_variables(CPU, Path(sys.executable), tmp_path, None)
    (tmp_path / "torch.py").write_text("class version: cuda = '13.2'\n")
    (tmp_path / "bin").mkdir()
    write_program(tmp_path / "bin/cmake", '#!/bin/sh\necho "$@"\n')

    def run(program, *words):
        environment = {"PYTHONPATH": str(tmp_path), "PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        command = [tmp_path / program, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()

    assert run("cmake-without-cuda", "--build", ".") == "--build ."
    assert run("cmake-without-cuda", "..", "-DPYTHON_EXECUTABLE=/venv/bin/python") == (
        f".. -DPYTHON_EXECUTABLE=/venv/bin/python -DPYTHON_EXECUTABLE={tmp_path}/python-without-cuda "
        "-DCMAKE_CUDA_COMPILER=NOTFOUND -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON"
    )
    assert run("python-without-cuda", "-c", "import torch; print(torch.version.cuda)") == "None"
    assert run("python-without-cuda", "-c", "import sys; print(sys.argv[1:])", "word") == "['word']"


def test_the_wrapper_raises_the_standard_and_keeps_every_other_word(tmp_path):
    wrapper, compiler = tmp_path / "wrapper", tmp_path / "g++"
    wrapper.write_text(WRAPPER.format(standard="17", compiler="g++"))
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
    pip = Pip(folder / "python", Transcript(tmp_path / "log", programs), {}, Programs(compilers), "3.12.3")
    told = []
    plan = replace(CPU, standard="17", mpi="/mpi/bin")
    build_horovod(pip, plan, tmp_path / "wheels", scratch, told.append)
    assert told == ["compiling Horovod 0.28.1 for torch"]
    install, wheel = (folder / "calls").read_text().splitlines()
    assert install == "-m pip install setuptools<81 wheel cmake<4"
    assert wheel == (
        "-m pip wheel --verbose --no-cache-dir --no-build-isolation --no-deps --no-binary horovod "
        f"--wheel-dir {tmp_path}/wheels --requirement {scratch}/horovod.txt"
    )
    digest = horovod_plan.SOURCES["0.28.1"]
    assert (scratch / "horovod.txt").read_text() == f"horovod==0.28.1 --hash=sha256:{digest}\n"
    variables = dict(line.split("=", 1) for line in (folder / "variables").read_text().splitlines())
    assert variables["PATH"].startswith(f"{folder}:/mpi/bin:{compilers}")
    assert variables["CXX"] == f"{scratch}/cxx"


def test_mpi_is_found_in_the_path_and_where_efas_installer_puts_it(tmp_path, compilers):
    touch(tmp_path, "opt/amazon/openmpi/bin/mpicxx")
    without_headers = tmp_path / "opt/amazon/openmpi/bin/mpicxx"
    without_headers.write_text("#!/bin/sh\nexit 1\n")
    assert find_mpi(tmp_path, Programs(compilers)) == ""
    touch(tmp_path, "opt/amazon/openmpi/bin/mpicxx")
    assert find_mpi(tmp_path, Programs(compilers)) == f"{tmp_path}/opt/amazon/openmpi/bin"
    touch(tmp_path, "own/mpicxx")
    assert find_mpi(tmp_path, Programs(f"{compilers}:{tmp_path}/own")) == f"{tmp_path}/own"


def test_the_plan_follows_the_framework_that_is_there(make_plan):
    plan = make_plan(capability="7.0")
    assert (plan.frameworks, plan.toolkit, plan.mpi) == ({"torch": "2.9.0+cpu"}, None, "")


@pytest.fixture
def answers(monkeypatch):
    """Replace the facts about the image's frameworks by those of the test."""
    found = {}
    monkeypatch.setattr(horovod_plan, "ask_framework", lambda module, *_: found[module])
    return found


def test_a_framework_without_headers_is_left_out_unless_it_is_the_only_one(make_plan, answers):
    answers |= {"torch": Framework("1.13.1", missing="torch/extension.h"), "tensorflow": Framework("2.15.1")}
    plan = make_plan(frameworks={"torch": "1.13.1", "tensorflow": "2.15.1"})
    assert plan.frameworks == {"tensorflow": "2.15.1"}
    assert plan.skipped == {"torch": "torch/extension.h is missing"}
    with pytest.raises(ProvisionFailure, match=r"torch/extension\.h is missing") as caught:
        make_plan(frameworks={"torch": "1.13.1"})
    assert "libtorch-dev" in caught.value.remedy


def test_a_tensorflow_that_horovod_does_not_compile_with_is_refused(make_plan, answers):
    answers["tensorflow"] = Framework("2.20.0")
    with pytest.raises(ProvisionFailure, match=r"does not compile with the headers of 2\.20\.0") as caught:
        make_plan(frameworks={"tensorflow": "2.20.0"})
    assert "pin tensorflow<2.19" in caught.value.remedy
    answers["tensorflow"] = Framework("2.18.1")
    assert make_plan(frameworks={"tensorflow": "2.20.0"}).frameworks == {"tensorflow": "2.18.1"}


@pytest.mark.parametrize(
    ("version", "change", "message"),
    [
        ("0.28.1", {"frameworks": {}}, "neither image nor requirements have torch, tensorflow or mxnet"),
        ("0.28.1", {"headers": "/nowhere"}, r"cannot be built without Python\.h of 3\.\d+"),
        ("0.28.1", {"frameworks": {"mxnet": "1.9.1"}}, "could not import mxnet"),
        ("0.29", {}, r"horovod must be one of 0\.28\.1, got 0\.29"),
    ],
)
def test_a_missing_requirement_of_the_build_is_named(tmp_path, make_plan, version, change, message):
    with pytest.raises(ProvisionFailure, match=message) as caught:
        make_plan(version=version, **change)
    assert caught.value.is_final


def test_missing_compilers_are_named_with_their_packages(tmp_path, make_plan):
    with pytest.raises(ProvisionFailure, match=r"without g\+\+, make") as caught:
        make_plan(path=str(tmp_path))
    python = f"python3.{sys.version_info.minor}"
    assert f"g++ make {python}-dev on Ubuntu" in caught.value.remedy
    assert f"gcc-c++ make {python}-devel on Amazon Linux" in caught.value.remedy
    assert "JobEnvironment.none() and use torchrun" in caught.value.remedy


def test_a_cuda_framework_on_gpu_nodes_is_not_given_a_cpu_horovod(tmp_path, make_plan, answers):
    answers["torch"] = Framework("2.9.0+cu129", "12.9", kernels=("sm_70", "sm_90"))
    with pytest.raises(ProvisionFailure, match="cannot use GPU memory"):
        make_plan(capability="9.0")
    assert make_plan().toolkit is None
    write_nvcc(tmp_path / "usr/local/cuda", "12.9")
    touch(tmp_path, "usr/local/cuda/include/nccl.h")
    toolkit = make_plan(capability="9.0").toolkit
    assert (toolkit.kind, toolkit.architectures) == (IMAGE, ("70", "75", "80", "86", "90"))


def test_a_torch_without_kernels_for_the_gpus_is_refused_before_compilers_are_searched(tmp_path, make_plan, answers):
    answers["torch"] = Framework("2.15.0+cu132", "13.2", kernels=("sm_75", "sm_80", "sm_90", "sm_100", "compute_120"))
    message = r"2\.15\.0\+cu132 has no kernels for .* capability 7\.0, it has sm_75"
    with pytest.raises(ProvisionFailure, match=message) as caught:
        make_plan(path=str(tmp_path), capability="7.0")
    assert caught.value.remedy == "pin torch==2.7.1, which has kernels from sm_50 to sm_90"
    assert caught.value.is_final


def test_the_compilers_that_decide_are_described_without_a_framework(tmp_path):
    folder = tmp_path / "bin"
    folder.mkdir()
    assert describe_compilers(tmp_path, Programs(str(folder))) == {}
    write_program(folder / "g++", "#!/bin/sh\necho 13.3.0\n")
    assert describe_compilers(tmp_path, Programs(f"{folder}:/usr/bin:/bin")) == {"g++": "13.3.0"}
    write_nvcc(tmp_path / "usr/local/cuda", "13.2")
    found = describe_compilers(tmp_path, Programs(f"{folder}:/usr/bin:/bin"))
    assert found == {"g++": "13.3.0", "nvcc": "13.2"}
    assert isinstance(HOROVOD_RECIPE, int)


def test_a_horovod_that_does_not_reduce_or_has_no_nccl_where_gpus_are_meant_is_refused(tmp_path, image):
    (packages,) = (image.parents[1] / "lib").glob("python*/site-packages")
    for name, text in HOROVOD.items():
        (packages / name).write_text(text)

    def try_with(plan, line):
        (packages / "horovod/torch.py").write_text(HOROVOD["horovod/torch.py"] + line)
        try_horovod(image, plan, Transcript(tmp_path / "log", Programs()))

    try_with(CPU, "def nccl_built(): return 0\n")
    with pytest.raises(ProvisionFailure, match=r"was built for torch 1\.13\.1 and does not work with it"):
        try_with(CPU, "def allreduce(tensor, op): return [2.0]\n")
    try_with(GPU, "def nccl_built(): return 2307\n")
    with pytest.raises(ProvisionFailure, match="does not work with it") as caught:
        try_with(GPU, "def nccl_built(): return 0\n")
    assert "built without NCCL" in caught.value.output
    assert set(TRIALS) == set(horovod_plan.FRAMEWORKS)


GPU_TORCH = """
import os
float32, float16 = "float32", "float16"
class Tensor:
    def __init__(self, dtype, device): self.dtype, self.is_cuda = dtype, device == "cuda"
    def tolist(self): return [1.0, 1.0]
def ones(count, dtype=float32, device="cpu"):
    if device == "cuda" and not os.environ.get("CUDA_VISIBLE_DEVICES"): raise RuntimeError("No CUDA GPUs are available")
    return Tensor(dtype, device)
"""
GPU_HOROVOD = """
import os, torch
Sum = 1
def init(): pass
def nccl_built(): return 2307
def allreduce(tensor, op):
    with open(os.environ["REDUCED"], "a") as file:
        file.write(f"{tensor.dtype} {'cuda' if tensor.is_cuda else 'cpu'}\\n")
    assert not tensor.is_cuda or tensor.dtype != os.environ.get("BROKEN"), "unhandled cuda error"
    return torch.Tensor(tensor.dtype, os.environ.get("RETURNED", "cuda" if tensor.is_cuda else "cpu"))
"""
LISTS_GPU = 'test "$1" = -L && echo "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)"'


@pytest.fixture
def try_on_node(tmp_path, image, monkeypatch):
    """Try a fake Horovod for GPUs on a node whose nvidia-smi is given; return what was reduced."""
    modules = tmp_path / "modules"
    (modules / "horovod").mkdir(parents=True)
    for name, text in {"torch.py": GPU_TORCH, "horovod/__init__.py": "", "horovod/torch.py": GPU_HOROVOD}.items():
        (modules / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(modules))
    monkeypatch.setenv("REDUCED", str(tmp_path / "reduced"))

    def try_on_node(plan, nvidia_smi):
        programs = link_programs(tmp_path / "node", ["sh", "test"])
        if nvidia_smi:
            write_program(Path(programs) / "nvidia-smi", f"#!/bin/sh\n{nvidia_smi}\n")
        try_horovod(image, plan, Transcript(tmp_path / "log", Programs(str(programs))))
        return (tmp_path / "reduced").read_text().splitlines()

    return try_on_node


@pytest.mark.parametrize(
    ("plan", "nvidia_smi", "tried"),
    [
        (GPU, LISTS_GPU, ["float32 cpu", "float32 cuda", "float16 cuda"]),
        (GPU, "", ["float32 cpu"]),
        (GPU, "echo No devices were found; exit 6", ["float32 cpu"]),
        (GPU, "exit 0", ["float32 cpu"]),
        (CPU, LISTS_GPU, ["float32 cpu"]),
    ],
    ids=["a GPU", "no driver", "no GPU", "an empty list", "a build for CPUs"],
)
def test_tensors_are_reduced_on_the_processor_and_on_a_gpu_that_is_listed(try_on_node, plan, nvidia_smi, tried):
    assert try_on_node(plan, nvidia_smi) == tried


@pytest.mark.parametrize("variables", [{"BROKEN": "float32"}, {"BROKEN": "float16"}, {"RETURNED": "cpu"}])
def test_a_horovod_that_does_not_reduce_on_the_gpu_is_refused(try_on_node, monkeypatch, variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ProvisionFailure, match=r"torch 1\.13\.1 and does not reduce tensors on this node's GPU") as no:
        try_on_node(GPU, LISTS_GPU)
    assert no.value.is_final
    assert "deeplearning health" in no.value.remedy
    assert "torchrun" in no.value.remedy
    assert "unhandled cuda error" in no.value.output or "became" in no.value.output
