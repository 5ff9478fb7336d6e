"""Memberships on EMR: the primary node publishes the nodes that announce themselves, and each node installs them."""

import json
import re
from dataclasses import replace

import pytest

from deeplearning_contract.setting_parts import EnvironmentSettings, JobNeeds
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.emr.formation import wait_for_members
from deeplearning_member.emr.stop_time import NOTICE_SECONDS, STOP_TIMER, UNITS, plan_notice, write_stop_timer
from deeplearning_node.failure import StageFailure
from deeplearning_node.node_facts import NodeFacts
from tests.unit.deeplearning_member.conftest import CLUSTER_ID
from tests.unit.node_lab import check_variables
from tests.unit.virtual_time import VirtualClock


def edit(path, **changes):
    """Change an announcement as another program might."""
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


# --- Formation --------------------------------------------------------------------------------------


def test_three_nodes_form_with_the_primary_first_and_the_others_by_address(cluster):
    cluster.form(2, 1, 0)
    generations = [cluster.generation(index) for index in range(3)]
    assert generations[0][1] == [0, 1, 2]
    assert generations.count(generations[0]) == 3
    names = "deeplearning-worker1\ndeeplearning-worker2\ndeeplearning-worker3\n"
    for index in range(3):
        assert cluster.lab.read(index, "/opt/deeplearning/workers") == names
        assert "10.0.0.11 deeplearning-worker3 " in cluster.lab.read(index, "/etc/hosts")
    ready = [f"{cluster.lab.instance(index)}:2" for index in range(3)]
    assert cluster.lab.read(0, "/opt/deeplearning/ready_hosts").splitlines() == ready


def test_addresses_are_ordered_as_numbers(cluster):
    cluster.form(0, 91, 90)
    assert cluster.services[91]._member.address == "10.0.0.100"
    assert cluster.generation(0)[1] == [0, 90, 91]


def test_the_primary_nodes_key_logs_in_to_every_node_and_every_kind_of_shell_has_the_variables(cluster):
    cluster.form(0, 1, 2)
    key = json.loads((cluster.folder / "membership.json").read_text())["user_key"]
    for index in range(3):
        node = cluster.node(index)
        home = node.path(f"{node.login_user().home}/.ssh")
        assert key in (home / "authorized_keys").read_text()
        assert (home / "id_ed25519").exists() == (index == 0)
        check_variables(node, count=3, gpu_count=2)
    assert "secret" not in "".join(path.read_text() for path in cluster.shared.rglob("*.json")), "the public half alone"


def test_hosts_for_elastic_jobs_are_those_that_have_installed_the_membership(cluster):
    cluster.form(0, 1)
    cluster.start(2)
    cluster.services[2].follow()
    cluster.services[0].follow()
    assert cluster.generation(0)[1] == [0, 1, 2]
    ready = cluster.lab.read(0, "/opt/deeplearning/ready_hosts").splitlines()
    assert ready == [f"{cluster.lab.instance(0)}:2"]
    cluster.turn(2)
    assert len(cluster.lab.read(0, "/opt/deeplearning/ready_hosts").splitlines()) == 3


def test_services_that_run_beside_each_other_agree(cluster):
    scheduler = cluster.lab.scheduler
    for index in range(3):
        scheduler.start(str(index), cluster.make_service(index, VirtualClock(scheduler)).run, 3 * index)
    node = cluster.node(0)
    scheduler.run_until(lambda: not wait_for_members(ClusterFolder(node, CLUSTER_ID), 3, node.limit(0)))


# --- Waiting ----------------------------------------------------------------------------------------


def wait(cluster, seconds=600):
    node = cluster.node(0)
    return wait_for_members(ClusterFolder(node, CLUSTER_ID), 3, node.limit(seconds))


def test_the_wait_ends_when_all_have_installed_the_same_membership(cluster):
    cluster.form(0, 1)
    began = cluster.clock.now
    missing = wait(cluster)
    assert cluster.clock.now - began == 600
    assert missing.startswith(
        "2 of 3 nodes have installed the membership; 1 of the nodes must still announce themselves"
    )
    assert "(announced: i-00000000000000000 (10.0.0.9), i-00000000000000001 (10.0.0.10))" in missing
    assert "bootstrap-actions/1/stderr.gz" in missing
    cluster.start(2)
    cluster.turn()
    assert wait(cluster, 0) != ""
    cluster.turn(2)
    assert wait(cluster, 0) == ""


