"""
Agents against moto: from `launched` to `formed`, and every way in which that fails or is repeated.

Several agents run in virtual time, one thread at a time, since moto is not safe for threads.

Tests named d22 to d47 hold a row of the predecessor's defects. Rows that cannot occur in the agent: D25 and D47 (it
asks EC2 nothing: who counts is in the item), D26 (a worker waits for ever, the master has the deadline), D43 (the
template starts the clock), D44 (no node stages data).
"""

import hashlib
import json
import math

import pytest

from deeplearning_agent.workload.user_scripts import RunScript
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.reason import Reason
from deeplearning_contract.setting_parts import ScriptSettings
from tests.real_time import wait_until
from tests.unit.virtual_time import Killed


def wait_for(lab, phase):
    """Let the agents run until the item has a phase and CloudFormation its signal; return the item."""

    def find():
        state = lab.read_state() if lab.signals.bodies else None
        return state if state and state.phase is phase else None

    return lab.scheduler.run_until(find)


def put_script(lab, key, script):
    place = {"LocationConstraint": "eu-west-1"}
    if not lab.clients.s3.list_buckets()["Buckets"]:
        lab.clients.s3.create_bucket(Bucket="scripts", CreateBucketConfiguration=place)
    lab.clients.s3.put_object(Bucket="scripts", Key=key, Body=script)
    return ScriptSettings("scripts", key, hashlib.sha256(script).hexdigest())


def form(lab, nodes):
    """Let a master and workers form; note what was written and called."""
    lab.write_state(nodes)
    for index in range(nodes):
        lab.start(index)
    lab.state = wait_for(lab, Phase.FORMED)
    lab.calls_to_form = sum(lab.calls.values())
    lab.scheduler.close()
    return lab


@pytest.fixture
def formed(lab):
    """A formed cluster of a test's own, to do things to."""
    return form(lab, 2)


@pytest.fixture(scope="module")
def evidence(make_lab, tmp_path_factory):
    """A formed cluster to look at; its AWS may be another's by now."""
    with make_lab(tmp_path_factory.mktemp("evidence")) as lab:
        yield form(lab, 4)


@pytest.mark.defect("D20")
def test_forms_and_signals_success_once(evidence):
    assert [body["Status"] for body in evidence.signals.bodies] == ["SUCCESS"]
    assert evidence.signals.bodies[0]["Reason"] == "4 of 4 nodes formed generation 1"
    assert [content_type for _, content_type, _ in evidence.signals.requests] == [""]


def test_keeps_the_bound_on_aws_calls(evidence):
    nodes, seconds = 4, evidence.scheduler.now
    # The bound that a rehearsal holds nodes to, `bound_calls`.
    bound = nodes * (5 + math.ceil(seconds / 20) + math.ceil(seconds / 60)) + math.ceil(nodes / 5) + 20
    assert evidence.calls_to_form <= bound


@pytest.mark.defect("D37")
def test_the_master_is_rank_0_and_workers_keep_the_expected_order(evidence):
    assert [member.instance_id for member in evidence.state.members] == [evidence.instance(index) for index in range(4)]
    for index in range(4):
        workers = [f"deeplearning-worker{rank}" for rank in range(1, 5)]
        assert evidence.read(index, "/opt/deeplearning/workers").split() == workers
        first = "10.0.0.9 deeplearning-worker1 deeplearning-master i-00000000000000000\n"
        assert first in evidence.read(index, "/etc/hosts")


@pytest.mark.defect("D61", "D74")
def test_every_node_knows_every_host_key_and_lets_the_master_in(evidence):
    for index in range(4):
        known = evidence.read(index, "/etc/ssh/ssh_known_hosts")
        assert all(f",{member.address} {member.host_key}\n" in known for member in evidence.state.members)
        home = evidence.node(index).login_user().home
        assert evidence.state.user_key in evidence.read(index, f"{home}/.ssh/authorized_keys")


def test_a_private_key_never_leaves_its_node(evidence):
    for index in range(1, 4):
        home = evidence.node(index).login_user().home
        assert not (evidence.directory / f"node{index}{home}/.ssh/id_ed25519").exists()
    assert "secret" not in json.dumps(evidence.state.to_item())


