"""The programs that a node runs, when they are absent, hang, cannot be killed or die half-way."""

import pytest

from deeplearning_agent.boot import mounts as file_system
from deeplearning_agent.boot.mounts import LONGEST_SECONDS, mount_file_systems
from deeplearning_contract.membership import Member
from deeplearning_node import programs
from deeplearning_node.deadline import LONGEST_PAUSE_SECONDS
from deeplearning_node.failure import StageFailure, describe_failure
from deeplearning_node.packages import INSTALL_SECONDS, install_packages
from deeplearning_node.programs import ProgramError, Programs
from deeplearning_node.ssh import authorize, make_user_key, read_host_key, write_known_hosts

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey"
KEYGEN = """
    case "$1" in
      -q) eval last=\\${$#}; echo "secret $last" >"$last"; echo "ssh-ed25519 unused" >"$last.pub" ;;
      -y) eval last=\\${$#}; read -r word _ <"$last"; test "$word" = secret || exit 255
          echo "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey comment" ;;
    esac"""


class HangingPrograms(Programs):
    """Programs that all take as long as they may, on the test's clock."""

    def __init__(self, clock, present):
        super().__init__("")
        object.__setattr__(self, "clock", clock)
        object.__setattr__(self, "present", present)
        object.__setattr__(self, "began", [])

    def has(self, command):
        return command in self.present

    def run(self, argv, *, timeout_seconds, environment=None):
        self.began.append((self.clock.now, argv[0]))
        self.clock.spend(timeout_seconds + programs.KILL_SECONDS)
        raise ProgramError(f"{' '.join(argv)} took longer than {timeout_seconds:.0f} s")


