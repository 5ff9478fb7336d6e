"""The steps that make a node ready, each against tiny programs in place of the machine's."""

import os
import re

import pytest

from deeplearning_agent.boot.job_limits import LIMITS, LOGIND, prepare_job_limits
from deeplearning_agent.boot.mounts import mount_file_systems
from deeplearning_contract.setting_parts import FileSystemSettings, JobNeeds
from deeplearning_node import programs, signals
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.gpus import count_gpus, turn_on_persistence
from deeplearning_node.packages import install_packages
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.ssh import make_user_key, read_host_key, wait_for_sshd
from tests.unit.moments import given_up, interrupt_at, list_lines, wait_for_end
from tests.unit.node_lab import PROGRAMS


@pytest.fixture
def node(lab, ticking_clock):
    return lab.node(0, ticking_clock())


# --- The file system --------------------------------------------------------------------------------


@pytest.mark.fault(49)
@pytest.mark.defect("D54")
def test_mounts_once_and_writes_fstab_so_that_a_reboot_mounts_again(lab, node):
    mount_file_systems(node, node.limit(1000))
    mount_file_systems(node, node.limit(1000))
    [call] = lab.calls_of("mount")
    assert call.startswith("-t nfs4 -o nfsvers=4.1 fs-0123.efs.eu-west-1.amazonaws.com:/ ")
    fstab = lab.read(0, "/etc/fstab")
    line = "fs-0123.efs.eu-west-1.amazonaws.com:/ /mnt/efs nfs4 nfsvers=4.1,_netdev,nofail 0 0\n"
    assert fstab.startswith("LABEL=root / ext4 defaults 0 1\n")
    assert fstab.count(line) == 1


@pytest.mark.fault(60)
def test_tries_again_while_the_name_does_not_resolve(lab, node):
    lab.program(
        0,
        "mount",
        'echo x >>"$FAKES/mount.calls"; [ $(cat "$FAKES/mount.calls" | grep -c x) -ge 3 ] || { echo "mount.nfs4: '
        'Failed to resolve server" >&2; exit 32; }; for target; do :; done; touch "$target/.mounted"',
    )
    mount_file_systems(node, node.limit(1000))
    assert len(lab.calls_of("mount")) == 3


@pytest.mark.parametrize("mount_point", ["/mnt/e fs", "mnt/efs", "/mnt/efs\n/dev/sda1 / ext4", "/mnt/$(id)", ""])
def test_refuses_a_mount_point_that_could_become_more_than_a_path(lab, ticking_clock, mount_point):
    node = lab.node(0, ticking_clock(), file_system=FileSystemSettings("nfs4", "fs:/", "ro", mount_point))
    with pytest.raises(StageFailure, match="plain absolute path"):
        mount_file_systems(node, node.limit(100))


def test_gives_a_fresh_file_system_to_the_login_user(lab, node):
    lab.program(0, "runuser", 'test -e "$FAKES/given"')
    lab.program(0, "ls", "true")
    lab.program(0, "chown", 'echo "$@" >>"$FAKES/chown.calls"; touch "$FAKES/given"')
    mount_file_systems(node, node.limit(1000))
    user = node.login_user()
    assert lab.calls_of("chown") == [f"{user.user_id}:{user.group_id} {node.path('/mnt/efs')}"]


def test_never_takes_over_a_file_system_that_holds_files(lab, node):
    lab.program(0, "runuser", "false")
    lab.program(0, "ls", "echo data")
    lab.program(0, "chown", 'echo "$@" >>"$FAKES/chown.calls"')
    with pytest.raises(StageFailure, match="may not write to /mnt/efs, which already contains files"):
        mount_file_systems(node, node.limit(1000))
    assert lab.calls_of("chown") == []


def test_accepts_what_another_node_opened_meanwhile(lab, node):
    lab.program(0, "runuser", 'test -e "$FAKES/opened" || { touch "$FAKES/opened"; false; }')
    lab.program(0, "ls", "echo data")
    mount_file_systems(node, node.limit(1000))


# --- FSx for Lustre ---------------------------------------------------------------------------------

LUSTRE = FileSystemSettings("lustre", "fs-1.fsx.eu-west-1.amazonaws.com@tcp:/abc", "relatime,flock", "/fsx")


@pytest.fixture
def lustre_node(lab, ticking_clock):
    node = lab.node(0, ticking_clock(), needs=JobNeeds({}, lustre=LUSTRE))
    lab.program(0, "mount.lustre", "true")
    return node