@pytest.mark.fault(49)
@pytest.mark.defect("D32")
def test_running_again_leaves_identical_bytes_on_every_node(formed):
    before = [formed.digests(index) for index in range(2)]
    for index in range(2):
        (formed.directory / f"node{index}/run/deeplearning/agent-started").unlink()
        formed.run(formed.agent(index))
    assert [formed.digests(index) for index in range(2)] == before
    assert len(before[0]) > 15
    assert len(formed.signals.bodies) == 1


def test_a_node_whose_files_were_lost_gets_them_back_at_its_next_start(formed):
    before = formed.digests(1)
    (formed.directory / "node1/etc/hosts").write_text("127.0.0.1 localhost\n")
    (formed.directory / "node1/opt/deeplearning/hostfile").unlink()
    formed.run(formed.agent(1))
    assert formed.digests(1) == before


@pytest.mark.fault(47)
def test_a_restart_between_formed_and_the_signal_signals_again(formed):
    formed.node(0).instance_file("success-signalled").unlink()
    formed.run(formed.agent(0))
    assert [body["Status"] for body in formed.signals.bodies] == ["SUCCESS", "SUCCESS"]


@pytest.mark.fault(46)
@pytest.mark.defect("D30")
def test_a_master_that_dies_before_it_publishes_forgets_no_report(lab):
    lab.write_state(2)
    lab.start(1)
    deaths = []

    def die(_state):
        deaths.append("killed")
        raise Killed

    lab.start(0).store.write = die
    lab.scheduler.run_until(lambda: deaths)
    assert not lab.bodies("report"), "the report is deleted, so only the disk has it"
    lab.start(0)
    assert len(wait_for(lab, Phase.FORMED).members) == 2


def test_a_master_that_cannot_install_the_membership_fails_the_stack(lab, ticking_clock):
    lab.write_state(1)
    lab.node(0)
    lab.program(0, "visudo", "echo syntax error >&2; exit 1")
    lab.run(lab.agent(0, ticking_clock()))
    assert lab.read_state().phase is Phase.FAILED
    assert "failed to install generation 1: visudo" in lab.signals.bodies[0]["Reason"]


def test_a_formed_cluster_without_a_signal_still_reports_its_failure(lab, ticking_clock):
    lab.write_state(1)
    lab.run(lab.agent(0))
    lab.node(0).instance_file("success-signalled").unlink()
    lab.program(0, "nvidia-smi", None)
    lab.run(lab.agent(0, ticking_clock(1800)))
    assert {body["Status"] for body in lab.signals.bodies[1:]} == {"FAILURE"}
    assert lab.read_state().phase is Phase.FORMED


def break_mount(lab, **changes):
    lab.write_state(4, **changes)
    for index in range(4):
        lab.node(index)
    lab.program(2, "mount", 'echo "mount.nfs4: Connection timed out" >&2; exit 32')
    for index in range(4):
        lab.start(index)


@pytest.mark.fault(43)
def test_a_worker_that_cannot_mount_is_left_out_when_the_minimum_remains(lab):
    break_mount(lab, worker_minimum=2)
    state = wait_for(lab, Phase.FORMED)
    assert [member.instance_id for member in state.members] == [lab.instance(index) for index in (0, 1, 3)]
    assert state.reason.cause.startswith(
        f"left out {lab.instance(2)}: worker {lab.instance(2)} (10.0.0.11) failed to mount"
    )
    assert [(gone.instance_id, gone.generation) for gone in state.departed] == [(lab.instance(2), 1)]
    [signal] = lab.signals.bodies
    assert (signal["Status"], signal["Reason"][:35]) == ("SUCCESS", "3 of 4 nodes formed generation 1: l")


