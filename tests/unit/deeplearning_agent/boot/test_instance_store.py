"""The instance store becomes one scratch folder, prepared once, and nothing that holds anything is written to."""

import shutil
import subprocess

import pytest

from deeplearning_agent.boot.instance_store import DEVICE_PREFIX, LOCAL_LINK, find_devices, prepare_local_disk

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
        # The kernel of a test machine may have no md, so the array is a file; blkid and mkfs work on it for real.
        lab.program(
            1,
            "mdadm",
            'echo "$@" >>"$FAKES/mdadm.calls"; for word; do case "$word" in */md/*) array=$word ;; esac; done; '
            '/bin/mkdir -p "${array%/*}"; [ "$1" = --assemble ] || /usr/bin/truncate -s 16M "$array.data"; '
            '/bin/ln -s "$array.data" "$array"',
        )
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
        folder = prepare_local_disk(self.node, self.node.limit(1000))
        assert (self.root / LOCAL_LINK.lstrip("/")).resolve() == (self.root / folder.lstrip("/")).resolve()
        assert (self.root / folder.lstrip("/")).is_dir()
        return folder

    def calls(self, program):
        calls = self.lab.directory / f"programs1/{program}.calls"
        return [line.split() for line in calls.read_text().splitlines()] if calls.exists() else []

    @property
    def mounts(self):
        return self.calls("mount")

    def join(self, device):
        """Write the mark of a part of the array that this program makes, as mdadm does: metadata 1.2, 4 KiB in."""
        header = bytearray(256)
        header[0:8] = (0xA92B4EFC).to_bytes(4, "little") + (1).to_bytes(4, "little")
        header[32 : 32 + 16] = b"any:deeplearning"
        header[128 + 16 : 128 + 24] = (8).to_bytes(8, "little")
        # As mdadm: roles of 128 parts follow, all 0. Without any, blkid 2.39 of Ubuntu 24.04 refuses the checksum.
        header[220:224] = (128).to_bytes(4, "little")
        total = sum(int.from_bytes(header[i : i + 4], "little") for i in range(0, 256, 4))
        header[216:220] = ((total & 0xFFFFFFFF) + (total >> 32)).to_bytes(4, "little")
        with device.open("r+b") as file:
            file.seek(4096)
            file.write(header)


@pytest.fixture
def machine(lab):
    return Machine(lab)


def mount(machine, path):
    folder = machine.root / path.lstrip("/")
    folder.mkdir(parents=True)
    (folder / ".mounted").touch()


def test_an_instance_store_that_the_image_mounted_is_used(machine):
    mount(machine, "/opt/dlami/nvme")
    device = machine.device()
    assert machine.prepare() == "/opt/dlami/nvme/deeplearning"
    assert device.read_bytes() == bytes(DEVICE_BYTES)
    assert machine.mounts == []


def test_on_emr_too_an_instance_store_that_the_image_mounted_is_used(machine):
    (machine.root / "mnt/var/lib/info").mkdir(parents=True)
    mount(machine, "/opt/dlami/nvme")
    assert machine.prepare() == "/opt/dlami/nvme/deeplearning"


@pytest.mark.parametrize("label", [None, "emr"])
def test_on_emr_the_disks_of_emr_are_used_and_its_devices_left_alone(machine, label):
    """EMR management guide, "Instance storage": EMR uses it for HDFS and scratch, below /mnt."""
    (machine.root / "mnt/var/lib/info").mkdir(parents=True)
    device = machine.device(label=label)
    content = device.read_bytes()
    assert machine.prepare() == "/mnt/deeplearning"
    assert device.read_bytes() == content
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
            header[220:224] = (128).to_bytes(4, "little")
            total = sum(int.from_bytes(header[i : i + 4], "little") for i in range(0, 256, 4))
            header[216:220] = ((total & 0xFFFFFFFF) + (total >> 32)).to_bytes(4, "little")
            file.write(header)
    before = device.read_bytes()
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert device.read_bytes() == before
    assert machine.mounts == []
    assert "is not used: it is not empty" in caplog.text
    assert "/opt/deeplearning/local is on the root volume" in caplog.text


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


@pytest.mark.parametrize("count", [2, 8])
def test_all_empty_devices_become_one_raid_0(machine, count):
    devices = [machine.device(f"AWS{number}") for number in range(count)]
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    array = str(machine.root / "dev/md/deeplearning")
    [call] = machine.calls("mdadm")
    assert call[:2] == ["--create", array]
    assert {"--level=0", f"--raid-devices={count}", "--name=deeplearning", "--homehost=any"} <= set(call)
    by_id = machine.root / "dev/disk/by-id"
    assert call[-count:] == [str(by_id / f"{DEVICE_PREFIX}AWS{number}") for number in range(count)]
    assert machine.mounts == [[array, str(machine.root / "mnt/deeplearning-local")]]
    assert all(device.read_bytes() == bytes(DEVICE_BYTES) for device in devices), "only the array is formatted"


