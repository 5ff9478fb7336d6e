"""Start of the agent, the facts that it needs about its node, and its reports of failures."""

import ast
import json
import logging
import re
import subprocess
import sys

import pytest

from deeplearning_agent.__main__ import main
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.instance_metadata import read_identity

# --- Reasons --------------------------------------------------------------------------------------


def test_a_reason_keeps_cause_and_remedy_and_the_end_of_the_output():
    failure = StageFailure(
        "the mount failed", "open port 2049", stage="mount", output="noise\n" * 900 + "the last line"
    )
    reason = str(failure.reason("worker i-1"))
    assert reason.startswith("worker i-1 failed to mount: the mount failed; open port 2049; last lines: ...")
    assert reason.endswith("| the last line")
    assert len(reason) == 1000


def test_an_unforeseen_error_still_has_a_stage_and_a_kind():
    assert str(describe_failure(KeyError("x"), "count GPUs").reason("master i-1")) == (
        "master i-1 failed to count GPUs: KeyError: 'x'; see the agent's log on the node"
    )


# --- Metadata and entry -----------------------------------------------------------------------------


@pytest.mark.defect("D39")
def test_identity_comes_from_metadata_version_2(imds):
    identity = read_identity(imds.clock, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url})
    assert (identity.instance_id, identity.address) == ("i-0123456789abcdef0", "10.1.2.3")


def test_check_tells_good_settings_from_bad_ones(lab, tmp_path, capsys):
    assert main(["--check"], tmp_path) == 2
    assert "settings.json cannot be read" in capsys.readouterr().err
    node = lab.node(0)
    settings = node.path("/opt/deeplearning/settings.json")
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(node.settings.to_document()))
    assert main(["--check"], node.root) == 0
    assert main(["--unknown"], node.root) == 2
    settings.write_text("{}")
    assert main(["--check"], node.root) == 2


@pytest.mark.defect("D46")
def test_the_modules_import_without_root_and_touch_nothing(agent_modules, tmp_path):
    modules = ", ".join(name for name in agent_modules if "__" not in name)
    code = f"import os, logging; os.chdir({str(tmp_path)!r}); import {modules}; assert not logging.getLogger().handlers"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_sleeps_outside_the_deadline_module_and_no_shell_is_used(agent_modules):
    for path in agent_modules.values():
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in {"sleep", "system", "popen"}:
                assert path.name == "deadline.py", f"{path.name}:{node.lineno} uses {node.attr}"
            if isinstance(node, ast.keyword):
                assert node.arg != "shell", f"{path.name}:{node.value.lineno} uses a shell"


def test_imports_only_the_contract_botocore_and_the_standard_library(agent_modules):
    allowed = sys.stdlib_module_names | {"deeplearning_contract", "deeplearning_agent", "deeplearning_node", "botocore"}
    for path in agent_modules.values():
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name


# --- The recipe ------------------------------------------------------------------------------------------

PREPARATION = [
    "wait for credentials",
    "install packages",
    "prepare EFA",
    "prepare the instance store",
    "mount the file system",
    "prepare the limits of jobs",
    "turn on the GPUs' persistence mode",
    "count GPUs",
    "check the node's health",
    "install the command",
    "start provisioning",
    "make the SSH identity",
    "wait for sshd",
    "run the set-up script",
]
FORMATION = ["make the user key", "fetch the run script", "install generation 1"]


@pytest.mark.parametrize(
    ("index", "steps"), [(0, [*PREPARATION, *FORMATION]), (1, PREPARATION)], ids=["master", "worker"]
)
def test_a_first_boot_runs_each_step_in_this_order(lab, caplog, index, steps):
    caplog.set_level(logging.INFO)
    lab.write_state(1 + index)
    lab.run(lab.agent(index))
    found = [match[1] for message in caplog.messages if (match := re.fullmatch(r"(.*): done in [0-9.]+ s", message))]
    assert found == steps
