"""Pods of a job meet, and one that is replaced joins again; the first one runs the job for as long as pods leave."""

import json
import os
import signal
import threading
from dataclasses import asdict, replace

import pytest

from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.names import AGENT_DIRECTORY, NodeRole
from deeplearning_contract.setting_parts import DataSettings, JobNeeds
from deeplearning_member import job_process
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_member.job_process import JobEnd
from deeplearning_member.kubernetes import entry
from deeplearning_member.kubernetes.entry import (
    END_SECONDS,
    MOST_STARTS,
    TERMINATED,
    Leader,
    follow,
    run_pod,
    write_reason,
)
from deeplearning_member.kubernetes.pod import Pod, begin_data, read_index
from deeplearning_member.kubernetes.pods import SupersededError
from deeplearning_node.failure import StageFailure
from deeplearning_node.node_facts import installed_generation
from tests.unit.deeplearning_member.kubernetes.conftest import CLUSTER, DEFINITION, JOB_SECRET, JOB_UID, Pods
from tests.unit.local_aws import NOBODY_LISTENS

VARIABLES = {
    "DEEPLEARNING_POD": "train-digits-11-abcde",
    "JOB_COMPLETION_INDEX": "11",
    "DEEPLEARNING_JOB_UID": JOB_UID,
    "DEEPLEARNING_MEMBERS": "12",
    "DEEPLEARNING_SECRET": JOB_SECRET,
    "DEEPLEARNING_DEFINITION": json.dumps(DEFINITION.to_document()),
}

# --- What Kubernetes tells a pod --------------------------------------------------------------------


def test_a_pod_reads_what_kubernetes_tells_it():
    pod = Pod.read(VARIABLES)
    assert pod == Pod("train-digits-11-abcde", 11, JOB_UID, 12, DEFINITION, JOB_SECRET)
    assert JOB_SECRET not in repr(pod)
    assert (pod.role, Pod.read({**VARIABLES, "JOB_COMPLETION_INDEX": "0"}).role) == (NodeRole.WORKER, NodeRole.MASTER)


def test_a_pod_brings_the_data_that_the_job_names(pods, monkeypatch):
    started = []
    monkeypatch.setattr("subprocess.Popen", lambda words, **_: started.append(words))
    source = DataSettings("coco", "team-data", "coco/", "local")
    pod = Pod.read({**VARIABLES, "DEEPLEARNING_SOURCES": json.dumps([asdict(source)])})
    assert pod.sources == (source,)
    node = pods.node(0)
    begin_data(node)
    assert started == [], "a job without data brings none"
    begin_data(replace(node, settings=replace(node.settings, needs=JobNeeds(data=pod.sources))))
    assert started == [[str(node.path("/usr/local/bin/deeplearning")), "data", "--stage"]]
    assert node.path("/opt/deeplearning/local").is_dir()


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("DEEPLEARNING_POD", None, "'DEEPLEARNING_POD'"),
        ("JOB_COMPLETION_INDEX", "first", "invalid literal for int"),
        ("DEEPLEARNING_DEFINITION", "{", "must be JSON"),
    ],
)
def test_a_variable_that_is_absent_or_malformed_is_a_failure_with_the_remedy(name, text, said):
    changed = {key: value for key, value in {**VARIABLES, name: text}.items() if value is not None}
    with pytest.raises(StageFailure, match=said) as caught:
        Pod.read(changed)
    assert caught.value.remedy == "start the job with deeplearning-cdk submit"


@pytest.mark.parametrize(("name", "index"), [("train-0-abcde", 0), ("a-1-12-x9z2k", 12), ("i-0123456789abcdef0", -1)])
def test_the_index_is_in_the_name_of_a_pod(name, index):
    assert read_index(name) == index


def test_without_settings_a_pod_fails_with_the_remedy(tmp_path):
    with pytest.raises(StageFailure, match=r"settings\.json") as caught:
        run_pod(tmp_path, threading.Event())
    assert caught.value.remedy == "deploy the stack again"


# --- Membership -------------------------------------------------------------------------------------


def test_pods_form_by_their_index_in_whatever_order_they_come(pods):
    for index in (2, 0, 1):
        pods.start(index)
        pods.turn()
    pods.turn(0)
    pods.turn()
    names = [service._member.instance_id for _, service in (pods.services[index] for index in range(3))]
    assert {pods.membership(index)[1] == names for index in range(3)} == {True}
    state = pods.turn(0)
    assert pods.services[0][1].find_ready(state) == set(names)


def test_twelve_pods_are_ranked_by_number(lab, tmp_path):
    pods = Pods(lab, tmp_path / "twelve", 12)
    pods.form(*range(12))
    assert [read_index(name) for name in pods.membership(11)[1]] == list(range(12))