def test_mounts_lustre_beside_the_shared_file_system_and_after_a_reboot_again(lab, lustre_node):
    mount_file_systems(lustre_node, lustre_node.limit(1000))
    mount_file_systems(lustre_node, lustre_node.limit(1000))
    shared, lustre = lab.calls_of("mount")
    assert shared.startswith("-t nfs4 ")
    assert lustre == f"-t lustre -o relatime,flock {LUSTRE.source} {lustre_node.path('/fsx')}"
    fstab = lab.read(0, "/etc/fstab")
    assert fstab.count(" /mnt/efs nfs4 nfsvers=4.1,_netdev,nofail 0 0\n") == 1
    assert fstab.count(f"{LUSTRE.source} /fsx lustre relatime,flock,_netdev,nofail 0 0\n") == 1


def test_fstab_forgets_a_lustre_that_the_settings_no_longer_have(lab, lustre_node, ticking_clock):
    mount_file_systems(lustre_node, lustre_node.limit(1000))
    node = lab.node(0, ticking_clock())
    mount_file_systems(node, node.limit(1000))
    assert "lustre" not in lab.read(0, "/etc/fstab")


def test_an_image_without_a_client_fails_at_once_and_the_failure_says_what_it_lacks(lab, ticking_clock):
    node = lab.node(0, ticking_clock(), needs=JobNeeds({}, lustre=LUSTRE))
    with pytest.raises(StageFailure, match=r"the image lacks mount\.lustre, which mounts fs-1\.fsx") as raised:
        mount_file_systems(node, node.limit(900))
    assert "build an image with the Lustre client for its kernel" in raised.value.remedy
    assert lab.calls_of("mount") == []


def test_a_client_for_another_kernel_is_reported_with_the_ports(lab, lustre_node):
    lab.program(
        0,
        "mount",
        '[ "$2" != lustre ] || { echo "mount.lustre: mount failed: No such device" >&2; exit 19; }; '
        'for target; do :; done; touch "$target/.mounted"',
    )
    with pytest.raises(StageFailure, match="could not be mounted on /fsx") as raised:
        mount_file_systems(lustre_node, lustre_node.limit(900))
    assert "a Lustre client for its kernel, and that ports 988 and 1018-1023 are open" in raised.value.remedy
    assert "No such device" in raised.value.output


def test_a_lustre_that_shows_a_bucket_need_not_be_writable(lab, lustre_node):
    lab.program(0, "runuser", 'for path; do :; done; [ "${path##*/}" != fsx ]')
    lab.program(0, "ls", "echo imagenet")
    lab.program(0, "chown", 'echo "$@" >>"$FAKES/chown.calls"')
    mount_file_systems(lustre_node, lustre_node.limit(1000))
    assert lab.calls_of("chown") == []


@pytest.mark.parametrize("kind", ["cifs", "ext4", ""])
def test_nothing_is_mounted_when_one_of_them_is_malformed(lab, ticking_clock, kind):
    odd = FileSystemSettings(kind, "x:/", "ro", "/fsx")
    node = lab.node(0, ticking_clock(), needs=JobNeeds({}, lustre=odd))
    with pytest.raises(StageFailure, match="must be nfs4, efs, lustre on a plain absolute path"):
        mount_file_systems(node, node.limit(100))
    assert lab.calls_of("mount") == []


# --- Programs ---------------------------------------------------------------------------------------


@pytest.mark.fault(51, 61)
def test_a_program_that_hangs_is_killed_with_its_children(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "hang").write_text(f"#!/bin/sh\necho started\n(read line <{tmp_path}/pipe) &\nwait\n")
    (tmp_path / "hang").chmod(0o755)
    with pytest.raises(ProgramError, match="hang took longer than 1 s") as raised:
        Programs(f"{tmp_path}:/bin:/usr/bin").run(["hang"], timeout_seconds=1)
    assert "started" in raised.value.output
    with pytest.raises(OSError, match="No such device or address"):  # the kernel's words for a pipe that nobody reads
        os.open(tmp_path / "pipe", os.O_WRONLY | os.O_NONBLOCK)


@pytest.mark.fault(61)
def test_a_time_out_does_not_wait_for_who_holds_the_output_open(tmp_path):
    """A process that the kernel cannot kill looks like this: its end of the pipe stays open."""
    (tmp_path / "hang").write_text(f"#!/bin/sh\nsetsid /bin/sh -c 'sleep 9; touch {tmp_path}/let-go' &\nwait\n")
    (tmp_path / "hang").chmod(0o755)
    with pytest.raises(ProgramError):
        Programs(f"{tmp_path}:/bin:/usr/bin").run(["hang"], timeout_seconds=0.2)
    assert not (tmp_path / "let-go").exists()


