"""The master asks all nodes over SSH, and decides whose faults are their own; `ssh` is a tiny program that answers."""

import contextlib
import threading
from dataclasses import replace

import pytest

from deeplearning_agent.membership.member_monitor import find_causes, find_fewer_gpus, find_unhealthy
from deeplearning_contract.membership import Member
from deeplearning_node.health import cluster_check as cluster_check_module
from deeplearning_node.health.cluster_check import SSH, ClusterCheck, NodeCheck
from deeplearning_node.health.findings import Finding, HealthReport
from deeplearning_node.health.gpus import ECC, GPU
from deeplearning_node.health.network import NETWORK
from deeplearning_node.health.node_check import AGENT, CLOCK, MEMBERSHIP
from deeplearning_node.health.storage import DISK, FILE_SYSTEM
from tests.real_time import GENEROUS_SECONDS

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey"
GOOD = (Finding.fit(GPU, "2 GPUs answer, 2 expected"), Finding.fit(ECC, "no faults"))
BAD = (*GOOD, Finding.fault(DISK, "/: is read-only", "free the disk"))


@pytest.fixture
def node(lab, ticking_clock):
    return lab.node(0, ticking_clock())


def member(index):
    return Member(f"i-{index:017x}", f"10.0.0.{9 + index}", 2, f"{KEY}{index}")


def members(count):
    return [member(index) for index in range(count)]


class Ssh:
    """Writes the program `ssh`, which gives each address its own answer."""

    def __init__(self, lab):
        self.folder = lab.directory / "answers"
        self.folder.mkdir()
        lab.program(
            0,
            "ssh",
            f"""echo "$@" >>"$FAKES/ssh.calls"
            for question; do address=$before; before=$question; done
            if [ -e "{self.folder}/$address" ]; then . "{self.folder}/$address"; exit; fi
            echo "connect to host $address port 22: Connection refused"; exit 255""",
        )

    def answer(self, index, findings=GOOD, at=None, instance_id=None):
        report = HealthReport(instance_id or member(index).instance_id, at or 0, 3, tuple(findings)).to_line()
        if at is None:
            report = report.replace('"at": 0', '"at": $(date +%s)')
        self.script(index, f"cat <<ANSWER\nWelcome to your node.\n{report}\nANSWER")

    def script(self, index, text):
        (self.folder / member(index).address).write_text(text)


@pytest.fixture
def ssh(lab, node):
    (lab.directory / "programs0" / "date").symlink_to("/bin/date")
    return Ssh(lab)


def make_check(node, **changes):
    return ClusterCheck(node.login_user(), node.programs, **{"is_root": False} | changes)


# --- Asking -------------------------------------------------------------------------------------------


def test_every_member_is_asked_and_answers_stand_in_the_order_of_members(node, ssh):
    for index in range(40):
        ssh.answer(index)
    ssh.answer(7, BAD)
    answers = make_check(node).run(members(40), node.limit(1000))
    assert [answer.member for answer in answers] == members(40)
    assert [answer.verdict for answer in answers] == ["healthy"] * 7 + ["unfit"] + ["healthy"] * 32
    assert answers[0].generation == 3


def test_32_are_asked_at_once_and_never_more(node, monkeypatch):
    everybody, one_more, crowds = threading.Barrier(32), threading.Barrier(33), []

    def ask(_check, who, _deadline):
        everybody.wait(GENEROUS_SECONDS)
        with contextlib.suppress(threading.BrokenBarrierError):
            one_more.wait(2)
            crowds.append(who)
        return NodeCheck(who, (), "healthy")

    monkeypatch.setattr(ClusterCheck, "check", ask)
    make_check(node).run(members(64), node.limit(1000))
    assert crowds == []


@pytest.mark.fault(56)
def test_the_login_users_key_opens_nodes_whose_host_key_is_known_and_nothing_else_does(lab, node, ssh):
    ssh.answer(1)
    make_check(node, is_root=True).check(member(1), node.limit(1000))
    [call] = (lab.directory / "programs0/ssh.calls").read_text().splitlines()
    user = node.login_user()
    assert call == (
        "-F none -n -T -o BatchMode=yes -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/dev/null -o "
        "IdentitiesOnly=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 -o ServerAliveCountMax=2 -o LogLevel=ERROR "
        f"-i {user.home}/.ssh/id_ed25519 -l {user.name} -- 10.0.0.10 /usr/local/bin/deeplearning health --self || true"
    )