def test_logins_have_the_variables_of_the_image_beside_those_of_the_contract(pods):
    pods.start(0)
    pods.turn()
    profile = pods.services[0][0].path("/etc/profile.d/deeplearning.sh").read_text()
    assert "PATH=/opt/conda/bin" in profile
    assert "DEEPLEARNING_WORKERS_COUNT=1" in profile


@pytest.mark.parametrize("withdraws", [True, False])
def test_a_replaced_pod_takes_the_place_of_its_predecessor_at_once(pods, withdraws):
    """One that Kubernetes deletes withdraws; one of a lost node cannot."""
    pods.form(0, 1, 2)
    generation, before = pods.membership(0)
    _, earlier = pods.services.pop(1)
    if withdraws:
        earlier.withdraw()
        pods.turn(0)
        assert [read_index(name) for name in pods.membership(0)[1]] == [0, 2]
    pods.start(1)
    for _ in range(3):
        pods.turn()
    later, after = pods.membership(0)
    assert later > generation
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] == pods.services[1][1]._member.instance_id != before[1]
    assert pods.membership(1) == pods.membership(2) == (later, after)


def test_a_replaced_first_pod_leads_the_others_with_a_key_of_its_own(pods):
    pods.form(0, 1, 2)
    generation, _ = pods.membership(1)
    old = pods.services.pop(0)[1]
    key = (pods.services[1][0].login_user, old._user_key)
    pods.start(0)
    for _ in range(3):
        pods.turn()
    later, names = pods.membership(1)
    assert later > generation
    assert names[0] == pods.services[0][1]._member.instance_id
    assert pods.services[0][1]._user_key != key[1]
    assert installed_generation(pods.services[2][0]) == later


def test_an_earlier_pod_of_a_lost_node_that_still_runs_ends_and_does_not_take_its_place_back(pods):
    pods.form(0, 1, 2)
    _, earlier = pods.services.pop(0)
    pods.start(0)
    pods.turn(0)
    with pytest.raises(SupersededError, match="has taken the place of this pod"):
        earlier.follow()
    pods.turn()
    assert pods.membership(1)[1][0] == pods.services[0][1]._member.instance_id


def test_a_predecessor_that_announces_itself_once_more_does_not_end_its_successor(pods):
    pods.start(0, 1)
    pods.turn()
    _, earlier = pods.services.pop(0)
    pods.start(0)
    earlier.follow_membership()
    pods.turn(0)
    assert pods.membership(0)[1][0] == pods.services[0][1]._member.instance_id


def test_another_submission_of_the_job_has_members_of_its_own(pods):
    pods.start(0, 1, 2)
    pods.turn()
    node = pods.services[0][0]
    assert ClusterFolder(node, "another-uid").read_announcements() == {}


def test_a_file_system_that_does_not_respond_is_logged_and_tried_again(pods, caplog):
    pods.start(0)
    (pods.shared / ".mounted").unlink()
    assert pods.turn(0) is None
    assert "could not follow the pods; retrying: nothing that responds is mounted" in caplog.text
    (pods.shared / ".mounted").touch()
    assert pods.turn(0).generation == 1


# --- The first pod ----------------------------------------------------------------------------------


class Leading:
    """The first pod of three, with runs of the job that a test describes."""

    def __init__(self, pods, monkeypatch, heard):
        self.heard = heard
        pods.form(0, 1, 2)
        self.pods, self.stop = pods, threading.Event()
        self.silent, self.definitions, self.runs = set(), [], []
        monkeypatch.setattr(entry, "responds", lambda address: address not in self.silent)
        monkeypatch.setattr(entry, "run_job", self.run_job)

    def run_job(self, node, definition, waits_for_stop):
        self.definitions.append(definition)
        return self.runs.pop(0)(waits_for_stop)

    def address(self, index):
        return self.pods.services[index][1]._member.address

    def lose(self, _):
        """Run a job that fails because pod 2 is lost; another pod takes its place."""
        self.silent.add(self.address(2))
        del self.pods.services[2]
        self.pods.start(2)
        return JobEnd(1, "connection closed")

    def lead(self, *runs, seconds=60):
        self.runs = list(runs)
        node, service = self.pods.services[0]
        leader = Leader(node, self.pods.describe(0), ClusterFolder(node, JOB_UID), service, self.stop)
        original = node.clock.wait

        def wait(seconds):
            original(seconds)
            self.pods.turn(*(index for index in self.pods.services if index))

        node.clock.wait = wait
        return leader.run(node.limit(seconds))


