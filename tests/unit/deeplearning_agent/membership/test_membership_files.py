"""Files that a membership is written to."""

import json
import os
import re
import subprocess
from dataclasses import replace

import pytest

from deeplearning_agent.boot.steps import install_membership
from deeplearning_agent.membership.host_files import (
    DISCOVER_SCRIPT,
    hosts_lines,
    membership_text,
    write_host_files,
    write_ready_hosts,
)
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.document import ContractError, read_record
from deeplearning_contract.membership import Member, named_members, training_members, worker_gpu_count
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_node.atomic_file import BEGIN, END, replace_block, write_block, write_file
from deeplearning_node.contract_variables import contract_variables, write_environment
from deeplearning_node.failure import StageFailure
from deeplearning_node.node_facts import installed_generation
from deeplearning_node.ssh import known_hosts_lines
from tests.unit.node_lab import check_variables

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey"


def members(*gpu_counts):
    return tuple(
        Member(f"i-{index:017x}", f"10.0.0.{9 + index}", count, f"{KEY}{index}")
        for index, count in enumerate(gpu_counts)
    )


@pytest.fixture
def node(lab):
    return lab.node(0)


def publish(node, roster):
    """Return the state record in which these members are published."""
    ids = tuple(member.instance_id for member in roster)
    return ClusterState(node.settings.cluster, 2, 1, Phase.PUBLISHED, len(ids), ids, members=roster, user_key=f"{KEY}U")


@pytest.fixture
def state(node):
    return publish(node, members(2, 1, 0))


HEAD = replace(members(0)[0], trains=False)
"""A master without an accelerator, which leads and does not train."""
LED = (HEAD, *members(8, 8, 8, 8)[1:])


@pytest.mark.defect("D37")
@pytest.mark.parametrize(
    ("roster", "names"),
    [
        (
            members(0, 0, 0),
            ["deeplearning-worker1 deeplearning-master", "deeplearning-worker2", "deeplearning-worker3"],
        ),
        (LED, ["deeplearning-master", *(f"deeplearning-worker{rank}" for rank in (1, 2, 3))]),
    ],
    ids=["the master trains and has rank 0", "the master leads and the first worker has rank 0"],
)
def test_known_hosts_name_every_node_by_names_and_address(roster, names):
    found = [(name, m.instance_id, m.address, m.host_key) for name, m in zip(names, roster, strict=True)]
    assert hosts_lines(roster) == [f"{address} {name} {own}" for name, own, address, _ in found]
    assert known_hosts_lines(roster) == [
        f"{name.replace(' ', ',')},{own},{address} {key}" for name, own, address, key in found
    ]


@pytest.mark.fault(58)
@pytest.mark.defect("D35")
def test_slots_are_each_nodes_own_count_and_one_without_gpus(lab, node, state):
    write_host_files(node, state)
    assert lab.read(0, "/opt/deeplearning/hostfile").splitlines() == [
        "deeplearning-worker1 slots=2",
        "deeplearning-worker2 slots=1",
        "deeplearning-worker3 slots=1",
    ]


def test_discover_hosts_prints_names_that_mean_one_machine_for_ever(lab, node, state):
    write_host_files(node, state)
    write_ready_hosts(node, state.members[:2])
    script = lab.read(0, "/opt/deeplearning/discover_hosts")
    assert node.path("/opt/deeplearning/discover_hosts").stat().st_mode & 0o777 == 0o755
    ready = str(node.path("/opt/deeplearning/ready_hosts"))
    done = subprocess.run(
        ["/bin/sh", "-c", script.replace("/opt/deeplearning/ready_hosts", ready)], capture_output=True, check=True
    )
    assert done.stdout == b"i-00000000000000000:2\ni-00000000000000001:1\n"
    assert script == DISCOVER_SCRIPT


@pytest.mark.parametrize(
    ("index", "ready"), [(0, []), (1, [f"i-{number:017x}:{slots}\n" for number, slots in enumerate((2, 1, 1))])]
)
def test_all_members_are_hosts_and_a_worker_takes_them_all_as_ready(lab, state, index, ready):
    node = lab.node(index)
    write_host_files(node, state)
    block = lab.read(index, "/etc/hosts").partition(f"{BEGIN}\n")[2].partition(f"{END}\n")[0]
    assert block.splitlines() == hosts_lines(state.members)
    found = node.path("/opt/deeplearning/ready_hosts")
    assert (found.read_text() if found.exists() else "") == "".join(ready)


