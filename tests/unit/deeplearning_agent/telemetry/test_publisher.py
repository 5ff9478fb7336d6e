"""Metrics and events of a node: membership, phases, GPUs, file system, training, and failures beside it."""

import json
import logging
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from deeplearning_agent.coordination.state_store import ReportingStore, find_events, find_lost
from deeplearning_agent.telemetry.log_excerpts import TAIL_LINES, failure_fields, log_provisioning, log_tail
from deeplearning_agent.telemetry.log_records import read_fields
from deeplearning_agent.telemetry.node_metrics import (
    NodeMetrics,
    Traffic,
    find_metric_files,
    parse_mount_statistics,
    parse_throughput,
)
from deeplearning_agent.workload.user_scripts import RUN_LOG, RunScript
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.metrics import (
    FILE_SYSTEM_READ,
    FILE_SYSTEM_WRITE,
    FORMATION_SECONDS,
    GENERATION,
    GPU_UTILIZATION,
    NODES_FORMED,
    NODES_LOST,
    TRAINING_THROUGHPUT,
)
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpus import read_utilization
from tests.unit.node_lab import SlowDriver, StillClock

KEY = "ssh-ed25519 " + "A" * 68
MASTER, FIRST, SECOND, OTHER = (Member(f"i-{n:017x}", f"10.0.0.{n + 9}", 2, KEY) for n in range(4))
LAUNCHED = ClusterState("cats", 1, 1, Phase.LAUNCHED, 3, (MASTER.instance_id, FIRST.instance_id, SECOND.instance_id))
PUBLISHED = LAUNCHED.advance(Phase.PUBLISHED, members=(MASTER, FIRST, SECOND), user_key=KEY)
FORMED = PUBLISHED.advance(Phase.FORMED, has_formed=True)
SMALLER = FORMED.depart(2, {SECOND.instance_id: Reason("it is silent")}).advance(
    Phase.FORMED, generation=2, members=(MASTER, FIRST)
)


@pytest.fixture
def said(caplog):
    """Return a function that lists the logged messages with their fields."""
    caplog.set_level(logging.INFO)
    return lambda: [(record.getMessage(), read_fields(record)) for record in caplog.records]


# --- The state item ---------------------------------------------------------------------------------


NO_CAPACITY = Reason("no capacity", "wait")
NO_DRIVER = Reason("no driver")
LOST = Reason(f"lost {SECOND.instance_id}: it is silent")
LOST_MASTER = Reason(f"lost {MASTER.instance_id}: ")
ENDED = Reason("the run script ended with status 0")
SMALL = replace(FORMED, requested=4, reason=NO_CAPACITY)
TAKEN_OVER = FORMED.advance(Phase.PUBLISHED, generation=2, members=(OTHER, FIRST, SECOND))


@pytest.mark.parametrize(
    ("before", "state", "events"),
    [
        (None, LAUNCHED, []),
        (LAUNCHED, PUBLISHED, []),
        (PUBLISHED, FORMED, [(EventKind.FORMED, NO_REASON)]),
        (PUBLISHED, SMALL, [(EventKind.FORMED, NO_CAPACITY), (EventKind.DEGRADED, NO_CAPACITY)]),
        (FORMED, SMALLER, [(EventKind.DEGRADED, LOST)]),
        (SMALLER, SMALLER.advance(Phase.FORMED, generation=3, members=(MASTER, FIRST, OTHER)), []),
        (FORMED, FORMED.advance(Phase.FORMED, run_ended=True), [(EventKind.FINISHED, ENDED)]),
        (LAUNCHED, LAUNCHED.advance(Phase.FAILED, reason=NO_DRIVER), [(EventKind.FAILED, NO_DRIVER)]),
        (PUBLISHED, PUBLISHED.advance(Phase.PUBLISHED, generation=2, members=(MASTER, FIRST)), []),
        (FORMED, TAKEN_OVER, [(EventKind.DEGRADED, LOST_MASTER)]),
    ],
)
def test_each_change_of_the_state_record_has_its_events_with_their_reasons(before, state, events):
    found = find_events(before, state, find_lost(before, state))
    assert [(event.kind, event.reason) for event in found] == events
    assert all((event.cluster, event.generation) == ("cats", state.generation) for event in found)
    assert all(event.nodes == len(state.members) for event in found)