def test_a_node_that_fails_to_install_the_membership_stays_and_is_named(cluster):
    cluster.form(0, 1)
    cluster.start(2)
    cluster.lab.program(2, "visudo", "echo syntax error >&2; exit 1")
    failing = cluster.services.pop(2)
    failing.follow()
    for _ in range(9):
        cluster.turn()
        with pytest.raises(StageFailure, match="visudo"):
            failing.follow()
    assert cluster.generation(0)[1] == [0, 1, 2]
    assert wait(cluster, 0) == (
        "2 of 3 nodes have installed the membership; not on i-00000000000000002 (10.0.0.11): "
        "read /var/log/deeplearning-agent.log there"
    )


# --- Losses and replacements ------------------------------------------------------------------------


def test_a_node_leaves_after_90_seconds_of_silence_and_its_replacement_joins_a_higher_generation(cluster):
    cluster.form(0, 1, 2)
    formed, _ = cluster.generation(0)
    del cluster.services[2]
    cluster.turn(9)
    assert cluster.generation(0) == (formed, [0, 1, 2])
    cluster.turn(2)
    assert cluster.generation(0) == cluster.generation(1) == (formed + 1, [0, 1])
    assert not cluster.announcement(2).exists()
    cluster.form(3)
    assert [cluster.generation(index) for index in (0, 1, 3)] == [(formed + 2, [0, 1, 3])] * 3


def test_a_replacement_with_the_address_of_a_lost_node_takes_its_place_at_once(cluster):
    cluster.form(0, 1, 2)
    del cluster.services[2]
    cluster.lab.node(3)
    replacement = cluster.make_service(3)
    replacement._member = replace(replacement._member, address="10.0.0.11")
    cluster.services[3] = replacement
    cluster.turn(3)
    assert cluster.generation(0)[1] == [0, 1, 3]


def test_a_node_that_was_silent_for_long_returns(cluster):
    cluster.form(0, 1)
    silent, formed = cluster.services.pop(1), cluster.generation(1)
    cluster.turn(11)
    assert cluster.generation(0)[1] == [0]
    silent.follow()
    assert cluster.generation(1) == formed, "a membership without the node is not its own"
    cluster.services[1] = silent
    cluster.turn(3)
    assert cluster.generation(0) == cluster.generation(1)
    assert cluster.generation(1)[1] == [0, 1]


# --- Restarts ---------------------------------------------------------------------------------------


def test_a_restart_of_the_primary_nodes_service_keeps_the_membership_and_later_generations_rise(cluster):
    cluster.form(0, 1, 2)
    formed, _ = cluster.generation(0)
    before = cluster.lab.digests(0)
    cluster.start(0)
    cluster.turn(2)
    assert cluster.generation(0) == (formed, [0, 1, 2])
    assert cluster.lab.digests(0) == before
    del cluster.services[1]
    cluster.turn(12)
    assert cluster.generation(0) == cluster.generation(2) == (formed + 1, [0, 2])


@pytest.mark.parametrize("left", [None, "{torn", "[]", '{"cluster": "c"}'])
def test_generations_rise_even_when_the_shared_membership_is_lost(cluster, left):
    cluster.form(0, 1)
    formed, members = cluster.generation(1)
    path = cluster.folder / "membership.json"
    path.unlink()
    if left:
        path.write_text(left)
    cluster.form(0)
    assert cluster.generation(0) == cluster.generation(1) == (formed + 1, members)


def test_a_node_that_was_lost_long_ago_does_not_come_back_with_a_restart(cluster):
    cluster.form(0, 1)
    del cluster.services[1]
    cluster.turn(12)
    left = cluster.generation(0)
    cluster.start(0)
    cluster.turn()
    assert cluster.generation(0) == left