def test_root_becomes_the_login_user_first(node):
    becomes = ["runuser", "-u", node.login_user().name, "--"]
    own = make_check(node, is_root=False).command("10.0.0.9")
    assert own[0] == "ssh"
    assert make_check(node, is_root=True).command("10.0.0.9") == [*becomes, *own]


@pytest.mark.fault(43, 57)
@pytest.mark.parametrize(
    ("script", "cause"),
    [
        (None, "connect to host 10.0.0.10 port 22: Connection refused"),
        ("echo Host key verification failed.; exit 255", "Host key verification failed."),
        ("exit 255", "ended with status 255"),
        ("kill -9 $$", "ended with status -9"),
        ("true", "the output must contain a health report, got nothing"),
        ("echo deeplearning: not found", "the output must contain a health report, got 'deeplearning: not found'"),
        ("echo '{torn'", "health report must be JSON"),
        ("printf '\\377\\376'", "the output must contain a health report"),
    ],
)
def test_any_output_that_is_not_a_report_becomes_the_nodes_fault(node, ssh, script, cause):
    if script is not None:
        ssh.script(1, script)
    answer = make_check(node).check(member(1), node.limit(1000))
    assert answer.verdict == "no answer"
    [fault] = answer.faults
    assert fault.name == SSH
    assert cause in fault.detail
    assert "\n" not in fault.detail


def test_a_node_that_does_not_end_is_given_up(node, ssh, monkeypatch):
    monkeypatch.setattr(cluster_check_module, "NODE_SECONDS", 1)
    ssh.script(1, "sleep 60")
    [fault] = make_check(node).check(member(1), node.limit(1000)).faults
    assert fault.detail == "no response in 1 s"


@pytest.mark.fault(68)
def test_a_node_whose_time_was_cut_short_is_not_blamed(node, ssh):
    """If many drivers are slow, the last nodes of a large cluster are asked when the time for all is nearly over."""
    ssh.script(1, "sleep 60")
    answer = make_check(node).check(member(1), node.limit(3))
    assert (answer.verdict, answer.faults) == ("not asked", ())


@pytest.mark.fault(56)
def test_an_address_that_is_another_instances_now_is_no_answer(node, ssh):
    ssh.answer(1, instance_id="i-0123456789abcdef0")
    [fault] = make_check(node).check(member(1), node.limit(1000)).faults
    assert fault.detail == "10.0.0.10 now belongs to i-0123456789abcdef0"


@pytest.mark.fault(54)
def test_the_clock_is_judged_by_the_one_who_asks_whatever_the_node_says(node, ssh):
    ssh.answer(1, (*GOOD, Finding.fit(CLOCK, "trust me")), at=400.5)
    answer = make_check(node, now=iter([1000.5, 1001.5]).__next__).check(member(1), node.limit(1000))
    [fault] = answer.faults
    assert (fault.name, fault.detail) == (CLOCK, "600 s behind the checking node")
    assert [finding.name for finding in answer.findings] == [GPU, ECC, CLOCK]


def test_without_time_no_node_is_asked_and_none_is_blamed(lab, node, ssh):
    answers = make_check(node).run(members(3), node.limit(1))
    assert {answer.verdict for answer in answers} == {"not asked"}
    assert not (lab.directory / "programs0/ssh.calls").exists()
    assert find_causes(answers, member(0).instance_id) == {}


# --- Whose fault it is ----------------------------------------------------------------------------------


def cluster(count, **faults):
    """Return the answers of a cluster; `n2=[DISK]` gives node 2 that fault."""
    answers = []
    for index in range(count):
        names = faults.get(f"n{index}", [])
        found = tuple(Finding.fault(name, "bad", "mend it") for name in names)
        verdict = "no answer" if SSH in names else "unfit" if names else "healthy"
        answers.append(NodeCheck(member(index), found, verdict))
    return answers


def causes(answers):
    found = find_causes(answers, member(0).instance_id)
    return {index: cause for index in range(len(answers)) if (cause := found.get(member(index).instance_id))}


@pytest.mark.fault(44, 55, 58, 61)
@pytest.mark.parametrize("name", [AGENT, DISK, ECC, FILE_SYSTEM, GPU, NETWORK, SSH])
def test_a_node_with_a_fault_of_its_own_leaves_even_if_it_is_the_only_worker(name):
    assert causes(cluster(2, n1=[name])) == {1: f"{name}: bad"}
    assert causes(cluster(4, n1=[name], n3=[name])) == {1: f"{name}: bad", 3: f"{name}: bad"}


