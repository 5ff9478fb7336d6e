"""Clocks, queues, the state item, signals and metadata: what each edge does when the other side misbehaves."""

import ast
import json
import logging
import subprocess
import sys

import pytest

from deeplearning_agent.__main__ import main
from deeplearning_agent.aws_clients import AwsFailure, call_for
from deeplearning_agent.deadline import Deadline, setup_deadline
from deeplearning_agent.failure import ReportedFailure, StageFailure, describe_failure
from deeplearning_agent.instance_metadata import read_identity
from deeplearning_agent.queues import DoorbellQueue, ReportQueue, is_sent_by, ring_generation
from deeplearning_agent.roster import Roster
from deeplearning_agent.signals import StackSignal
from deeplearning_agent.state_store import StateStore
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import Doorbell, NodeReport, ReportStage

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey1"


def joined(lab, index, address="10.0.0.50"):
    member = Member(lab.instance(index), address, 1, KEY)
    return NodeReport("master-of-names", lab.instance(index), ReportStage.JOINED, member=member)


# --- Deadlines --------------------------------------------------------------------------------------


def test_d22_waiting_ends_at_the_deadline_and_not_before(ticking_clock):
    clock = ticking_clock()
    deadline = Deadline.after(clock, 600)
    began = clock.now
    attempts = sum(1 for _ in deadline.attempts())
    assert 540 < clock.now - began < 640
    assert attempts > 10


def test_d31_a_pause_is_never_negative_and_never_past_the_deadline(ticking_clock):
    clock = ticking_clock()
    Deadline(clock, clock.now - 5).pause(30)
    before = clock.now
    Deadline.after(clock, 10).pause(1000)
    assert clock.now - before <= 12


def test_there_is_always_one_attempt(ticking_clock):
    clock = ticking_clock()
    assert list(Deadline(clock, 0).attempts()) == [1]


def test_a_restart_of_the_service_does_not_extend_the_set_up_time(ticking_clock, tmp_path):
    clock, file = ticking_clock(), tmp_path / "run" / "started"
    first = setup_deadline(clock, file, 3300)
    clock.now += 1000
    assert setup_deadline(clock, file, 3300).at == first.at
    file.unlink()  # a reboot empties /run
    assert setup_deadline(clock, file, 3300).at > first.at


def test_a_torn_start_file_begins_anew(ticking_clock, tmp_path):
    (tmp_path / "started").write_text("")
    assert not setup_deadline(ticking_clock(), tmp_path / "started", 10).is_over


def test_d24_a_cluster_whose_name_says_master_still_has_workers(lab):
    assert "master" in lab.node(1).settings.cluster
    assert not lab.node(1).is_master
    assert type(lab.agent(1)).__name__ == "Worker"


# --- Queues -----------------------------------------------------------------------------------------


def test_d45_only_the_instance_itself_is_believed(lab):
    report = joined(lab, 1)
    assert is_sent_by("AROAX", report, f"AROAX:{lab.instance(1)}")
    for sender in (f"AROAX:{lab.instance(2)}", f"AROAY:{lab.instance(1)}", lab.instance(1), "AROAX", "", ":"):
        assert not is_sent_by("AROAX", report, sender)
    assert not is_sent_by("", report, f":{lab.instance(1)}")


