"""Jobs on EKS: `submit`, `jobs`, `logs --job`, `stop` and `plan` as a submitter of the rehearsal's Kubernetes."""

import json
import re

import pytest
import yaml

from cdk_rehearsal.kubernetes.users import User
from deeplearning_cli.jobs import kubernetes_jobs as module
from deeplearning_cli.kubernetes.client import KubernetesApi
from deeplearning_cli.main import main
from deeplearning_contract.jobs.kubernetes_job import QUEUE_LABEL, SIGNING_VARIABLE
from deeplearning_contract.jobs.submission import SubmissionSettings
from tests.kubernetes.client import locate
from tests.unit.deeplearning_cli.conftest import SUBMITTER, Cluster

DENIED = (
    'MountVolume.SetUp failed for volume "nfs-data" : rpc error: code = Internal desc = Could not mount '
    '"fs-0123456789abcdef0" at "/var/lib/kubelet": mount.nfs4: access denied by server'
)
NO_DRIVER = (
    'MountVolume.MountDevice failed for volume "nfs-data" : kubernetes.io/csi: attacher.MountDevice failed to create '
    "newCsiDriverClient: driver name efs.csi.aws.com not found in the list of registered CSI drivers"
)
UNSCHEDULABLE = (
    "0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 Insufficient nvidia.com/gpu"
)
PULLING, PULLED = ("Pulling", "Pulling image"), ("Pulled", "Successfully pulled")
CREATING = {"reason": "ContainerCreating"}
BACK_OFF = 'Back-off pulling image "absent:1"'


@pytest.fixture(scope="module")
def opened(plane):
    """A prepared cluster with two nodes of members."""
    found = Cluster(*plane)
    found.open()
    yield found
    found.close()


@pytest.fixture
def cluster(opened):
    """The cluster without a job, which a submitter uses; pods start and succeed in the first sleeps."""
    opened.begin()
    opened.callers.user = SUBMITTER
    opened.script = [opened.start, opened.finish]
    yield opened
    opened.remove_jobs()
    opened.until(lambda: not opened.admin.list("pods", opened.namespace))


@pytest.fixture(autouse=True)
def _job_file(account, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "PENDING_SECONDS", 12.0)
    monkeypatch.chdir(tmp_path)
    write_job()


def write_job(**more):
    keys = {"name": "train_digits", "program": ["python3", "train.py"], **more}
    with open("job.toml", "w") as file:  # noqa: PTH123 - relative to the current folder
        file.writelines(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())


def submit(*options):
    return main(["submit", "job.toml", *options])


def list_shown_jobs(capsys):
    """Return what `jobs` shows: job -> document."""
    capsys.readouterr()
    assert main(["jobs", "--json"]) == 0
    return {job["name"]: job for job in json.loads(capsys.readouterr().out)["jobs"]}


def list_variables(job):
    return job["spec"]["template"]["spec"]["containers"][0]["env"]


def get_secret(job):
    """Return the variable with the secret of a Job, which each has of its own."""
    (variable,) = (each for each in list_variables(job) if each["name"] == SIGNING_VARIABLE)
    return variable


def test_a_submitted_job_is_followed_to_its_end(cluster, capsys):
    cluster.log = ["epoch 1", "epoch 2"]
    assert submit() == 0
    done = capsys.readouterr()
    assert done.out.splitlines() == ["epoch 1", "epoch 2"]
    assert "Job train-digits is created" in done.err
    assert done.err.splitlines()[-1] == "train-digits succeeded"


def test_a_job_travels_with_its_source(cluster, account, tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "train.py").write_text("print()")
    write_job(source="source")
    assert submit("--detach") == 0
    (job,) = cluster.list_jobs()
    (key,) = account.sources
    assert json.loads(list_variables(job)[0]["value"])["source"]["key"] == key


