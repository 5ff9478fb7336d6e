"""A container of a training job: its description, its preparation, and how the containers of a job meet."""

import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace

import pytest

from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import DataSettings, EnvironmentSettings, JobNeeds
from deeplearning_member import container
from deeplearning_member.container import list_variables, start_member
from deeplearning_member.sagemaker import meeting
from deeplearning_member.sagemaker.container import open_container, prepare_container
from deeplearning_member.sagemaker.entry import run_container
from deeplearning_member.sagemaker.meeting import StoppedError
from deeplearning_member.sagemaker.training_job import TrainingJob
from deeplearning_node.failure import StageFailure
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.provision_status import is_ready, read_status
from tests.real_time import GENEROUS_SECONDS
from tests.unit.deeplearning_member.sagemaker.conftest import DEFINITION, JOB, Containers

NEEDS = JobNeeds(
    data=(DataSettings("train", "bucket", "train/", "efs"), DataSettings("other", "bucket", "other/", "efs")),
    environment=EnvironmentSettings("horovod"),
)


def turn(*meetings):
    """Let each container look once, in this order; return what each has formed."""
    return [meeting.take_turn() for meeting in meetings]


# --- SageMaker's description ------------------------------------------------------------------------


def test_twelve_containers_are_ranked_by_number_and_the_first_is_the_master(lab, tmp_path):
    containers = Containers(lab, tmp_path / "twelve", 12)
    job = containers.describe(11)
    assert job.hosts == tuple(f"algo-{number}" for number in range(1, 13))
    assert (job.host, job.role, job.definition) == ("algo-11", NodeRole.WORKER, DEFINITION)
    assert containers.describe(1).role is NodeRole.MASTER


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"hosts": ["algo-2"]}, "hosts must contain the container's own name, got algo-1 and algo-2"),
        ({"hosts": ["algo-1", "master"]}, 'hosts must be like algo-1, got "master"'),
        ({"hosts": "algo-1"}, "resourceconfig.json.hosts must be of type list"),
        ({"network_interface_name": None}, "network_interface_name must be of type str"),
    ],
)
def test_a_malformed_description_is_a_failure_with_the_remedy(containers, changes, said):
    with pytest.raises(StageFailure, match=said) as caught:
        containers.describe(1, **changes)
    assert caught.value.remedy == "start the job with deeplearning-cdk submit"


def test_a_job_without_a_definition_is_a_failure(containers):
    containers.describe(1)
    (containers.root(1) / "opt/ml/input/config/hyperparameters.json").write_text("{}")
    with pytest.raises(StageFailure, match="job must be JSON, got ''"):
        TrainingJob.read(containers.root(1), JOB)


# --- Preparation ------------------------------------------------------------------------------------


def test_an_image_without_programs_is_a_failure_that_names_the_packages(containers, monkeypatch):
    monkeypatch.setattr(container, "SSHD", "/no/sshd")
    monkeypatch.setattr(container, "_PACKAGES", {"/no/sshd": "openssh-server", "no-ip": "iproute2", "sh": "dash"})
    with pytest.raises(StageFailure, match="the image lacks /no/sshd, no-ip") as caught:
        open_container(containers.root(1), containers.node(1).settings, containers.describe(1))
    assert caught.value.remedy == "install them in the image (apt-get install openssh-server iproute2)"


@pytest.fixture
def prepared(containers, monkeypatch):
    """The first container after its preparation, with the data of its channels alone."""
    monkeypatch.setattr(container, "_start_sshd", lambda _: None)
    node = containers.node(1, needs=replace(NEEDS, data=NEEDS.data[:1]))
    node.path("/mnt/efs").unlink()
    node.path("/proc/sys/kernel/random").mkdir(parents=True)
    node.path("/proc/sys/kernel/random/boot_id").write_text("boot\n")
    monkeypatch.setattr(container, "wait_for_sshd", lambda *_: None)
    return node, prepare_container(node, node.limit(60))


def test_the_mount_point_and_the_data_are_links_to_the_channels_and_a_job_waits_for_no_provisioning(prepared):
    node, member = prepared
    assert node.path("/mnt/efs").readlink() == node.path("/opt/ml/input/data/deeplearning-shared")
    assert node.path("/opt/deeplearning/data/train").readlink() == node.path("/opt/ml/input/data/train")
    assert (member.instance_id, member.gpu_count) == ("algo-1", 2)
    steps = read_status(node.root)
    assert set(steps) == {"data:train", "environment"}
    assert is_ready(steps)
    assert NodeFacts.read(node.root).instance_id == "algo-1"


def test_an_image_with_content_at_the_mount_point_or_a_job_without_the_shared_channel_is_a_failure(containers):
    node = containers.node(1)
    node.path("/mnt/efs").unlink()
    node.path("/mnt/efs").mkdir()
    (node.path("/mnt/efs") / "file").touch()
    with pytest.raises(StageFailure, match=r"the image must not contain .*/mnt/efs, it does"):
        prepare_container(node, node.limit(60))
    node.path("/opt/ml/input/data/deeplearning-shared").unlink()
    with pytest.raises(StageFailure, match=r"the channel .*deeplearning-shared is missing"):
        prepare_container(node, node.limit(60))