def test_d27_malformed_foreign_and_duplicate_reports_neither_block_nor_pass(lab, caplog):
    agent = lab.agent(0)
    queue = ReportQueue(agent.clients, lab.queues["report"], "master-of-names", "AROAEXAMPLEEXAMPLE123", 0)
    forged = json.loads(joined(lab, 3).to_body()) | {"sent_by": lab.instance(2)}
    other = json.loads(joined(lab, 4).to_body()) | {"cluster": "another"}
    for body in ("poison{", "[]", json.dumps(forged), json.dumps(other), *[joined(lab, 1).to_body()] * 2):
        lab.send("report", body)
    reports = queue.receive(agent.node.limit(1))
    queue.delete_read()
    assert [report.instance_id for report in reports] == [lab.instance(1)] * 2
    assert "dropped a malformed report" in caplog.text
    assert f"dropped a report about {lab.instance(3)} that AROAEXAMPLEEXAMPLE123:{lab.instance(2)} sent" in caplog.text
    attributes = lab.clients.sqs.get_queue_attributes(QueueUrl=lab.queues["report"], AttributeNames=["All"])[
        "Attributes"
    ]
    assert attributes["ApproximateNumberOfMessages"] == attributes["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_d29_a_stale_ring_is_followed_by_a_pause_and_not_by_a_spin(lab, ticking_clock):
    for generation in (1, 2):
        lab.send("worker", Doorbell("master-of-names", generation).to_body())
    lab.send("worker", "poison{")
    lab.send("worker", Doorbell("another-cluster", 9).to_body())
    clock, agent = ticking_clock(), lab.agent(1)
    queue = DoorbellQueue(agent.clients, lab.queues["worker"], "master-of-names", is_shared=True)
    assert not queue.wait(2, Deadline.after(clock, 600))
    assert lab.calls["ReceiveMessage"] <= 600 / 20 + 1
    assert queue.wait(1, Deadline.after(clock, 600))


def test_d31_the_master_polls_long_and_deletes_its_rings(lab, ticking_clock):
    lab.send("master", Doorbell("master-of-names", 1).to_body())
    agent = lab.agent(0)
    assert agent.doorbells.wait(0, Deadline.after(ticking_clock(), 60))
    assert lab.bodies("master") == []


def test_only_a_ring_of_the_cluster_has_a_generation():
    assert ring_generation(Doorbell("c", 3).to_body(), "c") == 3
    for body in ("", "{", "[]", '{"kind": "report"}', '{"kind":"doorbell","cluster":"c","generation":true}'):
        assert ring_generation(body, "c") == -1


# --- The state item ---------------------------------------------------------------------------------


def test_a_lost_race_is_told_apart_from_a_refusal(lab):
    state = lab.write_state(2)
    store = StateStore(lab.clients, "state", "master-of-names")
    assert store.write(state.advance(Phase.PUBLISHED))
    assert not store.write(state.advance(Phase.FAILED))
    assert store.read().phase is Phase.PUBLISHED


def test_a_refused_call_is_named_after_a_minute_of_patience(lab, ticking_clock):
    clock = ticking_clock()
    refuse = {"Code": "AccessDeniedException", "Message": "User is not authorized to perform: dynamodb:GetItem"}
    error_class = lab.clients.dynamodb.exceptions.ClientError
    began = clock.now

    def action():
        raise error_class({"Error": refuse}, "GetItem")

    with pytest.raises(AwsFailure, match="calling the GetItem operation: User is not authorized"):
        call_for(clock, 3000, action)
    assert 60 <= clock.now - began < 200


def test_throttling_is_waited_out(lab, ticking_clock):
    answers = ["ThrottlingException", "ThrottlingException", None]
    error_class = lab.clients.dynamodb.exceptions.ClientError

    def action():
        code = answers.pop(0)
        if code:
            raise error_class({"Error": {"Code": code}}, "GetItem")
        return "done"

    assert call_for(ticking_clock(), 300, action) == "done"


def test_a_missing_table_fails_at_once(lab, ticking_clock):
    clock = ticking_clock()
    with pytest.raises(AwsFailure, match="ResourceNotFoundException"):
        call_for(clock, 3000, StateStore(lab.clients, "no-such-table", "c").read)
    assert clock.now < 1100


# --- Phases on restart ------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [None, Phase.LAUNCHED, Phase.FAILED])
def test_a_worker_that_starts_in_any_early_phase_only_joins(lab, phase):
    if phase:
        lab.write_state(2, phase)
    lab.run(lab.agent(1))
    stages = [body["stage"] for body in lab.bodies("report")]
    assert stages == ([] if phase is Phase.FAILED else ["joined"])
    assert not (lab.directory / "node1/opt/deeplearning/membership.json").exists()


@pytest.mark.parametrize(("phase", "stages"), [(Phase.PUBLISHED, ["ready"]), (Phase.FORMED, [])])
def test_a_worker_that_starts_late_installs_what_is_published(lab, phase, stages):
    roster = tuple(Member(lab.instance(index), f"10.0.0.{9 + index}", 2, KEY) for index in range(2))
    lab.write_state(2, phase, members=roster, user_key=KEY)
    lab.run(lab.agent(1))
    assert [body["stage"] for body in lab.bodies("report")] == stages
    assert lab.read(1, "/opt/deeplearning/workers") == "deeplearning-worker1\ndeeplearning-worker2\n"


def test_a_lower_generation_than_the_installed_one_is_ignored(lab):
    roster = tuple(Member(lab.instance(index), f"10.0.0.{9 + index}", 2, KEY) for index in range(2))
    lab.write_state(2, Phase.FORMED, members=roster, user_key=KEY, generation=5)
    lab.run(lab.agent(1))
    lab.write_state(1, Phase.FORMED, members=roster[1:], user_key=KEY, generation=4)
    before = lab.digests(1)
    lab.run(lab.agent(1))
    assert lab.digests(1) == before


def test_a_worker_that_is_not_in_the_roster_asks_for_the_next_one(lab):
    roster = (Member(lab.instance(0), "10.0.0.9", 2, KEY),)
    lab.write_state(1, Phase.FORMED, members=roster, user_key=KEY)
    lab.run(lab.agent(1))
    assert [body["stage"] for body in lab.bodies("report")] == ["joined"]
    assert not (lab.directory / "node1/opt/deeplearning/workers").exists()


def test_a_worker_that_failed_reports_once_and_then_calls_nobody(lab, ticking_clock):
    agent = lab.agent(1, ticking_clock())
    lab.program(1, "nvidia-smi", None)
    lab.run(agent)
    [report] = lab.bodies("report")
    assert report["stage"] == "failed"
    assert "failed to count GPUs: the instance type has 2 GPUs and the node shows 0" in report["reason"]
    assert lab.calls == {"SendMessage": 1}


def test_a_master_that_finds_failed_passes_the_reason_on_and_starts_nothing(lab):
    lab.write_state(3, Phase.FAILED, reason="only 1 of 2 workers launched: VcpuLimitExceeded")
    lab.run(lab.agent(0))
    assert [body["Reason"] for body in lab.signals.bodies] == ["only 1 of 2 workers launched: VcpuLimitExceeded"]


def test_a_master_that_reboots_broken_does_not_undo_a_formed_cluster(lab, ticking_clock):
    lab.write_state(1)
    lab.run(lab.agent(0))
    lab.program(0, "nvidia-smi", None)
    lab.run(lab.agent(0, ticking_clock()))
    assert lab.read_state().phase is Phase.FORMED
    assert [body["Status"] for body in lab.signals.bodies] == ["SUCCESS"]


def test_a_master_that_fails_before_the_adjuster_spoke_writes_it_down(lab, ticking_clock):
    lab.node(0)
    lab.program(0, "nvidia-smi", None)
    lab.run(lab.agent(0, ticking_clock()))
    assert lab.read_state().phase is Phase.FAILED
    assert lab.read_state().revision == 1
    assert [body["Status"] for body in lab.signals.bodies] == ["FAILURE"]


def test_a_failure_that_comes_before_the_adjuster_spoke_is_heard_at_the_next_look(lab, ticking_clock):
    report = NodeReport("master-of-names", lab.instance(1), ReportStage.FAILED, reason="disk full")
    lab.send("report", report.to_body())
    lab.run(lab.agent(0, ticking_clock()))
    assert "disk full" in lab.signals.bodies[0]["Reason"]
    assert lab.calls["GetItem"] == 3, "one to follow, then two to write the failure"


def test_two_workers_with_one_address_never_become_a_roster(lab, ticking_clock):
    lab.write_state(3)
    for index in (1, 2):
        lab.send("report", joined(lab, index).to_body())
    lab.run(lab.agent(0, ticking_clock()))
    assert "two members have one address" in lab.read_state().reason


def test_the_failure_of_a_node_that_does_not_count_is_only_logged(lab, caplog):
    roster = Roster(lab.node(0))
    report = NodeReport("master-of-names", lab.instance(5), ReportStage.FAILED, reason="disk full")
    roster.accept(report, (lab.instance(0), lab.instance(1)))
    assert "disk full" in caplog.text
    with pytest.raises(ReportedFailure, match="disk full"):
        roster.accept(report, (lab.instance(0), lab.instance(5)))


# --- Signals and reasons ----------------------------------------------------------------------------


def test_a_signal_is_tried_again_and_success_is_sent_once(lab, ticking_clock):
    node = lab.node(0, ticking_clock())
    lab.signals.statuses = [500, 503]
    signal = StackSignal(node)
    assert signal.send("SUCCESS", "formed")
    assert signal.send("SUCCESS", "formed")
    assert StackSignal(node).send("SUCCESS", "formed")
    assert len(lab.signals.bodies) == 1


def test_an_expired_url_is_not_insisted_on(lab, ticking_clock):
    lab.signals.statuses = [403] * 10
    assert not StackSignal(lab.node(0, ticking_clock())).send("FAILURE", "late")
    assert len(lab.signals.statuses) == 9


def test_a_reason_keeps_cause_and_remedy_and_the_end_of_the_output():
    failure = StageFailure(
        "the mount failed", "open port 2049", stage="mount", output="noise\n" * 900 + "the last line"
    )
    reason = failure.reason("worker i-1")
    assert reason.startswith("worker i-1 failed to mount: the mount failed; open port 2049; last lines: ...")
    assert reason.endswith("| the last line")
    assert len(reason) == 1000


def test_an_unforeseen_error_still_has_a_stage_and_a_kind():
    assert describe_failure(KeyError("x"), "count GPUs").reason("master i-1") == (
        "master i-1 failed to count GPUs: KeyError: 'x'; see the agent's log on the node"
    )


# --- Metadata and entry -----------------------------------------------------------------------------


def test_d39_identity_comes_from_metadata_version_2(imds):
    identity = read_identity(imds.clock, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url})
    assert (identity.instance_id, identity.address) == ("i-0123456789abcdef0", "10.1.2.3")