def write_all(lab, states, clock):
    store = ReportingStore(lab.node(0, clock), lab.clients)
    for state in states:
        store.read()
        assert store.write(replace(state, cluster=lab.node(0).settings.cluster))
    return store


def test_a_first_formation_is_reported_with_its_phases_and_its_size(lab, ticking_clock, said):
    store = ReportingStore(lab.node(0, ticking_clock()), lab.clients)
    name = lab.node(0).settings.cluster
    assert store.write(replace(LAUNCHED, cluster=name))
    store.begin_phases()
    store.read()
    store.mark("join")
    members = tuple(replace(m, instance_id=lab.instance(n)) for n, m in enumerate((MASTER, FIRST, SECOND)))
    assert store.write(replace(PUBLISHED, cluster=name, members=members))
    assert store.write(replace(FORMED, cluster=name, members=members))
    phases = [(fields.phase, fields.metrics[FORMATION_SECONDS]) for _, fields in said() if fields.phase]
    assert [phase for phase, _ in phases] == ["join", "publish", "ready", "formed"]
    assert all(seconds > 0 for _, seconds in phases)
    assert phases[3][1] > sum(seconds for _, seconds in phases[:3])
    (formed,) = [fields for _, fields in said() if fields.event]
    assert formed.metrics == {NODES_FORMED: 3, GENERATION: 1} == store.measure()
    assert (formed.event.kind, formed.event.nodes, formed.generation) == (EventKind.FORMED, 3, 1)
    assert not any(fields.is_local for _, fields in said())


def test_a_lost_member_is_counted_and_reported_once(lab, ticking_clock, said):
    store = write_all(lab, [LAUNCHED, PUBLISHED, FORMED, SMALLER], ticking_clock())
    reasons = [fields.details["reason"] for _, fields in said() if "reason" in fields.details]
    gone = f"{SECOND.instance_id}: it is silent"
    assert reasons == [Reason(gone), Reason(f"lost {gone}")]
    counts = [fields.metrics[NODES_LOST] for _, fields in said() if NODES_LOST in fields.metrics]
    assert counts == [1]
    kinds = [fields.event.kind for _, fields in said() if fields.event]
    assert kinds == [EventKind.FORMED, EventKind.DEGRADED]
    assert store.measure() == {NODES_FORMED: 2, GENERATION: 2}


def test_the_loser_of_a_race_for_the_item_reports_nothing(lab, ticking_clock, said):
    first = write_all(lab, [LAUNCHED, PUBLISHED], ticking_clock())
    second = ReportingStore(lab.node(0, ticking_clock()), lab.clients)
    second.read()
    formed = replace(FORMED, cluster=lab.node(0).settings.cluster)
    assert first.write(formed)
    assert not second.write(replace(formed, reason=Reason("mine")))
    assert sum(fields.event is not None for _, fields in said()) == 1


def test_a_second_master_tells_no_phases_of_a_cluster_that_had_formed(lab, ticking_clock, said):
    write_all(lab, [LAUNCHED, PUBLISHED, FORMED], ticking_clock())
    before = len(said())
    store = ReportingStore(lab.node(0, ticking_clock()), lab.clients)
    for state in (TAKEN_OVER, TAKEN_OVER.advance(Phase.FORMED)):
        store.read()
        store.mark("join")
        store.write(replace(state, cluster=lab.node(0).settings.cluster))
    told = said()[before:]
    assert not [fields.phase for _, fields in told if fields.phase]
    assert [fields.event.kind for _, fields in told if fields.event] == [EventKind.DEGRADED, EventKind.FORMED]
    assert store.measure() == {}  # Another instance is the master of this roster.


def test_a_run_script_that_fails_is_an_end_too_and_shows_its_last_lines(lab, ticking_clock, said):
    node = lab.node(0, ticking_clock(), run_script=ScriptSettings("bucket", "key", "digest"))
    status = node.instance_file("run-script-status")
    status.parent.mkdir(parents=True)
    status.write_text("3\n")
    log = node.path(RUN_LOG)
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text("epoch 1\nout of memory\n")
    for _ in range(2):
        assert not RunScript(node).has_ended_well
    told = [(message, fields) for message, fields in said() if fields.event]
    assert [message for message, _ in told] == ["the run script ended with status 3"]
    assert told[0][1].event.kind is EventKind.FINISHED
    assert str(told[0][1].event.reason) == "the run script ended with status 3"
    tail = [message for message, fields in said() if fields.details.get("source_file") == RUN_LOG]
    assert tail == ["epoch 1", "out of memory"]


