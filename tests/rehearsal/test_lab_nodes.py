"""Nodes of the lab, booted for real: what programs on them see, and what they leave behind."""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cdk_rehearsal.cache import find_cache
from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.image_parts import prepare_layers
from deeplearning_rehearsal.software.downloads import HOROVOD_VERSION, prepare_horovod
from deeplearning_rehearsal.template import TORCH
from tests.real_time import GENEROUS_SECONDS

OBSERVER = Path(__file__).with_name("lab_observer.py")
ENCLOSED = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child", "--mount-proc"]
NAMES = ["ip-10-0-0-10", "ip-10-0-128-11", "ip-10-0-128-12"]
IDS = [f"i-{number:017x}" for number in range(1, 4)]


@pytest.fixture(scope="module")
def base_root():
    return prepare_base_root(find_cache(), report_line)


def report_line(line):
    sys.stderr.write(f"{line}\n")


def command(base_root, work, what):
    wheels = prepare_horovod(find_cache(), TORCH, HOROVOD_VERSION, report_line)
    layers = prepare_layers({"compilers", "pytorch"}, base_root, wheels, find_cache(), report_line)
    parts = json.dumps({part: str(layer) for part, layer in layers.items()})
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "pair", "-f", work / "login"], check=True)
    return [*ENCLOSED, sys.executable, OBSERVER, base_root.root.parent, work, what, parts]


@pytest.fixture(scope="module")
def seen(base_root, tmp_path_factory):
    """Boot three nodes, look at them, and return what was seen."""
    work = tmp_path_factory.mktemp("lab")
    answer = subprocess.run(
        command(base_root, work, "observe"), capture_output=True, text=True, check=False, timeout=GENEROUS_SECONDS
    )
    assert answer.returncode == 0, answer.stderr
    return json.loads(answer.stdout)


def test_every_node_has_its_own_identity(seen):
    names, machine_ids = zip(*(answer[1].split() for answer in seen["names"]), strict=True)
    assert list(names) == NAMES
    assert len({*machine_ids}) == len({*seen["host keys"]}) == len(NAMES)
    assert seen["own ids"] == IDS


def test_user_data_runs_as_a_service_does_with_the_endpoint_and_without_home(seen):
    variables = dict(line.split("=", 1) for line in seen["user data environment"].splitlines())
    assert variables["AWS_ENDPOINT_URL"] == "http://10.0.0.1:5000"
    assert not {"HOME", "USER"} & set(variables)


def test_metadata_needs_a_token(seen):
    assert seen["metadata without a token"] == [0, "401", ""]


def test_a_login_shell_has_etc_environment_and_sudo(seen):
    assert seen["a login shell"] == [0, "ubuntu\n0\ntwo words", ""]


def test_a_bare_shell_has_nothing(seen):
    assert seen["a bare shell"] == [1, "ubuntu", ""]


def test_ssh_reaches_nodes_of_all_subnets_with_the_key_pair_and_etc_environment(seen):
    assert seen["ssh across subnets"] == [[0, f"{name}\ntwo words", ""] for name in NAMES]


def test_ssh_sends_root_to_the_login_user(seen):
    status, output, _ = seen["ssh as root"]
    assert status == 142
    assert 'Please login as the user "ubuntu" rather than the user "root"' in output


def test_a_node_has_the_parts_of_its_image_and_no_other(seen):
    with_parts, without = seen["parts of images"]
    assert with_parts == [0, "/usr/bin/dnf\n/usr/bin/g++\n/usr/bin/mpirun\n/opt/pytorch True", ""]
    assert without[:2] == [127, "/usr/bin/apt-get"]
    assert "/opt/pytorch/bin/python: No such file or directory" in without[2]


def test_a_stock_image_has_no_framework_and_no_pip(seen):
    assert seen["a stock image's Python"] == [0, "[]", ""]


def test_a_stock_image_installs_packages_from_the_archive(seen):
    status, output, _ = seen["a package from the archive"]
    assert status == 0
    assert "GNU Make" in output


def test_amazon_linux_installs_efs_utils(seen):
    assert seen["efs-utils"] == [[0, "/usr/sbin/mount.efs", ""]] * 2


