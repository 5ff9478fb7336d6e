"""The other programs that stand in on a node: each does little, and refuses the rest."""

import pytest

from deeplearning_rehearsal.lab.node_programs.cloud_init import is_script
from deeplearning_rehearsal.lab.node_programs.mount_helper import Mount, MountError, check_efs, check_nfs
from deeplearning_rehearsal.lab.node_programs.nvidia_smi import list_gpus
from deeplearning_rehearsal.lab.node_programs.nvidia_smi import main as nvidia_smi
from deeplearning_rehearsal.lab.node_programs.supervisor import answer
from deeplearning_rehearsal.lab.node_programs.systemctl import UsageError, parse_command_line

ID = "fs-0123456789abcdef0"
NAME = f"{ID}.efs.eu-west-1.amazonaws.com"
OPTIONS = "nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport,_netdev"
POINT = "fsap-0123456789abcdef0"
TARGETS = {
    "region": "eu-west-1",
    "addresses": {ID: "10.0.130.7"},
    "access_points": {POINT: {"file_system_id": ID, "path": "/cluster", "uid": 1000, "gid": 1000, "mode": 0o755}},
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
        ID, "/cluster", POINT, is_read_only=False
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


def test_nvidia_smi_refuses_everything_else(capsys):
    assert nvidia_smi(["--query-gpu=name"]) == 2
    assert "only -L is implemented, got '--query-gpu=name'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "rule"),
    [
        ([], "a bare call is not implemented"),
        (["isolate", "rescue.target"], "isolate is not implemented"),
        (["start", "--user", "x"], "--user is not implemented"),
        (["start"], "start must name units"),
    ],
)
def test_systemctl_refuses_what_it_does_not_do(arguments, rule):
    with pytest.raises(UsageError, match=rule):
        parse_command_line(arguments)


def test_systemctl_reads_verb_units_and_options():
    assert parse_command_line(["enable", "--now", "a.service", "b"]) == {
        "verb": "enable",
        "units": ["a.service", "b"],
        "options": ["--now"],
    }


def test_only_root_may_change_units():
    request = {"verb": "restart", "units": ["ssh"], "options": []}
    assert answer(None, request, is_root=False) == (1, "Failed to restart: Access denied")


def test_user_data_is_a_script():
    assert is_script(b"#!/bin/bash\n")
    assert not is_script(b"#cloud-config\n")