def test_a_cluster_and_its_replacement_on_one_file_system_keep_their_own_memberships(cluster):
    """CloudFormation creates a replacement before it deletes the old resource, so both are up for a while."""
    cluster.start(0, 1)
    cluster.start(5, cluster_id="j-REPLACEMENT", is_primary=True)
    cluster.start(6, cluster_id="j-REPLACEMENT")
    cluster.turn(8)
    assert cluster.generation(0) == cluster.generation(1) == (2, [0, 1])
    assert cluster.generation(5) == cluster.generation(6) == (2, [5, 6])


# --- Trouble ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["", "{torn", "[]", b"\xff\xfe", '{"generation": 0, "uptime": 1.0}'],
)
def test_a_malformed_announcement_is_ignored_and_logged_once(cluster, text, caplog):
    cluster.start(0, 1)
    cluster.turn()
    cluster.announcement(5).write_bytes(text if isinstance(text, bytes) else text.encode())
    cluster.turn(3)
    assert cluster.generation(0) == cluster.generation(1)
    assert cluster.generation(0)[1] == [0, 1]
    assert len([record for record in caplog.records if cluster.lab.instance(5) in record.getMessage()]) == 1


def test_an_announcement_with_a_second_line_or_in_the_name_of_another_node_is_ignored(cluster, caplog):
    cluster.form(0, 1, 2)
    del cluster.services[2]
    text = json.loads(cluster.announcement(2).read_text())
    text["member"]["address"] = "10.0.0.6\n6.6.6.6 deeplearning-master"
    cluster.announcement(2).write_text(json.dumps(text))
    cluster.announcement(5).write_text(cluster.announcement(1).read_text())
    cluster.turn(12)
    assert cluster.generation(0)[1] == [0, 1]
    assert "member.address must be an IPv4 address" in caplog.text
    assert f"announcement must be of {cluster.lab.instance(5)}, got {cluster.lab.instance(1)}" in caplog.text
    assert "6.6.6.6" not in cluster.lab.read(0, "/etc/hosts")


def test_a_file_system_that_does_not_respond_evicts_nobody_and_nothing_is_written_below_it(cluster):
    cluster.form(0, 1)
    formed = cluster.generation(0)
    (cluster.shared / ".mounted").unlink()
    before = {path: path.read_bytes() for path in cluster.shared.rglob("*.json")}
    for service in cluster.services.values():
        with pytest.raises(StageFailure, match="nothing that responds is mounted on /mnt/efs"):
            service.follow()
    assert {path: path.read_bytes() for path in cluster.shared.rglob("*.json")} == before
    cluster.clock.wait(300)
    (cluster.shared / ".mounted").touch()
    for index in (1, 0):  # The others have renewed theirs by the time at which the primary node reads.
        cluster.services[index].follow()
    assert cluster.generation(0) == formed


def test_trouble_is_logged_and_the_service_goes_on(cluster, caplog):
    scheduler = cluster.lab.scheduler
    (cluster.shared / ".mounted").unlink()
    scheduler.start("0", cluster.make_service(0, VirtualClock(scheduler)).run)
    scheduler.run_until(lambda: "could not follow the cluster; retrying: nothing that responds" in caplog.text)
    (cluster.shared / ".mounted").touch()
    scheduler.run_until((cluster.folder / "membership.json").exists)


# --- Activity ---------------------------------------------------------------------------------------


def start_job(cluster, index):
    """Let a process run on a node that has the mark of a job, as `deeplearning run` starts ranks."""
    process = cluster.node(index).path("/proc/4242")
    process.mkdir()
    (process / "environ").write_bytes(b"HOME=/home/hadoop\0DEEPLEARNING_JOB=digits/1\0")
    return process


def load_gpu(cluster, index):
    cluster.lab.program(index, "nvidia-smi", "echo 3; echo 40")


def provision(cluster, index):
    node = cluster.node(index)
    replace(NodeFacts.of(node), needs=JobNeeds(environment=EnvironmentSettings("horovod"))).write(node.root)


@pytest.fixture
def busy_file(cluster):
    """The file of EMR on the primary node, whose folder EMR makes, of a formed cluster."""
    path = cluster.node(0).path("/emr/metricscollector/isbusy")
    path.parent.mkdir(parents=True)
    cluster.form(0, 1, 2)
    assert not path.exists()
    return path


