"""`deeplearning end`: which groups it sets to nothing, in which order, and what counts as idle."""

import dataclasses
import sys
from types import SimpleNamespace

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from deeplearning_command.cluster import end as end_command
from deeplearning_command.cluster import event as event_module
from deeplearning_command.cluster import stop_when_idle as idle_command
from deeplearning_command.context import Context
from deeplearning_command.main import make_parser
from deeplearning_command.remote.nodes import HostResult
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.cluster_event import EventKind
from deeplearning_jobs.hosts.preflight import HostFacts
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.deadline import Clock
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import Step
from tests.real_time import wait_until
from tests.unit.local_aws import hear_events

REGION = "eu-west-1"
FIT_GPU = "0, GPU-1, 0, [N/A], No"


@pytest.fixture
def groups(aws_server):
    """Two clusters' groups in an empty AWS; returns what shows their desired capacity."""
    client = boto3.client("autoscaling", region_name=REGION)
    ec2 = boto3.client("ec2", region_name=REGION)
    subnet = ec2.describe_subnets()["Subnets"][0]["SubnetId"]
    client.create_launch_configuration(LaunchConfigurationName="any", ImageId="ami-12345678", InstanceType="t2.micro")
    for cluster, role, count in (("digits", "master", 1), ("digits", "worker", 2), ("other", "worker", 2)):
        tags = {"deeplearning:cluster": cluster, "deeplearning:role": role}
        client.create_auto_scaling_group(
            AutoScalingGroupName=f"{cluster}-{role}",
            LaunchConfigurationName="any",
            MinSize=0,
            MaxSize=4,
            DesiredCapacity=count,
            VPCZoneIdentifier=subnet,
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
        )

    def show():
        found = client.describe_auto_scaling_groups()["AutoScalingGroups"]
        return {group["AutoScalingGroupName"]: group["DesiredCapacity"] for group in found}

    return show


@pytest.fixture
def heard(aws_server, job_lab):
    job_lab.set_facts(0, event_cluster="digits")
    return hear_events(*(boto3.client(service, region_name=REGION) for service in ("sqs", "events")))


def run(job_lab, options, clock):
    """Run a subcommand in this process, as the master."""
    root = job_lab.folder / job_lab.addresses[0]
    search_path = f"{job_lab.folder}/programs:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAB_FOLDER", str(job_lab.folder))
        return options.run(options, Context(root, Programs(search_path), clock))


def end(job_lab, *arguments, clock=None):
    return run(job_lab, make_parser().parse_args(["end", *arguments]), clock)


@pytest.mark.defect("D73")
def test_the_workers_end_first_and_the_master_last_and_another_cluster_not_at_all(job_lab, groups, heard, capsys):
    assert end(job_lab, "--yes") == 0
    (event,) = heard()
    assert (event.kind, event.cluster, str(event.reason)) == (
        EventKind.FINISHED,
        "digits",
        "ended by a user on its master",
    )
    assert event.nodes == len(job_lab.addresses)
    assert groups() == {"digits-master": 0, "digits-worker": 0, "other-worker": 2}
    assert capsys.readouterr().out == (
        "desired capacity of digits-worker (worker) is 0\ndesired capacity of digits-master (master) is 0\n"
    )


@pytest.mark.defect("D73")
@pytest.mark.parametrize(("text", "status"), [("exit 0", 0), ("exit 3", 3)])
def test_a_job_that_has_ended_ends_the_cluster_however_it_ended(job_lab, groups, heard, text, status):
    done = job_lab.run("run", "--end-cluster", "--", job_lab.write_job(text))
    assert done.returncode == status, done.stderr
    assert groups() == {"digits-master": 0, "digits-worker": 0, "other-worker": 2}
    *failures, event = heard()
    assert event.reason.cause.startswith("the job ")
    assert event.reason.cause.endswith("/1 has ended")
    assert [failure.kind for failure in failures] == ([EventKind.JOB_FAILED] if status else [])


