"""The program as EMR starts it: the bootstrap action's preparation, and the step that waits for the cluster."""

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timezone

import pytest

from deeplearning_command.context import Context
from deeplearning_contract.names import NodeRole
from deeplearning_member.emr.entry import main, open_node, prepare
from deeplearning_member.emr.job_flow import JobFlow
from deeplearning_node.failure import StageFailure
from deeplearning_node.ssh import read_host_key
from tests.real_time import GENEROUS_SECONDS
from tests.unit.node_lab import Stopped, StoppingClock

IMDS_INSTANCE = "i-0123456789abcdef0"


@pytest.fixture
def node(cluster):
    """The primary node before its bootstrap action."""
    return cluster.node(0)


@pytest.fixture
def as_program(cluster, imds, monkeypatch):
    """Return the function that makes `main` run on a node, with the settings that the construct writes."""
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.url)

    def make(index, **changes):
        node = cluster.node(index)
        settings = cluster.lab.settings(NodeRole.WORKER, state_table="", report_queue_url="", **changes)
        path = node.path("/opt/deeplearning/settings.json")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings.to_document()))
        monkeypatch.setenv("PATH", f"{node.programs.search_path}:{os.environ['PATH']}")
        return node

    return make


# --- EMR's description ------------------------------------------------------------------------------


def test_role_and_number_of_nodes_are_those_of_emr(cluster):
    primary, core = (JobFlow.read(cluster.node(index).root) for index in (0, 1))
    assert (primary.role, primary.node_count, primary.cluster_id) == (NodeRole.MASTER, 3, "j-2AXXXXXXGAPLF")
    assert core.role is NodeRole.WORKER


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("instance.json", None, "No such file"),
        ("instance.json", '{"isMaster": "true"}', "instance.json.isMaster must be of type bool"),
        ("job-flow.json", "{torn", "job-flow.json must be JSON"),
        ("job-flow.json", '{"jobFlowId": "j-1"}', "job-flow.json.instanceGroups must be of type list"),
        ("job-flow.json", '{"jobFlowId": "j-1", "instanceGroups": [3]}', "group must be of type dict"),
    ],
)
def test_an_instance_that_emr_has_not_described_is_refused(node, name, text, said):
    path = node.path(f"/mnt/var/lib/info/{name}")
    path.unlink()
    if text is not None:
        path.write_text(text)
    with pytest.raises(StageFailure, match=said):
        JobFlow.read(node.root)


# --- Preparation ------------------------------------------------------------------------------------


def test_prepares_the_node_as_the_agent_does_and_starts_the_service(cluster, node):
    assert prepare(node, JobFlow.read(node.root)) == 0
    unit = cluster.lab.read(0, "/etc/systemd/system/deeplearning-member.service")
    assert f"ExecStart={sys.executable} -m deeplearning_member serve\n" in unit
    assert "Alias=deeplearning-agent.service\n" in unit
    calls = (cluster.lab.directory / "programs0/systemctl.calls").read_text().splitlines()
    assert calls[-3:] == ["daemon-reload", *(f"{verb} deeplearning-member.service" for verb in ("enable", "restart"))]
    member = json.loads(node.instance_file("member.json").read_text())
    assert (member["instance_id"], member["gpu_count"]) == (node.identity.instance_id, 2)
    assert " nfs4 nfsvers=4.1,_netdev,nofail 0 0\n" in cluster.lab.read(0, "/etc/fstab")


def test_preparing_twice_leaves_identical_files(cluster, node):
    prepare(node, JobFlow.read(node.root))
    before = cluster.lab.digests(0)
    prepare(node, JobFlow.read(node.root))
    assert cluster.lab.digests(0) == before


@pytest.mark.parametrize(("index", "seconds", "has_timer"), [(0, 3600, True), (0, 0, False), (1, 3600, False)])
def test_the_primary_node_of_a_cluster_with_a_deadline_has_a_timer_that_powers_it_off(
    cluster, index, seconds, has_timer
):
    node = cluster.node(index, stop_after_seconds=seconds)
    before = datetime.now(timezone.utc).replace(microsecond=0)
    prepare(node, JobFlow.read(node.root))
    timer = node.path("/etc/systemd/system/deeplearning-deadline.timer")
    assert timer.exists() is has_timer
    if has_timer:
        (moment,) = re.findall(r"(?m)^OnCalendar=(.*) UTC$", timer.read_text())
        left = datetime.fromisoformat(f"{moment}+00:00") - before
        assert 3600 <= left.total_seconds() <= 3600 + GENEROUS_SECONDS
        service = cluster.lab.read(index, "/etc/systemd/system/deeplearning-deadline.service")
        assert "\nExecStart=/usr/bin/env systemctl poweroff\n" in service
        assert node.settings.stop_after_seconds == seconds