def test_after_a_reboot_the_array_is_assembled_and_mounted_and_never_made_again(machine):
    devices = [machine.device(f"AWS{number}") for number in range(2)]
    machine.prepare()
    array = machine.root / "dev/md/deeplearning"
    content = array.read_bytes()
    for device in devices:
        machine.join(device)
    array.unlink()
    (machine.root / "mnt/deeplearning-local/.mounted").unlink()
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert [call[0] for call in machine.calls("mdadm")] == ["--create", "--assemble"]
    assert array.read_bytes() == content
    assert len(machine.mounts) == 2


def test_an_array_that_udev_has_assembled_is_mounted_as_it_is(machine):
    for number in range(2):
        machine.device(f"AWS{number}")
    machine.prepare()
    for number in range(2):
        machine.join(machine.root / f"dev/nvme-AWS{number}")
    (machine.root / "mnt/deeplearning-local/.mounted").unlink()
    machine.prepare()
    assert [call[0] for call in machine.calls("mdadm")] == ["--create"]
    assert len(machine.mounts) == 2


def test_a_boot_that_was_cut_off_before_the_array_had_a_file_system_is_repaired(machine):
    for number in range(2):
        machine.join(machine.device(f"AWS{number}"))
    array = machine.root / "dev/md/deeplearning"
    array.parent.mkdir(parents=True)
    with (array.parent / "data").open("wb") as file:
        file.truncate(2 * DEVICE_BYTES)
    array.symlink_to(array.parent / "data")
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert machine.mounts[0][0] == str(array)


def test_an_array_that_holds_something_else_is_never_touched(machine, caplog):
    for number in range(2):
        machine.join(machine.device(f"AWS{number}"))
    array = machine.device("array", label="user-data")
    (machine.root / f"dev/disk/by-id/{DEVICE_PREFIX}array").unlink()
    (machine.root / "dev/md").mkdir(parents=True)
    (machine.root / "dev/md/deeplearning").symlink_to(array)
    before = array.read_bytes()
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert array.read_bytes() == before
    assert "is not used: it is not empty" in caplog.text


def test_only_empty_devices_join_the_array(machine):
    held = machine.device("AWS0", label="user-data")
    before = held.read_bytes()
    for number in (1, 2):
        machine.device(f"AWS{number}")
    machine.prepare()
    [call] = machine.calls("mdadm")
    assert "--raid-devices=2" in call
    assert not any(word.endswith("AWS0") for word in call)
    assert held.read_bytes() == before


def test_mdadm_is_installed_where_several_devices_need_it(machine):
    machine.lab.program(1, "mdadm", None)
    machine.lab.program(1, "apt-get", 'echo "$@" >>"$FAKES/apt.calls"')
    for number in range(2):
        machine.device(f"AWS{number}")
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert any(call[-1] == "mdadm" and "install" in call for call in machine.calls("apt"))
    assert machine.mounts[0][0].endswith("AWS0"), "without mdadm the first device alone serves"


def test_one_device_needs_no_mdadm(machine):
    machine.lab.program(1, "mdadm", None)
    machine.lab.program(1, "apt-get", 'echo "$@" >>"$FAKES/apt.calls"')
    machine.device()
    assert machine.prepare() == "/mnt/deeplearning-local/deeplearning"
    assert machine.calls("apt") == []


def test_an_array_that_cannot_be_made_leaves_the_root_volume(machine, caplog):
    machine.lab.program(1, "mdadm", "echo 'mdadm: RUN_ARRAY failed' >&2; exit 1")
    for number in range(2):
        machine.device(f"AWS{number}")
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert "the instance store cannot be used: mdadm" in caplog.text


def test_a_device_with_two_names_and_its_partitions_count_once(machine):
    device = machine.device("AWS1")
    folder = machine.root / "dev/disk/by-id"
    (folder / f"{DEVICE_PREFIX}AWS1_1").symlink_to(device)
    (folder / f"{DEVICE_PREFIX}AWS1-part1").symlink_to(device)
    (folder / "nvme-Amazon_Elastic_Block_Store_vol1").symlink_to(device)
    assert find_devices(machine.node) == [str(folder / f"{DEVICE_PREFIX}AWS1")]


def test_without_a_device_the_root_volume_is_used_without_alarm(machine, caplog):
    assert machine.prepare() == "/var/lib/deeplearning/local"
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