def test_a_new_file_system_belongs_to_root_and_is_shared(seen):
    assert seen["a new file system"] == [0, "root 755", ""]
    assert seen["a shared file"] == [0, "shared", ""]


def test_an_access_point_has_an_owner_and_a_root_of_its_own(seen):
    assert seen["an access point"] == [0, "1000 1000 750", ""]


def test_an_access_point_whose_root_nobody_makes_cannot_be_mounted(seen):
    assert seen["an access point without a root"] == [
        32,
        "",
        "mount.nfs4: access denied by server while mounting 127.0.0.1:/",
    ]


def test_a_file_system_without_a_mount_target_does_not_resolve(seen):
    status, _, errors = seen["no mount target"]
    assert status == 32
    assert "Name or service not known" in errors


def test_services_run_and_come_back_when_killed(seen):
    assert seen["the image's services"] == [0, "active\nactive\nactive", ""]


def test_the_service_manager_of_a_machine_sees_its_own_processes_alone(seen):
    assert seen["foreign processes in cgroups"] == [0, "0\n1", ""]


def test_a_service_stops_with_what_it_started(seen):
    assert seen["a stopped service"] == [1, "inactive\n0", ""]


def test_a_oneshot_that_fails_fails_its_start(seen):
    status, _, errors = seen["a failing oneshot"]
    assert status == 1
    assert "Job for bad.service failed" in errors


def test_default_environments_add_up_and_services_of_root_have_no_home(seen):
    assert seen["default environment"] == [0, "AWS_ENDPOINT_URL=http://10.0.0.1:5000\nMORE=1", ""]


def test_commands_of_users_find_the_embedded_aws_and_no_other(seen):
    assert seen["a login shell's AWS"] == [0, "http://10.0.0.1:5000", ""]


def test_users_may_not_restart_services(seen):
    status, _, errors = seen["a user's restart"]
    assert status == 4
    assert errors.startswith("Failed to restart ssh.service")


def test_gpus_are_as_many_as_asked_for(seen):
    assert seen["nvidia-smi"] == [0, "GPU 0\nGPU 1", ""]


def test_a_silent_node_answers_nobody_until_it_is_restored(seen):
    assert seen["silent"] == [0, 124]


def test_a_node_that_is_off_answers_nobody(seen):
    assert seen["off"] in {1, 124}


def test_a_reboot_keeps_disk_and_identity_and_does_not_run_user_data_again(seen):
    status, output, _, key = seen["rebooted"]
    assert status == 0
    assert output == f"kept\n1\n{NAMES[1]}"
    assert key == seen["host keys"][1]


def test_a_node_that_ends_itself_says_how(seen):
    assert seen["ended"] == ["reboot", "off"]


def read_children(pid):
    """Return all processes below one; those that end meanwhile may be left out."""
    found = []
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += [int(child) for child in (task / "children").read_text().split()]
    return found + [below for child in found for below in read_children(child)]


def open_children(pid):
    """Return process id -> descriptor of all processes below one that have not ended yet."""
    opened = {}
    for child in read_children(pid):
        with contextlib.suppress(ProcessLookupError):
            opened[child] = os.pidfd_open(child)
    return opened


def read_traces():
    """Return this machine's links and mounts."""
    links = subprocess.run(["ip", "-brief", "link"], capture_output=True, text=True, check=True).stdout
    return {line.split()[0] for line in links.splitlines()}, Path("/proc/self/mounts").read_text()


def test_nothing_is_left_behind_when_the_lab_is_killed(base_root, tmp_path):
    before = read_traces()
    with subprocess.Popen(command(base_root, tmp_path, "linger"), stdout=subprocess.PIPE, text=True) as lab:
        watchdog = threading.Timer(GENEROUS_SECONDS, lab.kill)
        watchdog.start()
        try:
            assert json.loads(lab.stdout.readline()) == "running"
            processes = open_children(lab.pid)
        finally:
            watchdog.cancel()
            lab.kill()
    assert len(processes) > 3 * 3  # each node has systemd, its journal and its sshd
    for pid, descriptor in processes.items():
        ended, _, _ = select.select([descriptor], [], [], GENEROUS_SECONDS)
        assert ended, f"process {pid} outlived the lab"
        os.close(descriptor)
    assert read_traces() == before
    assert list((tmp_path / "lab").iterdir()) == []
