"""The rooms keep to their arrows and limits; each check has been seen to fail."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit import architecture

ROOT = Path(__file__).parents[2]
ROOMS = (*architecture.SOURCE_ROOTS, "stacks")
RUFF, LINT = (Path(sys.executable).with_name(name) for name in ("ruff", "lint-imports"))


@pytest.mark.parametrize("check", [architecture.check_sizes, architecture.check_crowding])
def test_the_rooms_keep_their_limits(check):
    assert check(ROOT) == []


def lint_imports(root):
    """Return what import-linter reports of a checkout; empty if it keeps all contracts."""
    paths = [str(root), *(str(root / source) for source in architecture.SOURCE_ROOTS)]
    environment = os.environ | {"PYTHONPATH": ":".join(paths)}
    command = [str(LINT), str(root / "pyproject.toml"), "--no-cache"]
    answer = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, check=False)
    return "" if answer.returncode == 0 else answer.stdout + answer.stderr


def test_the_packages_keep_their_arrows():
    assert lint_imports(ROOT) == ""


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """A copy of the code, into which a test plants one violation."""
    root = tmp_path_factory.mktemp("copy")
    for room in ROOMS:
        shutil.copytree(ROOT / room, root / room, ignore=shutil.ignore_patterns("__pycache__", "_payload"))
    shutil.copy(ROOT / "pyproject.toml", root)
    return root


IMPORTS = (
    ("stacks/a.py", "from deeplearning_contract import names", "stacks.a -> deeplearning_contract.names"),
    (
        "constructs/deeplearning_cdk/a.py",
        "import deeplearning_node.node",
        "deeplearning_cdk.a -> deeplearning_node",
    ),
    ("constructs/deeplearning_cdk/a.py", "def f():\n    import boto3", "deeplearning_cdk.a -> boto3"),
    (
        "constructs/deeplearning_cdk/props/a.py",
        "import deeplearning_cdk.warnings",
        "cycles are allowed in deeplearning_cdk.",
    ),
    ("contract/deeplearning_contract/a.py", "import yaml", "deeplearning_contract.a -> yaml"),
    ("userdata/deeplearning_agent/a.py", "import requests", "deeplearning_agent.a -> requests"),
    (
        "userdata/deeplearning_jobs/a.py",
        "import deeplearning_agent.role",
        "deeplearning_jobs.a -> deeplearning_agent",
    ),
    ("userdata/deeplearning_jobs/a.py", "import botocore", "deeplearning_jobs.a -> botocore"),
    (
        "userdata/deeplearning_member/a.py",
        "import deeplearning_provision.disk",
        "member.a -> deeplearning_provision",
    ),
    ("lambda/capacity_adjuster/a.py", "from deeplearning_agent import role", "adjuster.a -> deeplearning_agent"),
    ("rehearsal/cdk_rehearsal/run/a.py", "import deeplearning_contract.names", "run.a -> deeplearning_contract"),
    (
        "rehearsal/cdk_rehearsal/kubernetes/a.py",
        "import cdk_rehearsal.embedded_aws.cloud",
        "kubernetes.a -> cdk_rehearsal.embedded_aws.cloud",
    ),
    (
        "rehearsal/cdk_rehearsal/run/a.py",
        "import cdk_rehearsal.kubernetes.stand_in.server",
        "run.a -> cdk_rehearsal.kubernetes.stand_in.server",
    ),
    (
        "rehearsal/cdk_rehearsal/kubernetes/stand_in/base/a.py",
        "import cdk_rehearsal.kubernetes.stand_in.api.rights",
        "base.a -> cdk_rehearsal.kubernetes.stand_in.api.rights",
    ),
    ("rehearsal/deeplearning_rehearsal/a.py", "import aws_cdk as cdk", "deeplearning_rehearsal.a -> aws_cdk"),
    (
        "rehearsal/deeplearning_rehearsal/a.py",
        "import deeplearning_cdk",
        "deeplearning_rehearsal.a -> deeplearning_cdk",
    ),
    ("cli/deeplearning_cli/a.py", "import deeplearning_agent.role", "deeplearning_cli.a -> deeplearning_agent"),
    (
        "view/deeplearning_view/a.py",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import deeplearning_cli.main",
        "deeplearning_view.a -> deeplearning_cli",
    ),
)
"""Modules that break a contract: path, text, and what import-linter says of it."""


@pytest.fixture(scope="module")
def findings(copy):
    """Return the report of import-linter on a copy with all of them, in one line; a run reads every module."""
    paths = {copy / path for path, _, _ in IMPORTS}
    for planted in paths:
        planted.write_text("".join(f"{text}\n" for path, text, _ in IMPORTS if copy / path == planted))
    report = " ".join(lint_imports(copy).split())
    for planted in paths:
        planted.unlink()
    return report


@pytest.mark.parametrize(("path", "text", "finding"), IMPORTS)
def test_a_planted_import_is_found(findings, path, text, finding):
    assert finding in findings, f"{path}: {text}"


@pytest.mark.parametrize(
    ("path", "text", "rule"),
    [
        ("userdata/deeplearning_agent/a.py", "import time\n\ntime.sleep(1)", "TID251"),
        ("userdata/deeplearning_member/a.py", "from time import sleep\n\nsleep(1)", "TID251"),
        ("userdata/deeplearning_agent/a.py", "import subprocess\n\nsubprocess.run('x', shell=True)", "S602"),
        ("userdata/deeplearning_agent/a.py", "import os\n\nos.system('x')", "S605"),
        ("lambda/capacity_adjuster/a.py", "type X = int", "syntax"),
        ("constructs/deeplearning_cdk/__init__.py", "from a import A, B\n\n__all__ = ['B', 'A']", "RUF022"),
    ],
)
def test_a_planted_line_is_found_by_ruff(path, text, rule):
    command = [str(RUFF), "check", "--stdin-filename", path, "-"]
    answer = subprocess.run(command, cwd=ROOT, input=f"{text}\n", capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert rule in answer.stdout


LONG_FUNCTION = "def act(a,\n        b):\n    'Act.'\n" + "    a += b\n" * 46


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        ("stacks/a.py", "\n" * 401, "stacks/a.py has 401 lines"),
        ("lambda/capacity_adjuster/a.py", LONG_FUNCTION, "a.py:1 act has 46 lines"),
        ("userdata/emr_bootstrap.sh", "true\n" * 70, "userdata/emr_bootstrap.sh has 70 lines"),
        ("userdata/bootstrap.sh", "true\n" * 70, "userdata/bootstrap.sh has 70 lines"),
    ],
)
def test_what_is_too_long_is_found(tmp_path, path, text, finding):
    planted = tmp_path / path
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    (found,) = architecture.check_sizes(tmp_path)
    assert finding in found


def test_a_seventeenth_module_of_a_folder_is_found(tmp_path):
    package = tmp_path / "view" / "pack"
    package.mkdir(parents=True)
    for name in ("__init__", *(f"m{number}" for number in range(16))):
        (package / f"{name}.py").write_text("")
    assert architecture.check_crowding(tmp_path) == []
    (package / "one_more.py").write_text("")
    assert architecture.check_crowding(tmp_path) == ["view/pack has 17 modules"]


def test_documentation_does_not_count_as_length(tmp_path):
    (tmp_path / "stacks").mkdir()
    docstring = '    """\n' + "    Says a lot.\n" * 60 + '    """\n'
    (tmp_path / "stacks" / "a.py").write_text("def act(a):\n" + docstring + "    a += 1\n" * 40)
    assert architecture.check_sizes(tmp_path) == []