def test_a_job_that_fails_sends_one_event_after_its_last_retry_with_the_words_of_the_failed_rank(job_lab, heard):
    job = job_lab.write_job('[ "$HOROVOD_RANK" = 0 ] || { echo "no memory"; exit 7; }; exec sleep 1000')
    assert job_lab.run("run", "--retries", "1", "--", job).returncode == 7
    (event,) = heard()
    assert (event.kind, event.cluster, event.nodes) == (EventKind.JOB_FAILED, "digits", len(job_lab.addresses))
    words = str(event.reason)
    assert words.startswith("job train/2 failed with status 7: ")
    assert "; read its logs with deeplearning logs train/2, or in " in words
    assert "rank 1 on deeplearning-worker2 failed first, with status 7" in words
    assert words.endswith("no memory")


def test_a_job_that_succeeds_or_is_stopped_or_whose_platform_reports_failures_sends_no_event(job_lab, heard):
    assert job_lab.run("run", "--", job_lab.write_job("exit 0")).returncode == 0
    assert job_lab.run("run", "--max-seconds", "1", "--", job_lab.write_job("exec sleep 1000")).returncode == 124
    job_lab.set_facts(0)
    assert job_lab.run("run", "--", job_lab.write_job("exit 3")).returncode == 3
    assert heard() == []


def test_an_event_that_cannot_be_sent_keeps_no_cluster_running(job_lab, groups, capsys, monkeypatch):
    job_lab.set_facts(0, event_cluster="digits")

    def refuse(**_arguments):
        raise EndpointConnectionError(endpoint_url="https://events")

    real = AwsClients._client

    def make(self, service):
        return SimpleNamespace(put_events=refuse) if service == "events" else real(self, service)

    monkeypatch.setattr(AwsClients, "_client", make)
    monkeypatch.setattr(event_module, "EVENT_SECONDS", 0)
    assert end(job_lab, "--yes") == 0
    assert groups() == {"digits-master": 0, "digits-worker": 0, "other-worker": 2}
    assert "could not send the event 'Deep Learning Cluster Finished': Could not connect" in capsys.readouterr().out


def test_a_job_that_was_stopped_or_never_began_does_not_end_the_cluster(job_lab, groups):
    command = job_lab.start("run", "--end-cluster", "--", job_lab.write_job("exec sleep 1000"))
    wait_until(lambda: "sleep 1000 " in job_lab.processes().values())
    assert job_lab.run("stop").returncode == 0
    assert job_lab.finish(command).returncode == 143
    assert job_lab.run("run", "--end-cluster", "--", "missing.sh").returncode == 2
    assert groups()["digits-master"] == 1


def test_a_cluster_whose_groups_are_not_there_is_named(job_lab, aws_server):
    with pytest.raises(RefusedError, match="must have node groups, got none with the tag deeplearning:cluster=digits"):
        end(job_lab, "--yes")


@pytest.mark.parametrize("answer", ["y\n", "n\n", "\n", ""])
def test_only_a_person_who_agrees_ends_the_cluster(job_lab, groups, monkeypatch, capsys, answer):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True, readline=lambda: answer))
    if answer == "y\n":
        assert end(job_lab) == 0
    else:
        with pytest.raises(RefusedError, match="must be confirmed"):
            end(job_lab)
    assert "all 2 instances of digits will be terminated" in capsys.readouterr().err
    assert groups()["digits-master"] == (0 if answer == "y\n" else 1)


# --- Idle -----------------------------------------------------------------------------------------------