def test_a_driver_that_is_too_old_for_the_image_ends_the_container_before_it_joins(containers, prepared):
    containers.lab.program(0, "python3", """echo '{"cuda": [13, 0], "library": 12}'""")
    containers.lab.program(0, "nvidia-smi", 'case "$1" in *driver*) echo 535.183.01 ;; *) echo "GPU 0: A10G" ;; esac')
    with pytest.raises(
        StageFailure, match=r"CUDA 13\.0 .* needs NVIDIA driver 580 or newer, the host has 535\.183\.01"
    ):
        start_member(prepared[0], "", prepared[0].limit(60))


def test_logins_get_the_variables_of_the_image_and_of_the_service():
    environment = {"PATH": "/opt/conda/bin", "AWS_REGION": "eu-west-1", "HOME": "/x", "SHLVL": "1", "LINES": "a\nb"}
    assert list_variables(environment) == {"PATH": "/opt/conda/bin", "AWS_REGION": "eu-west-1"}


# --- Meeting ----------------------------------------------------------------------------------------


def test_containers_meet_in_any_order_and_install_one_membership(containers):
    third, second = containers.meet(3), containers.meet(2)
    assert turn(third, second, third) == [None, None, None]
    first = containers.meet(1)
    assert turn(first, second, third) == [None, None, None]  # All announce themselves in the round.
    assert turn(first, second, third)[0] is None  # The first publishes, the others install.
    formed = turn(first, second, third)
    assert None not in formed
    assert len({each.id for each in formed}) == 1
    memberships = [containers.membership(number) for number in (1, 2, 3)]
    assert [list(each) for each in memberships] == [["algo-1", "algo-2", "algo-3"]] * 3
    assert containers.node(1).path("/opt/deeplearning/workers").read_text().split() == [
        f"deeplearning-worker{number}" for number in (1, 2, 3)
    ]


def form(*meetings):
    for _ in range(4):
        formed = turn(*meetings)
    assert None not in formed
    return formed


def test_after_a_restart_only_the_new_containers_are_members(containers):
    earlier = form(*(containers.meet(number) for number in (1, 2, 3)))
    before = containers.membership(1)
    late = containers.meet(2)  # It starts before the first one, and finds the earlier round.
    assert [late.take_turn() for _ in range(3)] == [None] * 3
    later = form(containers.meet(1), late, containers.meet(3))
    after = containers.membership(2)
    assert later[0].id != earlier[0].id
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def test_the_failure_of_a_meeting_names_who_is_missing(containers):
    first, third = containers.meet(1), containers.meet(3)
    turn(first, third)
    assert first.describe_missing() == "2 of 3 containers have met; missing: algo-2"
    with pytest.raises(StageFailure, match="1 of 3 containers have met; missing: algo-2, algo-3") as caught:
        first.form(containers.node(1).limit(900))
    assert "security groups of the job admit each other" in caught.value.remedy


def test_a_container_that_has_not_installed_the_membership_is_named(containers):
    first, second, third = (containers.meet(number) for number in (1, 2, 3))
    turn(second)  # It announces itself, and stands still.
    for _ in range(4):
        assert first.take_turn() is None
        third.take_turn()
    assert first.describe_missing() == "all containers have met, but algo-2 could not install the membership"


@pytest.fixture
def silent(monkeypatch):
    """Containers that do not respond on the port of SSH, which a test may change."""
    hosts = []
    monkeypatch.setattr(meeting, "responds", lambda host: host not in hosts)
    return hosts


def form_beside(first, *others):
    """Let the first container form while the others take their turns, which its waits give them."""
    clock = first._node.clock
    wait = clock.wait

    def wait_for_others(seconds):
        turn(*others)
        wait(seconds)

    clock.wait = wait_for_others
    return first.form(first._node.limit(900))


def test_the_first_container_waits_until_the_others_respond(containers, silent):
    first, second, third = (containers.meet(number) for number in (1, 2, 3))
    formed = form_beside(first, second, third)
    assert formed.status is None
    silent.append("algo-2")
    with pytest.raises(StageFailure, match="algo-2 must respond to algo-1 on port 22") as caught:
        form_beside(first, second, third)
    assert "security groups of the job admit each other" in caught.value.remedy


def test_a_stop_ends_the_meeting(containers):
    containers.is_stopped = True
    with pytest.raises(StoppedError):
        containers.meet(1).form(containers.node(1).limit(900))


# --- First process ----------------------------------------------------------------------------------

_PROGRAM = """
import signal, sys, time
from deeplearning_member.first_process import run_in_child

def work():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    print("ready", flush=True)
    {body}

sys.exit(run_in_child(work))
"""


def start_first_process(body):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", _PROGRAM.format(body=body)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("return 3", 3),
        ("raise ValueError", 1),
        ("import os; os.kill(os.getpid(), signal.SIGKILL)", 128 + signal.SIGKILL),
    ],
)
def test_the_first_process_ends_as_its_child_does(body, status):
    with start_first_process(body) as process:
        assert process.wait(GENEROUS_SECONDS) == status


def test_a_stop_reaches_the_child():
    with start_first_process("time.sleep(10_000)") as process:
        process.terminate()
        assert process.wait(GENEROUS_SECONDS) != 0


def test_settings_that_are_missing_are_a_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("TRAINING_JOB_NAME", JOB)
    with pytest.raises(StageFailure, match=r"settings\.json"):
        run_container(tmp_path, threading.Event())