@pytest.fixture
def leading(pods, monkeypatch, heard):
    return Leading(pods, monkeypatch, heard)


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        (JobEnd(0, ""), ""),
        (JobEnd(7, "no such data"), "no such data\n"),
        (JobEnd(7, "x" * 9000), "x" * 4096 + "\n"),
    ],
    ids=["success", "failure", "long reason"],
)
def test_the_end_of_the_program_is_the_end_of_the_job_and_kubectl_shows_the_reason(leading, end, shown):
    root = leading.pods.services[0][0].root
    write_reason(root, "without a file of Kubernetes, nothing is written")
    log = root / "opt/deeplearning/termination"
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    assert leading.lead(lambda _: end) == end.status
    assert log.read_text() == shown
    assert len(leading.definitions) == 1


def test_the_job_goes_on_when_a_pod_that_left_is_replaced(leading):
    def lose(waits_for_stop):
        leading.pods.services.pop(1)[1].withdraw()
        leading.pods.start(1)
        while not waits_for_stop(0):
            leading.pods.clock.wait(1)
        return JobEnd(143, "")

    assert leading.lead(lose, lambda _: JobEnd(0, "")) == 0
    assert [definition.fresh for definition in leading.definitions] == [False, False]


def test_a_failure_while_a_pod_does_not_respond_is_that_of_the_pod_and_sends_no_event(leading):
    assert leading.lead(leading.lose, lambda _: JobEnd(0, "")) == 0
    assert len(leading.definitions) == 2
    assert leading.heard() == []


def test_the_earlier_checkpoints_are_left_out_once_and_not_again_after_a_loss(leading, monkeypatch):
    pod = replace(leading.pods.describe(0), definition=replace(DEFINITION, fresh=True))
    monkeypatch.setattr(leading.pods, "describe", lambda _: pod)
    leading.lead(leading.lose, lambda _: JobEnd(0, ""))
    assert [definition.fresh for definition in leading.definitions] == [True, False]


def test_pods_that_never_come_or_do_not_reach_each_other_fail_the_job_with_the_remedy(leading):
    leading.silent.add(leading.address(1))
    with pytest.raises(StageFailure, match="train-digits-1-00002 must respond on port 22") as caught:
        leading.lead(lambda _: JobEnd(0, ""))
    assert "admit its own members" in caught.value.remedy
    leading.pods.services.pop(2)[1].withdraw()
    with pytest.raises(StageFailure, match="2 of 3 pods have met") as caught:
        leading.lead(lambda _: JobEnd(0, ""))
    assert "kubectl describe pod" in caught.value.remedy


def test_an_end_by_kubernetes_is_no_success_also_while_the_pods_meet(leading):
    def run(waits_for_stop):
        leading.stop.set()
        assert waits_for_stop(0)
        return JobEnd(0, "")

    assert leading.lead(run) == TERMINATED == 128 + signal.SIGTERM
    assert leading.lead() == TERMINATED
    assert len(leading.definitions) == 1


# --- The event of a job that has failed ---------------------------------------------------------------


def test_a_job_that_fails_sends_one_event_with_its_name_and_the_reason(leading):
    leading.lead(lambda _: JobEnd(7, "rank 1 failed first"))
    (event,) = leading.heard()
    assert (event.kind, event.cluster, event.nodes) == (EventKind.JOB_FAILED, CLUSTER, 3)
    assert event.generation == leading.pods.membership(0)[0] > 0
    assert str(event.reason) == (
        "job train_digits failed: the command ended with status 7: rank 1 failed first; "
        "read its logs with deeplearning-cdk logs --job train_digits"
    )


def test_a_job_that_succeeds_or_that_kubernetes_ends_sends_no_event(leading):
    leading.lead(lambda _: JobEnd(0, ""))
    leading.stop.set()
    leading.lead(lambda _: JobEnd(1, ""))
    assert leading.heard() == []


@pytest.fixture
def failing(pods, tmp_path, monkeypatch, heard):
    """Return a function that starts pod 0, which fails to be prepared, and returns the events."""
    settings = tmp_path / AGENT_DIRECTORY.lstrip("/") / "settings.json"
    settings.parent.mkdir(parents=True)
    document = pods.node(0).settings.to_document()

    def fail(error, *, is_stopped=False, **changes):
        settings.write_text(json.dumps({**document, **changes}))
        monkeypatch.setattr(entry.Pod, "read", lambda: pods.describe(0))
        monkeypatch.setattr(entry, "open_pod", lambda *_: (_ for _ in ()).throw(error))
        stop = threading.Event()
        if is_stopped:
            stop.set()
        with pytest.raises(type(error)):
            run_pod(tmp_path, stop)
        return heard()

    return fail


def test_a_pod_that_cannot_be_prepared_sends_the_event_with_the_remedy(failing):
    (event,) = failing(StageFailure("the image lacks ssh", "install it", stage="check the image"))
    assert (event.kind, event.generation) == (EventKind.JOB_FAILED, 0)
    words = str(event.reason)
    assert words.startswith("job train_digits failed: train-digits-0-")
    assert "failed to check the image: the image lacks ssh; install it; read its logs" in words


