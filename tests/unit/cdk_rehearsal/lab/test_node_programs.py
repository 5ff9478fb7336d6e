"""The other programs that stand in on a node: each does little, and refuses the rest."""

import threading
import time
from pathlib import Path

import pytest

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.lab.node_faults import (
    MOUNT_STATE,
    Gpus,
    MountFault,
    NodeFaults,
    write_faults,
    write_gpus,
    write_mount_fault,
)
from cdk_rehearsal.lab.node_programs import cfn_signal, nvidia_smi
from cdk_rehearsal.lab.node_programs.mount_helper import Mount, MountError, check_efs, check_nfs, suffer
from cdk_rehearsal.lab.node_programs.nvidia_smi import UsageError, answer_call, list_gpus
from tests.real_time import GENEROUS_SECONDS

EVENTS = Path(__file__).parents[3] / "events"
ID = "fs-0123456789abcdef0"
NAME = f"{ID}.efs.eu-west-1.amazonaws.com"
OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev"
POINT = "fsap-0123456789abcdef0"
TARGETS = {
    "region": "eu-west-1",
    "addresses": {ID: "10.0.130.7"},
    "access_points": {POINT: {"file_system_id": ID, "path": "/cluster"}},
}


@pytest.mark.parametrize(("source", "path"), [(f"{NAME}:/", "/"), (f"{NAME}:/data", "/data"), ("10.0.130.7:/", "/")])
def test_nfs_mounts_a_file_system_of_the_zone(source, path):
    assert check_nfs(source, OPTIONS, TARGETS) == Mount(ID, path, "", is_read_only=False)


@pytest.mark.parametrize(
    "server",
    [
        "fs-1123456789abcdef0.efs.eu-west-1.amazonaws.com",
        f"{ID}.efs.us-east-1.amazonaws.com",
        f"{ID}.efs.eu-west-1.example.com",
        "10.0.130.8",
    ],
)
def test_nfs_does_not_resolve_what_has_no_mount_target_in_the_zone(server):
    with pytest.raises(MountError, match=f"Failed to resolve server {server}: Name or service not known"):
        check_nfs(f"{server}:/", OPTIONS, TARGETS)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (f"{OPTIONS},tls", "incorrect mount option was specified: tls"),
        (f"{OPTIONS},rsize=big", "incorrect mount option was specified: rsize=big"),
        ("nfsvers=3", "incorrect mount option was specified: nfsvers=3"),
        ("hard", "EFS wants nfsvers=4.1"),
        ("", "EFS wants nfsvers=4.1"),
    ],
)
def test_nfs_refuses_options_that_efs_would_not_take(options, rule):
    with pytest.raises(MountError, match=rule):
        check_nfs(f"{NAME}:/", options, TARGETS)


@pytest.mark.parametrize("source", [NAME, f"{NAME}:data", ""])
def test_nfs_wants_host_and_directory(source):
    with pytest.raises(MountError, match="remote share not in 'host:dir' format"):
        check_nfs(source, OPTIONS, TARGETS)


def test_efs_utils_mount_an_access_point_with_its_own_root():
    assert check_efs(f"{ID}:/", f"tls,iam,accesspoint={POINT},_netdev", TARGETS) == Mount(
        ID, "/cluster", POINT, is_read_only=False, has_identity=True
    )


@pytest.mark.parametrize(
    ("source", "options", "rule"),
    [
        (f"{ID}:/", f"accesspoint={POINT}", '"tls" option is required'),
        (f"{ID}:/", "iam", '"tls" option is required'),
        (f"{ID}:/", "tls,accesspoint=fsap-00000000", "no access point fsap-00000000"),
        ("fs-00000000:/", "tls", "no mount target in this zone"),
        (f"{ID}:/", "tls,awsprofile=x", "option awsprofile=x is not implemented"),
    ],
)
def test_efs_utils_refuse_what_efs_would_not_take(source, options, rule):
    with pytest.raises(MountError, match=rule):
        check_efs(source, options, TARGETS)