def test_a_job_fetches_a_copy_of_the_programs_that_no_deployment_replaces(cluster, account):
    assert submit("--detach") == 0
    assert submit("--dry-run", "-o", "yaml") == 0
    ((asset, copy),) = set(account.copies)
    assert len(account.copies) == 2
    (job,) = cluster.list_jobs()
    command = job["spec"]["template"]["spec"]["containers"][0]["command"][-1]
    assert f" {copy} " in command
    assert asset == cluster.settings.agent.key
    assert asset not in command


def test_the_secret_of_a_job_is_in_its_request_alone(cluster, capsys):
    assert submit("--detach") == 0
    (job,) = cluster.list_jobs()
    secret = get_secret(job)["value"]
    assert len(secret) == 64
    assert json.dumps(job).count(secret) == 1
    main(["jobs", "--json"])
    main(["plan", "job.toml"])
    submit("--dry-run", "-o", "yaml")
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err, "each submission has its own"
    assert "made-by-submit" in shown.out


def test_detach_returns_when_the_job_is_created(capsys):
    assert submit("--detach", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["platform"], shown["job"]["state"], shown["job"]["run"]) == ("eks", "queued", "train-digits")


def test_a_failed_job_has_the_exit_code_and_the_words_of_kubernetes(cluster, capsys):
    cluster.script[1] = lambda: cluster.finish(7)
    assert submit() == 7
    assert "PodFailurePolicy: Container member for pod" in capsys.readouterr().err.splitlines()[-1]


# --- Pods that do not start ---------------------------------------------------------------------------


def test_a_job_that_cannot_be_scheduled_ends_with_the_schedulers_words(cluster, account, capsys):
    account.change(gpu_count=8)
    cluster.script.clear()
    assert submit() == 2
    assert UNSCHEDULABLE in capsys.readouterr().out
    assert cluster.find("jobs", "train-digits")["spec"]["suspend"] is True
    cluster.until(lambda: not cluster.list_pods("train-digits"))
    job = list_shown_jobs(capsys)["train_digits"]
    assert (job["state"], job["status"]) == ("stopped", None)
    assert UNSCHEDULABLE in job["cause"]


def test_the_schedulers_words_are_shown_after_its_event_has_expired(cluster, account, capsys):
    """Events are kept for an hour (kube-apiserver, `--event-ttl`); the pod's condition stays."""
    account.change(gpu_count=8)
    assert submit("--detach") == 0
    cluster.until(lambda: any(pod["status"].get("conditions") for pod in cluster.list_pods("train-digits")))
    cluster.admin.do("DELETE", locate("events", cluster.namespace))
    assert re.fullmatch(
        rf"train-digits-[01]-\w{{5}}: Unschedulable: {re.escape(UNSCHEDULABLE)}.*",
        list_shown_jobs(capsys)["train_digits"]["last_line"],
    )


@pytest.mark.parametrize(
    ("waiting", "event", "said"),
    [
        (CREATING, DENIED, f"FailedMount: {DENIED}"),
        (CREATING, NO_DRIVER, f"FailedMount: {NO_DRIVER}"),
        ({"reason": "ImagePullBackOff", "message": BACK_OFF}, "an older cause", f"ImagePullBackOff: {BACK_OFF}"),
    ],
    ids=["no access", "no driver", "no image"],
)
def test_a_pod_that_cannot_start_has_the_kubelets_words(cluster, capsys, waiting, event, said):
    stop_in(cluster, waiting, [("FailedMount", event)])
    assert submit() == 2
    assert re.search(rf"train-digits-[01]-\w{{5}}: {re.escape(said)}", capsys.readouterr().out)


def stop_in(cluster, waiting, events):
    """Let the containers of the pods wait, with events of the kubelet about each pod."""

    def wait():
        cluster.kubelet.waiting = waiting
        cluster.kubelet.step()
        for pod in cluster.list_pods("train-digits"):
            for event in events:
                cluster.report(pod, *event)

    cluster.script = [wait]


