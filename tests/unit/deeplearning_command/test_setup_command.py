"""`deeplearning setup`: the set-up script once more, on all nodes at the same time."""

import os
import subprocess

import pytest

from deeplearning_agent.workload import user_scripts
from deeplearning_command.cluster.setup import NO_SCRIPT, SCRIPT, SETUP_LOG, write_text
from tests.unit.deeplearning_command.master_node import run, write_membership

ANSWER = """
for word; do address=$before; before=$word; done
echo "$address" >>"$FAKES/asked"
case $address in
  10.0.0.10) echo "E: no such package"; exit 100 ;;
  10.0.0.11) echo "No route to host"; exit 255 ;;
esac
echo ok
"""


@pytest.fixture
def hosts(lab, node):
    write_membership(node, 3)
    lab.program(
        0,
        "ssh",
        ANSWER.replace("exit 100", 'printf "\\\\001100\\\\n"; exit 100').replace("echo ok", 'printf "\\\\0010\\\\n"'),
    )
    return node


@pytest.mark.defect("D71")
def test_every_node_runs_it_and_each_status_is_reported(hosts, capsys):
    assert run(hosts, "setup") == 1
    out = capsys.readouterr().out
    assert sorted(out.splitlines()[:2]) == [
        "deeplearning-worker2 | E: no such package",
        "deeplearning-worker3 | No route to host",
    ]
    assert out.splitlines()[2:] == [
        "HOST                  STATUS",
        "deeplearning-worker1  0",
        "deeplearning-worker2  100",
        "deeplearning-worker3  none    No route to host",
        "",
        "the set-up script ended with status 0 on 1 of 3 nodes",
    ]


def test_an_interruption_says_that_the_script_runs_on(lab, hosts, capsys):
    lab.program(0, "ssh", f"kill -INT {os.getpid()}; exec sleep 600")
    assert run(hosts, "setup", "--timeout", "60") == 130
    said = capsys.readouterr().err
    assert said == f"\nthe set-up script runs on, for at most 60 s; its output is in {SETUP_LOG}\n\ninterrupted\n"


def test_it_is_the_agents_script_and_log(node):
    assert node.path(SCRIPT) == user_scripts.script_path(node, "setup")
    assert user_scripts.SETUP_LOG == SETUP_LOG


def test_only_the_named_nodes_run_it(lab, hosts, capsys):
    assert run(hosts, "setup", "--hosts", "deeplearning-worker1") == 0
    assert (lab.directory / "programs0/asked").read_text().split() == ["10.0.0.9"]
    assert run(hosts, "setup", "--hosts", "nobody") == 2
    assert run(hosts, "setup", "--timeout", "0") == 2


def test_it_is_refused_when_no_node_has_a_script(lab, hosts, capsys):
    lab.program(0, "ssh", f"""echo '{NO_SCRIPT}'; printf '\\001127\\n'; exit 127""")
    assert run(hosts, "setup") == 2
    assert "these nodes must have a set-up script, got none" in capsys.readouterr().err


def test_a_node_whose_role_has_no_script_is_no_failure(lab, hosts, capsys):
    lab.program(
        0,
        "ssh",
        f"""case "$*" in *10.0.0.9*) echo '{NO_SCRIPT}'; printf '\\001127\\n'; exit 127 ;; esac; printf '\\0010\\n'""",
    )
    assert run(hosts, "setup") == 0
    assert capsys.readouterr().out.splitlines() == [
        "HOST                  STATUS",
        "deeplearning-worker1  -       has no set-up script",
        "deeplearning-worker2  0",
        "deeplearning-worker3  0",
        "",
        "the set-up script ended with status 0 on 2 of 2 nodes",
    ]


def test_a_script_that_ends_with_127_itself_is_a_failure(lab, hosts, capsys):
    lab.program(0, "ssh", """echo 'frob: not found'; printf '\\001127\\n'; exit 127""")
    assert run(hosts, "setup") == 1
    assert "frob: not found" in capsys.readouterr().out


@pytest.fixture
def machine(tmp_path):
    """Return a function that runs the text on a node whose `sudo` only runs what it is given."""
    sudo = tmp_path / "sudo"
    sudo.write_text('#!/bin/sh\n[ "$1" = -n ] || exit 9\nshift\nexec "$@"\n')
    sudo.chmod(0o755)
    script, variables, log = tmp_path / "setup", tmp_path / "environment", tmp_path / "the log"
    variables.write_text("EFS_MOUNT=/mnt/efs\n")

    def act(body, seconds=60):
        if body is not None:
            script.write_text(f"#!/bin/sh\n{body}\n")
            script.chmod(0o755)
        text = write_text(seconds, str(script), str(variables), str(log))
        found = subprocess.run(
            ["sh", "-c", text],
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
        return found.returncode, found.stdout, log.read_text() if log.exists() else ""

    return act


def test_the_script_has_the_agents_variables_and_its_output_is_kept(machine):
    status, out, log = machine(
        'for number in 1 2 3 4 5; do echo $number; done; echo "$EFS_MOUNT $HOME $USER" >&2; exit 3'
    )
    assert status == 3
    assert log == "1\n2\n3\n4\n5\n/mnt/efs /root root\n"
    assert out == "2\n3\n4\n5\n/mnt/efs /root root\n"
    assert machine("echo again") == (0, "again\n", "again\n")


@pytest.mark.parametrize(
    ("body", "expected"), [("sleep 600", (124, "", "")), (None, (127, "this node has no set-up script\n", ""))]
)
def test_a_script_that_does_not_end_is_ended_and_a_node_without_one_reports_it(machine, body, expected):
    assert machine(body, seconds=1) == expected
