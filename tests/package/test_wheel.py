"""The wheel alone, in a clean virtual environment outside the checkout."""

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from deeplearning_cdk.coordination.payload import NODE_PACKAGES
from deeplearning_rehearsal.checks.training import list_examples

ROOT = Path(__file__).parents[2]
WHEELHOUSE = ROOT / "build" / "wheelhouse"
EXAMPLE = ROOT / "examples" / "consumer_app"
RUNNER = ROOT / "tests" / "example_app.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("clean")
    venv.create(home / "venv")
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]  # a pip of its own takes longer than all packages
    install = [*pip, "install", "--quiet", "--no-compile", "--no-index", "--find-links", str(WHEELHOUSE)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    return python


@pytest.fixture(scope="module")
def assemblies(clean_python: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    outputs = []
    for name, python in (("checkout", Path(sys.executable)), ("wheel", clean_python)):
        output = tmp_path_factory.mktemp(name)
        environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        environment |= {"CDK_OUTDIR": str(output)}
        subprocess.run([str(python), str(RUNNER), str(EXAMPLE / "app.py")], check=True, cwd=output, env=environment)
        outputs.append(output)
    return outputs[0], outputs[1]


def _assets(assembly: Path) -> set[str]:
    return {
        identifier
        for manifest in assembly.glob("*.assets.json")
        for identifier, asset in json.loads(manifest.read_text())["files"].items()
        if not asset["source"]["path"].endswith(".template.json")
    }


def _templates(assembly: Path) -> dict[str, object]:
    return {path.name: json.loads(path.read_text()) for path in assembly.glob("*.template.json")}


def test_wheel_holds_packages_and_payload_and_no_compiled_files(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {
        "cdk_rehearsal",
        *(f"deeplearning_{name}" for name in ("cdk", "cli", "contract", "rehearsal", "view")),
    }
    payload = {name.split("/")[2] for name in names if name.startswith("deeplearning_cdk/_payload/")}
    files = {"bootstrap.sh", "container_build.sh", "emr_bootstrap.sh", "fetch_agent.py", "prepare_member.py"}
    assert payload == {*files, "capacity_adjuster", "image_pin", "vendor", *NODE_PACKAGES}
    folder = "deeplearning_rehearsal/_examples/"
    examples = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    environments = {f"environments/{path.name}" for path in (ROOT / "examples" / "environments").glob("*.txt")}
    assert examples == {*list_examples(), *environments}
    assert "environments/launchers.txt" in environments
    assert examples > {"run_elastic.sh", "run_horovod.sh", "train_digits.py", "train_elastic.py"}
    assert "deeplearning_rehearsal/report/templates/report.html.j2" in names
    assert "deeplearning_rehearsal/cases/capacity-none.toml" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_consumer_app_gets_the_same_asset_hashes_from_wheel_and_checkout(assemblies: tuple[Path, Path]) -> None:
    checkout, wheel = assemblies
    assert len(_assets(checkout)) >= 2
    assert _assets(wheel) == _assets(checkout)


def test_consumer_app_gets_the_same_template_from_wheel_and_checkout(assemblies: tuple[Path, Path]) -> None:
    checkout, wheel = (_templates(assembly) for assembly in assemblies)
    assert checkout
    assert wheel == checkout


def test_command_of_the_wheel_needs_nothing_of_the_checkout(clean_python: Path, tmp_path: Path) -> None:
    command = clean_python.with_name("deeplearning-cdk")
    shown = [str(command), "rehearse", "--help"]
    answer = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "cloud assembly" in answer.stdout
