"""The command on the node: how it is installed and started, and what it prints."""

import json
import os
import subprocess
import sys
from dataclasses import asdict

import pytest

from deeplearning_agent.boot import steps
from deeplearning_agent.boot.steps import install_command
from deeplearning_command.main import COMMANDS, main
from deeplearning_contract.document import ContractError
from deeplearning_contract.version import VERSION
from deeplearning_node.health.findings import Finding, HealthReport
from deeplearning_node.node_facts import NodeFacts
from tests.unit.deeplearning_command.master_node import run, write_membership

FIT = (
    Finding.fit("GPU count", "2 GPUs answer, 2 expected"),
    Finding.fit("membership", "generation 3 is installed"),
    Finding.fit("network", "efa: libfabric lists 4 of 4 devices"),
)
TABLE = """\
HOST                  INSTANCE             VERDICT    NETWORK  FAULT                                                            REMEDY
deeplearning-worker1  i-00000000000000000  healthy    efa
deeplearning-worker2  i-00000000000000001  unfit      efa      GPU memory: GPU 3 has uncorrected ECC errors                     terminate the instance
                                                               disk: /var: is read-only                                         free the disk
deeplearning-worker3  i-00000000000000002  unfit      efa      membership: generation 2 is installed, the master has 3          wait a minute; then read the agent's log on the node
deeplearning-worker4  i-00000000000000003  no answer  -        SSH: ssh: connect to host 10.0.0.12 port 22: Connection refused  check that the instance runs; if the fault persists, terminate it

1 of 4 nodes of master-of-names are healthy (generation 3)
"""  # noqa: E501 - as it is printed


def answer_over_ssh(lab, *reports):
    """Let `ssh` answer for each address; one without a report refuses."""
    (lab.directory / "programs0" / "date").symlink_to("/bin/date")
    cases = ""
    for index, (generation, findings) in enumerate(reports):
        line = (
            HealthReport(f"i-{index:017x}", 0, generation, findings).to_line().replace('"at": 0', '"at": $(date +%s)')
        )
        cases += f"10.0.0.{9 + index}) cat <<ANSWER\n{line}\nANSWER\n;;\n"
    refuse = '*) echo "ssh: connect to host $address port 22: Connection refused"; exit 255 ;;'
    body = f'for word; do address=$before; before=$word; done\ncase "$address" in\n{cases}{refuse}\nesac'
    lab.program(0, "ssh", body)


# --- Installing and starting ----------------------------------------------------------------------------


@pytest.mark.fault(49)
def test_installing_again_leaves_the_same_bytes_and_everybody_may_run_it(lab, node):
    before = lab.digests(0)
    install_command(node)
    assert lab.digests(0) == before
    assert node.path("/usr/local/bin/deeplearning").stat().st_mode & 0o777 == 0o755
    assert node.path("/opt/deeplearning/node.json").stat().st_mode & 0o777 == 0o644


def test_the_facts_that_everybody_may_read_hold_no_secret(lab, node):
    text = lab.read(0, "/opt/deeplearning/node.json")
    assert "X-Amz-Signature" in node.settings.signal_url
    assert "http" not in text
    assert NodeFacts.read(node.root) == NodeFacts.of(node)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cluster": 1}'])
def test_facts_of_another_shape_are_refused(node, text):
    node.path("/opt/deeplearning/node.json").write_text(text)
    with pytest.raises(ContractError):
        NodeFacts.read(node.root)


def start(node, agent_folder, *arguments, **options):
    """Run the installed file with the agent's folder where this checkout has it."""
    installed = node.path("/usr/local/bin/deeplearning")
    text = installed.read_text().replace("/opt/deeplearning/agent", str(agent_folder))
    installed.write_text(text)
    return subprocess.run([installed, *arguments], capture_output=True, text=True, check=False, **options)


def test_the_installed_file_runs_with_the_agents_interpreter(node, agent_folder, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('a file of the user was imported')")
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(tmp_path), "HOME": str(tmp_path)}
    done = start(node, agent_folder, "--help", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    assert "health" in done.stdout
    assert f"exec {sys.executable} -I" in node.path("/usr/local/bin/deeplearning").read_text()
    assert "'/opt/deeplearning/agent'" in steps._COMMAND


def test_arguments_reach_the_command_as_they_were(node, agent_folder):
    done = start(node, agent_folder, "health", "--no  such; option")
    assert done.returncode == 2
    assert "unrecognized arguments: --no  such; option" in done.stderr


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_every_command_of_the_table_has_help_with_its_exit_statuses(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command.name, "--help"])
    assert ended.value.code == 0
    printed = " ".join(capsys.readouterr().out.split())
    for status, words in command.statuses.items():
        assert f"{status} {words}" in printed


def test_the_list_of_commands_imports_none_of_them(agent_folder):
    code = (
        "import sys; from deeplearning_command.main import make_parser; make_parser().format_help()\n"
        "ours = {name for name in sys.modules if name.startswith('deeplearning_')}\n"
        "assert ours == {'deeplearning_command', 'deeplearning_command.main', 'deeplearning_command.terminal',"
        " 'deeplearning_contract', 'deeplearning_contract.version'}, ours\n"
        "assert not {'dataclasses', 'logging', 'subprocess'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-S", "-c", code], check=True, env={"PYTHONPATH": str(agent_folder)})


