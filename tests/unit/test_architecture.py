"""The rooms keep to their arrows and limits; each check has been seen to fail."""

import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _load_checks():
    spec = importlib.util.spec_from_file_location("architecture", Path(__file__).with_name("architecture.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


architecture = _load_checks()


@pytest.mark.parametrize("check", architecture.CHECKS, ids=lambda check: check.__name__)
def test_the_rooms_keep(check):
    assert check(ROOT) == []


def test_every_room_is_there():
    assert all(architecture.find_modules(ROOT / room) for room in architecture.ROOMS)


def test_the_public_names_can_be_imported():
    library = importlib.import_module("deeplearning_cdk")
    assert all(hasattr(library, name) for name in library.__all__)


LONG_FUNCTION = "def act(a,\n        b):\n    'Act.'\n" + "    a += b\n" * 46
PUBLIC = "constructs/deeplearning_cdk/__init__.py"


@pytest.mark.parametrize(
    ("check", "path", "text", "finding"),
    [
        ("arrows", "app.py", "import deeplearning_cdk", "app.py imports deeplearning_cdk"),
        (
            "arrows",
            "stacks/a.py",
            "from deeplearning_contract import names",
            "stacks/a.py imports deeplearning_contract",
        ),
        ("arrows", PUBLIC, "import deeplearning_node.node", f"{PUBLIC} imports deeplearning_node"),
        ("arrows", PUBLIC, "def f():\n    import boto3", f"{PUBLIC} imports boto3"),
        (
            "arrows",
            "contract/deeplearning_contract/a.py",
            "import yaml",
            "contract/deeplearning_contract/a.py imports yaml",
        ),
        (
            "arrows",
            "userdata/deeplearning_agent/a.py",
            "import requests",
            "userdata/deeplearning_agent/a.py imports requests",
        ),
        ("arrows", "userdata/fetch_agent.py", "import boto3", "userdata/fetch_agent.py imports boto3"),
        (
            "arrows",
            "lambda/capacity_adjuster/a.py",
            "from deeplearning_agent import node",
            "lambda/capacity_adjuster/a.py imports deeplearning_agent",
        ),
        (
            "arrows",
            "rehearsal/cdk_rehearsal/run/timeline.py",
            "from deeplearning_contract import names",
            "rehearsal/cdk_rehearsal/run/timeline.py imports deeplearning_contract",
        ),
        (
            "arrows",
            "rehearsal/deeplearning_rehearsal/a.py",
            "import aws_cdk as cdk",
            "rehearsal/deeplearning_rehearsal/a.py imports aws_cdk",
        ),
        (
            "arrows",
            "rehearsal/deeplearning_rehearsal/a.py",
            "from deeplearning_cdk import NodeGroup",
            "rehearsal/deeplearning_rehearsal/a.py imports deeplearning_cdk",
        ),
        (
            "arrows",
            "cli/deeplearning_cli/a.py",
            "import deeplearning_agent",
            "cli/deeplearning_cli/a.py imports deeplearning_agent",
        ),
        ("source_roots", "constructs/__init__.py", "", "constructs/__init__.py exists"),
        ("source_roots", "tests/unit/constructs/test_a.py", "", "tests/unit/constructs is called constructs"),
        (
            "source_roots",
            "examples/a.py",
            "from constructs.deeplearning_cdk import NodeGroup",
            "examples/a.py imports constructs.deeplearning_cdk",
        ),
        (
            "source_roots",
            "examples/a.py",
            "from constructs import deeplearning_cdk",
            "examples/a.py imports constructs.deeplearning_cdk",
        ),
        (
            "lazy_command",
            "cli/deeplearning_cli/main.py",
            "try:\n    import rich\nexcept ImportError:\n    rich = None",
            "deeplearning_cli.main imports rich when it starts",
        ),
        (
            "arrows",
            "userdata/deeplearning_jobs/a.py",
            "from deeplearning_agent import role",
            "userdata/deeplearning_jobs/a.py imports deeplearning_agent",
        ),
        ("agent", "userdata/deeplearning_agent/a.py", "run('x', shell=True)", "a.py:1 passes shell="),
        ("agent", "userdata/deeplearning_agent/a.py", "import os\nos.system('x')", "a.py:2 calls os.system"),
        ("agent", "userdata/deeplearning_agent/a.py", "import time\ntime.sleep(1)", "a.py:2 sleeps"),
        ("agent", "userdata/deeplearning_agent/a.py", "from time import sleep", "a.py:1 sleeps"),
        ("sizes", "stacks/a.py", "\n" * 401, "stacks/a.py has 401 lines"),
        ("sizes", "lambda/capacity_adjuster/a.py", LONG_FUNCTION, "a.py:1 act has 46 lines"),
        (
            "arrows",
            "userdata/deeplearning_member/a.py",
            "import botocore",
            "userdata/deeplearning_member/a.py imports botocore",
        ),
        ("agent", "userdata/deeplearning_member/a.py", "import time\ntime.sleep(1)", "a.py:2 sleeps"),
        ("sizes", "userdata/emr_bootstrap.sh", "true\n" * 70, "userdata/emr_bootstrap.sh has 70 lines"),
        ("sizes", "userdata/bootstrap.sh", "true\n" * 70, "userdata/bootstrap.sh has 70 lines"),
        (
            "old_syntax",
            "userdata/deeplearning_agent/a.py",
            "try:\n    pass\nexcept* ValueError:\n    pass",
            "a.py:4 is newer than Python 3.10",
        ),
        ("old_syntax", "lambda/capacity_adjuster/a.py", "type X = int", "a.py:1 is newer than Python 3.10"),
        ("public_names", PUBLIC, "from a import B, A\n__all__ = ['B', 'A']", "__all__ is not sorted"),
        ("public_names", PUBLIC, "from a import A, B\n__all__ = ['A']", "B is not in both"),
        ("public_names", PUBLIC, "__all__ = []\nx = 1", "line 2 is neither an import nor __all__"),
    ],
)
def test_a_planted_violation_is_found(tmp_path, check, path, text, finding):
    planted = tmp_path / path
    check = getattr(architecture, f"check_{check}")
    assert check(tmp_path) == []
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    (found,) = check(tmp_path)
    assert finding in found


@pytest.mark.parametrize(
    "back",
    ["from pack import a", "def f():\n    from pack.a import x", "if TYPE_CHECKING:\n    import pack.a"],
    ids=["plain", "in a function", "for types"],
)
def test_modules_that_import_each_other_are_found(tmp_path, back):
    package = tmp_path / "view" / "pack"
    package.mkdir(parents=True)
    for name, text in {"__init__": "", "a": "from pack import b", "b": "from pack.c import x", "c": "x = 1"}.items():
        (package / f"{name}.py").write_text(text)
    assert architecture.check_circles(tmp_path) == []
    (package / "c.py").write_text(f"x = 1\n{back}")
    (found,) = architecture.check_circles(tmp_path)
    assert {"pack.a", "pack.b", "pack.c"} <= set(found.split())


def test_a_seventeenth_module_of_a_folder_is_found(tmp_path):
    package = tmp_path / "view" / "pack"
    package.mkdir(parents=True)
    for name in ("__init__", *(f"m{number}" for number in range(16))):
        (package / f"{name}.py").write_text("")
    assert architecture.check_crowding(tmp_path) == []
    (package / "one_more.py").write_text("")
    assert architecture.check_crowding(tmp_path) == ["view/pack has 17 modules"]


def test_heavy_modules_that_the_command_imports_indirectly_are_found(tmp_path):
    modules = {
        "cli/deeplearning_cli/main.py": "from deeplearning_rehearsal import options\ndef f():\n    import moto",
        "rehearsal/deeplearning_rehearsal/__init__.py": "",
        "rehearsal/deeplearning_rehearsal/options.py": "from . import shared",
        "rehearsal/deeplearning_rehearsal/shared.py": "import boto3",
        "rehearsal/deeplearning_rehearsal/unreached.py": "import moto",
    }
    for path, text in modules.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = architecture.check_lazy_command(tmp_path)
    assert found == ["deeplearning_rehearsal.shared imports boto3 when it starts"]


def test_documentation_does_not_count_as_length(tmp_path):
    (tmp_path / "stacks").mkdir()
    docstring = '    """\n' + "    Says a lot.\n" * 60 + '    """\n'
    (tmp_path / "stacks" / "a.py").write_text("def act(a):\n" + docstring + "    a += 1\n" * 40)
    assert architecture.check_sizes(tmp_path) == []