def test_no_moment_of_an_interruption_leaves_a_program(tmp_path):
    over = tmp_path / "over"
    modules = (programs, signals)
    lines = list_lines(modules, lambda: Programs().run(["true"], timeout_seconds=600))
    held = max(index for index, line in enumerate(lines) if line.startswith("hold_stops"))
    words = ["sh", "-c", f"while [ -e {tmp_path} ] && ! [ -e {over} ]; do sleep 0.05; done"]
    for moment in lines[: held + 3]:  # To the wait for the program, which is two lines below.
        with given_up(over):
            with pytest.raises(KeyboardInterrupt):
                interrupt_at(moment, modules, lambda: Programs().run(words, timeout_seconds=600))
            wait_for_end(over)


def test_a_program_is_never_read_by_a_shell(tmp_path):
    written = Programs().run(["echo", "a; touch b", "$(id)"], timeout_seconds=10)
    assert written == "a; touch b $(id)\n"


# --- GPUs -------------------------------------------------------------------------------------------


EIGHT = "\n".join(f"GPU {index}: NVIDIA B300 (UUID: GPU-{index})" for index in range(8))


@pytest.mark.defect("D33", "D34", "D35")
@pytest.mark.parametrize(
    ("expected", "program", "count"),
    [
        (2, f"cat <<X\n  MIG 1g.18gb Device 0: (UUID: MIG-1)\n{EIGHT}\nX", 8),
        (0, None, 0),
        (2, 'echo "GPU 0: NVIDIA H100 (UUID: GPU-1)"', 1),
    ],
    ids=["more than the type has", "no driver on a CPU node", "a broken GPU"],
)
def test_gpus_are_counted_by_the_driver_not_by_the_type(lab, expected, program, count):
    node = lab.node(0, expected_gpu_count=expected)
    lab.program(0, "nvidia-smi", program)
    assert count_gpus(node) == count


@pytest.mark.fault(58)
@pytest.mark.parametrize("program", [None, "echo No devices were found", "echo driver mismatch >&2; exit 18"])
def test_a_gpu_type_never_joins_without_its_driver(lab, node, program):
    lab.program(0, "nvidia-smi", program)
    with pytest.raises(StageFailure, match="has 2 GPUs and the node shows 0") as raised:
        count_gpus(node)
    assert "never joins without its driver" in raised.value.remedy


@pytest.mark.defect("D35")
def test_a_node_with_a_broken_gpu_has_fewer_slots(lab, node):
    lab.program(0, "nvidia-smi", 'echo "GPU 0: NVIDIA H100 (UUID: GPU-1)"')
    assert count_gpus(node) == 1


PM = 'echo "$*" >>"$FAKES/nvidia-smi.calls"; '


@pytest.mark.fault(68)
def test_every_start_turns_persistence_mode_on_before_anybody_asks_for_gpus(lab):
    """Ubuntu's nvidia-persistenced has --no-persistence-mode, and no boot remembers it (clip-as-service#254)."""
    agent = lab.agent(0)
    lab.program(0, "nvidia-smi", PM + PROGRAMS["nvidia-smi"])
    lab.run(agent)
    lab.run(lab.agent(0))
    asked = lab.calls_of("nvidia-smi")
    assert asked[:2] == ["-pm 1", "-L"]
    assert asked.count("-pm 1") == asked.count("-L") == 2


@pytest.mark.fault(68)
@pytest.mark.parametrize(("expected", "level"), [(2, "WARNING"), (0, "INFO")])
def test_a_node_goes_on_without_persistence_mode_and_says_why(lab, caplog, expected, level):
    """A master that does not train has the driver of its workers' image, and no GPU."""
    caplog.set_level("INFO")
    node = lab.node(0, expected_gpu_count=expected)
    lab.program(0, "nvidia-smi", "echo No devices were found; exit 6")
    turn_on_persistence(node)
    [line] = caplog.records
    assert (line.levelname, line.getMessage()) == (
        level,
        "could not turn on persistence mode: nvidia-smi -pm 1 ended with status 6: No devices were found",
    )


def test_without_a_driver_there_is_no_persistence_mode(lab, node, caplog):
    lab.program(0, "nvidia-smi", None)
    turn_on_persistence(node)
    assert caplog.records == []


# --- Packages ---------------------------------------------------------------------------------------


def test_installs_nothing_that_the_image_has(lab, node):
    lab.program(0, "apt-get", 'echo "$@" >>"$FAKES/apt-get.calls"')
    install_packages(node, node.limit(1000))
    assert lab.calls_of("apt-get") == []


