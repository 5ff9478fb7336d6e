"""The moments that a case waits for, its faults, and the end of its function."""

import subprocess
import threading
from types import SimpleNamespace

import pytest

from cdk_rehearsal.embedded_aws.base.stack_record import StackResource
from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.node_faults import MetadataFault
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_contract.names import ROLE_TAG
from deeplearning_rehearsal.cases import case_node, cluster_case
from deeplearning_rehearsal.cases.case import case
from deeplearning_rehearsal.cases.case_parts import NeverCameError
from deeplearning_rehearsal.cases.catalogue.messages import POISON, _send_poison
from deeplearning_rehearsal.cases.cluster_case import ClusterCase
from deeplearning_rehearsal.cases.node_files import NodeFiles
from deeplearning_rehearsal.cases.outcome import Outcome
from tests.real_time import GENEROUS_SECONDS


class RecordedNode:
    """Plays a node with its link, its disk and its metadata service."""

    def __init__(self, recorder, instance_id):
        vars(self).update(recorder=recorder, instance_id=instance_id, link=self, disk=self, metadata=self)

    def __getattr__(self, name):
        return lambda *arguments, **options: self.__setattr__(name, *arguments, *options.values())

    def __setattr__(self, name, *values):
        vars(self)["recorder"].asked.append((name, vars(self)["instance_id"], *values))


class Recorder:
    """Plays lab, fleet, situation, embedded AWS and its clients, and keeps what was asked of them."""

    def __init__(self, root):
        self.asked = []
        self.root = root
        self.lines = self.status = self.committed = self.checkpoints_seen = 0
        self.ids = ["i-0", "i-1", "i-2"]
        self.said = self.now_phase = self.secondary = self.printed = ""
        self.part = 0.0
        self.result_seen = None
        self.dead, self.formed = threading.Event(), threading.Event()
        self.place = self.job = self

    def __getattr__(self, name):
        return lambda *arguments, **options: self.asked.append((name, *arguments, *options.values()))

    def node(self, instance_id):
        return RecordedNode(self, instance_id)

    def launched(self):
        roles = ["master" if name.startswith("i-0") else "worker" for name in self.ids]
        pairs = zip(self.ids, roles, strict=True)
        return [SimpleNamespace(instance_id=name, tags={ROLE_TAG: role}) for name, role in pairs]

    def fail_instance(self, instance_id):
        self.asked.append(("fail_instance", instance_id))
        self.dead.set()
        return True

    def reboot(self, instance_id):
        self.asked.append(("reboot", instance_id))
        self.lines += 1

    def run(self, instance_id, argv, **options):
        self.asked.append(("run", instance_id, argv[-1], *options.values()))
        self.lines += 1
        return subprocess.CompletedProcess(list(argv), self.status, "", "no such file\n")

    def lane(self, instance_id):
        return f"worker of {instance_id}"

    def count_lines(self, _instance_id):
        return self.lines

    def disk(self, _instance_id):
        return self.root

    def client(self, _service):
        return self

    def has_said(self, instance_id, text):
        return instance_id == "i-2" and text in self.said

    def phase(self):
        return self.now_phase

    def state(self):
        return SimpleNamespace(generation=self.committed) if self.committed else None

    def provisioned(self, instance_id, step):
        assert (instance_id, step) == ("i-0", "data:coco")
        return self.part

    def commits(self, ranks):
        return self.committed if ranks == 4 else 99

    def result(self):
        return self.result_seen

    def job_secondary(self):
        return self.secondary

    def checkpoints(self):
        return self.checkpoints_seen

    def has_printed(self, text):
        return text in self.printed


@pytest.fixture
def recorder(tmp_path):
    return Recorder(tmp_path)


@pytest.fixture
def make(recorder):
    def make_case(story=lambda run: run.finish(), **parts):
        lab = recorder
        parts = {"stacks": {}, "lab": lab, "fleet": lab, "aws": lab, "situation": lab} | parts
        chosen = SimpleNamespace(function=story)
        return ClusterCase(case=chosen, timeline=Timeline(), files=NodeFiles(recorder.disk), **parts)

    return make_case