@pytest.mark.parametrize("name", [AGENT, DISK, ECC, GPU, NETWORK, SSH, CLOCK, FILE_SYSTEM])
def test_a_fault_of_most_nodes_is_the_clusters(name, caplog):
    assert causes(cluster(4, n1=[name], n2=[name], n3=[name])) == {}
    [message] = caplog.messages
    assert message == f"3 of 4 nodes have a fault that evicts no node, {name}: bad"


def not_asked(*indexes):
    return [NodeCheck(member(index), (), "not asked") for index in indexes]


@pytest.mark.fault(54, 61)
@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param(cluster(4), {}, id="nobody leaves a healthy cluster"),
        pytest.param(cluster(2, n1=[CLOCK]), {}, id="of two clocks either may be wrong"),
        pytest.param(cluster(4, n1=[CLOCK], n2=[CLOCK]), {}, id="of two clocks and two others too"),
        pytest.param(cluster(3, n1=[CLOCK]), {1: f"{CLOCK}: bad"}, id="one clock of three is wrong"),
        pytest.param(cluster(8, n0=[FILE_SYSTEM], n1=[FILE_SYSTEM]), {}, id="the master lacks the file system too"),
        pytest.param(cluster(8, n0=[SSH], n1=[SSH]), {}, id="the master does not respond over SSH either"),
        pytest.param(cluster(3, n1=[DISK], n2=[DISK]) + not_asked(*range(3, 9)), {}, id="who was not asked counts not"),
        pytest.param([*not_asked(0), *cluster(4, n1=[SSH])[1:]], {1: f"{SSH}: bad"}, id="a master that was not asked"),
        pytest.param(cluster(4, n1=[ECC, CLOCK], n2=[CLOCK]), {1: f"{ECC}: bad"}, id="one fault hides no other"),
        pytest.param(cluster(6, n1=[DISK, ECC]), {1: f"{DISK}: bad; {ECC}: bad"}, id="all faults are named"),
        pytest.param(cluster(4, n1=[MEMBERSHIP]), {}, id="an outdated membership"),
    ],
)
def test_only_nodes_with_faults_of_their_own_leave(answers, expected):
    assert causes(answers) == expected


def test_the_master_never_leaves(caplog):
    assert causes(cluster(4, n0=[ECC], n1=[ECC])) == {1: f"{ECC}: bad"}
    assert caplog.messages == [f"the master itself is unhealthy, {ECC}: bad"]


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    ("counts", "short"),
    [((8, 8, 7), [2]), ((8, 7), []), ((7,), []), ((), []), ((1, 1, 1), []), ((7, 7, 8), []), ((8, 8, 8, 0, 4), [3, 4])],
)
def test_a_worker_that_joined_with_fewer_gpus_than_most_is_short(counts, short):
    workers = [replace(member(index), gpu_count=count) for index, count in enumerate(counts)]
    found = find_fewer_gpus(workers)
    assert sorted(found) == [member(index).instance_id for index in short]
    for index in short:
        said = f"GPU count: it joined with {counts[index]} GPUs, most workers have 8"
        assert found[member(index).instance_id] == said


@pytest.mark.fault(58)
def test_an_inspection_compares_workers_with_each_other_and_not_with_the_master(node, ssh):
    found = [replace(member(index), gpu_count=count) for index, count in enumerate((0, 4, 4, 4, 3))]
    for index in range(5):
        ssh.answer(index)
    assert find_unhealthy(node, found) == {
        found[4].instance_id: "GPU count: it joined with 3 GPUs, most workers have 4"
    }


def test_an_inspection_asks_the_nodes_and_names_the_unfit_one(node, ssh):
    for index in range(3):
        ssh.answer(index)
    assert find_unhealthy(node, members(4)) == {
        member(3).instance_id: "SSH: connect to host 10.0.0.12 port 22: Connection refused"
    }
    ssh.answer(3, BAD)
    assert find_unhealthy(node, members(4)) == {member(3).instance_id: f"{DISK}: /: is read-only"}
    ssh.answer(0, BAD)
    assert find_unhealthy(node, members(4)) == {member(3).instance_id: f"{DISK}: /: is read-only"}


def test_an_inspection_raises_nothing(lab, node, ssh, caplog, monkeypatch):
    ssh.answer(0)
    lab.program(0, "runuser", None)
    assert find_unhealthy(node, members(2)) == {}
    monkeypatch.setattr(ClusterCheck, "run", lambda *_: 1 / 0)
    assert find_unhealthy(node, members(2)) == {}
    assert caplog.messages[-1] == "the inspection of 2 nodes failed"
    assert find_unhealthy(node, []) == {}