def test_installs_what_is_absent_and_loads_the_driver(lab, ticking_clock):
    node = lab.node(0, ticking_clock(), packages={"nvidia-smi": ("nvidia-driver-580",), "mount": ("nfs-common",)})
    lab.program(0, "nvidia-smi", None)
    install = 'case "$*" in *install*) echo >"$FAKES/nvidia-smi"; chmod +x "$FAKES/nvidia-smi";; esac'
    lab.program(0, "apt-get", 'PATH=$PATH:/bin:/usr/bin; echo "$@" >>"$FAKES/apt-get.calls"; ' + install)
    lab.program(0, "modprobe", 'echo "$@" >>"$FAKES/modprobe.calls"')
    install_packages(node, node.limit(1000))
    update, install = lab.calls_of("apt-get")
    assert update.endswith(" update")
    assert install.endswith(" install --yes --no-install-recommends nvidia-driver-580")
    assert lab.calls_of("modprobe") == ["nvidia"]


@pytest.mark.parametrize(
    ("program", "cause"),
    [
        ("echo E: Unable to locate package; exit 100", "status 100"),
        ('echo "$*|$DEBIAN_FRONTEND $NEEDRESTART_SUSPEND" >>"$FAKES/apt-get.calls"', "do not provide mount.nfs4"),
        (None, "the image has neither apt-get nor dnf to install linux-headers"),
    ],
)
def test_packages_that_cannot_be_had_are_a_failure_with_its_reason(lab, ticking_clock, program, cause):
    """Headers are those of the running kernel; apt is told to restart no services, since the agent is one."""
    node = lab.node(0, ticking_clock(), packages={"mount.nfs4": ("linux-headers-{kernel}",)})
    lab.program(0, "apt-get", program)
    with pytest.raises(StageFailure, match=cause):
        install_packages(node, node.limit(200))
    calls = [call.split("|") for call in lab.calls_of("apt-get")]
    assert {settings for _, settings in calls} <= {"noninteractive 1"}
    assert all(call.endswith(f" linux-headers-{os.uname().release}") for call, _ in calls if " install " in call)
    assert bool(calls) is cause.startswith("do not provide")


# --- SSH --------------------------------------------------------------------------------------------


def test_the_host_key_stays_the_same_whatever_happens(lab, node):
    first = read_host_key(node)
    assert read_host_key(node) == first
    assert re.fullmatch(r"ssh-ed25519 \S+", first)


def test_the_user_key_is_made_once_and_in_a_private_folder(lab, node):
    first = make_user_key(node)
    ssh = node.path(f"{node.login_user().home}/.ssh")
    assert make_user_key(node) == first
    assert ssh.stat().st_mode & 0o777 == 0o700


def test_a_key_with_a_passphrase_is_refused_rather_than_published(lab, node):
    make_user_key(node)
    lab.program(0, "ssh-keygen", "echo 'Load key: incorrect passphrase supplied' >&2; exit 255")
    with pytest.raises(ProgramError, match="status 255"):
        make_user_key(node)


def test_an_image_without_the_login_user_says_which(lab):
    node = lab.node(0, login_user="nobody-here")
    with pytest.raises(StageFailure, match="the image has no user 'nobody-here'"):
        make_user_key(node)


# --- sshd -------------------------------------------------------------------------------------------


@pytest.mark.fault(57)
def test_waits_for_an_sshd_that_starts_late(lab, node):
    key = read_host_key(node)
    tries = 'echo try >>"$FAKES/ssh-keyscan.calls"; [ $(cat "$FAKES/ssh-keyscan.calls" | sed -n "$=") -lt 3 ]'
    lab.program(0, "ssh-keyscan", f'{tries} && exit 1; echo "10.0.0.9 {key}"')
    wait_for_sshd(node, key, node.limit(1000))
    assert len(lab.calls_of("ssh-keyscan")) == 3


@pytest.mark.fault(56, 57)
@pytest.mark.parametrize("answer", ["exit 1", "echo 10.0.0.9 ssh-ed25519 AAAAanother"])
def test_an_sshd_that_never_answers_with_the_nodes_key_keeps_it_from_joining(lab, node, answer):
    key = read_host_key(node)
    lab.program(0, "ssh-keyscan", answer)
    with pytest.raises(StageFailure, match=r"sshd at 10\.0\.0\.9 must present the key of /etc/ssh/"):
        wait_for_sshd(node, key, node.limit(10_000))


# --- Limits of jobs ------------------------------------------------------------------------------------


@pytest.mark.fault(69)
def test_jobs_may_lock_memory_and_their_shared_memory_outlives_logins(lab):
    node = lab.node(1)
    prepare_job_limits(node)
    prepare_job_limits(node)
    assert node.path(LIMITS).read_text() == "* - memlock unlimited\n* - nofile 1048576\n"
    assert node.path(LOGIND).read_text() == "[Login]\nRemoveIPC=no\n"
    calls = (lab.directory / "programs1/systemctl.calls").read_text()
    assert calls == "try-restart systemd-logind.service\n"