@pytest.mark.defect("D41", "D42")
def test_a_worker_without_which_there_are_too_few_fails_the_stack_with_its_reason(lab):
    break_mount(lab, worker_minimum=3)
    state = wait_for(lab, Phase.FAILED)
    [signal] = lab.signals.bodies
    assert signal["Status"] == "FAILURE"
    assert len(signal["Reason"]) <= 1000
    for part in ("worker i-00000000000000002 (10.0.0.11)", "mount the file system", "fs-0123", "Connection timed out"):
        assert part in signal["Reason"]
    assert str(state.reason) == signal["Reason"]


@pytest.mark.defect("D40")
def test_a_set_up_script_that_fails_on_the_master_fails_the_stack(lab):
    lab.write_state(1)
    lab.changes["setup_script"] = put_script(lab, "setup.sh", b"#!/bin/sh\necho about to fail\nexit 3\n")
    lab.run(lab.agent(0))
    [signal] = lab.signals.bodies
    assert "failed to run the set-up script" in signal["Reason"]
    assert "status 3" in signal["Reason"]
    assert "last lines: about to fail" in signal["Reason"]


@pytest.mark.fault(11, 12)
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "1 of 1 nodes formed generation 1"),
        (
            {"requested": 4, "reason": Reason("3 workers did not launch: InsufficientInstanceCapacity")},
            "1 of 4 nodes formed generation 1: 3 workers did not launch: InsufficientInstanceCapacity",
        ),
    ],
    ids=["no workers are requested", "none of three workers launched"],
)
def test_a_cluster_without_workers_forms_and_its_success_has_the_reason(lab, changes, reason):
    lab.write_state(1, **changes)
    lab.run(lab.agent(0))
    assert lab.read_state().phase is Phase.FORMED
    assert [(body["Status"], body["Reason"]) for body in lab.signals.bodies] == [("SUCCESS", reason)]
    assert lab.bodies("worker") == []


def test_user_scripts_run_once_an_instance_and_see_the_contract(lab):
    lab.write_state(1)
    notes = lab.directory / "notes"
    lab.changes["setup_script"] = put_script(lab, "setup.sh", f"#!/bin/sh\necho setup $EFS_MOUNT >>{notes}\n".encode())
    run = f"#!/bin/sh\necho run $DEEPLEARNING_WORKERS_COUNT $DEEPLEARNING_WORKERS_PATH $USER >>{notes}\necho done\n"
    lab.changes["run_script"] = put_script(lab, "run.sh", run.encode())
    lab.run(lab.agent(0))
    status = lab.node(0).instance_file("run-script-status")
    wait_until(status.exists)
    assert status.read_text() == "0\n"
    lab.clients.s3.delete_object(Bucket="scripts", Key="run.sh")
    lab.run(lab.agent(0))
    user = lab.node(0).login_user().name
    assert notes.read_text().splitlines() == ["setup /mnt/efs", f"run 1 /opt/deeplearning/workers {user}"]
    assert lab.read(0, "/var/log/deeplearning-run-script.log") == "done\n"
    assert lab.read_state().run_ended


def test_discover_hosts_answers_before_the_run_script_starts(lab, monkeypatch):
    seen = []
    monkeypatch.setattr(RunScript, "start", lambda *_: seen.append(lab.read(0, "/opt/deeplearning/ready_hosts")))
    lab.write_state(1)
    lab.changes["run_script"] = put_script(lab, "run.sh", b"#!/bin/sh\n")
    lab.run(lab.agent(0))
    assert seen[0] == f"{lab.instance(0)}:2\n"


@pytest.mark.parametrize(
    ("stored", "cause"),
    [(b"#!/bin/sh\n# another\n", "sha256 of s3://scripts/run.sh must be"), (b"echo hello\n", "must begin with #!")],
)
def test_a_run_script_that_cannot_run_fails_before_anything_forms(lab, ticking_clock, stored, cause):
    lab.write_state(1)
    settings = put_script(lab, "run.sh", stored)
    digest = settings.sha256 if cause.startswith("must") else "1" * 64
    lab.changes["run_script"] = ScriptSettings(settings.bucket, settings.key, digest)
    lab.run(lab.agent(0, ticking_clock()))
    assert cause in lab.signals.bodies[0]["Reason"]
    assert lab.read_state().phase is Phase.FAILED