@pytest.fixture
def run(make):
    made = make()
    yield made
    for timer in made._timers:
        timer.cancel()


@pytest.mark.parametrize(
    ("wait", "early", "due"),
    [
        (lambda run: run.worker(3).wait_for_boot(), {}, {"ids": ["i-0", "i-1", "i-2", "i-3"]}),
        (lambda run: run.master.wait_for_boot(), {"ids": ["i-1"]}, {"ids": ["i-0"]}),
        (lambda run: run.worker(2).wait_for_line("joined"), {"said": "ready"}, {"said": "INFO reported joined"}),
        (
            lambda run: run.worker(2).wait_for_line("joined"),
            {"said": "joined", "ids": ["i-0"]},
            {"ids": ["i-1", "i-2"]},
        ),
        (lambda run: run.master.wait_for_step("data:coco", 0.4), {"part": 0.39}, {"part": 0.4}),
        (lambda run: run.wait_for_state("published"), {"now_phase": "launched"}, {"now_phase": "published"}),
        (lambda run: run.wait_for_generation(2), {"committed": 1}, {"committed": 3}),
        (lambda run: run.wait_for_commits(5, ranks=4), {"committed": 4}, {"committed": 5}),
        (lambda run: run.wait_for_job("Training"), {"secondary": "Starting"}, {"secondary": "Training"}),
        (lambda run: run.wait_for_checkpoint(), {}, {"checkpoints_seen": 1}),
        (lambda run: run.wait_for_print("FailedMount"), {"printed": "Scheduled"}, {"printed": "x: FailedMount: y"}),
    ],
)
def test_a_moment_has_come_when_what_it_waits_for_is_seen(
    make,
    recorder,
    wait,
    early,
    due,
):
    run = make()
    vars(recorder).update(early)
    run._ending.set()
    with pytest.raises(NeverCameError, match="which never came"):
        wait(run)
    vars(recorder).update(due)
    wait(run)


def test_a_case_waits_until_its_moment_comes(run, recorder):
    waiting = threading.Thread(daemon=True, target=run.wait_for_formation)
    waiting.start()
    assert waiting.is_alive()
    recorder.formed.set()
    waiting.join(GENEROUS_SECONDS)
    assert not waiting.is_alive()


def test_a_line_of_the_timeline_is_a_moment(run):
    run._ending.set()
    with pytest.raises(NeverCameError, match="the line 'lost', which never came"):
        run.wait_for_line("lost")
    run.timeline.report("AWS", "the message is lost")
    run.wait_for_line("lost")


def test_commits_of_a_job_that_has_ended_are_not_waited_for(run, recorder):
    recorder.result_seen = {"accuracy": 1.0}
    with pytest.raises(NeverCameError, match="training commit 5 with 4 ranks: the job has ended before"):
        run.wait_for_commits(5, ranks=4)


def test_machines_are_found_by_role_and_order_of_launch(run, recorder):
    recorder.ids = ["i-0", "i-1", "i-2", "i-0b"]
    assert [run.worker(1).instance_id, run.worker(2).instance_id, run.master.instance_id] == ["i-1", "i-2", "i-0b"]
    with pytest.raises(RehearsalError, match="no worker 3 was launched"):
        run.worker(3).silence()
    assert run.injected == []