def test_nvidia_smi_lists_gpus_that_stay_the_same():
    lines = list_gpus(2, "machine").splitlines()
    assert [line.split(":")[0] for line in lines] == ["GPU 0", "GPU 1"]
    assert len(set(lines)) == len(lines)
    assert list_gpus(2, "machine").splitlines() == lines
    assert list_gpus(2, "another").splitlines() != lines


def ask_gpus(*arguments, **state):
    sound = {"count": 2, "ecc_errors": 0, "has_pending_pages": False, "has_row_failure": False}
    return answer_call(arguments, sound | state, "machine")


@pytest.mark.fault(58)
def test_nvidia_smi_tells_the_health_of_each_gpu():
    query = "--query-gpu=index,ecc.errors.uncorrected.volatile.total, retired_pages.pending,remapped_rows.failure"
    _, _, *card = (EVENTS / "nvidia-smi-h100/query.txt").read_text().strip().split(", ")
    sound = ask_gpus(query, "--format=csv,noheader,nounits").splitlines()
    assert [line.split(", ") for line in sound] == [["0", *card], ["1", *card]], "as a real H100 answers"
    sick = ask_gpus(query, "--format=csv,noheader", ecc_errors=2, has_pending_pages=True, has_row_failure=True)
    assert sick == "0, 2, Yes, Yes\n1, 0, [N/A], No\n"


def test_nvidia_smi_tells_the_version_of_the_driver_as_a_real_one_does():
    said = ask_gpus("--query-gpu=driver_version", "--format=csv,noheader", driver="535.183.01")
    assert said == "535.183.01\n535.183.01\n"


def test_nvidia_smi_names_the_fields_that_were_asked_for_and_the_gpus_that_it_lists():
    header, *rows = ask_gpus("--query-gpu=name,uuid", "--format=csv").splitlines()
    assert header == "name, uuid"
    listed = [line.partition("UUID: ")[2].rstrip(")") for line in list_gpus(2, "machine").splitlines()]
    assert [row.split(", ")[1] for row in rows] == listed


@pytest.fixture
def persistence(tmp_path, monkeypatch):
    """The file that is there while persistence mode is on; it is off, as at each boot."""
    monkeypatch.setattr(nvidia_smi, "PERSISTENCE", tmp_path / "persistence")
    return tmp_path / "persistence"


LOAD = ("--query-gpu=utilization.gpu", "--format=csv,noheader,nounits")


@pytest.mark.fault(68)
def test_idle_gpus_look_busy_until_root_turns_persistence_mode_on(persistence, monkeypatch):
    """Issue jina-ai/clip-as-service#254: 90 to 99 % on GPUs that nobody uses; the words are those of nvidia-smi."""
    monkeypatch.setattr(nvidia_smi, "_read_ticks", lambda: 7)
    assert ask_gpus(*LOAD) == "97\n97\n"
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(UsageError, match=r"^Unable to set persistence mode for GPU 00000000:00:1B.0: Insufficient"):
        ask_gpus("-pm", "1")
    assert ask_gpus(*LOAD) == "97\n97\n"
    monkeypatch.setattr("os.geteuid", lambda: 0)
    enabled = [f"Enabled persistence mode for GPU 00000000:00:{bus}.0." for bus in ("1B", "1C")]
    assert ask_gpus("-pm", "1").splitlines() == [*enabled, "All done."]
    assert ask_gpus(*LOAD) == "0\n0\n"


@pytest.mark.parametrize(("ticks", "told"), [((7, 7), "0"), ((7, 10**9), "100"), ((9, 7), "0")])
def test_nvidia_smi_tells_the_processors_load_as_that_of_the_gpus(persistence, monkeypatch, ticks, told):
    ask_gpus("-pm", "1")
    readings = iter(ticks)
    monkeypatch.setattr(nvidia_smi, "_read_ticks", lambda: next(readings))
    assert answer_call(LOAD, {"count": 1}, "m") == f"{told}\n"


