"""Containers of the lab, run for real: what programs in them see, how they end, and what they leave behind."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.run.progress import report_line
from tests.real_time import GENEROUS_SECONDS

ENCLOSED = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
OBSERVER = Path(__file__).with_name("container_observer.py")
HOSTS = ["10.0.0.20 algo-1", "10.0.128.21 algo-2", "10.0.0.22 algo-3"]
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
VARIABLES = ["COLOUR=dark red", "HOME=/root", "HOSTNAME=algo-1", f"PATH={SYSTEM_PATH}"]
DROPPED, KILLED, ABSENT = 124, 137, 127


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Start containers, look at them, and return what was seen."""
    base_root = prepare_base_root(find_cache(), report_line)
    command = [*ENCLOSED, sys.executable, OBSERVER, base_root.root.parent, tmp_path_factory.mktemp("containers")]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS)
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_each_line_that_a_program_prints_is_reported_with_its_environment_and_names(seen):
    lines = seen["program"]["lines"]
    assert sorted(line for line in lines if "=" in line and not line.startswith(("PWD", "_"))) == VARIABLES
    assert lines[-9:] == ["1", "algo-1", "127.0.0.1 localhost", *HOSTS, "layer", "one\rtwo", "last"]


def test_the_status_of_a_container_is_its_programs(seen):
    assert seen["program"]["status"] == 5
    assert seen["program"]["absent"] == ABSENT


def test_output_is_reported_while_the_program_runs(seen):
    assert seen["life"]["told"] == ["begun", None, 0, ["gone"]]


def test_a_program_is_asked_to_end_and_one_that_does_not_listen_is_killed(seen):
    assert seen["life"]["stopped"] == [len("was told"), KILLED]


def test_what_a_program_leaves_can_be_read_after_its_end_and_nothing_runs_any_more(seen):
    assert seen["life"]["left"] == "was told"
    assert "entered after the end" not in seen["life"]


def test_the_program_is_process_1_with_the_variables_of_the_container_alone(seen):
    status, output, _ = seen["inside"]["process 1"]
    assert status == 0
    assert output.splitlines() == ["python3 -c ", *VARIABLES]


def test_other_programs_run_as_docker_exec_runs_them_or_through_a_login_shell(seen):
    assert seen["inside"]["executed"] == [0, "dark red", ""]
    assert seen["inside"]["login shell"] == [1, "root\n/root", ""]
    assert seen["inside"]["killed"] == KILLED


def test_files_and_file_systems_are_where_they_were_ordered(seen):
    assert seen["inside"]["files"] == [0, "{}", ""]
    assert seen["inside"]["read"] == "algo-1\n"
    assert seen["inside"]["written"] == [0, "of algo-1", ""]
    assert seen["inside"]["read-only"] != 0


def test_a_container_may_not_mount_or_change_its_network_and_sees_no_device_of_the_machine(seen):
    assert 0 not in [seen["inside"][what] for what in ("mount", "link", "settings")]
    assert seen["inside"]["devices"] == "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero"


def test_a_container_has_an_interface_and_credentials_but_no_metadata_service(seen):
    assert seen["inside"]["interface"] == "10.0.0.20/20"
    assert seen["inside"]["credentials"] == "for the role"
    assert seen["inside"]["metadata"] != 0


def test_containers_reach_one_another_by_name_across_subnets(seen):
    assert set(seen["network"]["before"].values()) == {0}


def test_packets_between_separate_containers_are_dropped_and_no_others(seen):
    apart = {"algo-1 algo-2", "algo-2 algo-1", "algo-1 algo-3", "algo-3 algo-1"}
    assert seen["network"]["separate"] == {pair: DROPPED if pair in apart else 0 for pair in seen["network"]["before"]}


def test_an_ssh_server_works_with_the_rights_of_a_container(seen):
    status, output, errors = seen["ssh"]
    assert (status, output) == (0, "algo-2\n0"), errors


def test_orders_that_cannot_be_carried_out_are_refused_and_leave_nothing(seen):
    refused = seen["refused"]
    assert refused["folder"] == "folder must be on fs-0123456789abcdef0, got /nowhere"
    assert refused["id"] == "container_id must be new to the lab, got job-algo-1"
    assert refused["new"] == ""
    assert refused["start"].startswith("job-algo-1 did not start: ")


def test_nothing_of_a_container_is_left_when_it_is_removed(seen):
    before, after = seen["traces"]
    assert after == before
    assert seen["traces of the lab"] == []


def test_containers_are_named_as_stand_ins_once_there_was_one(seen):
    without, after = seen["stand-ins"]
    assert after == [*without, "namespaces of containers"]
