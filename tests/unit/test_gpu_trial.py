"""The trial on a GPU: what it refuses to start without, and what it makes of its results."""

import json
from dataclasses import replace

import pytest

from deeplearning_node.programs import Programs
from tests.gpu import __main__ as command
from tests.gpu.needs import PROGRAMS, PyTorch, find_missing, probe_pytorch

H100 = PyTorch(
    "/opt/pytorch/bin/python",
    "/opt/pytorch",
    "2.11.0+cu130",
    "13.0",
    has_headers=True,
    gpus=1,
    capability="9.0",
    gpu="NVIDIA H100 80GB HBM3",
)
LACKS = {
    "an NVIDIA GPU": {"gpus": 0, "capability": "", "gpu": ""},
    "CUDA in PyTorch 2.11.0+cu130": {"cuda": "", "gpus": 0},
    "PyTorch in /opt/pytorch/bin/python": {"torch": "", "cuda": "", "has_headers": False, "gpus": 0},
    "Python.h of /opt/pytorch/bin/python": {"has_headers": False},
}


@pytest.fixture
def machine(tmp_path):
    """A folder with all that the trial needs: `bin` has the programs, `root` the CUDA toolkit."""
    for path in ("root/usr/local/cuda/bin/nvcc", *(f"bin/{name}" for name in PROGRAMS)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("#!/bin/sh\n")
        (tmp_path / path).chmod(0o755)
    return tmp_path


def look(machine, pytorch=H100, *, is_root=True):
    return find_missing(pytorch, Programs(str(machine / "bin")), is_root=is_root, root=machine / "root")


def test_a_machine_with_everything_lacks_nothing(machine):
    assert look(machine) == []


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_missing_program_is_named_with_the_way_to_get_it(machine, name):
    (machine / "bin" / name).unlink()
    assert look(machine) == [f"missing: {name}; {PROGRAMS[name]}"]


@pytest.mark.parametrize("what", LACKS)
def test_what_pytorch_lacks_is_named_once(machine, what):
    (line,) = look(machine, replace(H100, **LACKS[what]))
    assert line.startswith(f"missing: {what}")


def test_toolkit_root_namespaces_and_another_node_are_named(machine):
    (machine / "root/usr/local/cuda/bin/nvcc").unlink()
    (machine / "root/opt/deeplearning").mkdir(parents=True)
    (machine / "root/opt/deeplearning/node.json").touch()
    (machine / "bin/unshare").write_text("#!/bin/sh\nexit 1\n")
    lines = look(machine)
    assert [line.split(";")[0] for line in lines] == [
        "missing: the CUDA toolkit in /usr/local/cuda",
        "missing: a machine that is no node",
        "missing: namespaces",
    ]
    assert look(machine, is_root=False)[0].startswith("missing: root; ")


def write_python(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_the_interpreter_with_cuda_is_taken_unless_one_is_named(tmp_path, monkeypatch):
    said = {name: json.dumps({"torch": "2.9.0", "cuda": cuda}) for name, cuda in (("cpu", ""), ("cuda", "13.0"))}
    cpu, cuda = (write_python(tmp_path / name, f"echo warning; echo '{text}'") for name, text in said.items())
    broken = write_python(tmp_path / "broken", "exit 1")
    monkeypatch.setattr("tests.gpu.needs.INTERPRETERS", (broken, cpu, cuda))
    assert probe_pytorch("", Programs()) == PyTorch(cuda, torch="2.9.0", cuda="13.0")
    assert probe_pytorch(cpu, Programs()) == PyTorch(cpu, torch="2.9.0")
    assert probe_pytorch(broken, Programs()) == PyTorch(broken)


def test_without_a_gpu_the_command_names_what_is_missing_and_ends_with_two(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(command, "run_trial", lambda *_: pytest.fail("it must not start"))
    monkeypatch.setattr(command, "probe_pytorch", lambda *_: replace(H100, gpus=0))
    assert command.main(["--pytorch", str(tmp_path / "python")]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("missing: ") for line in lines)
    assert any(line.startswith("missing: an NVIDIA GPU; ") for line in lines)


@pytest.mark.parametrize("pytorch", [H100, replace(H100, gpus=8), replace(H100, capability="7.5")])
def test_the_build_is_that_of_an_instance_type_with_the_same_gpus(pytorch):
    facts = command.read_catalog()[command.choose_type(pytorch)]
    assert (facts.compute_capability, facts.gpu_count) == (pytorch.capability, pytorch.gpus)


def test_a_gpu_that_no_instance_type_has_is_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        command.choose_type(replace(H100, capability="99.0"))
    assert ended.value.code == 2
    assert capsys.readouterr().out.startswith("missing: an instance type with GPUs of capability 99.0; ")


def test_folders_that_only_the_trial_needs_are_removed_after_it(monkeypatch, tmp_path):
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(command, "FOLDERS", (tmp_path / "own", tmp_path / "made"))
    (tmp_path / "unshare").write_text(f"#!/bin/sh\nmkdir {tmp_path}/made\necho 'RESULT {{\"checks\": 1}}'\n")
    (tmp_path / "unshare").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert command.run_trial(tmp_path, H100) == {"checks": 1}
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["own"]


@pytest.mark.parametrize(("is_fit", "status"), [(True, 0), (False, 1)])
def test_results_are_printed_and_kept_and_a_difference_is_a_failure(monkeypatch, capsys, tmp_path, is_fit, status):
    results = {"checks": {"the GPUs are fit": is_fit}, "figures": {"run against bare": [1.001, 1.005]}}
    monkeypatch.setattr(command, "OUT", tmp_path / "out")
    monkeypatch.setattr(command, "probe_pytorch", lambda *_: H100)
    monkeypatch.setattr(command, "find_missing", lambda *_, **__: [])
    monkeypatch.setattr(command, "make_context", lambda *_: tmp_path)
    monkeypatch.setattr(command, "run_trial", lambda *_: results)
    assert command.main([]) == status
    said = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert said == [
        ["the GPUs are fit", "as expected" if is_fit else "DIFFERENT"],
        ["run against bare", "1.001, 1.005"],
    ]
    kept = json.loads((tmp_path / "out/results.json").read_text())
    assert kept["figures"] == results["figures"]
    assert kept["pytorch"]["gpu"] == H100.gpu