def test_the_primary_node_is_the_master_for_the_users_command(cluster):
    for index in range(2):
        prepare(cluster.node(index), JobFlow.read(cluster.node(index).root))
    cluster.form(0, 1)
    remote = Context(cluster.node(0).root, cluster.node(0).programs).open_remote()
    assert [host for host, _ in remote.membership.hosts] == ["deeplearning-worker1", "deeplearning-worker2"]


def test_a_failure_is_the_last_line_with_its_remedy(cluster, as_program, capsys):
    as_program(0, setup_seconds=3)
    cluster.lab.program(0, "mountpoint", "false")
    cluster.lab.program(0, "mount", 'echo "mount.nfs4: Connection timed out" >&2; exit 32')
    assert main(["prepare"], cluster.node(0).root) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("deeplearning-member: ")
    assert " failed to mount the file system: fs-0123.efs.eu-west-1.amazonaws.com:/ could not be mounted" in last
    assert "port 2049" in last
    assert last.endswith("last lines: mount.nfs4: Connection timed out")
    assert not cluster.node(0).path("/etc/systemd/system/deeplearning-member.service").exists()


def test_an_error_that_nobody_foresaw_is_the_last_line_too(cluster, as_program, capsys, monkeypatch):
    as_program(0)
    monkeypatch.setattr("deeplearning_member.emr.entry.prepare_node", lambda *_: 1 // 0)
    assert main(["prepare"], cluster.node(0).root) == 1
    assert "failed to prepare: ZeroDivisionError: " in capsys.readouterr().err.splitlines()[-1]


def test_a_machine_outside_emr_or_a_node_that_was_not_prepared_is_refused_with_the_remedy(
    cluster, node, as_program, tmp_path, capsys
):
    def refuse(command, root):
        assert main([command], root) == 1
        return capsys.readouterr().err

    assert "failed to read the job flow: EMR's description of the cluster could not be read" in refuse(
        "prepare", tmp_path
    )
    said = refuse("wait", node.root)
    assert "settings.json" in said
    assert "run the command as root, after the bootstrap action" in said
    assert "run deeplearning-member prepare" in refuse("serve", as_program(0).root)
    other = as_program(1, setup_seconds=0).root
    assert "wait must run on the primary node, got worker " in refuse("wait", other)


@pytest.mark.parametrize("arguments", [[], ["serve", "now"], ["--check"]])
def test_other_arguments_are_refused(tmp_path, capsys, arguments):
    assert main(arguments, tmp_path) == 2
    assert "the argument must be one of prepare, serve, wait, got " in capsys.readouterr().err


def test_the_command_runs_the_program_from_the_agents_folder(cluster, node, agent_folder):
    prepare(node, JobFlow.read(node.root))
    path = node.path("/usr/local/bin/deeplearning-member")
    assert path.stat().st_mode & 0o777 == 0o755
    text = path.read_text().replace("/opt/deeplearning/agent", str(agent_folder))
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, check=False, cwd="/")
    assert (done.returncode, done.stdout) == (2, "")
    assert "must be one of prepare, serve, wait" in done.stderr


# --- The service and the step -----------------------------------------------------------------------


def test_a_prepared_primary_node_serves_a_membership_of_its_own_at_once(cluster, as_program, monkeypatch):
    root = as_program(0).root
    cluster.lab.program(0, "ssh-keyscan", 'cat "$FAKES/../node0/etc/ssh/ssh_host_ed25519_key.public"')
    public = read_host_key(cluster.node(0))
    cluster.node(0).path("/etc/ssh/ssh_host_ed25519_key.public").write_text(public)
    assert main(["prepare"], root) == 0
    monkeypatch.setattr("deeplearning_member.emr.entry.Clock", StoppingClock)
    with pytest.raises(Stopped):
        main(["serve"], root)
    membership = json.loads((cluster.folder / "membership.json").read_text())
    assert [(each["instance_id"], each["host_key"]) for each in membership["members"]] == [(IMDS_INSTANCE, public)]
    assert json.loads(cluster.lab.read(0, "/opt/deeplearning/membership.json"))["generation"] == 1


def test_the_settings_role_is_replaced_by_that_of_emr(cluster, as_program):
    for index, role in enumerate((NodeRole.MASTER, NodeRole.WORKER)):
        root = as_program(index).root
        node = open_node(root, JobFlow.read(root))
        assert (node.settings.role, node.identity.instance_id) == (role, IMDS_INSTANCE)


def test_the_step_ends_with_0_when_all_have_installed_the_membership(cluster, as_program, capsys):
    root = as_program(0, setup_seconds=0).root
    cluster.form(0, 1)
    assert main(["wait"], root) == 1
    assert capsys.readouterr().err.startswith("deeplearning-member: 2 of 3 nodes have installed the membership; 1 of")
    cluster.form(2)
    assert main(["wait"], root) == 0
