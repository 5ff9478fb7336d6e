"""`deeplearning check` on a node: every promise of the contract, seen to hold and seen to break."""

import json
import os
import shutil
import subprocess

import pytest

from deeplearning_agent.boot.steps import install_command
from deeplearning_agent.membership.host_files import write_host_files
from deeplearning_command.check.contract import SSH_LOOP
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_node.contract_variables import contract_variables, write_environment
from deeplearning_node.ssh import write_known_hosts
from tests.unit.deeplearning_command.master_node import KEY, run

WAYS = ("environment file", "login shell", "interactive shell", "sudo -E", "systemd unit", "mpirun -x")
NAMES = ["membership", *WAYS, "ssh host cmd", "files agree", "names resolve", "host keys", "hosts loop"]
NAMES += ["shared file system", "discover_hosts"]
START = 'exec env -i PATH="$FAKES" FAKES="$FAKES" $(cat "$FAKES/{file}") sh -c "$text"'
PROGRAMS = {
    # A shell has what its own file says, and nothing of its caller's.
    "bash": f"""
        for text; do :; done
        case "$1" in -l) {START.format(file="login")} ;; -i) {START.format(file="inter")} ;; esac""",
    "sudo": f'for text; do :; done\ncase "$2" in -E) {START.format(file="kept")} ;; esac\nshift; exec "$@"',
    "mpirun": f'for text; do :; done\n[ "$*" != "${{*#* -x }}" ] && {START.format(file="login")}',
    "systemctl": """
        [ "$1" = start ] || exit 0
        begin=$(sed -n 's/^ExecStart=//p' "$FAKES/../node0/run/systemd/system/$2")
        eval "exec env -i PATH=$FAKES $(echo $(cat "$FAKES/manager")) ${begin#/bin/}"
        """,
    "getent": 'sed -n "s/^\\([0-9.]*\\) .*\\b$2\\b.*/\\1 STREAM/p" "$FAKES/../node0/etc/hosts" | grep .',
    "hostname": "echo ip-10-0-0-9",
    "ssh": """
        case "$1" in -G) echo "stricthostkeychecking $(cat "$FAKES/strict")"; exit ;; esac
        for text; do address=$before; before=$text; done
        case "$text" in hostname) echo ip-of-$address; exit ;; esac
        exec env -i PATH="$FAKES" $(cat "$FAKES/at-$address") sh -c "$text"
        """,
    "runuser": 'shift 3; exec "$@"',
}


def members(count):
    return tuple(Member(f"i-{index:017x}", f"10.0.0.{9 + index}", 2 + index, f"{KEY}{index}") for index in range(count))


def prepare(lab, index, node):
    """Let the agent's own code write what a member has, and let programs obey it as real ones do."""
    ids = tuple(member.instance_id for member in members(2))
    state = ClusterState("master-of-names", 7, 3, Phase.FORMED, 2, ids, members=members(2))
    install_command(node)
    write_host_files(node, state)
    write_environment(node, contract_variables(node, 2, 2 + index))
    write_known_hosts(node, state.members)
    ready = node.path("/opt/deeplearning/ready_hosts")
    ready.write_text("".join(f"{member.instance_id}:{member.slots}\n" for member in state.members))
    node.path("/opt/deeplearning/discover_hosts").write_text(f"#!/bin/sh\ncat {ready}\n")
    node.path("/mnt/efs").mkdir()
    node.path("/mnt/efs/.mounted").touch()
    for name, body in PROGRAMS.items():
        lab.program(index, name, body)
    fakes = lab.directory / f"programs{index}"
    for name in ("printenv", "mktemp", "rm", "wc"):
        (fakes / name).symlink_to(shutil.which(name))
    bash = fakes / "bash"
    real = shutil.which("bash")
    bash.write_text(bash.read_text().replace('sh -c "$text"', f'{real} -c "$text"'))
    variables = node.path("/opt/deeplearning/environment").read_text()
    workers = node.path("/opt/deeplearning/workers")
    variables = variables.replace("=/opt/deeplearning/workers\n", f"={workers}\n")
    for name in ("login", "inter", "kept", "manager"):
        (fakes / name).write_text(variables)
    for rank, member in enumerate(members(2)):
        (fakes / f"at-{member.address}").write_text(variables.replace("GPU_COUNT=2", f"GPU_COUNT={2 + rank}"))
    (fakes / "strict").write_text("ask\n")
    return fakes


