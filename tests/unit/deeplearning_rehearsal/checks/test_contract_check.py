"""The checks of nodes against a fake lab whose nodes break one thing at a time."""

import json
import subprocess
from collections.abc import Callable

import pytest

from cdk_rehearsal.errors import PromiseError
from deeplearning_contract.names import MEMBERSHIP_FILE
from deeplearning_rehearsal.checks.contract_check import SEED_LOOP, Membership, check_nodes, read_membership

MASTER, WORKER = "i-1", "i-2"
HOSTS = {"deeplearning-worker1": MASTER, "deeplearning-worker2": WORKER}
ROSTER = Membership(1, (("deeplearning-worker1", MASTER, "10.0.0.5"), ("deeplearning-worker2", WORKER, "10.0.0.6")))
CONTRACT = "/opt/deeplearning/workers\n2\n1\n/efs\n"
OTHER = CONTRACT.replace("2", "3")
Answer = tuple[int, str]
Fault = Callable[[str, str], Answer | None]


class FakeNodes:
    """
    Answers as two good nodes do, unless a fault answers first.

    Args:
        fault: Takes what is asked (`ssh worker2`, `unit`, …) and of which instance; None leaves it to the good node.
    """

    def __init__(self, fault=lambda _question, _instance_id: None):
        self._fault = fault

    def run(self, instance_id, argv, **options):
        question = _classify(argv, login_shell=options.get("login_shell", False))
        status, output = self._fault(question, instance_id) or _answer(question, instance_id)
        return subprocess.CompletedProcess(list(argv), status, output, "" if status == 0 else "no such thing")


def _classify(argv, *, login_shell):
    text = argv[-1]
    if argv[0] == "ssh":
        return "loop over ssh" if text == SEED_LOOP else f"ssh {argv[-2]}"
    if argv[:2] == ["bash", "-ic"]:
        return "non-login"
    marks = {
        MEMBERSHIP_FILE: "membership",
        "hostname": "name",
        SEED_LOOP: "loop",
    }
    if text in marks:
        return marks[text]
    parts = {"systemctl": "unit", "mktemp": "write", "sudo -E": "sudo"}
    return next((name for part, name in parts.items() if part in text), "login" if login_shell else "bare")


def _answer(question, instance_id):
    if question == "membership":
        members = [{"host": h, "instance_id": i, "address": a} for h, i, a in ROSTER.hosts]
        return 0, json.dumps({"generation": 1, "members": members})
    if question == "name":
        return 0, f"ip-{instance_id}\n"
    if question.startswith("loop"):
        return 0, f"ip-{MASTER}\nip-{WORKER}\n"
    return (0, "") if question == "write" else (0, CONTRACT)


def _find_broken(fault):
    reports = check_nodes(FakeNodes(fault), ROSTER, "ubuntu", lambda _lane, _text: None)
    broken = {report.host: [name for name, held in report.checks.items() if not held] for report in reports}
    return {host: names for host, names in broken.items() if names}


def _fail(question, instance_id, status, output):
    return lambda asked, of: (status, output) if (asked, of) == (question, instance_id) else None


def test_good_nodes_hold_every_check_and_show_their_contract():
    told = []
    master, worker = check_nodes(FakeNodes(), ROSTER, "ubuntu", lambda lane, text: told.append((lane, text)))
    assert (master.role, worker.role) == ("master", "worker")
    assert all(master.checks.values())
    assert set(master.checks) - set(worker.checks) == {"hosts loop", "hosts loop over ssh"}
    assert worker.contract["EFS_MOUNT"] == "/efs"
    assert sorted(told) == [(i, f"{host} keeps the contract") for host, i in HOSTS.items()]


@pytest.mark.parametrize(
    ("fault", "host", "broken"),
    [
        (_fail("ssh deeplearning-worker2", MASTER, 0, OTHER), "deeplearning-worker2", ["ssh host cmd"]),
        (_fail("ssh deeplearning-worker2", MASTER, 255, ""), "deeplearning-worker2", ["ssh host cmd"]),
        (_fail("unit", WORKER, 1, ""), "deeplearning-worker2", ["systemd unit"]),
        (_fail("sudo", WORKER, 0, OTHER), "deeplearning-worker2", ["sudo -E"]),
        (_fail("non-login", MASTER, 0, ""), "deeplearning-worker1", ["non-login shell"]),
        (_fail("write", WORKER, 1, ""), "deeplearning-worker2", ["file system writable"]),
        (_fail("membership", WORKER, 1, ""), "deeplearning-worker2", ["same membership"]),
        (
            _fail("membership", WORKER, 0, json.dumps({"generation": 2, "members": []})),
            "deeplearning-worker2",
            ["same membership"],
        ),
        (_fail("loop", MASTER, 0, f"ip-{MASTER}\n"), "deeplearning-worker1", ["hosts loop"]),
        (
            _fail("loop over ssh", MASTER, 0, f"ip-{WORKER}\nip-{MASTER}\n"),
            "deeplearning-worker1",
            ["hosts loop over ssh"],
        ),
    ],
)
def test_a_fault_breaks_its_own_check_and_no_other(fault, host, broken):
    assert _find_broken(fault) == {host: broken}


def test_without_a_contract_in_login_shells_nothing_can_agree_with_it():
    broken = _find_broken(_fail("login", WORKER, 1, ""))
    names = ["login shell", "non-login shell", "sudo -E", "systemd unit", "ssh host cmd"]
    assert broken == {"deeplearning-worker2": names}


def test_a_master_without_a_membership_breaks_its_promise():
    with pytest.raises(PromiseError, match=f"{MASTER} has no {MEMBERSHIP_FILE}: no such thing"):
        read_membership(FakeNodes(_fail("membership", MASTER, 1, "")), MASTER)
