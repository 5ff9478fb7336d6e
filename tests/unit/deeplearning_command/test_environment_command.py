"""`deeplearning environment`: what was declared, and how nodes stand with it."""

import hashlib
import json
import os
import sys
from dataclasses import replace

import pytest

from deeplearning_command.provision import environment as environment_command
from deeplearning_contract.reason import Reason
from deeplearning_contract.setting_parts import EnvironmentSettings, JobNeeds, ScriptSettings
from deeplearning_node.deadline import Clock
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.provision_status import ENVIRONMENT_STEP
from deeplearning_provision.status import Status, lock_file
from tests.unit.deeplearning_command.master_node import run, write_membership

TEXT = "# Nothing beside the image.\n"
FILE = ScriptSettings("bucket", "requirements.txt", hashlib.sha256(TEXT.encode()).hexdigest())
SETTINGS = EnvironmentSettings("requirements", FILE)
ANSWER = """
for word; do address=$before; before=$word; done
case $word in *"/usr/local/bin/deeplearning environment --json") ;; *) exit 3 ;; esac
case $address in
  10.0.0.10) echo '{"state": "running", "digest": "aaa", "detail": "installing packages"}' ;;
  10.0.0.11) echo "No route to host"; exit 255 ;;
  *) echo '{"state": "done", "digest": "aaa", "detail": "2 packages"}' ;;
esac
"""


@pytest.fixture
def declared(node):
    """A node for which an environment was declared, with an interpreter that has nothing."""
    declare(node, SETTINGS)
    interpreter = node.path("/usr/bin/python3")
    interpreter.parent.mkdir(parents=True)
    interpreter.symlink_to(getattr(sys, "_base_executable", sys.executable))
    local = node.path("/opt/deeplearning/environments")
    local.mkdir(parents=True)
    (local / f"{FILE.sha256[:16]}-requirements.txt").write_text(TEXT)
    node.path("/mnt/efs").mkdir(exist_ok=True)
    return node


def declare(node, settings):
    replace(NodeFacts.read(node.root), needs=JobNeeds({}, environment=settings)).write(node.root)


def test_it_is_refused_when_none_was_declared(node, capsys):
    assert run(node, "environment") == 2
    assert "must have an environment, got none" in capsys.readouterr().err


def test_it_shows_what_was_declared_before_it_is_there(declared, capsys):
    assert run(declared, "env") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "declared  requirements s3://bucket/requirements.txt"
    assert lines[2:] == [
        "shared    not made yet",
        "here      not installed yet",
        "state     waiting: provisioning has not come to it yet",
    ]


def test_a_failure_is_shown_with_its_words_and_an_older_environment_as_another_one(declared, capsys):
    Status(declared.root, Clock()).fail(ENVIRONMENT_STEP, Reason("pip wheel failed", "correct it"), is_final=True)
    declared.path("/opt/deeplearning/environments/current").symlink_to("older")
    assert run(declared, "environment") == 1
    out = capsys.readouterr().out
    assert "state     failed: pip wheel failed; correct it" in out
    assert "current -> older, which is another one" in out


def test_build_makes_it_in_the_foreground(declared, capsys, monkeypatch):
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert run(declared, "environment", "--build") == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("done: 0 packages; built here in ")
    assert run(declared, "environment", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["state"] == "done"
    assert found["current"] == found["digest"]
    assert found["shared"].startswith("/mnt/efs/.deeplearning/environments/")
    assert run(declared, "environment") == 0
    assert f"environments/current -> {found['digest']}\n" in capsys.readouterr().out


def test_build_is_refused_while_the_service_is_at_it(declared, capsys):
    with lock_file(declared.root, ENVIRONMENT_STEP):
        assert run(declared, "environment", "--build") == 2
    assert "another process is installing it" in capsys.readouterr().err


def test_a_build_that_fails_is_bad_news(declared, capsys):
    declare(declared, replace(SETTINGS, kind="wheelhouse"))
    assert run(declared, "environment", "--build") == 1
    assert "failed: environment.kind must be horovod" in capsys.readouterr().out


def test_all_nodes_are_asked_and_one_that_is_not_ready_is_bad_news(lab, declared, capsys):
    write_membership(declared, 3)
    lab.program(0, "ssh", ANSWER)
    assert run(declared, "environment", "--all") == 1
    assert capsys.readouterr().out.splitlines() == [
        "HOST                  STATE      DIGEST",
        "deeplearning-worker1  done       aaa     2 packages",
        "deeplearning-worker2  running    aaa     installing packages",
        "deeplearning-worker3  no answer  -       No route to host",
        "",
        "1 of 3 nodes have the environment; they differ",
    ]
    assert run(declared, "environment", "--all", "--json") == 1
    assert [node["state"] for node in json.loads(capsys.readouterr().out)] == ["done", "running", "no answer"]
    write_membership(declared, 1)
    assert run(declared, "environment", "--all") == 0
    assert capsys.readouterr().out.endswith("\n1 of 1 nodes have the environment\n")


def test_a_shell_has_the_environments_programs_first(declared, capsys, monkeypatch):
    calls = []
    monkeypatch.setattr(environment_command.os, "execve", lambda *call: calls.append(call))
    monkeypatch.setenv("SHELL", "/bin/bash")
    assert run(declared, "environment", "--shell") == 2
    assert "must be installed on this node" in capsys.readouterr().err
    current = declared.path("/opt/deeplearning/environments/current")
    (current / "bin").mkdir(parents=True)
    (current / "bin/python").touch()
    run(declared, "environment", "--shell")
    ((program, arguments, variables),) = calls
    assert (program, arguments) == ("/bin/bash", ["/bin/bash"])
    assert variables["PATH"] == f"{current}/bin:{os.environ['PATH']}"
    declare(declared, EnvironmentSettings("container", None, "train:1"))
    assert run(declared, "environment", "--shell") == 2
    assert "docker run --rm -it train:1 bash" in capsys.readouterr().err