class Minutes(Clock):
    """A clock on which only waiting takes time; calls what a test wants at each wait."""

    def __init__(self, at_wait):
        self.now = 0.0
        self.waits = 0
        self.at_wait = at_wait

    def read(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds
        self.waits += 1
        self.at_wait(self.waits)


def test_it_waits_until_no_job_and_no_gpu_has_been_busy_for_so_many_minutes(job_lab, groups, capsys):
    """Looks: a job runs; idle; a GPU works, so that the time begins anew; then idle for two minutes."""
    job = job_lab.start("run", "--", job_lab.write_job("exec sleep 1000"))
    wait_until(lambda: list(job_lab.processes().values()).count("sleep 1000 ") == 2)
    gpu = f'[ "${{LAB##*@}}" = 10.0.0.9 ] || case "$1" in *utilization*) echo %d ;; *) echo "{FIT_GPU}" ;; esac'

    def change(waits):
        if waits == 1:
            job.terminate()
            job_lab.finish(job)
        job_lab.write_program("nvidia-smi", gpu % (60 if waits == 2 else 5))

    clock = Minutes(change)
    assert end(job_lab, "--yes", "--when-idle", "2", clock=clock) == 0
    assert clock.waits == 5
    assert groups()["digits-master"] == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:4] == [
        "busy: deeplearning-worker1 runs train/1",
        "idle; the cluster ends after 2 idle minutes",
        "busy: deeplearning-worker2 has a GPU that is busy 60 % of its time",
        "idle; the cluster ends after 2 idle minutes",
    ]


@pytest.mark.fault(68)
def test_a_host_whose_driver_is_late_is_judged_by_what_else_it_does(job_lab, groups, capsys):
    """It takes more than 25 s only while nobody uses the GPUs (Azure/aks-gpu#105); it must not run for ever."""
    hurry = 'while [ "${1#-}" != "$1" ]; do shift; done; shift; exec /usr/bin/timeout --signal=KILL 0.2 "$@"'
    job_lab.write_program("timeout", hurry)
    job_lab.write_program("nvidia-smi", f'case "$1" in *utilization*) exec sleep 1000 ;; esac; echo "{FIT_GPU}"')
    assert end(job_lab, "--yes", "--when-idle", "1", clock=Minutes(lambda _waits: None)) == 0
    assert capsys.readouterr().out.splitlines()[0] == "idle; the cluster ends after 1 idle minutes"
    assert groups()["digits-master"] == 0


@pytest.mark.parametrize("minutes", ["0", "-1", "nan", "inf", "soon"])
def test_minutes_must_be_a_number_above_none(minutes, capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["end", f"--when-idle={minutes}"])
    assert "must be a number of minutes above 0" in capsys.readouterr().err


# --- By itself ------------------------------------------------------------------------------------------

ANSWER = HostFacts("i-1", 0, "", "eth0", "10.0.0.1", 1, "m5.large", 0, 1, 0, (), {}, "", (), {})


PROVISIONED = "deeplearning-worker1 is still provisioned with data:coco"


@pytest.mark.parametrize(
    ("state", "said"),
    [("waiting", PROVISIONED), ("running", PROVISIONED), ("done", ""), ("failed", ""), (None, "")],
)
def test_a_host_is_busy_while_it_is_given_data_or_software_or_does_not_respond(state, said):
    steps = {"data:coco": Step(state, "", 1, 2, "bytes")} if state else {}
    output = dataclasses.replace(ANSWER, steps=steps).to_line()
    assert end_command.find_activity(HostResult("deeplearning-worker1", 0, output)) == said
    silent = end_command.find_activity(HostResult("deeplearning-worker2", None, "", "timed out"))
    assert silent == "deeplearning-worker2 does not respond: timed out"


def test_it_waits_for_the_run_script_and_then_ends_the_cluster_and_says_why(
    job_lab, groups, heard, monkeypatch, capsys
):
    running = [True]
    monkeypatch.setattr(idle_command, "find_running_script", lambda root, name: running[0])

    def change(waits):
        running[0] = waits < 3
        assert groups()["digits-master"] == 1

    clock = Minutes(change)
    options = make_parser("stop-when-idle").parse_args(["stop-when-idle", "--seconds", "120"])
    assert run(job_lab, options, clock) == 0
    assert clock.waits == 5
    assert groups() == {"digits-master": 0, "digits-worker": 0, "other-worker": 2}
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["busy: the run script is running", "idle; the cluster ends after 2 idle minutes"]
    (event,) = heard()
    assert event.kind.value == "Deep Learning Cluster Finished"
    assert (event.cluster, event.nodes, str(event.reason)) == ("digits", 2, "idle")