@pytest.fixture
def short(monkeypatch):
    """Let a hanging program really hang for a moment only."""
    monkeypatch.setattr(file_system, "ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr(file_system, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(programs, "KILL_SECONDS", 0.1)


# --- The file system --------------------------------------------------------------------------------


@pytest.mark.fault(60)
def test_a_name_that_never_resolves_is_the_reason(machine, clock):
    machine.program("mount", 'echo "mount.nfs4: Failed to resolve server fs-0123: Name or service not known"; exit 32')
    node = machine.node()
    began = clock.now
    with pytest.raises(StageFailure, match="could not be mounted on /mnt/efs") as raised:
        mount_file_systems(node, node.limit(3000))
    assert "Failed to resolve server" in raised.value.output
    assert "its name resolves" in raised.value.remedy
    assert clock.now - began < LONGEST_SECONDS + LONGEST_PAUSE_SECONDS


@pytest.mark.fault(61)
def test_a_server_that_answers_after_a_hang_is_mounted(machine, short):
    machine.program(
        "mount",
        'test -e "$FAKES/hung" || { touch "$FAKES/hung"; sleep 30; }\nfor target; do :; done; touch "$target/.mounted"',
    )
    node = machine.node()
    mount_file_systems(node, node.limit(300))
    mount_file_systems(node, node.limit(300))


@pytest.mark.fault(61)
def test_a_file_system_that_hangs_after_its_mount_is_not_called_another_users(machine, short):
    machine.program("runuser", "sleep 30")
    node = machine.node()
    with pytest.raises(StageFailure, match=r"could not be mounted on /mnt/efs: runuser .* took longer") as raised:
        mount_file_systems(node, node.limit(12))
    assert "contains files" not in str(raised.value)


@pytest.mark.fault(61)
@pytest.mark.parametrize("name", ["mount", "mountpoint", "runuser"])
def test_an_image_without_a_program_of_the_mount_fails_at_once(machine, clock, name):
    machine.program(name, None)
    node = machine.node()
    began = clock.now
    with pytest.raises(ProgramError, match=f"{name} is not installed"):
        mount_file_systems(node, node.limit(3000))
    assert clock.now - began < 1


@pytest.mark.fault(61, 63)
@pytest.mark.parametrize("seconds", [1, 30, 300, 3000, 40_000])
def test_a_mount_that_always_hangs_ends_within_a_third_of_the_time_or_five_minutes(machine, clock, seconds):
    node = machine.node(programs=HangingPrograms(clock, {"mount"}))
    began = clock.now
    with pytest.raises(StageFailure):
        mount_file_systems(node, node.limit(seconds))
    one_attempt = 2 * file_system.PROBE_SECONDS + file_system.ATTEMPT_SECONDS + 3 * programs.KILL_SECONDS
    assert clock.now - began <= min(LONGEST_SECONDS, seconds / 3) + one_attempt


# --- Packages ---------------------------------------------------------------------------------------


@pytest.mark.fault(51, 63)
@pytest.mark.parametrize("seconds", [1, 60, 480, 3000, 40_000])
def test_an_installation_that_hangs_ends_with_its_deadline(machine, clock, seconds):
    hanging = HangingPrograms(clock, {"apt-get"})
    node = machine.node(programs=hanging, packages={"mount.nfs4": ("nfs-common",)})
    began = clock.now
    with pytest.raises(StageFailure, match=r"apt-get .* took longer"):
        install_packages(node, node.limit(seconds))
    assert clock.now - began <= max(1, min(INSTALL_SECONDS, seconds)) + programs.KILL_SECONDS + 1


@pytest.mark.fault(39, 63)
def test_a_package_server_that_is_away_for_a_while_is_asked_again(machine, clock):
    machine.program(
        "apt-get",
        'echo "$@" >>"$FAKES/apt-get.calls"; n=0; while read -r _; do n=$((n+1)); done <"$FAKES/apt-get.calls"\n'
        'test $n -ge 5 || { echo "E: Failed to fetch: Connection failed" >&2; exit 100; }\n'
        ': >"$FAKES/mount.nfs4"; PATH=/bin:/usr/bin chmod +x "$FAKES/mount.nfs4"',
    )
    (machine.fakes / "chmod").symlink_to("/bin/chmod")
    node = machine.node(packages={"mount.nfs4": ("nfs-common",)})
    install_packages(node, node.limit(900))
    assert len(machine.calls("apt-get")) >= 5


# --- Programs ---------------------------------------------------------------------------------------


@pytest.mark.defect("D34")
def test_a_missing_program_is_distinguished_from_a_missing_interpreter(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/opt/no/such/python\n")
    script.chmod(0o755)
    with pytest.raises(ProgramError, match="its interpreter is not installed") as raised:
        Programs().run([str(script)], timeout_seconds=10)
    assert not raised.value.is_missing
    for absent in (str(tmp_path / "absent"), "no-such-program-anywhere"):
        with pytest.raises(ProgramError, match="is not installed") as raised:
            Programs().run([absent], timeout_seconds=10)
        assert raised.value.is_missing


@pytest.mark.parametrize(("code", "status"), [("exit 7", 7), ("kill -9 $$", -9)])
def test_how_a_program_ended_is_kept_apart_from_that_it_never_did(machine, code, status, short):
    machine.program("fails", code)
    machine.program("hangs", "sleep 30")
    with pytest.raises(ProgramError) as raised:
        machine.node().programs.run(["fails"], timeout_seconds=10)
    assert raised.value.status == status
    with pytest.raises(ProgramError) as raised:
        machine.node().programs.run(["hangs"], timeout_seconds=0.1)
    assert raised.value.status is None


# --- Keys and files ---------------------------------------------------------------------------------


@pytest.mark.fault(33, 49)
@pytest.mark.parametrize("make", [read_host_key, make_user_key])
def test_a_key_that_was_half_made_when_the_machine_stopped_is_made_again(machine, make):
    half = 'case "$1" in -q) eval last=\\${$#}; echo half >"$last"; kill -9 $$ ;; esac'
    node = machine.node()
    machine.program("ssh-keygen", half)
    with pytest.raises(ProgramError, match="status -9"):
        make(node)
    machine.program("ssh-keygen", KEYGEN)
    assert make(node) == KEY
    assert make(node) == KEY


@pytest.mark.fault(49)
def test_an_empty_host_key_of_the_image_is_replaced(machine):
    machine.program("ssh-keygen", KEYGEN)
    node = machine.node()
    node.path("/etc/ssh/ssh_host_ed25519_key").write_text("")
    assert read_host_key(node) == KEY
    assert node.path("/etc/ssh/ssh_host_ed25519_key").read_text().startswith("secret ")


@pytest.mark.fault(49)
@pytest.mark.defect("D32")
def test_preparing_a_node_twice_leaves_the_same_bytes(machine):
    machine.program("ssh-keygen", KEYGEN)
    node = machine.node()
    members = (Member("i-00000001", "10.0.0.9", 1, KEY), Member("i-00000002", "10.0.0.10", 1, KEY))

    def prepare():
        mount_file_systems(node, node.limit(300))
        read_host_key(node)
        authorize(node, make_user_key(node))
        write_known_hosts(node, members)
        return {path: path.read_bytes() for path in machine.root.rglob("*") if path.is_file()}

    first = prepare()
    assert len(first) >= 6
    assert prepare() == first
    assert len(machine.calls("mount")) == 1


def test_a_failure_of_a_program_keeps_its_output_for_the_reason():
    failure = describe_failure(ProgramError("mount ended with status 32", "access denied by server"), "mount")
    assert "access denied by server" in str(failure.reason("worker i-1"))