@pytest.mark.parametrize(("begin", "index"), [(start_job, 0), (start_job, 2), (load_gpu, 2), (provision, 0)])
def test_the_primary_node_touches_the_file_of_emr_while_a_node_is_busy(cluster, busy_file, index, begin):
    """EMR management guide, "Using an auto-termination policy": programs outside of YARN touch it periodically."""
    begin(cluster, index)
    for _ in range(2):
        cluster.turn(2)
        busy_file.unlink()
    assert not cluster.node(2).path("/emr").exists()


@pytest.mark.parametrize("leaves", [False, True])
def test_a_cluster_whose_busy_node_ends_its_job_or_leaves_is_idle(cluster, busy_file, leaves):
    process = start_job(cluster, 1)
    cluster.turn(2)
    if leaves:
        del cluster.services[1]
        cluster.turn(11)
    else:
        (process / "environ").unlink()
        process.rmdir()
        cluster.turn(2)
    busy_file.unlink()
    cluster.turn(3)
    assert not busy_file.exists()


def test_a_file_system_that_fails_does_not_hide_a_job_on_the_primary_node(cluster, busy_file):
    start_job(cluster, 0)
    (cluster.shared / ".mounted").unlink()
    with pytest.raises(StageFailure):
        cluster.services[0].follow()
    assert busy_file.exists()


def test_without_the_folder_of_emr_the_cluster_goes_on_and_says_so_once(cluster, busy_file, caplog):
    busy_file.parent.rmdir()
    start_job(cluster, 0)
    cluster.turn(3)
    said = [record.message for record in caplog.records if "could not report activity to EMR" in record.message]
    assert len(said) == 1
    assert not busy_file.parent.exists()
    assert cluster.generation(0)[1] == [0, 1, 2]


def test_the_last_activity_of_other_nodes_counts_for_90_seconds_without_the_file_system(cluster, busy_file):
    start_job(cluster, 2)
    cluster.turn(2)
    (cluster.shared / ".mounted").unlink()
    touched = []
    for _ in range(12):
        busy_file.unlink(missing_ok=True)
        with pytest.raises(StageFailure):
            cluster.services[0].follow()
        touched.append(busy_file.exists())
        cluster.clock.wait(10)
    assert touched[0]
    assert not touched[-1]


# --- The notice before the stop ---------------------------------------------------------------------


def read_notice(cluster, index):
    path = cluster.node(index).path("/opt/deeplearning/notice")
    return json.loads(path.read_text())["reason"] if path.exists() else ""


def test_every_node_gets_a_notice_before_the_cluster_stops_and_no_new_generation(cluster):
    cluster.form(0, 1, 2)
    generation = cluster.generation(0)
    write_stop_timer(cluster.node(0), NOTICE_SECONDS + 300)
    cluster.turn(3)
    assert [read_notice(cluster, index) for index in range(3)] == ["", "", ""]
    cluster.node(0).path(f"{UNITS}/{STOP_TIMER}").unlink()
    write_stop_timer(cluster.node(0), NOTICE_SECONDS - 1)
    cluster.turn(3)
    (notice,) = {read_notice(cluster, index) for index in range(3)}
    moment = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
    assert re.fullmatch(
        f"the cluster stops by itself at {moment}, as long after its start as stop_after allows", notice
    )
    assert cluster.generation(0) == cluster.generation(2) == generation


def test_the_notice_of_an_earlier_cluster_of_the_same_name_is_removed(cluster):
    cluster.form(0, 1)
    edit(cluster.folder / "membership.json", notice="the cluster stops by itself")
    cluster.services[1].follow()
    assert read_notice(cluster, 1) == "the cluster stops by itself"
    cluster.turn(2)
    assert read_notice(cluster, 1) == ""


@pytest.mark.parametrize("moment", ["daily", "2026-13-01 00:00:00 UTC"])
def test_a_timer_that_cannot_be_read_is_no_notice(cluster, moment):
    timer = cluster.node(0).path(f"{UNITS}/{STOP_TIMER}")
    timer.parent.mkdir(parents=True, exist_ok=True)
    timer.write_text(f"[Timer]\nOnCalendar={moment}\n")
    assert plan_notice(cluster.node(0)) == ""