@pytest.mark.parametrize(
    ("strike", "asked"),
    [
        (lambda node: node.power_off(found_dead_after=None), [("cut_power", "i-2")]),
        (lambda node: node.silence(), [("set_up", "i-2", False)]),
        (lambda node: node.reboot(), [("reboot", "i-2")]),
        (lambda node: node.run_user_data_again(), [("run", "i-2", "/var/lib/cloud/instance/scripts/part-001")]),
        (lambda node: node.set_gpus(3, ecc_errors=1, answer_seconds=25.0), [("set_gpus", "i-2", 3, 1, 25.0)]),
        (lambda node: node.set_driver("535", cuda="13.0"), [("set_driver", "i-2", "535", "13.0")]),
        (lambda node: node.break_mounts("hang", 9.0), [("break_mounts", "i-2", "hang", 9.0)]),
        (lambda node: node.fill_disk(2), [("fill", "i-2", 2 << 20)]),
        (lambda node: node.slow_metadata(2.0), [("fault", "i-2", MetadataFault(delay_seconds=2.0))]),
        (lambda node: node.stop_sshd(), [("control_sshd", "i-2", "stop")]),
        (lambda node: node.start_sshd(), [("control_sshd", "i-2", "start")]),
        (lambda node: node.execute("kill -STOP 1"), [("run", "i-2", "kill -STOP 1")]),
        (lambda node: node.announce_interruption(120.0), [("announce_interruption", "i-2", 120.0)]),
    ],
)
def test_a_fault_strikes_the_machine_and_is_recorded(run, recorder, strike, asked):
    strike(run.worker(2))
    assert recorder.asked == asked
    (injected,) = run.injected
    assert (injected.when, injected.instance_id) == ("at once", "i-2")
    assert run.timeline.events[0].text == f"{injected.what} (at once) worker of i-2 i-2"
    assert injected.what.endswith(" worker 2")


def test_an_injection_is_recorded_with_the_moment_that_was_waited_for(run, recorder):
    recorder.now_phase = "published"
    run.wait_for_state("published")
    run.inject("first")
    run.inject("second", stops_ranks=True)
    assert [(each.what, each.when, each.stops_ranks) for each in run.injected] == [
        ("first", "state published", False),
        ("second", "+0 s", True),
    ]


def test_a_machine_without_power_is_found_dead_later(run, recorder):
    run.worker(2).power_off(found_dead_after=0.0)
    assert recorder.dead.wait(GENEROUS_SECONDS)
    assert recorder.asked == [("cut_power", "i-2"), ("fail_instance", "i-2")]
    assert run.injected[0].stops_ranks


def test_a_machine_that_ec2_takes_back_loses_power_when_it_was_announced(run, recorder):
    run.worker(2).announce_interruption(0.0)
    assert recorder.dead.wait(GENEROUS_SECONDS)
    assert recorder.asked == [("announce_interruption", "i-2", 0.0), ("cut_power", "i-2"), ("fail_instance", "i-2")]


def test_a_line_that_fails_on_the_node_is_an_error(run, recorder):
    recorder.status = 127
    with pytest.raises(RehearsalError, match="ls /nowhere ended with status 127: no such file"):
        run.worker(2).execute("ls /nowhere")


def test_a_line_of_the_login_user_tells_its_status_and_why(run, recorder, monkeypatch):
    monkeypatch.setattr(ClusterCase, "read_settings", lambda _: SimpleNamespace(login_user="ubuntu"))
    assert run.worker(2).log_in("true") == "status 0"
    recorder.status = 3
    assert run.worker(2).log_in("ls") == "status 3: no such file"
    assert recorder.asked[-1] == ("run", "i-2", "ls", "ubuntu", True, 120.0)


def test_a_reboot_after_which_no_agent_runs_is_an_error(run, recorder, monkeypatch):
    monkeypatch.setattr(case_node, "_AGENT_RETURNS_SECONDS", 0.0)
    monkeypatch.setattr(recorder, "reboot", lambda _instance_id: None)
    with pytest.raises(RehearsalError, match="the agent of i-2 must run again, it has logged nothing"):
        run.worker(2).reboot()


@pytest.mark.parametrize("name", ["sagemaker", "eks"])
def test_jobs_of_another_platform_are_refused(run, name):
    with pytest.raises(RehearsalError, match="the stack must have"):
        getattr(run, name)