def test_a_membership_has_one_text_that_people_can_read(state):
    text = membership_text(state)
    assert text == json.dumps(json.loads(text), indent=2, sort_keys=True) + "\n"


@pytest.mark.fault(56)
def test_an_address_that_was_another_nodes_has_only_its_new_key(lab, node, state):
    install_membership(node, state, members(2)[0])
    moved = replace(state.members[1], host_key=f"{KEY}New")
    install_membership(node, replace(state, generation=2, members=(state.members[0], moved)), members(2)[0])
    known = lab.read(0, "/etc/ssh/ssh_known_hosts")
    assert f"{KEY}New" in known
    assert f"{KEY}1" not in known
    assert "10.0.0.11" not in lab.read(0, "/etc/hosts")


def test_other_lines_of_shared_files_stay(lab, node, state):
    install_membership(node, state, members(2)[0])
    assert lab.read(0, "/etc/hosts").startswith("127.0.0.1 localhost\n")
    ssh = node.path(f"{node.login_user().home}/.ssh/authorized_keys")
    ssh.write_text(f"ssh-rsa users-own-key\n{ssh.read_text()}")
    install_membership(node, replace(state, generation=2), members(2)[0])
    assert ssh.read_text().startswith("ssh-rsa users-own-key\n")
    assert ssh.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "changes",
    [
        {"address": "10.0.0.1\n6.6.6.6 deeplearning-master"},
        {"address": "10.0.0.1 evil"},
        {"host_key": f"{KEY}\n* ssh-rsa AAAA"},
        {"instance_id": "i-0\n"},
    ],
)
def test_a_member_cannot_carry_a_second_line(changes):
    with pytest.raises(ContractError):
        replace(members(0)[0], **changes)


def test_a_user_key_with_options_or_lines_is_refused(lab, node, state):
    for key in (f'command="id" {KEY}', f"{KEY}\n{KEY}", ""):
        with pytest.raises(StageFailure, match="user_key must be an SSH public key"):
            install_membership(node, replace(state, user_key=key), members(2)[0])


@pytest.mark.defect("D36")
def test_variables_are_everywhere_that_a_script_may_start_from(lab, node):
    variables = contract_variables(node, 4, 2)
    write_environment(node, variables)
    check_variables(node, count=4, gpu_count=2)


def test_systemd_is_reexecuted_only_when_its_variables_changed(lab, node):
    for count in (4, 4, 3):
        write_environment(node, contract_variables(node, count, 2))
    assert (lab.directory / "programs0/systemctl.calls").read_text() == "daemon-reexec\n" * 2


def test_without_systemd_no_file_of_it_is_written_and_no_program_of_it_runs(lab, node):
    node.path("/run/systemd/system").rmdir()
    write_environment(node, contract_variables(node, 4, 2))
    assert not node.path("/etc/systemd/system.conf.d/deeplearning.conf").exists()
    assert lab.calls_of("systemctl") == []


def test_a_sudoers_file_that_visudo_refuses_is_never_installed(lab, node):
    lab.program(0, "visudo", "echo syntax error >&2; exit 1")
    with pytest.raises(Exception, match="visudo"):
        write_environment(node, contract_variables(node, 4, 2))
    assert not node.path("/etc/sudoers.d/deeplearning").exists()


def test_a_shell_reads_the_variables_back(lab, node):
    write_environment(node, contract_variables(node, 4, 2))
    script = f". {node.path('/etc/profile.d/deeplearning.sh')}; echo $DEEPLEARNING_WORKERS_COUNT $EFS_MOUNT"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, check=True, env={})
    assert done.stdout == b"4 /mnt/efs\n"


def test_a_membership_that_the_image_brought_along_counts_as_none(lab, node, state):
    write_host_files(node, state)
    assert installed_generation(node) == 1
    assert installed_generation(replace(node, identity=lab.node(7).identity)) == 0
    node.path("/opt/deeplearning/membership.json").write_text("{torn")
    assert installed_generation(node) == 0


# --- A master that leads and does not train -----------------------------------------------------------


