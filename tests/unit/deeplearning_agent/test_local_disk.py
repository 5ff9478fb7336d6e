"""The fastest disk of a node is found, prepared once, and nothing that holds anything is touched."""

import shutil
import subprocess

import pytest

from deeplearning_agent.local_disk import DEVICE_PREFIX, LOCAL_LINK, find_devices, prepare_local_disk

DEVICE_BYTES = 8 * 1024 * 1024
SYSTEM_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


class Machine:
    """A node whose devices are files, with the real blkid and mkfs, and a mount that only says so."""

    def __init__(self, lab):
        self.lab = lab
        self.node = lab.node(1)
        self.root = self.node.root
        for name in ("blkid", "mkfs.ext4"):
            self.provide(name)
        lab.program(1, "mount", 'for target; do :; done; echo "$@" >>"$FAKES/mount.calls"; touch "$target/.mounted"')

    def provide(self, name):
        found = shutil.which(name, path=SYSTEM_PATH)
        assert found, f"missing: {name}; run: apt-get install util-linux e2fsprogs"
        self.lab.program(1, name, f'exec {found} "$@"')

    def device(self, name="AWS1", label=None):
        """Make an empty device with its name in /dev/disk/by-id; with a label, it has a file system."""
        real = self.root / f"dev/nvme-{name}"
        real.parent.mkdir(parents=True, exist_ok=True)
        with real.open("wb") as file:
            file.truncate(DEVICE_BYTES)
        if label is not None:
            program = shutil.which("mkfs.ext4", path=SYSTEM_PATH)
            subprocess.run([program, "-q", "-L", label, str(real)], check=True)
        link = self.root / f"dev/disk/by-id/{DEVICE_PREFIX}{name}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(real)
        return real

    def prepare(self):
        folder = prepare_local_disk(self.node)
        assert (self.root / LOCAL_LINK.lstrip("/")).resolve() == (self.root / folder.lstrip("/")).resolve()
        assert (self.root / folder.lstrip("/")).is_dir()
        return folder

    @property
    def mounts(self):
        calls = self.lab.directory / "programs1/mount.calls"
        return [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []


@pytest.fixture
def machine(lab):
    return Machine(lab)


def mount(machine, path):
    folder = machine.root / path.lstrip("/")
    folder.mkdir(parents=True)
    (folder / ".mounted").touch()


def test_what_the_image_mounted_is_used(machine):
    mount(machine, "/opt/dlami/nvme")
    device = machine.device()
    assert machine.prepare() == "/opt/dlami/nvme/deeplearning"
    assert device.read_bytes() == bytes(DEVICE_BYTES)
    assert machine.mounts == []


def test_an_empty_device_is_formatted_and_mounted(machine):
    device = machine.device()
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    found = subprocess.run([shutil.which("blkid", path=SYSTEM_PATH), "-p", device], capture_output=True, check=True)
    assert b'LABEL="deeplearning"' in found.stdout
    by_id = machine.root / "dev/disk/by-id"
    assert machine.mounts == [[str(by_id / f"{DEVICE_PREFIX}AWS1"), str(machine.root / "mnt/deeplearning-local")]]


def test_a_second_run_changes_nothing(machine):
    device = machine.device()
    machine.prepare()
    content = device.read_bytes()
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert device.read_bytes() == content
    assert len(machine.mounts) == 1


def test_after_a_reboot_the_own_file_system_is_mounted_again_and_not_made_again(machine):
    device = machine.device()
    machine.prepare()
    content = device.read_bytes()
    (machine.root / "mnt/deeplearning-local/.mounted").unlink()
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert device.read_bytes() == content
    assert len(machine.mounts) == 2


@pytest.mark.parametrize("content", ["file system", "partitions", "swap", "raid"])
def test_a_device_that_holds_anything_is_never_touched(machine, content, caplog):
    device = machine.device(label="user-data" if content == "file system" else None)
    partition = bytes.fromhex("000002008300050001000000ff0f0000")
    marks = {
        "partitions": (0x1BE, partition, (510, b"\x55\xaa")),
        "swap": (4096 - 10, b"SWAPSPACE2", (1024, (1).to_bytes(4, "little") + (100).to_bytes(4, "little"))),
    }
    with device.open("r+b") as file:
        if content in marks:
            offset, mark, (other, more) = marks[content]
            file.seek(offset)
            file.write(mark)
            file.seek(other)
            file.write(more)
        elif content == "raid":
            file.seek(4096)
            header = bytearray(256)
            header[0:8] = (0xA92B4EFC).to_bytes(4, "little") + (1).to_bytes(4, "little")
            header[128 + 16 : 128 + 24] = (8).to_bytes(8, "little")
            total = sum(int.from_bytes(header[i : i + 4], "little") for i in range(0, 256, 4))
            header[216:220] = ((total & 0xFFFFFFFF) + (total >> 32)).to_bytes(4, "little")
            file.write(header)
    before = device.read_bytes()
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert device.read_bytes() == before
    assert machine.mounts == []
    assert "is left alone: it holds something" in caplog.text
    assert "local data goes to /var/lib/deeplearning/local on the root volume" in caplog.text


def test_a_device_that_is_part_of_another_is_left_alone(machine, caplog):
    device = machine.device()
    (machine.root / f"sys/class/block/{device.name}/holders/md0").mkdir(parents=True)
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert device.read_bytes() == bytes(DEVICE_BYTES)
    assert "it is part of another device" in caplog.text


def test_a_device_that_cannot_be_read_is_left_alone(machine, caplog):
    device = machine.device()
    machine.lab.program(1, "blkid", "echo 'ambivalent result' >&2; exit 8")
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert device.read_bytes() == bytes(DEVICE_BYTES)
    assert "cannot be used: blkid" in caplog.text


def test_the_next_device_is_taken_when_one_is_in_use(machine):
    machine.device("AWS1", label="user-data")
    machine.device("AWS2")
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert machine.mounts[0][0].endswith("AWS2")


def test_an_image_without_mkfs_uses_its_root_volume(machine, caplog):
    machine.device()
    machine.lab.program(1, "mkfs.ext4", None)
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert "neither mkfs.ext4 nor mkfs.xfs" in caplog.text


def test_a_device_with_two_names_and_its_partitions_count_once(machine):
    device = machine.device("AWS1")
    folder = machine.root / "dev/disk/by-id"
    (folder / f"{DEVICE_PREFIX}AWS1_1").symlink_to(device)
    (folder / f"{DEVICE_PREFIX}AWS1-part1").symlink_to(device)
    (folder / "nvme-Amazon_Elastic_Block_Store_vol1").symlink_to(device)
    assert find_devices(machine.node) == [str(folder / f"{DEVICE_PREFIX}AWS1")]


def test_without_a_device_the_root_volume_is_used_with_a_warning(machine, caplog):
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert "no instance store can be used" in caplog.text