# --- What went wrong beside the agent ---------------------------------------------------------------


def test_the_tail_of_a_log_is_bounded_and_an_absent_one_is_none(lab, said):
    node = lab.node(0)
    log_tail(node, "/var/log/absent.log")
    assert said() == []
    log = node.path("/var/log/bootstrap.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"\xff\x00\x1b[31m" + b"\n\nline" * 100_000)
    log_tail(node, "/var/log/bootstrap.log")
    assert [message for message, _ in said()] == ["line"] * TAIL_LINES
    assert not any(fields.is_local for _, fields in said())


def test_a_failure_says_step_reason_remedy_and_what_the_program_wrote():
    failure = StageFailure("the mount failed", "open port 2049", stage="mount", output="x" * 9000 + "end")
    details = failure_fields(failure.stage, failure.reason("worker i-1")).details
    assert details["step"] == "mount"
    cause = "worker i-1 failed to mount: the mount failed"
    assert details["reason"] == Reason(cause, "open port 2049", "x" * 9000 + "end")


def write_status(node, text):
    path = node.path("/opt/deeplearning/provision/status.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_each_change_of_the_provisioning_is_reported_once(lab, said):
    node = lab.node(0)
    known = {}
    for detail in ("no such key", "no such key", "the disk is full"):
        steps = {
            "data:cats": {"state": "failed", "detail": detail, "reason": {"cause": "no key", "remedy": "name another"}},
            "environment": {"state": "running", "detail": "compiling", "done": 42, "total": 100},
        }
        write_status(node, json.dumps({"boot": "", "steps": steps}))
        known = log_provisioning(node, known)
    assert [message for message, _ in said()] == [
        "provisioning failed: data:cats: no such key",
        "provisioning: environment is running (42 %): compiling",
        "provisioning failed: data:cats: the disk is full",
    ]
    reason = Reason("no key", "name another")
    details = {"provision": "data:cats", "state": "failed", "detail": "no such key", "reason": reason}
    assert said()[0][1].details == details
    assert said()[0][1].is_urgent
    assert not said()[1][1].is_urgent


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"boot": "", "steps": 1}',
        '{"boot": "", "steps": {"a": 1}}',
        '{"boot": "", "steps": {"a": []}}',
        '{"boot": "of another", "steps": {"a": {"state": "done"}}}',
        "[" * 9999,
    ],
)
def test_a_status_of_provisioning_that_is_none_is_ignored(lab, said, text):
    write_status(lab.node(0), text)
    assert log_provisioning(lab.node(0), {}) == {}
    assert said() == []


# --- GPUs, file system and training -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "percent"),
    [
        ("echo 90; echo ' 70 '", 80.0),
        ("echo 250", 100.0),
        ("echo '[N/A]'", None),
        ("echo 'NVIDIA-SMI has failed'; exit 9", None),
        (None, None),
    ],
)
def test_gpu_utilization_is_the_average_of_those_that_tell(lab, body, percent):
    node = lab.node(0)
    lab.program(0, "nvidia-smi", body)
    assert read_utilization(node.programs, 20) == percent


@pytest.mark.fault(68)
def test_a_driver_that_is_slow_is_waited_for(lab):
    node = lab.node(0)
    lab.program(0, "nvidia-smi", "echo 50")
    meter = NodeMetrics(replace(node, programs=SlowDriver(node.programs.search_path)))
    assert meter.measure() == {GPU_UTILIZATION: 50.0}


MOUNTS = """device sysfs mounted on /sys with fstype sysfs
device 127.0.0.1:/ mounted on /mnt/efs with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1
\tbytes:\t1 2 3 4 {read} {written} 7 8
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
device none mounted on /other with fstype tmpfs
\tbytes:\t1 2 3 4 5 6 7 8
"""


def test_the_file_systems_traffic_is_what_went_over_the_network():
    assert parse_mount_statistics(MOUNTS.format(read=5, written=6)) == {"/mnt/efs": (5, 6)}


@given(st.text() | st.text("device mounted on with fstype nfs4\n\tbytes: 0123456789", max_size=200))
def test_any_other_statistics_are_none(text):
    assert all(len(counts) == 2 for counts in parse_mount_statistics(text).values())