def run_bash(lab, script):
    """Run a loop of the predecessor's with the variables and the files of the node."""
    profile = lab.node(0).path("/etc/profile.d/deeplearning.sh")
    text = profile.read_text().replace("/opt/deeplearning", str(lab.node(0).path("/opt/deeplearning")))
    done = subprocess.run(["bash", "-c", f"{text}\n{script}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_files_list_those_that_train(lab, node):
    install_membership(node, publish(node, LED), HEAD)
    names = ["deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3"]
    assert lab.read(0, "/opt/deeplearning/workers").splitlines() == names
    assert lab.read(0, "/opt/deeplearning/hostfile").splitlines() == [f"{name} slots=8" for name in names]
    assert lab.read(0, "/opt/deeplearning/worker_addresses").split() == ["10.0.0.10", "10.0.0.11", "10.0.0.12"]
    document = json.loads(lab.read(0, "/opt/deeplearning/membership.json"))
    assert [member["host"] for member in document["members"]] == ["deeplearning-master", *names]
    assert [member.get("trains") for member in document["members"]] == [False, True, True, True]
    assert document["rendezvous"] == "10.0.0.10:29400"


def test_the_predecessors_loops_and_slots_reach_the_training_nodes(lab, node):
    install_membership(node, publish(node, LED), HEAD)
    counted = run_bash(lab, 'for i in $(seq 1 "$DEEPLEARNING_WORKERS_COUNT"); do echo deeplearning-worker$i; done')
    read = run_bash(lab, 'while read -u 10 host; do echo $host; done 10<"$DEEPLEARNING_WORKERS_PATH"')
    names = {name: member for name, member in named_members(LED) if member.trains}
    assert counted == read == list(names)
    assert run_bash(lab, "echo $((DEEPLEARNING_WORKERS_COUNT * DEEPLEARNING_WORKER_GPU_COUNT))") == ["24"]


def test_a_master_alone_has_no_workers_and_loops_do_nothing(lab, node):
    install_membership(node, publish(node, (HEAD,)), HEAD)
    assert lab.read(0, "/opt/deeplearning/workers") == lab.read(0, "/opt/deeplearning/hostfile") == ""
    assert run_bash(lab, 'for i in $(seq 1 "$DEEPLEARNING_WORKERS_COUNT"); do echo $i; done') == []
    assert "DEEPLEARNING_WORKER_GPU_COUNT=0" in lab.read(0, "/opt/deeplearning/environment")


def test_a_worker_cannot_leave_the_ranks_by_its_own_word():
    """Names stay dense: a report that says otherwise changes nothing for the others."""
    liar = replace(LED[1], trains=False)
    assert training_members((HEAD, liar, LED[2])) == (liar, LED[2])
    assert [name for name, _ in named_members((LED[3], liar))] == ["deeplearning-worker1", "deeplearning-worker2"]


def test_a_node_that_trains_counts_its_own_gpus():
    smaller = replace(LED[3], gpu_count=4)
    assert worker_gpu_count(LED, smaller) == 4
    assert worker_gpu_count(LED, HEAD) == 8


def test_a_document_contains_whether_the_node_trains():
    assert Member.from_document(LED[1].to_document()) == LED[1]
    assert Member.from_document(HEAD.to_document()) == HEAD
    assert read_record(JobNeeds, {}, "needs").has_head_node is False


# --- Writing ----------------------------------------------------------------------------------------


def test_a_block_is_replaced_where_it_stands():
    text = f"before\n{BEGIN}\nold\n{END}\nafter\n"
    assert replace_block(text, "new") == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert replace_block(text, "") == "before\nafter\n"


@pytest.mark.parametrize("text", ["", "no newline", "lines\n", f"{BEGIN}\nthe end marker is gone\n"])
@pytest.mark.defect("D32")
def test_writing_a_block_again_changes_nothing(text):
    once = replace_block(text, "a\nb\n")
    assert replace_block(once, "a\nb\n") == once
    assert len(re.findall(f"^{re.escape(END)}$", once, re.MULTILINE)) == 1


def test_bytes_of_others_that_are_not_utf_8_stay(tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(b"# caf\xe9\n")
    write_block(path, "10.0.0.1 x")
    assert path.read_bytes().startswith(b"# caf\xe9\n")


def test_a_file_is_replaced_and_never_written_over_and_not_touched_when_it_is_right(tmp_path):
    path, old = tmp_path / "file", tmp_path / "old"
    write_file(path, "before")
    os.link(path, old)
    assert write_file(path, "after")
    assert (path.read_text(), old.read_text()) == ("after", "before")
    before = path.stat()
    assert not write_file(path, "after")
    assert path.stat() == before
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "old"]