def test_a_metadata_service_that_comes_late_is_waited_for_and_one_that_never_does_is_named(imds):
    imds.refusals = 3
    assert read_identity(imds.clock, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url}).address == "10.1.2.3"
    imds.refusals = 1000
    with pytest.raises(StageFailure, match="gave no identity: HTTP Error 401"):
        read_identity(imds.clock, {"AWS_EC2_METADATA_SERVICE_ENDPOINT": imds.url})


def test_d38_missing_credentials_end_the_preparation(lab, ticking_clock, monkeypatch):
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    agent = lab.agent(0)
    with pytest.raises(StageFailure, match="no AWS credentials"):
        agent.clients.wait_for_credentials(Deadline.after(ticking_clock(), 3000))


def test_check_tells_good_settings_from_bad_ones(lab, tmp_path, capsys):
    assert main(["--check"], tmp_path) == 2
    assert "settings.json cannot be read" in capsys.readouterr().err
    node = lab.node(0)
    settings = node.path("/opt/deeplearning/settings.json")
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps(node.settings.to_document()))
    assert main(["--check"], node.root) == 0
    assert main(["--unknown"], node.root) == 2
    settings.write_text("{}")
    assert main(["--check"], node.root) == 2


def test_d46_the_modules_import_without_root_and_touch_nothing(package_directory, tmp_path):
    modules = ", ".join(f"deeplearning_agent.{path.stem}" for path in package_directory.glob("[a-z]*.py"))
    code = f"import os, logging; os.chdir({str(tmp_path)!r}); import {modules}; assert not logging.getLogger().handlers"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert list(tmp_path.iterdir()) == []


def test_nothing_sleeps_outside_the_deadline_module_and_no_shell_is_used(package_directory):
    for path in package_directory.glob("*.py"):
        tree = ast.parse(path.read_text(), feature_version=(3, 10))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in {"sleep", "system", "popen"}:
                assert path.name == "deadline.py", f"{path.name}:{node.lineno} uses {node.attr}"
            if isinstance(node, ast.keyword):
                assert node.arg != "shell", f"{path.name}:{node.value.lineno} uses a shell"


def test_imports_only_the_contract_botocore_and_the_standard_library(package_directory):
    allowed = sys.stdlib_module_names | {"deeplearning_contract", "deeplearning_agent", "botocore"}
    for path in package_directory.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.split(".")[0] for name in names} <= allowed, path.name


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level(logging.INFO, "deeplearning_agent")
