"""The wheel alone, in a clean virtual environment outside the checkout."""

import email
import importlib.metadata
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from functools import cache
from pathlib import Path

import pytest

from deeplearning_cdk.coordination.payload import NODE_PACKAGES
from deeplearning_rehearsal.checks.training import JOB_FILE, list_examples

ROOT = Path(__file__).parents[2]
WHEELHOUSE = ROOT / "build" / "wheelhouse"
EXAMPLE = ROOT / "examples" / "consumer_app"
RUNNER = ROOT / "tests" / "example_app.py"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    (built,) = target.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel, tmp_path_factory):
    home = tmp_path_factory.mktemp("clean")
    venv.create(home / "venv")
    python = home / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]  # a pip of its own takes longer than all packages
    install = [*pip, "install", "--quiet", "--no-compile", "--no-index", "--find-links", str(WHEELHOUSE)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    return python


@pytest.fixture(scope="module")
def assemblies(clean_python, tmp_path_factory):
    outputs = []
    for name, python in (("checkout", Path(sys.executable)), ("wheel", clean_python)):
        output = tmp_path_factory.mktemp(name)
        environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "VIRTUAL_ENV"}}
        environment |= {"CDK_OUTDIR": str(output)}
        subprocess.run([str(python), str(RUNNER), str(EXAMPLE / "app.py")], check=True, cwd=output, env=environment)
        outputs.append(output)
    return outputs[0], outputs[1]


def _assets(assembly):
    return {
        identifier
        for manifest in assembly.glob("*.assets.json")
        for identifier, asset in json.loads(manifest.read_text())["files"].items()
        if not asset["source"]["path"].endswith(".template.json")
    }


def _templates(assembly):
    return {path.name: json.loads(path.read_text()) for path in assembly.glob("*.template.json")}


def test_wheel_holds_packages_and_payload_and_no_compiled_files(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {
        "cdk_rehearsal",
        *(f"deeplearning_{name}" for name in ("cdk", "cli", "contract", "rehearsal", "view")),
    }
    payload = {name.split("/")[2] for name in names if name.startswith("deeplearning_cdk/_payload/")}
    files = {"bootstrap.sh", "container_build.sh", "emr_bootstrap.sh", "fetch_agent.py", "prepare_member.py"}
    files |= {"start_pod.py", "mask_rcnn", "notebook.lock", "notebook_start.sh", "sagemaker"}
    assert payload == {*files, "capacity_adjuster", "image_pin", "vendor", *NODE_PACKAGES}
    folder = "deeplearning_rehearsal/_examples/"
    examples = {name.removeprefix(folder) for name in names if name.startswith(folder)}
    environments = {f"environments/{path.name}" for path in (ROOT / "examples" / "environments").glob("*.txt")}
    assert examples == {*list_examples(), *environments, JOB_FILE}
    assert "environments/launchers.txt" in environments
    assert examples > {"run_elastic.sh", "run_horovod.sh", "train_digits.py", "train_elastic.py"}
    assert "deeplearning_rehearsal/report/templates/report.html.j2" in names
    assert "deeplearning_rehearsal/cases/catalogue/capacity.py" in names
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_the_description_shows_the_readme_where_none_of_its_other_files_is(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"deeplearning_cdk-[^/]*/METADATA", name))
        metadata = email.message_from_bytes(archive.read(name))
    description = metadata.get_payload(decode=True).decode()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["Author"] == "deeplearning-cdk contributors"
    assert set(re.findall(r"\]\(([^)]*)\)", (ROOT / "README.md").read_text())) > {"docs/rehearsal.svg", "SECURITY.md"}
    assert [link for link in re.findall(r"\]\(([^)]*)\)", description) if not link.startswith("https://")] == []
    assert "[PyTorch's page](https://pytorch.org/" in description
    assert "| Start | Your first rehearsal · Your first hour on AWS |" in description
    assert description.splitlines()[0] == "# deeplearning-cdk"


def test_consumer_app_gets_the_same_asset_hashes_from_wheel_and_checkout(assemblies):
    checkout, wheel = assemblies
    assert len(_assets(checkout)) >= 2
    assert _assets(wheel) == _assets(checkout)


def test_consumer_app_gets_the_same_template_from_wheel_and_checkout(assemblies):
    checkout, wheel = (_templates(assembly) for assembly in assemblies)
    assert checkout
    assert wheel == checkout


def test_command_of_the_wheel_needs_nothing_of_the_checkout(clean_python, tmp_path):
    command = clean_python.with_name("deeplearning-cdk")
    shown = [str(command), "rehearse", "--help"]
    answer = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "cloud assembly" in answer.stdout


@pytest.mark.parametrize("page", ["README.md", "docs/guides/import.md"])
def test_the_line_of_a_page_that_installs_it_works_as_pasted(page, wheel, tmp_path):
    (line,) = re.findall(r"^(?:make setup && )?(pip install .*)$", (ROOT / page).read_text(), re.MULTILINE)
    clone = ROOT if "build/dist" not in line else tmp_path
    (tmp_path / "build" / "dist").mkdir(parents=True)
    shutil.copy(wheel, tmp_path / "build" / "dist")
    # Options of the command line are not those of the environment in which pip builds.
    command = f"{line} --target '{tmp_path / 'target'}' --no-deps --no-compile"
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(WHEELHOUSE),
    }
    subprocess.run(["bash", "-c", command], cwd=clone, env=environment, check=True, capture_output=True)
    (installed,) = importlib.metadata.distributions(path=[str(tmp_path / "target")])
    assert set(re.findall(r"\w+", line.partition("[")[2])) <= set(installed.metadata.get_all("Provides-Extra"))
    assert (tmp_path / "target" / "deeplearning_cdk" / "_payload" / "vendor").is_dir()


@cache
def plan_installation(python, words):
    """Return what pip says that it would install; commands that miss the same packages name the same words."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), *shlex.split(words), "--dry-run", "--no-index"]
    return subprocess.run([*pip, "--find-links", str(WHEELHOUSE)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("cdk-rehearse", ["{assembly}"]),
        ("cdk-rehearse", ["{assembly}", "--orders", "1"]),
        ("deeplearning-cdk", ["rehearse", "{assembly}"]),
        ("deeplearning-cdk", ["status"]),
        ("deeplearning-cdk", ["completion", "bash"]),
    ],
)
def test_a_command_without_its_packages_names_a_command_that_installs_them(
    clean_python, assemblies, command, words, tmp_path
):
    given = [word.format(assembly=assemblies[1]) for word in words]
    program = [str(clean_python.with_name(command)), *given]
    answer = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    missing, remedy = answer.stderr.splitlines()[-1].removeprefix(f"{command}: ").split("; run: pip ")
    assert missing.startswith("missing: ")
    planned = plan_installation(clean_python, remedy)
    assert "Would install" in planned
    assert "deeplearning" not in planned
