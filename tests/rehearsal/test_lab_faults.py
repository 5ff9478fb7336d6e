"""Faults of single nodes, injected into nodes that were booted for real: what programs on them see."""

import json
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import pytest

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from tests.real_time import GENEROUS_SECONDS

ENCLOSED = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
OBSERVER = Path(__file__).with_name("lab_fault_observer.py")


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Boot three nodes, two of them with faults, break them, and return what was seen."""
    base_root = prepare_base_root(find_cache(), lambda line: sys.stderr.write(f"{line}\n"))
    work = tmp_path_factory.mktemp("faults")
    command = [*ENCLOSED, sys.executable, OBSERVER, base_root.root, work]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


@pytest.mark.fault(50)
def test_an_interruption_is_announced_to_its_node_alone_and_can_be_taken_back(seen):
    assert seen["nothing announced"] == seen["announcement cleared"] == ["404", "404", "404"]
    assert [answer[:2] for answer in seen["announced"]] == [[0, "200"]] * 3
    action, at, rebalance = (answer[2] for answer in seen["announced"])
    assert json.loads(action) == {"action": "terminate", "time": at}
    assert set(json.loads(rebalance)) == {"noticeTime"}
    ahead = datetime.fromisoformat(at).timestamp() - seen["announced at"]
    assert 0 < ahead <= 120
    assert seen["announced to another"] == "404"


@pytest.mark.fault(52)
def test_a_metadata_service_refuses_tokens_or_is_late_until_it_is_mended(seen):
    timed_out = 28
    assert seen["metadata refused"] == "401"
    assert seen["metadata late"] == seen["metadata late from the beginning"] == timed_out
    assert seen["metadata mended"] == [0, "200", "i-00000000000000001"]


@pytest.mark.fault(58)
def test_gpus_are_sound_unless_a_node_has_sick_ones(seen):
    assert seen["gpus"] == [0, "0, 0, [N/A], No\n1, 0, [N/A], No", ""]
    assert seen["gpus from the beginning"] == [0, "0, 3, [N/A], No", ""]
    assert seen["sick gpus"] == [0, "0, 7, Yes, Yes", ""]
    assert seen["listed gpus"] == "1"
    assert seen["an unknown field"] == [2, 'Field "bogus" is not a valid field to query.', ""]
    assert seen["no gpus"] == [6, "No devices were found", ""]


@pytest.mark.fault(60, 61)
def test_mounts_do_not_resolve_or_hang_until_they_are_mended(seen):
    unresolved = "Name or service not known"
    for answer in (seen["mount from the beginning"], seen["mount unresolvable"]):
        assert answer[0] == 32
        assert unresolved in answer[1]
    assert seen["mount mended"] == [0, ""]
    assert seen["mount hangs"] == [124, ""]
    assert seen["mount hung for a time"] == [0, ""]


@pytest.mark.fault(55)
def test_a_full_disk_takes_nothing_new_keeps_what_it_holds_and_is_nobody_elses(seen):
    assert seen["disk of a size"] == str(64 * 2**20)
    status, _, errors = seen["disk full"]
    assert status == 1
    assert "No space left on device" in errors
    assert seen["old file"] == ["old", "0"]
    assert seen["another's disk"] == 0
    assert seen["disk freed"] == 0
    assert seen["disk nearly full"] == [0, 1]


@pytest.mark.fault(57)
def test_an_ssh_server_is_late_without_holding_up_user_data_or_stops(seen):
    assert seen["sshd never"] == ["inactive", "active"]
    assert seen["sshd stopped"] == 1


def test_a_machine_that_is_gone_can_not_be_broken(seen):
    assert seen["a machine that is gone"] == "instance_id must name a machine of the lab, got i-00000000000000003"