def test_nvidia_smi_counts_the_time_of_processes_that_run():
    def work_and_see():
        before, begin = nvidia_smi._read_ticks(), time.process_time()
        while time.process_time() - begin < 0.1:
            pass
        return nvidia_smi._read_ticks() > before

    # A process of this machine that ends meanwhile takes its time out of the count.
    assert any(work_and_see() for _ in range(50))


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        (["--query-gpu=index,bogus", "--format=csv"], '^Field "bogus" is not a valid field to query.$'),
        (["--query-gpu=index", "--format=noheader"], "--format must be csv"),
        (["--query-gpu=index", "--format=csv,xml"], "--format must be csv"),
        (["--query-gpu=index"], "is not implemented"),
        (["--query-gpu=index", "--format=csv", "-l"], "is not implemented"),
        (["-q"], "is not implemented"),
        ([], "is not implemented"),
    ],
)
def test_nvidia_smi_refuses_everything_else(arguments, rule):
    with pytest.raises(UsageError, match=rule):
        ask_gpus(*arguments)


@pytest.fixture
def root(tmp_path):
    """A node's root file system that has nvidia-smi and an sshd that boot starts."""
    for name in ("usr/bin/nvidia-smi", "etc/systemd/system/multi-user.target.wants/ssh.service"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    (tmp_path / "usr/lib/lab").mkdir(parents=True)
    return tmp_path


@pytest.mark.fault(58)
def test_gpus_are_not_set_where_there_is_no_driver(root):
    (root / "usr/bin/nvidia-smi").unlink()
    with pytest.raises(RehearsalError, match="gpus_per_node must be at least 1 where a node's GPUs are set, got 0"):
        write_gpus(root, Gpus(1))


@pytest.mark.fault(57)
def test_a_late_sshd_is_started_by_a_unit_of_its_own(root):
    write_faults(root, NodeFaults(sshd_delay=2.5))
    wants = root / "etc/systemd/system/multi-user.target.wants"
    assert [path.name for path in wants.iterdir()] == ["delayed-sshd.service"]
    unit = (root / "etc/systemd/system/delayed-sshd.service").read_text()
    assert "ExecStart=/bin/sh -c 'sleep 2.5; rm -f /etc/systemd/system/ssh.service; " in unit
    assert (root / "etc/systemd/system/ssh.service").readlink() == Path("/dev/null")


@pytest.mark.fault(60)
def test_a_mount_does_not_resolve_while_the_lab_says_so(root):
    write_mount_fault(root, MountFault("unresolvable"))
    with pytest.raises(MountError, match=f"Failed to resolve server {NAME}: Name or service not known"):
        suffer(f"{NAME}:/", root / MOUNT_STATE)
    write_mount_fault(root, MountFault("unresolvable", seconds=0))
    suffer(f"{NAME}:/", root / MOUNT_STATE)
    write_mount_fault(root, None)
    suffer(f"{NAME}:/", root / MOUNT_STATE)


@pytest.mark.fault(61)
def test_a_mount_hangs_until_it_is_mended(root):
    write_mount_fault(root, MountFault("hang"))
    mount = threading.Thread(target=suffer, args=(f"{NAME}:/", root / MOUNT_STATE), daemon=True)
    mount.start()
    mount.join(0.5)
    assert mount.is_alive()
    write_mount_fault(root, None)
    mount.join(GENEROUS_SECONDS)
    assert not mount.is_alive()


def test_cfn_signal_takes_the_options_of_the_cdk_for_who_calls_and_where(monkeypatch):
    """As `include_url` and `include_role` of the CDK's `ApplyCloudFormationInitOptions` write them."""
    sent = []
    monkeypatch.setattr(cfn_signal, "read_metadata", lambda _path: "i-1")
    monkeypatch.setattr(cfn_signal, "_signal", lambda *words: sent.append(words))
    place = ["--region", "us-east-1", "--url", "https://cloudformation.us-east-1.amazonaws.com", "--role", "r"]
    assert cfn_signal.main(["-e", "127", "--stack", "web", "--resource", "Server", *place]) == 0
    assert sent == [("web", "Server", "i-1", "FAILURE")]