@pytest.fixture
def fakes(lab, node, monkeypatch):
    """The folder of a formed master's programs."""
    monkeypatch.setattr(
        "deeplearning_node.contract_variables.WORKERS_FILE", str(node.path("/opt/deeplearning/workers"))
    )
    found = prepare(lab, 0, node)
    node.path("/opt/deeplearning/environment").write_text((found / "login").read_text())
    return found


def look(node, capsys, *options):
    """Return the status, and the checks by their names."""
    status = run(node, "check", "--json", *options)
    return status, {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}


def test_a_node_that_keeps_the_contract_passes_every_check(node, fakes, capsys):
    status, checks = look(node, capsys)
    assert {name: check["detail"] for name, check in checks.items() if check["state"] != "ok"} == {}
    assert list(checks) == NAMES
    assert status == 0
    assert checks["ssh host cmd"]["detail"] == "the variables are correct on 2 of 2 hosts"
    assert checks["hosts loop"]["detail"] == "`ssh $host hostname` prints 2 names"


def drop(path, text):
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if text not in line))


def write_program(path, body):
    path.unlink()
    path.write_text(f"#!/bin/sh\n{body}")
    path.chmod(0o755)


FRAME = "-" * 74
COUNT, GPUS = "DEEPLEARNING_WORKERS_COUNT", "DEEPLEARNING_WORKER_GPU_COUNT"
PLANTS = {
    "environment file": (lambda n, _: drop(n.path("/opt/deeplearning/environment"), COUNT), f"{COUNT} is unset"),
    "login shell": (lambda _, f: drop(f / "login", "EFS_MOUNT"), "EFS_MOUNT is unset, expected /mnt/efs"),
    "interactive shell": (lambda _, f: drop(f / "inter", GPUS), f"{GPUS} is unset, expected 2"),
    "sudo -E": (lambda _, f: (f / "kept").write_text(""), f"{COUNT} is unset, expected 2"),
    "systemd unit": (lambda _, f: drop(f / "manager", GPUS), f"{GPUS} is unset, expected 2"),
    "mpirun -x": (
        # Open MPI frames its errors with 74 dashes.
        lambda _, f: (f / "mpirun").write_text(f"#!/bin/sh\nprintf '%s\\n' {FRAME} 'no slots' {FRAME}; exit 1"),
        "no slots",
    ),
    "ssh host cmd": (
        lambda _, f: drop(f / "at-10.0.0.10", GPUS),
        f"deeplearning-worker2: {GPUS} is unset, expected 3",
    ),
    "files agree": (
        lambda n, _: n.path("/opt/deeplearning/hostfile").write_text("deeplearning-worker1 slots=2\n"),
        "/opt/deeplearning/hostfile must list the 2 nodes of generation 3",
    ),
    "names resolve": (
        lambda n, _: drop(n.path("/etc/hosts"), "10.0.0.10"),
        "deeplearning-worker2 is unknown, expected 10.0.0.10",
    ),
    "host keys": (
        lambda n, _: drop(n.path("/etc/ssh/ssh_known_hosts"), "10.0.0.10"),
        "/etc/ssh/ssh_known_hosts must contain the key of deeplearning-worker2",
    ),
    **{
        f"host keys: {word}": (
            lambda _, f, word=word: (f / "strict").write_text(f"{word}\n"),
            f"its StrictHostKeyChecking is {word}",
        )
        for word in ("no", "off", "false")
    },
    "hosts loop": (lambda _, f: (f / "ssh").write_text("#!/bin/sh\nexit 1"), "must print 2 lines, got 0"),
    "shared file system": (lambda n, _: n.path("/mnt/efs/.mounted").unlink(), "mountpoint -q"),
    "shared file system: mode": (
        lambda _, f: write_program(f / "mktemp", "echo mktemp: Permission denied >&2; exit 1"),
        "mktemp: Permission denied",
    ),
    "discover_hosts": (
        lambda n, _: n.path("/opt/deeplearning/ready_hosts").write_text("i-00000000000000000:8\n"),
        "must print <instance id>:<slots> of members, got 'i-00000000000000000:8'",
    ),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_a_broken_promise_is_found_where_it_is_and_has_a_remedy(node, fakes, capsys, plant):
    break_it, detail = PLANTS[plant]
    break_it(node, fakes)
    status, checks = look(node, capsys)
    found = checks[plant.partition(":")[0]]
    assert (status, found["state"]) == (1, "fault")
    assert detail in found["detail"]
    assert found["remedy"]


def test_every_check_has_been_seen_to_fail():
    assert set(NAMES) - {"membership"} == {plant.partition(":")[0] for plant in PLANTS}


def test_without_mpirun_nothing_is_wrong(node, fakes, capsys):
    (fakes / "mpirun").unlink()
    status, checks = look(node, capsys)
    assert (status, checks["mpirun -x"]["state"]) == (0, "absent")
    assert checks["mpirun -x"]["detail"] == "mpirun is not installed"


def test_a_line_for_each_check_says_the_remedy_of_what_is_wrong(node, fakes, capsys):
    drop(fakes / "inter", GPUS)
    assert run(node, "check") == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines[1:]].count("ok") == len(NAMES) - 1
    [fault] = [line for line in lines if line.startswith("FAULT")]
    assert f"interactive shell   {GPUS} is unset, expected 2; read the agent's log" in fault
    assert lines[-1] == f"{len(NAMES) - 1} passed, 0 absent, 1 failed"


