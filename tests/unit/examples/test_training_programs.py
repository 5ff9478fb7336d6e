"""Promises of all training programs, read from their text: their frameworks are not installed here."""

import ast
import runpy
import sys
import types
from pathlib import Path

import pytest

from deeplearning_agent.telemetry.node_metrics import parse_throughput

EXAMPLES = Path(__file__).parents[3] / "examples"
PROGRAMS = ("train_digits", "train_keras", "train_torchrun", "train_parameter_server", "train_mxnet")
CONTRACT = {"EFS_MOUNT", "DEEPLEARNING_CHECKPOINT_PATH", "DEEPLEARNING_METRICS_PATH", "DEEPLEARNING_RESUME_FROM"}
LAUNCHERS = {"CUDA_VISIBLE_DEVICES", "DEEPLEARNING_RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "TF_CONFIG"}
RESULT = {"framework", "launcher", "ranks", "hosts", "dataset", "accuracy", "seconds", "samples_per_second"}
SEED_FLAGS = {
    "train_parameter_server": {"--data_dir", "--train_dir", "--batch_size", "--max_steps", "--log_dir"},
    "evaluate_cifar10": {"--data_dir", "--eval_dir", "--checkpoint_dir"},
    "train_mxnet": {"--data_dir", "--gpus", "--network", "--num-layers", "--kv-store"},
}


def walk(name):
    return list(ast.walk(ast.parse((EXAMPLES / f"{name}.py").read_text(), feature_version=(3, 10))))


def is_environment(node):
    return isinstance(node, ast.Attribute) and node.attr == "environ"


def variables_read(name):
    """Names in os.environ["…"], os.environ.get("…") and "…" in os.environ."""
    for node in walk(name):
        if isinstance(node, ast.Subscript) and is_environment(node.value):
            yield node.slice.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_environment(node.func.value):
            yield node.args[0].value
        elif isinstance(node, ast.Compare) and is_environment(node.comparators[0]):
            yield node.left.value


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training_program_reads_the_contract_and_its_launchers_variables_only(name):
    read = set(variables_read(name))
    assert read >= {"DEEPLEARNING_CHECKPOINT_PATH", "DEEPLEARNING_RESUME_FROM"}
    assert read - {"TF_CPP_MIN_LOG_LEVEL"} <= CONTRACT | LAUNCHERS


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_training_program_prints_every_figure_and_is_short(name):
    constants = {node.value for node in walk(name) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert constants >= RESULT
    assert len((EXAMPLES / f"{name}.py").read_text().splitlines()) <= 250


@pytest.mark.parametrize("name", SEED_FLAGS)
def test_a_program_has_the_flags_with_which_the_seeds_call_it(name):
    flags = {
        argument.value
        for node in walk(name)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument"
        for argument in node.args
    }
    assert flags >= SEED_FLAGS[name]


@pytest.mark.parametrize(("rank", "is_reported"), [(0, True), (1, False)])
def test_rank_zero_reports_its_throughput_as_the_agent_reads_it(monkeypatch, tmp_path, rank, is_reported):
    horovod = types.SimpleNamespace(rank=lambda: rank)
    torch = types.SimpleNamespace(
        Tensor=object, nn=types.SimpleNamespace(Module=object), optim=types.SimpleNamespace(Optimizer=object)
    )
    for name, module in {
        "torch": torch,
        "horovod": types.SimpleNamespace(torch=horovod),
        "horovod.torch": horovod,
        "digits": types.SimpleNamespace(SEED=2018, load_digits=None, split=None),
    }.items():
        monkeypatch.setitem(sys.modules, name, module)
    report = runpy.run_path(str(EXAMPLES / "train_digits.py"), run_name="trainer")["report_throughput"]
    report(1.0)  # Without `deeplearning run` there is nowhere to say it.
    path = tmp_path / "metrics.json"
    monkeypatch.setenv("DEEPLEARNING_METRICS_PATH", str(path))
    for value in (812.25, 1e-3):
        report(value)
        found = parse_throughput(path.read_text()) if path.exists() else None
        assert found == (value if is_reported else None)


def choose_devices(gpus, sees):
    """Call the function of train_mxnet.py where MXNet sees so many GPUs."""
    [function] = [node for node in walk("train_mxnet") if getattr(node, "name", "") == "choose_devices"]
    function.returns = None
    mx = types.SimpleNamespace(
        context=types.SimpleNamespace(num_gpus=lambda: sees), gpu=lambda number: f"gpu{number}", cpu=lambda: "cpu"
    )
    names = {"mx": mx, "os": types.SimpleNamespace(environ={}), "sys": sys}
    exec(compile(ast.Module([function], []), "train_mxnet.py", "exec"), names)  # noqa: S102 - our own program
    return names["choose_devices"](gpus)


@pytest.mark.parametrize(
    ("gpus", "sees", "devices"),
    [("", 0, ["cpu"]), ("0,1", 2, ["gpu0", "gpu1"]), ("0,1,2,3,4,5,6,7", 0, ["cpu"]), ("0,1", 1, ["cpu"])],
)
def test_gpus_that_mxnets_wheel_does_not_support_are_replaced_by_the_cpu_with_a_message(gpus, sees, devices, capsys):
    """The seeds' `--gpus $(seq ...)` names those of the driver; MXNet's wheel is built without CUDA."""
    assert choose_devices(gpus, sees) == devices
    assert ("training on the CPU" in capsys.readouterr().err) is (bool(gpus) and devices == ["cpu"])