def test_a_new_mount_has_no_rate():
    assert Traffic(60.0, 0, 0).rates_since(Traffic(0.0, 1, 0)) is None
    assert Traffic(60.0, 1, 1).rates_since(Traffic(60.0, 1, 1)) is None
    assert Traffic(60.0, 60 * 2**20, 0).rates_since(Traffic(0.0, 0, 0)) == (1.0, 0.0)


def test_a_minute_of_a_node_is_one_line(lab, said):
    clock = StillClock()
    node = lab.node(0, clock)
    lab.program(0, "nvidia-smi", "echo 50")
    mounts = node.path("/proc/self/mountstats")
    mounts.parent.mkdir(parents=True)
    meter = NodeMetrics(node, lambda: {NODES_FORMED: 4})
    for clock.now, total in ((0.0, 0), (60.0, 120 * 2**20)):
        mounts.write_text(MOUNTS.format(read=total, written=total // 2))
        meter.log()
    assert [fields.metrics for _, fields in said()] == [
        {NODES_FORMED: 4, GPU_UTILIZATION: 50.0},
        {NODES_FORMED: 4, GPU_UTILIZATION: 50.0, FILE_SYSTEM_READ: 2.0, FILE_SYSTEM_WRITE: 1.0},
    ]
    assert said()[1][0].startswith("measured: NodesFormed 4, GpuUtilization 50, FileSystemRead")


def test_a_node_without_gpu_and_nfs_says_nothing(lab, said):
    node = lab.node(1)
    lab.program(1, "nvidia-smi", None)
    NodeMetrics(node).log()
    assert said() == []


def test_a_measure_that_fails_is_logged_and_ends_nothing(lab, said):
    def fail():
        raise ZeroDivisionError

    NodeMetrics(lab.node(0), fail).log()
    assert [message for message, _ in said()] == ["could not measure the node"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"samples_per_second": 812.5}\n', 812.5),
        ('{"samples_per_second": 1}\n{"samples_per_second": 2}\n', 2.0),
        ('{"samples_per_second": 1}\n{"samples_per_sec', 1.0),
        ('per_second": 1}\n{"samples_per_second": 3, "epoch": 4}\n', 3.0),
        ('{"samples_per_second": -1}', None),
        ('{"samples_per_second": NaN}', None),
        ('{"samples_per_second": Infinity}', None),
        ('{"samples_per_second": 1e300}', None),
        ('{"samples_per_second": ' + "9" * 4000 + "}", None),
        ('{"samples_per_second": true}', None),
        ('{"samples_per_second": "5"}', None),
        ("[" * 4000, None),
        ("root:x:0:0:", None),
        ("", None),
    ],
)
def test_a_throughput_is_believed_when_it_is_a_number(text, value):
    assert parse_throughput(text) == value


@given(st.text(max_size=300))
def test_no_text_of_a_job_is_more_than_ignored(text):
    assert parse_throughput(text) is None


def start_process(node, number, path):
    folder = node.path(f"/proc/{number}")
    folder.mkdir(parents=True)
    (folder / "environ").write_bytes(b"HOME=/root\0DEEPLEARNING_METRICS_PATH=" + str(path).encode() + b"\0")


def test_the_master_adds_up_what_its_jobs_report_while_they_do(lab, tmp_path, said):
    node = lab.node(0)
    lab.program(0, "nvidia-smi", None)
    for program in ("tail", "stat"):
        lab.program(0, program, f'exec /usr/bin/{program} "$@"')
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    first.write_text('{"samples_per_second": 100}\n')
    second.write_text('{"samples_per_second": 50}\n')
    for number, path in ((10, first), (11, first), (12, second), (13, tmp_path / "absent"), (14, tmp_path)):
        start_process(node, number, path)
    meter = NodeMetrics(node)
    assert meter.measure() == {TRAINING_THROUGHPUT: 150.0}
    assert meter.measure() == {}  # Nobody said anything since.
    first.write_text('{"samples_per_second": 120}\n')
    assert meter.measure() == {TRAINING_THROUGHPUT: 120.0}
    assert NodeMetrics(replace(node, settings=replace(node.settings, role=NodeRole.WORKER))).measure() == {}


def test_a_path_that_is_no_plain_one_is_not_looked_at(lab, tmp_path):
    node = lab.node(0)
    for number, path in enumerate(("relative", "/a\nb", "/" + "x" * 5000, "/fine")):
        start_process(node, number + 1, path)
    assert find_metric_files(node.path("/proc")) == ["/fine"]
    assert find_metric_files(tmp_path / "absent") == []