def test_nothing_is_left_on_the_node(lab, node, fakes, capsys):
    before = lab.digests(0)
    look(node, capsys)
    assert lab.digests(0) == before
    assert list(node.path("/run/systemd/system").iterdir()) == []


def test_the_caller_proves_nothing_by_its_own_variables(node, fakes, capsys, monkeypatch):
    """A shell that already has them would hide that no file sets them."""
    monkeypatch.setenv(COUNT, "2")
    real = shutil.which("bash")
    (fakes / "bash").write_text(f'#!/bin/sh\nfor text; do :; done\nexec {real} -c "$text"\n')
    _, checks = look(node, capsys)
    assert f"{COUNT} is unset" in checks["login shell"]["detail"]


def test_a_worker_tries_all_but_the_way_to_the_others(lab, capsys, monkeypatch):
    node = lab.node(1)
    workers = str(node.path("/opt/deeplearning/workers"))
    monkeypatch.setattr("deeplearning_node.contract_variables.WORKERS_FILE", workers)
    fakes = prepare(lab, 1, node)
    for name in ("getent", "systemctl"):
        (fakes / name).write_text((fakes / name).read_text().replace("node0", "node1"))
    node.path("/opt/deeplearning/environment").write_text((fakes / "login").read_text())
    (fakes / "ssh").write_text('#!/bin/sh\n[ "$1" = -G ] && echo "stricthostkeychecking true" || exit 1\n')
    status, checks = look(node, capsys)
    assert {name: check["detail"] for name, check in checks.items() if check["state"] == "fault"} == {}
    assert status == 0
    assert checks["ssh host cmd"]["state"] == "absent"
    assert checks["hosts loop"]["detail"] == "it reads 2 hosts; only the master can log in to them"


def test_a_node_that_is_no_member_says_so_and_a_machine_that_is_no_node_is_sent_to_the_other_check(node, capsys):
    status, checks = look(node, capsys)
    assert (status, list(checks)) == (1, ["membership"])
    assert checks["membership"]["detail"] == "none is installed yet"
    node.path("/opt/deeplearning/node.json").unlink()
    assert run(node, "check") == 2
    assert "to check an image, add --image" in capsys.readouterr().err


def test_another_user_is_refused(node, fakes, capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    assert run(node, "check") == 2
    assert "run: sudo deeplearning check" in capsys.readouterr().err


def test_the_seeds_loop_is_what_a_shell_runs():
    assert SSH_LOOP == (
        'while read -u 10 host; do ssh -o "StrictHostKeyChecking no" $host hostname; done 10<$DEEPLEARNING_WORKERS_PATH'
    )
    assert subprocess.run(["bash", "-n", "-c", SSH_LOOP], check=False).returncode == 0