@pytest.mark.parametrize(
    ("events", "waiting", "is_ended"),
    [
        ([("FailedScheduling", "no node yet"), PULLING], CREATING, False),
        ([PULLING, PULLED], CREATING, True),
        ([PULLING], {"reason": "ErrImagePull"}, True),
        ([("FailedMount", "denied")], CREATING, True),
    ],
)
def test_a_pull_that_goes_on_takes_nothing_of_the_time_to_start(cluster, events, waiting, is_ended):
    """An image of 30 GB takes longer than the wait for pods that cannot start."""

    def start():
        cluster.kubelet.waiting = None
        cluster.start()

    stop_in(cluster, waiting, events)
    cluster.script += [cluster.kubelet.step] * 5 + [start, cluster.finish]
    assert (submit() == 2) is is_ended


def test_pods_that_cannot_be_created_are_in_the_controllers_words(cluster, account, capsys):
    account.change(service_account="absent")
    cluster.script.clear()
    assert submit() == 2
    said = 'train-digits: FailedCreate: Error creating: pods "train-digits-0-'
    assert said in capsys.readouterr().out


# --- Members, names and queues ------------------------------------------------------------------------


def test_a_second_job_of_a_running_jobs_name_is_refused(cluster, capsys):
    assert submit("--detach") == 0
    cluster.start()
    assert submit("--detach") == 2
    assert "which is running; wait for it, or end it: deeplearning-cdk stop train_digits" in capsys.readouterr().out
    assert main(["plan", "job.toml"]) == 1
    assert "must have ended before it starts again" in capsys.readouterr().err


def test_a_job_is_refused_while_another_has_the_members(cluster, capsys):
    assert submit("--detach") == 0
    cluster.start()
    assert main(["jobs"]) == 0
    write_job(name="second")
    assert submit("--detach") == 2
    assert "job second must have 2 free members, got those of train_digits, which has 2 of 2" in capsys.readouterr().out
    assert cluster.find("jobs", "second") is None


def test_an_ended_job_has_no_members():
    assert submit() == 0
    write_job(name="second")
    assert submit("--detach") == 0


def test_a_job_in_a_queue_waits_for_others(cluster, capsys):
    assert submit("--detach") == 0
    cluster.start()
    write_job(name="second")
    assert submit("--detach", "--queue", "team") == 0
    assert "Job second is created, and waits in the queue team" in capsys.readouterr().err
    assert cluster.find("jobs", "second")["metadata"]["labels"][QUEUE_LABEL] == "team"
    second = list_shown_jobs(capsys)["second"]
    assert (second["state"], second["last_line"]) == ("queued", "waits in the queue team")


def test_a_stopped_job_leaves_its_queue(cluster, capsys):
    assert submit("--detach", "--queue", "team") == 0
    assert main(["stop", "train_digits"]) == 0
    assert QUEUE_LABEL not in cluster.find("jobs", "train-digits")["metadata"]["labels"]
    assert capsys.readouterr().out.splitlines() == ["train-digits is stopping", "train-digits stopped"]


def test_an_ended_job_is_replaced_by_its_next_run(cluster):
    assert submit() == 0
    first = cluster.find("jobs", "train-digits")
    assert submit("--fresh", "--detach") == 0
    (job,) = cluster.list_jobs()
    assert job["metadata"]["uid"] != first["metadata"]["uid"]
    assert json.loads(list_variables(job)[0]["value"])["fresh"] is True


def test_a_job_is_not_taken_for_another_whose_job_is_named_alike(cluster, capsys):
    assert submit() == 0
    first = cluster.find("jobs", "train-digits")
    assert main(["stop", "train-digits"]) == 2
    error = "job train-digits must exist, got none; its Job is that of train_digits, so write that"
    assert error in capsys.readouterr().err
    write_job(name="train-digits")
    assert submit() == 2
    assert "whose Job train-digits is that of train_digits; choose another" in capsys.readouterr().out
    assert cluster.find("jobs", "train-digits") == first


# --- Logs and the end ---------------------------------------------------------------------------------


