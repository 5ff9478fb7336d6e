"""Access points of the lab's EFS: a root directory is made where EFS would make it, and nowhere else."""

import io
import json
import os
import threading
from urllib.parse import parse_qs

import pytest

from cdk_rehearsal.lab.file_systems import FileSystems
from cdk_rehearsal.lab.node_programs import mount_helper
from cdk_rehearsal.lab.node_programs.mount_helper import Mount, MountError, authorize, check_efs
from cdk_rehearsal.lab.node_programs.session_agent import AgentError
from cdk_rehearsal.machine import AccessPoint, Machine, RootOwner

ID, POINT = "fs-0123456789abcdef0", "fsap-0123456789abcdef0"


def describe(folder, point):
    """Return what a machine with this access point may mount."""
    return FileSystems(folder).describe_targets(make_machine(point))


def make_machine(point):
    values = dict.fromkeys(Machine.__dataclass_fields__, "")
    return Machine(
        **{**values, "mount_targets": {ID: "10.0.0.4"}, "tags": {}, "lustre": {}, "access_points": {POINT: point}}
    )


def test_a_root_directory_with_an_owner_is_made_for_it(tmp_path):
    point = AccessPoint(ID, "/cluster", RootOwner(os.getuid(), os.getgid(), 0o750))
    targets = describe(tmp_path, point)
    assert json.loads(json.dumps(targets))["access_points"] == {POINT: {"file_system_id": ID, "path": "/cluster"}}
    assert (tmp_path / ID / "cluster").stat().st_mode & 0o777 == 0o750


def test_a_machine_that_boots_beside_another_finds_the_root_directory_of_its_owner(tmp_path, monkeypatch):
    """One machine makes the directory, and the other waits until it belongs to its owner."""
    systems, point = FileSystems(tmp_path), AccessPoint(ID, "/cluster", RootOwner(os.getuid(), os.getgid(), 0o750))
    order = []

    def boot():
        systems.describe_targets(make_machine(point))
        order.append("booted")

    other = threading.Thread(target=boot)

    def own(*_):
        other.start()
        other.join(0.2)
        order.append("owned")

    monkeypatch.setattr(os, "chown", own)
    boot()
    other.join()
    assert order == ["owned", "booted", "booted"]


def test_without_creation_info_a_missing_root_directory_is_not_made_and_its_mount_is_refused(tmp_path, monkeypatch):
    """So says EFS's API reference of RootDirectory; the words of the refusal are from aws/efs-utils#132."""
    describe(tmp_path, AccessPoint(ID, "/cluster", None))
    assert not (tmp_path / ID / "cluster").exists()
    monkeypatch.setattr(mount_helper, "FILE_SYSTEMS", tmp_path)
    with pytest.raises(MountError, match=r"^mount\.nfs4: access denied by server while mounting 127\.0\.0\.1:/$"):
        mount_helper.bind(Mount(ID, "/cluster", POINT, is_read_only=False), str(tmp_path / "point"))


class Role:
    """EFS as a role sees it, with the actions that it may."""

    def __init__(self, *may):
        self.may = may

    def call(self, service, method, path, body, *, headers):
        asked = {name: value for name, (value,) in parse_qs(body).items()}
        assert (service, asked["FileSystemId"], asked["AccessPointId"]) == ("elasticfilesystem", ID, POINT)
        if asked["Action"] not in self.may:
            raise AgentError("elasticfilesystem answers 403")
        return io.BytesIO()


TARGETS = {"addresses": {ID: "10.0.0.4"}, "access_points": {POINT: {"file_system_id": ID, "path": "/cluster"}}}


@pytest.mark.parametrize(("may", "is_read_only"), [(("ClientMount", "ClientWrite"), False), (("ClientMount",), True)])
def test_a_role_without_the_right_to_write_only_reads(may, is_read_only):
    """EFS user guide, "Using IAM to control access to file systems": ClientMount alone is for reading."""
    mount = check_efs(f"{ID}:/", f"tls,iam,accesspoint={POINT}", TARGETS)
    assert authorize(mount, Role(*may)).is_read_only is is_read_only


def test_a_role_without_the_right_to_mount_is_refused_and_one_that_is_not_named_is_not_asked():
    options = f"tls,accesspoint={POINT}"
    with pytest.raises(MountError, match="access denied by server"):
        authorize(check_efs(f"{ID}:/", f"{options},iam", TARGETS), Role("ClientWrite"))
    anonymous = check_efs(f"{ID}:/", options, TARGETS)
    assert authorize(anonymous, Role()) == anonymous
