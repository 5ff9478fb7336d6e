"""The lab's FSx for Lustre: what a node may mount, what it finds there, and an image without a client."""

import pytest

from cdk_rehearsal.lab.file_systems import FileSystems
from cdk_rehearsal.lab.images.stand_in_layer import Image
from cdk_rehearsal.lab.node_programs import mount_helper
from cdk_rehearsal.lab.node_programs.mount_helper import Mount, MountError, check_lustre
from cdk_rehearsal.machine import LustreTarget, Machine

ID = "fs-0123abcd"
NAME = f"{ID}.fsx.eu-west-1.amazonaws.com"
OPTIONS = "relatime,flock,_netdev,nofail"
TARGETS = {"lustre": {ID: {"dns_name": NAME, "mount_name": "x7ylnbev"}}}


@pytest.mark.parametrize(("path", "folder"), [("", "/"), ("/train", "/train"), ("/a/b", "/a/b")])
def test_a_file_system_is_mounted_by_its_name_and_mount_name(path, folder):
    source = f"{NAME}@tcp:/x7ylnbev{path}"
    assert check_lustre(source, OPTIONS, TARGETS) == Mount(ID, folder, "", is_read_only=False)
    assert check_lustre(source, "ro", TARGETS).is_read_only


@pytest.mark.parametrize(
    ("source", "options", "rule"),
    [
        (f"{NAME}:/x7ylnbev", OPTIONS, "is not in the form <server>@tcp:/<mount name>"),
        (f"{NAME}@tcp:x7ylnbev", OPTIONS, "is not in the form"),
        (f"{NAME}@o2ib:/x7ylnbev", OPTIONS, "is not in the form"),
        (f"{NAME}@tcp:/fsx", OPTIONS, "Is the filesystem name correct?"),
        ("fs-9.fsx.eu-west-1.amazonaws.com@tcp:/x7ylnbev", OPTIONS, "the name does not resolve"),
        (f"{NAME}@tcp:/x7ylnbev", "nfsvers=4.1", "Invalid argument; unknown option nfsvers=4.1"),
        (f"{NAME}@tcp:/x7ylnbev", "x-systemd.automount", "Invalid argument; unknown option x-systemd.automount"),
    ],
)
def test_a_mount_that_the_client_would_refuse_is_refused(source, options, rule):
    with pytest.raises(MountError) as refused:
        check_lustre(source, options, TARGETS)
    assert rule in str(refused.value)


def test_nothing_is_there_in_a_lab_without_one():
    with pytest.raises(MountError, match="the name does not resolve"):
        check_lustre(f"{NAME}@tcp:/x7ylnbev", OPTIONS, {"region": "eu-west-1", "addresses": {}})


def test_the_helper_answers_as_the_program_that_it_is_called_as(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(mount_helper, "TARGETS", tmp_path / "targets.json")
    (tmp_path / "targets.json").write_text('{"region": "eu-west-1", "addresses": {}, "access_points": {}}')
    assert mount_helper.main("mount.lustre", [f"{NAME}@tcp:/x7ylnbev", "/fsx", "-o", OPTIONS]) == 32
    assert capsys.readouterr().err.startswith("mount.lustre: Can't parse NID")


def _machine(**targets):
    values = dict.fromkeys(Machine.__dataclass_fields__, "")
    return Machine(
        **{
            **values,
            "mount_targets": {},
            "tags": {},
            "prefix_length": 20,
            "vpc_networks": ("10.0.0.0/16",),
            "lustre": targets,
            "access_points": {},
        }
    )


def test_linked_objects_are_files_and_what_a_node_has_written_stays(tmp_path):
    systems = FileSystems(tmp_path)
    files = {"/train/a/1.bin": b"one", "/train/a/": b"", "/train/2.bin": b"two"}
    target = LustreTarget(NAME, "x7ylnbev", files)
    described = systems.describe_targets(_machine(**{ID: target}))
    assert described["lustre"] == TARGETS["lustre"]
    folder = systems.open(ID)
    assert (folder / "train/a/1.bin").read_bytes() == b"one"
    (folder / "train/2.bin").write_bytes(b"changed by a node")
    systems.describe_targets(_machine(**{ID: target}))
    assert (folder / "train/2.bin").read_bytes() == b"changed by a node"


@pytest.mark.parametrize("is_there", [True, False])
def test_an_image_has_a_client_only_when_asked(tmp_path, *, is_there):
    Image("http://10.0.0.1", has_lustre_client=is_there).write(tmp_path)
    program = tmp_path / "usr/sbin/mount.lustre"
    assert program.exists() is is_there
    if is_there:
        assert 'main("mount.lustre", sys.argv[1:])' in program.read_text()
        assert program.stat().st_mode & 0o111