def test_poison_comes_to_every_queue_and_topic_of_the_stack(make, recorder):
    resources = (
        StackResource("Q", "https://queue", "AWS::SQS::Queue", "", ""),
        StackResource("T", "arn:topic", "AWS::SNS::Topic", "", ""),
        StackResource("B", "table", "AWS::DynamoDB::Table", "", ""),
    )
    aws = SimpleNamespace(wait=lambda _: SimpleNamespace(resources=resources), place=recorder)
    _send_poison(make(aws=aws))
    assert recorder.asked == [
        *[("send_message", "https://queue", body) for body in POISON],
        *[("publish", "arn:topic", body) for body in POISON],
    ]


# --- The function -----------------------------------------------------------------------------------------


def _tell(run, outcome):
    """Carry out the function of a case as a rehearsal does."""
    troubles = []
    thread = threading.Thread(daemon=True, target=lambda: troubles.append(run.carry_out()))
    thread.start()
    run.stop_waiting()
    run.end(outcome)
    thread.join(GENEROUS_SECONDS)
    assert not thread.is_alive()
    return troubles[0]


def test_a_function_injects_waits_for_the_end_and_judges(make, recorder):
    @case("x")
    def story(run):
        run.worker(1).silence()
        seen = run.finish()
        assert seen.formed == 2
        assert seen.launches == 2

    run = make(story.function)
    assert _tell(run, Outcome(formed=2, launches=3)) == ""
    assert [(f.expectation, f.is_held, f.found) for f in run.findings.recorded] == [
        ("seen.formed == 2", True, "2"),
        ("seen.launches == 2", False, "3"),
    ]
    assert recorder.asked == [("set_up", "i-1", False)]


def test_a_moment_that_never_comes_ends_the_function_with_what_was_injected_last(
    make,
):
    def story(run):
        run.inject("first")
        run.wait_for_formation()
        run.inject("second")

    run = make(story)
    assert _tell(run, Outcome()) == "first was injected last; the case waits for formed, which never came"
    assert [each.what for each in run.injected] == ["first"]


@pytest.mark.parametrize(
    ("error", "words"), [(RehearsalError("no such link"), "no such link"), (KeyError("x"), "KeyError: 'x'")]
)
def test_an_error_of_the_function_is_its_trouble(make, error, words):
    def story(_run):
        raise error

    assert _tell(make(story), Outcome()) == words


def test_a_function_without_an_end_of_the_rehearsal_ends_too(make):
    assert _tell(make(), None) == "the case waits for the end of the rehearsal, which failed"


def test_the_job_begins_when_the_function_waits_for_it_or_for_the_end(make, recorder):
    reached = threading.Event()

    def story(run):
        run.wait_for_formation()
        run.inject("before the job")
        reached.set()
        run.wait_for_checkpoint()
        run.inject("while it runs")

    run = make(story)
    thread = threading.Thread(daemon=True, target=run.carry_out)
    thread.start()
    assert not run._awaits_job.is_set()
    recorder.formed.set()
    run.await_injections(GENEROUS_SECONDS, before_job=True)
    assert reached.is_set()
    assert not run._finishing.is_set()
    recorder.checkpoints_seen = 1
    run.await_injections(GENEROUS_SECONDS)
    thread.join(GENEROUS_SECONDS)
    assert [each.when for each in run.injected] == ["formed", "checkpoint"]


def test_the_status_is_asked_until_it_says_all_of_it_wherever_its_lines_break(run, monkeypatch):
    pages = ["FORMED", "FORMED, no\n     room", "never asked"]
    monkeypatch.setattr(cluster_case, "describe_outside", lambda _: pages.pop(0))
    assert run.await_status("FORMED", "no room") == "FORMED, no room"
    assert pages == ["never asked"]


def test_a_status_that_lacks_a_text_is_returned_in_the_end(run, monkeypatch):
    monkeypatch.setattr(cluster_case, "describe_outside", lambda _: "FORMED")
    monkeypatch.setattr(cluster_case, "_STATUS_SECONDS", 0.0)
    assert run.await_status("no room") == "FORMED"