def test_bash_completes_the_commands_of_users(tmp_path, capsys):
    assert main(["completion", "bash"], tmp_path) == 0
    script = capsys.readouterr().out
    ask = 'COMP_CWORD=1; _deeplearning deeplearning "$0" deeplearning; echo "${COMPREPLY[@]}"'
    for begin, names in (("h", "hosts health"), ("env", "environment env"), ("node", "")):
        done = subprocess.run(["bash", "-c", script + ask, begin], capture_output=True, text=True, check=True)
        assert done.stdout.split() == names.split()


def test_an_unknown_command_is_offered_those_of_users_alone(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["trian"])
    assert ended.value.code == 2
    offered = capsys.readouterr().err
    assert "invalid choice: 'trian'" in offered
    assert ", run, stop," in offered.replace("'", "")  # Newer releases of Python leave the quotes out.
    for internal in ("node-facts", "stop-when-idle"):
        assert internal not in offered


def test_the_command_prints_the_version_of_the_project(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"deeplearning {VERSION}\n"


def test_without_a_command_the_help_is_printed_and_the_status_is_2(capsys):
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "check the health of every node" in printed.err
    assert "exit status: 2 refused or no command given, 130 interrupted" in printed.err


# --- One node ---------------------------------------------------------------------------------------------


def test_a_node_looks_at_itself_and_prints_one_line_of_json(node, capsys):
    assert run(node, "health", "--self") == 1
    line = capsys.readouterr().out
    assert line.count("\n") == 1
    report = HealthReport.from_output(line)
    assert report.instance_id == node.identity.instance_id
    assert {finding.name for finding in report.findings if not finding.ok} == {"file system", "membership"}


def test_a_fit_node_ends_with_status_0(node):
    write_membership(node, 1)
    node.path("/mnt/efs").mkdir()
    node.path("/mnt/efs/.mounted").touch()
    assert run(node, "health", "--self") == 0


# --- All nodes --------------------------------------------------------------------------------------------


def test_the_table_shows_every_node_what_is_wrong_and_the_remedy(lab, node, capsys):
    write_membership(node, 4)
    faults = (
        Finding.fault("GPU memory", "GPU 3 has uncorrected ECC errors", "terminate the instance"),
        Finding.fault("disk", "/var: is read-only", "free the disk"),
    )
    answer_over_ssh(lab, (3, FIT), (3, (*FIT, *faults)), (2, FIT))
    assert run(node, "health") == 1
    printed = capsys.readouterr().out
    assert printed == TABLE


def test_a_healthy_cluster_ends_with_status_0_and_programs_get_json_with_what_is_right_as_well(lab, node, capsys):
    write_membership(node, 2)
    answer_over_ssh(lab, (3, FIT), (3, FIT))
    assert run(node, "health") == 0
    assert capsys.readouterr().out.endswith("\n2 of 2 nodes of master-of-names are healthy (generation 3)\n")
    assert run(node, "health", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["cluster"], document["generation"], document["healthy"]) == ("master-of-names", 3, 2)
    assert document["nodes"][0] == {
        "host": "deeplearning-worker1",
        "instance_id": "i-00000000000000000",
        "address": "10.0.0.9",
        "verdict": "healthy",
        "generation": 3,
        "findings": [
            *(asdict(finding) for finding in FIT),
            {"name": "clock", "ok": True, "detail": "at most 30 s off", "remedy": ""},
        ],
    }


def test_texts_of_nodes_cannot_control_the_terminal(lab, node, capsys):
    write_membership(node, 1)
    answer_over_ssh(lab, (3, (Finding("disk\x1b[2J", ok=False, detail="\x1b]0;owned\x07\r\n", remedy="\x9b31m"),)))
    run(node, "health")
    assert all(letter.isprintable() or letter == "\n" for letter in capsys.readouterr().out)


def refusal(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    return captured.err


def test_a_worker_sends_the_user_to_the_master(lab, capsys):
    node = lab.node(1)
    install_command(node)
    assert run(node, "health") == 2
    assert refusal(capsys) == (
        "deeplearning health: the node must be the master, got a worker; log in to deeplearning-master\n"
    )


def test_before_the_node_is_prepared_or_the_cluster_formed_that_is_what_it_says(node, capsys):
    assert run(node, "health") == 2
    assert "the cluster has not formed yet: " in refusal(capsys)
    node.path("/opt/deeplearning/membership.json").write_text("{torn")
    assert run(node, "health") == 2
    assert "the cluster has not formed yet" in refusal(capsys)
    node.path("/opt/deeplearning/node.json").unlink()
    for arguments in (["health"], ["health", "--self"]):
        assert run(node, *arguments) == 2
        refused = refusal(capsys)
        assert "the agent has not prepared this node yet, or this machine is no node of a cluster" in refused
        assert "Errno" not in refused


def test_a_user_other_than_the_login_user_or_root_is_refused(node, capsys, monkeypatch):
    write_membership(node, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 54321)
        assert run(node, "health") == 2
    assert f"the user must be {node.settings.login_user} or root; " in refusal(capsys)
    path = node.path("/opt/deeplearning/node.json")
    path.write_text(path.read_text().replace(node.settings.login_user, "nobody-of-that-name"))
    assert run(node, "health") == 2
    assert "nobody-of-that-name" in refusal(capsys)
