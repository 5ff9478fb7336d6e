"""An agent that starts, or starts again, converges on the item from whatever phase it finds."""

import logging

import pytest

from deeplearning_agent.telemetry.log_records import read_fields
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.cluster_state import Phase
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage
from deeplearning_contract.reason import Reason

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey1"


@pytest.mark.parametrize("phase", [None, Phase.LAUNCHED, Phase.FAILED])
def test_a_worker_that_starts_in_any_early_phase_only_joins(lab, phase):
    if phase:
        lab.write_state(2, phase)
    lab.run(lab.agent(1))
    stages = [body["stage"] for body in lab.bodies("report")]
    assert stages == ([] if phase is Phase.FAILED else ["joined"])
    assert not (lab.directory / "node1/opt/deeplearning/membership.json").exists()


def write_members(lab, *indexes, phase=Phase.FORMED, **changes):
    """Write a state record whose members are some of the nodes."""
    members = tuple(Member(lab.instance(index), f"10.0.0.{9 + index}", 2, KEY) for index in indexes)
    lab.write_state(len(members), phase, members=members, user_key=KEY, **changes)


@pytest.mark.fault(32, 48)
@pytest.mark.defect("D28")
@pytest.mark.parametrize("phase", [Phase.PUBLISHED, Phase.FORMED])
def test_a_worker_that_starts_late_installs_what_is_published(lab, phase):
    write_members(lab, 0, 1, phase=phase)
    lab.run(lab.agent(1))
    assert [body["stage"] for body in lab.bodies("report")] == ["ready"]
    assert lab.read(1, "/opt/deeplearning/workers") == "deeplearning-worker1\ndeeplearning-worker2\n"


@pytest.mark.fault(27)
def test_a_lower_generation_than_the_installed_one_is_ignored(lab):
    write_members(lab, 0, 1, generation=5)
    lab.run(lab.agent(1))
    write_members(lab, 1, generation=4)
    before = lab.digests(1)
    lab.run(lab.agent(1))
    assert lab.digests(1) == before


@pytest.mark.fault(48)
def test_a_worker_that_is_no_member_asks_for_the_next_generation(lab):
    write_members(lab, 0)
    lab.run(lab.agent(1))
    assert [body["stage"] for body in lab.bodies("report")] == ["joined"]
    assert not (lab.directory / "node1/opt/deeplearning/workers").exists()


@pytest.mark.fault(58)
def test_a_failed_worker_reports_it_once_an_hour_and_makes_no_other_call(lab, ticking_clock):
    agent = lab.agent(1, ticking_clock())
    lab.program(1, "nvidia-smi", None)
    lab.run(agent)
    hours = 100_000 // 3600  # as long as the clock runs
    reports = lab.bodies("report")
    assert {report["stage"] for report in reports} == {"failed"}
    assert "failed to count GPUs: the instance type has 2 GPUs and the node shows 0" in reports[0]["reason"]["cause"]
    assert 2 < lab.calls["SendMessage"] <= hours + 1
    assert set(lab.calls) == {"SendMessage"}


def test_a_master_that_finds_failed_passes_the_reason_on_and_starts_nothing(lab):
    lab.write_state(3, Phase.FAILED, reason=Reason("only 1 of 2 workers launched: VcpuLimitExceeded"))
    lab.run(lab.agent(0))
    said = [(body["Status"], body["Reason"]) for body in lab.signals.bodies]
    assert said == [("FAILURE", "only 1 of 2 workers launched: VcpuLimitExceeded")]


def test_a_master_that_fails_before_the_adjusters_first_report_records_its_failure_and_is_not_replaced(
    lab, ticking_clock
):
    lab.node(0)
    lab.program(0, "nvidia-smi", None)
    agent = lab.agent(0, ticking_clock(20_000))
    agent.clients.autoscaling = group = Group()
    lab.run(agent)
    assert lab.read_state().phase is Phase.FAILED
    assert lab.read_state().revision == 1
    assert [body["Status"] for body in lab.signals.bodies] == ["FAILURE"]
    assert group.calls == []


def report_full_disk(lab, index):
    report = NodeReport("master-of-names", lab.instance(index), ReportStage.FAILED, reason=Reason("disk full"))
    lab.send("report", report.to_body())


def test_a_failure_before_the_adjusters_first_report_is_seen_at_the_next_read(lab, ticking_clock):
    report_full_disk(lab, 1)
    lab.run(lab.agent(0))
    assert not lab.signals.bodies
    lab.write_state(2)
    lab.run(lab.agent(0, ticking_clock()))
    assert lab.signals.bodies[0]["Reason"] == "worker i-00000000000000001: disk full"


@pytest.mark.fault(63)
def test_a_time_out_before_the_adjusters_first_report_says_so_and_has_the_failures_that_were_reported(
    lab, ticking_clock
):
    report_full_disk(lab, 1)
    lab.run(lab.agent(0, ticking_clock(), setup_seconds=300))
    reason = lab.signals.bodies[0]["Reason"]
    assert (
        "failed to form the cluster: the set-up time of 300 s is over: no report from the capacity adjuster" in reason
    )
    assert "disk full" in reason
    assert lab.read_state().phase is Phase.FAILED


def test_the_failure_of_a_node_that_does_not_count_is_only_logged(lab, caplog):
    report_full_disk(lab, 5)
    lab.write_state(1)
    lab.run(lab.agent(0))
    assert "disk full" in caplog.text
    assert lab.read_state().phase is Phase.FORMED


@pytest.fixture(autouse=True)
def _log_everything(caplog):
    caplog.set_level(logging.INFO, "deeplearning_agent")


class Group:
    """Auto Scaling, as far as a master calls it."""

    def __init__(self):
        self.calls = []

    def set_instance_health(self, **request):
        self.calls.append(request)


def test_a_master_that_cannot_prepare_itself_has_its_group_replace_it(lab, ticking_clock, caplog):
    lab.write_state(1)
    lab.run(lab.agent(0))
    lab.program(0, "nvidia-smi", None)
    agent = lab.agent(0, ticking_clock(3000))
    agent.clients.autoscaling = group = Group()
    lab.run(agent)
    request = {"InstanceId": lab.instance(0), "HealthStatus": "Unhealthy", "ShouldRespectGracePeriod": False}
    assert group.calls[0] == request
    events = [read_fields(record).event for record in caplog.records if read_fields(record).event]
    told = [event for event in events if "cannot prepare itself and is replaced" in event.reason.cause]
    assert told[0].kind is EventKind.DEGRADED
    assert "failed to count GPUs" in told[0].reason.cause
    assert lab.read_state().phase is Phase.FORMED
    assert [body["Status"] for body in lab.signals.bodies] == ["SUCCESS"]