@pytest.mark.parametrize(
    ("error", "changes"),
    [
        (SupersededError("another has its place"), {}),
        (StageFailure("no mount", ""), {"is_stopped": True}),
        (StageFailure("no mount", ""), {"event_cluster": ""}),
    ],
)
def test_a_pod_that_is_superseded_or_ended_or_has_no_cluster_sends_no_event(failing, error, changes):
    assert failing(error, **changes) == []


def test_an_event_that_cannot_be_sent_is_logged_and_stops_nothing(leading, monkeypatch, caplog):
    monkeypatch.setenv("AWS_ENDPOINT_URL", NOBODY_LISTENS)
    monkeypatch.setattr(entry, "EVENT_SECONDS", 0)
    assert leading.lead(lambda _: JobEnd(7, "no such data")) == 7
    assert "could not send the event 'Deep Learning Job Failed'" in caplog.text


# --- The other pods ---------------------------------------------------------------------------------


@pytest.mark.parametrize("has_left", [True, False])
def test_another_pod_stays_until_the_first_one_has_left_or_kubernetes_kills_it(pods, has_left):
    pods.form(0, 1)
    stop = threading.Event()
    stop.set()
    if has_left:
        pods.services[0][1].withdraw()
    began = pods.clock.read()
    assert follow(*pods.services[1], stop) == TERMINATED
    passed = pods.clock.read() - began
    assert (passed == 0) if has_left else (END_SECONDS <= passed < 120)
    assert len(list((pods.folder / "members").glob("*.json"))) == (0 if has_left else 1)


def test_the_job_of_a_pod_is_that_of_the_other_platforms(pods, tmp_path, monkeypatch):
    """`deeplearning start-job` gets the definition, as in a training job."""
    command = tmp_path / "deeplearning"
    command.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/words\n')
    command.chmod(0o755)
    monkeypatch.setattr(job_process, "COMMAND", str(command))
    assert job_process.run_job(pods.node(0), DEFINITION, threading.Event().wait) == JobEnd(0, "")
    assert (tmp_path / "words").read_text() == f"start-job --end-with-parent {DEFINITION.encode()}\n"


# --- A job that begins again and again ----------------------------------------------------------------


def _save(leading, name="epoch-1.pt", time=1_000):
    path = leading.pods.shared / "jobs" / DEFINITION.name / "checkpoints" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, (time, time))


def _lead_often(leading, times):
    """Let pod 0 be evicted and replaced so many times, and the job end well at last."""
    for _ in range(times):
        assert leading.lead(lambda _: JobEnd(0, "")) == 0


def test_a_job_that_is_evicted_again_and_again_without_progress_ends(leading):
    """Kubernetes counts no pod with the condition DisruptionTarget (its documentation, "Pod failure policy")."""
    _save(leading)
    _lead_often(leading, MOST_STARTS)
    with pytest.raises(StageFailure, match="the job has begun 11 times without a newer checkpoint") as caught:
        leading.lead(lambda _: JobEnd(0, ""))
    assert "need less memory and disk" in caught.value.remedy


@pytest.mark.parametrize("change", [{"name": "epoch-2.pt"}, {"time": 2_000}], ids=["another file", "the same file"])
def test_a_job_that_saves_a_checkpoint_between_interruptions_goes_on(leading, change):
    _save(leading)
    _lead_often(leading, MOST_STARTS)
    _save(leading, **{"time": 1_500, **change})
    _lead_often(leading, MOST_STARTS)


def test_retries_of_a_job_are_starts_beside_the_bound(leading, monkeypatch):
    describe = leading.pods.describe
    definition = replace(DEFINITION, retries=2)
    monkeypatch.setattr(leading.pods, "describe", lambda index: replace(describe(index), definition=definition))
    _lead_often(leading, MOST_STARTS + 2)
    with pytest.raises(StageFailure, match="the job has begun 13 times"):
        leading.lead(lambda _: JobEnd(0, ""))


def test_another_job_and_a_damaged_count_begin_at_one(pods):
    node = pods.node(0)
    folder = ClusterFolder(node, JOB_UID)
    assert [folder.count_start("") for _ in range(3)] == [1, 2, 3]
    assert ClusterFolder(node, "another").count_start("") == 1
    for text in ("", "[]", "{}", '{"count": "x", "progress": ""}'):
        (folder.path / "starts.json").write_text(text)
        assert folder.count_start("") == 1


def test_a_job_whose_other_pods_are_evicted_again_and_again_ends_too(leading):
    with pytest.raises(StageFailure, match="the job has begun 11 times without a newer checkpoint"):
        leading.lead(*[leading.lose] * (MOST_STARTS + 1), seconds=600)
    assert len(leading.definitions) == MOST_STARTS
