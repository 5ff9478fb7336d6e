"""Files of the contract on a master without an accelerator, which leads and does not train."""

import json
import subprocess
from dataclasses import replace

import pytest

from deeplearning_agent.boot.steps import install_membership
from deeplearning_agent.membership.host_files import hosts_lines
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.document import read_record
from deeplearning_contract.membership import Member, named_members, training_members, worker_gpu_count
from deeplearning_contract.setting_parts import JobNeeds
from deeplearning_node.ssh import known_hosts_lines

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey"
HEAD = Member("i-00000000000000000", "10.0.0.9", 0, f"{KEY}0", trains=False)
WORKERS = tuple(Member(f"i-{rank:017x}", f"10.0.0.{9 + rank}", 8, f"{KEY}{rank}") for rank in (1, 2, 3))


@pytest.fixture
def node(lab):
    return lab.node(0)


def _install(node, *workers):
    roster = (HEAD, *workers)
    ids = tuple(member.instance_id for member in roster)
    state = ClusterState(node.settings.cluster, 2, 1, Phase.PUBLISHED, 4, ids, members=roster, user_key=f"{KEY}U")
    install_membership(node, state, HEAD)
    return state


def _bash(lab, script):
    """Run a loop of the predecessor's with the variables and the files of the node."""
    profile = lab.node(0).path("/etc/profile.d/deeplearning.sh")
    text = profile.read_text().replace("/opt/deeplearning", str(lab.node(0).path("/opt/deeplearning")))
    done = subprocess.run(["bash", "-c", f"{text}\n{script}"], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_the_first_worker_has_the_first_rank_and_its_name():
    assert hosts_lines((HEAD, *WORKERS)) == [
        "10.0.0.9 deeplearning-master i-00000000000000000",
        "10.0.0.10 deeplearning-worker1 i-00000000000000001",
        "10.0.0.11 deeplearning-worker2 i-00000000000000002",
        "10.0.0.12 deeplearning-worker3 i-00000000000000003",
    ]
    first, second, *_ = known_hosts_lines((HEAD, *WORKERS))
    assert first == f"deeplearning-master,i-00000000000000000,10.0.0.9 {KEY}0"
    assert second == f"deeplearning-worker1,i-00000000000000001,10.0.0.10 {KEY}1"


def test_the_files_list_those_that_train(lab, node):
    _install(node, *WORKERS)
    names = ["deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3"]
    assert lab.read(0, "/opt/deeplearning/workers").splitlines() == names
    assert lab.read(0, "/opt/deeplearning/hostfile").splitlines() == [f"{name} slots=8" for name in names]
    assert lab.read(0, "/opt/deeplearning/worker_addresses").split() == ["10.0.0.10", "10.0.0.11", "10.0.0.12"]
    document = json.loads(lab.read(0, "/opt/deeplearning/membership.json"))
    assert [member["host"] for member in document["members"]] == ["deeplearning-master", *names]
    assert [member.get("trains") for member in document["members"]] == [False, True, True, True]
    assert document["rendezvous"] == "10.0.0.10:29400"


def test_the_predecessors_loops_and_slots_reach_the_training_nodes(lab, node):
    _install(node, *WORKERS)
    counted = _bash(lab, 'for i in $(seq 1 "$DEEPLEARNING_WORKERS_COUNT"); do echo deeplearning-worker$i; done')
    read = _bash(lab, 'while read -u 10 host; do echo $host; done 10<"$DEEPLEARNING_WORKERS_PATH"')
    names = {name: member for name, member in named_members((HEAD, *WORKERS)) if member.trains}
    assert counted == read == list(names)
    assert _bash(lab, "echo $((DEEPLEARNING_WORKERS_COUNT * DEEPLEARNING_WORKER_GPU_COUNT))") == ["24"]


def test_a_master_alone_has_no_workers_and_loops_do_nothing(lab, node):
    _install(node)
    assert lab.read(0, "/opt/deeplearning/workers") == lab.read(0, "/opt/deeplearning/hostfile") == ""
    assert _bash(lab, 'for i in $(seq 1 "$DEEPLEARNING_WORKERS_COUNT"); do echo $i; done') == []
    assert "DEEPLEARNING_WORKER_GPU_COUNT=0" in lab.read(0, "/opt/deeplearning/environment")


def test_a_worker_cannot_leave_the_ranks_by_its_own_word():
    """Names stay dense: a report that says otherwise changes nothing for the others."""
    liar = replace(WORKERS[0], trains=False)
    assert training_members((HEAD, liar, WORKERS[1])) == (liar, WORKERS[1])
    assert [name for name, _ in named_members((WORKERS[2], liar))] == ["deeplearning-worker1", "deeplearning-worker2"]


def test_a_node_that_trains_counts_its_own_gpus():
    smaller = replace(WORKERS[2], gpu_count=4)
    assert worker_gpu_count((HEAD, *WORKERS), smaller) == 4
    assert worker_gpu_count((HEAD, *WORKERS), HEAD) == 8


def test_a_document_contains_whether_the_node_trains():
    assert Member.from_document(WORKERS[0].to_document()) == WORKERS[0]
    assert Member.from_document(HEAD.to_document()) == HEAD
    assert read_record(JobNeeds, {}, "needs").has_head_node is False