def test_logs_show_the_first_pod_and_refuse_other_ranks(cluster, capsys):
    cluster.log = [f"line {number}" for number in range(50)]
    submit()
    capsys.readouterr()
    assert main(["logs", "--job", "train_digits"]) == 0
    assert capsys.readouterr().out.splitlines() == cluster.log[-40:]
    assert main(["logs", "--job", "train_digits", "--follow"]) == 0
    assert capsys.readouterr().out.splitlines() == cluster.log
    assert main(["logs", "--job", "train_digits", "--rank", "3"]) == 2
    assert "in jobs/train_digits/runs" in capsys.readouterr().err
    assert main(["logs", "--job", "nothing"]) == 2


def test_a_log_has_each_line_once_when_its_connection_ends_and_its_pod_is_replaced(cluster, capsys):
    write_job(retries=1)
    cluster.script = [cluster.start, cluster.kubelet.step, cluster.replace_first, cluster.kubelet.step, cluster.finish]
    cluster.log = ["epoch 1", "epoch 2\repoch 2, again"]
    assert submit() == 0
    first = ["epoch 1", "epoch 2", "epoch 2, again"]
    assert capsys.readouterr().out.splitlines() == [*first, *first]


def test_a_token_that_expires_while_a_job_is_followed_is_renewed(cluster, capsys):
    cluster.script.insert(1, lambda: vars(cluster.callers).update(refused=1))
    cluster.log = ["epoch 1"]
    assert submit() == 0
    assert capsys.readouterr().out.splitlines() == ["epoch 1"]
    assert cluster.callers.refused == 0


def test_stop_waits_for_the_end_and_says_when_there_is_nothing_to_stop(cluster, capsys):
    submit("--detach")
    cluster.start()
    cluster.script.clear()
    assert main(["stop", "train_digits"]) == 0
    assert capsys.readouterr().out.splitlines() == ["train-digits is stopping", "train-digits stopped"]
    cluster.until(lambda: not cluster.list_pods("train-digits"))
    assert main(["logs", "--job", "train_digits"]) == 2
    assert "its log is on the shared file system, in jobs/train_digits/runs" in capsys.readouterr().err
    assert main(["stop", "train_digits"]) == 0
    assert capsys.readouterr().out == "train-digits has ended: stopped\n"
    assert main(["stop", "nothing"]) == 2


# --- Plans and dry runs -------------------------------------------------------------------------------


def test_a_plan_shows_ranks_and_job_asks_the_server_and_creates_nothing(cluster, capsys):
    assert main(["plan", "job.toml"]) == 0
    shown = capsys.readouterr().out
    assert "4 ranks = 2 hosts x 2" in shown
    assert "completionMode: Indexed" in shown
    assert main(["plan", "job.toml", "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)["plan"]
    assert (plan["ranks"], plan["hosts"], plan["slots"]) == (4, 2, 2)
    assert cluster.list_jobs() == []
    cluster.callers.user = User("stranger")
    assert main(["plan", "job.toml"]) == 2
    assert 'User "stranger" cannot create resource "jobs"' in capsys.readouterr().err


def test_a_dry_run_prints_the_job_that_submit_creates(cluster, capsys, monkeypatch):
    assert submit("--dry-run", "-o", "yaml") == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert cluster.callers.tokens == []
    sent = []
    monkeypatch.setattr(KubernetesApi, "create", lambda _, document: sent.append(document))
    assert submit("--detach") == 0
    (created,) = sent
    secrets = {get_secret(job).pop("value") for job in (created, shown)}
    assert created == shown
    assert len(secrets) == 2


def test_a_dry_run_and_a_queue_are_for_eks(account, capsys):
    account.submission = SubmissionSettings("ec2", "Train", "ubuntu", "assets", "deeplearning-jobs/Train/")
    for option in (["--dry-run"], ["--queue", "team"]):
        assert submit(*option) == 2
        assert f"{option[0]} must be left out on ec2; it is for stacks on EKS" in capsys.readouterr().err


def test_a_job_that_cannot_run_is_refused_before_its_upload(capsys):
    write_job(gpus_per_member=9)
    assert submit() == 2
    assert "gpus_per_member must be at most 2 on this cluster's nodes, got 9" in capsys.readouterr().err
