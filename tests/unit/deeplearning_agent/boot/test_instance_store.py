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

    def devices(self, count):
        return [self.device(f"AWS{number}") for number in range(count)]

    def make_parts(self):
        """Make two devices that are parts of the array that this program makes."""
        for device in self.devices(2):
            self.join(device)

    def reboot(self):
        (self.root / "mnt/deeplearning-local/.mounted").unlink()

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

    @staticmethod
    def join(device, name=b"any:deeplearning"):
        """Write the mark of a part of an array, or of this program's own, as mdadm does: metadata 1.2, 4 KiB in."""
        header = bytearray(256)
        header[0:8] = (0xA92B4EFC).to_bytes(4, "little") + (1).to_bytes(4, "little")
        header[32 : 32 + len(name)] = name
        header[128 + 16 : 128 + 24] = (8).to_bytes(8, "little")
        # As mdadm: roles of 128 parts follow, all 0. Without any, blkid 2.39 of Ubuntu 24.04 refuses the checksum.
        header[220:224] = (128).to_bytes(4, "little")
        total = sum(int.from_bytes(header[i : i + 4], "little") for i in range(0, 256, 4))
        header[216:220] = ((total & 0xFFFFFFFF) + (total >> 32)).to_bytes(4, "little")
        with device.open("r+b") as file:
            file.seek(4096)
            file.write(header)


LOCAL = "/mnt/deeplearning-local/deeplearning"
ROOT_VOLUME = "/var/lib/deeplearning/local"


@pytest.fixture
def machine(lab):
    return Machine(lab)


def mount(machine, path):
    folder = machine.root / path.lstrip("/")
    folder.mkdir(parents=True)
    (folder / ".mounted").touch()


@pytest.mark.parametrize("is_emr", [False, True])
def test_an_instance_store_that_the_image_mounted_is_used(machine, is_emr):
    if is_emr:
        (machine.root / "mnt/var/lib/info").mkdir(parents=True)
    mount(machine, "/opt/dlami/nvme")
    device = machine.device()
    assert machine.prepare() == "/opt/dlami/nvme/deeplearning"
    assert device.read_bytes() == bytes(DEVICE_BYTES)
    assert machine.mounts == []


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
    assert machine.prepare() == LOCAL
    found = subprocess.run([shutil.which("blkid", path=SYSTEM_PATH), "-p", device], capture_output=True, check=True)
    assert b'LABEL="deeplearning"' in found.stdout
    by_id = machine.root / "dev/disk/by-id"
    assert machine.mounts == [[str(by_id / f"{DEVICE_PREFIX}AWS1"), str(machine.root / "mnt/deeplearning-local")]]


@pytest.mark.parametrize(("reboots", "mounts"), [(False, 1), (True, 2)], ids=["second run", "reboot"])
def test_the_own_file_system_is_mounted_again_after_a_reboot_and_never_made_again(machine, reboots, mounts):
    device = machine.device()
    machine.prepare()
    content = device.read_bytes()
    if reboots:
        machine.reboot()
    assert machine.prepare() == LOCAL
    assert device.read_bytes() == content
    assert len(machine.mounts) == mounts


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
    if content == "raid":
        machine.join(device, b"")
    before = device.read_bytes()
    assert machine.prepare() == ROOT_VOLUME
    assert device.read_bytes() == before
    assert machine.mounts == []
    assert "is not used: it is not empty" in caplog.text
    assert "/opt/deeplearning/local is on the root volume" in caplog.text


def test_a_device_that_is_part_of_another_is_left_alone(machine, caplog):
    device = machine.device()
    (machine.root / f"sys/class/block/{device.name}/holders/md0").mkdir(parents=True)
    assert machine.prepare() == ROOT_VOLUME
    assert device.read_bytes() == bytes(DEVICE_BYTES)
    assert "it is part of another device" in caplog.text


@pytest.mark.parametrize(
    ("count", "program", "words"),
    [
        (1, {"blkid": "echo 'ambivalent result' >&2; exit 8"}, "AWS0 cannot be used: blkid"),
        (1, {"mkfs.ext4": None}, "neither mkfs.ext4 nor mkfs.xfs"),
        (2, {"mdadm": "echo 'mdadm: RUN_ARRAY failed' >&2; exit 1"}, "the instance store cannot be used: mdadm"),
    ],
)
def test_a_program_that_fails_or_is_missing_leaves_the_devices_alone(machine, caplog, count, program, words):
    devices = machine.devices(count)
    machine.lab.program(1, *next(iter(program.items())))
    assert machine.prepare() == ROOT_VOLUME
    assert all(device.read_bytes() == bytes(DEVICE_BYTES) for device in devices)
    assert words in caplog.text


def test_the_next_device_is_taken_when_one_is_in_use(machine):
    machine.device("AWS1", label="user-data")
    machine.device("AWS2")
    assert machine.prepare() == LOCAL
    assert machine.mounts[0][0].endswith("AWS2")


@pytest.mark.parametrize("count", [2, 8])
def test_all_empty_devices_become_one_raid_0(machine, count):
    devices = machine.devices(count)
    assert machine.prepare() == LOCAL
    array = str(machine.root / "dev/md/deeplearning")
    [call] = machine.calls("mdadm")
    assert call[:2] == ["--create", array]
    assert {"--level=0", f"--raid-devices={count}", "--name=deeplearning", "--homehost=any"} <= set(call)
    by_id = machine.root / "dev/disk/by-id"
    assert call[-count:] == [str(by_id / f"{DEVICE_PREFIX}AWS{number}") for number in range(count)]
    assert machine.mounts == [[array, str(machine.root / "mnt/deeplearning-local")]]
    assert all(device.read_bytes() == bytes(DEVICE_BYTES) for device in devices), "only the array is formatted"


@pytest.mark.parametrize(
    ("is_assembled", "calls"), [(False, ["--create", "--assemble"]), (True, ["--create"])], ids=["agent", "udev"]
)
def test_after_a_reboot_the_array_is_assembled_unless_udev_did_and_never_made_again(machine, is_assembled, calls):
    devices = machine.devices(2)
    machine.prepare()
    array = machine.root / "dev/md/deeplearning"
    content = array.read_bytes()
    for device in devices:
        machine.join(device)
    if not is_assembled:
        array.unlink()
    machine.reboot()
    assert machine.prepare() == LOCAL
    assert [call[0] for call in machine.calls("mdadm")] == calls
    assert array.read_bytes() == content
    assert len(machine.mounts) == 2


def test_a_boot_that_was_cut_off_before_the_array_had_a_file_system_is_repaired(machine):
    machine.make_parts()
    array = machine.root / "dev/md/deeplearning"
    array.parent.mkdir(parents=True)
    with (array.parent / "data").open("wb") as file:
        file.truncate(2 * DEVICE_BYTES)
    array.symlink_to(array.parent / "data")
    assert machine.prepare() == LOCAL
    assert machine.mounts[0][0] == str(array)


def test_an_array_that_holds_something_else_is_never_touched(machine, caplog):
    machine.make_parts()
    array = machine.device("array", label="user-data")
    (machine.root / f"dev/disk/by-id/{DEVICE_PREFIX}array").unlink()
    (machine.root / "dev/md").mkdir(parents=True)
    (machine.root / "dev/md/deeplearning").symlink_to(array)
    before = array.read_bytes()
    assert machine.prepare() == ROOT_VOLUME
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


@pytest.mark.parametrize("count", [1, 2])
def test_mdadm_is_installed_where_several_devices_need_it(machine, count):
    machine.lab.program(1, "mdadm", None)
    machine.lab.program(1, "apt-get", 'echo "$@" >>"$FAKES/apt.calls"')
    machine.devices(count)
    assert machine.prepare() == LOCAL
    assert any(call[-1] == "mdadm" and "install" in call for call in machine.calls("apt")) is (count > 1)
    assert machine.mounts[0][0].endswith("AWS0"), "without mdadm the first device alone serves"


def test_a_device_with_two_names_and_its_partitions_count_once(machine):
    device = machine.device("AWS1")
    folder = machine.root / "dev/disk/by-id"
    (folder / f"{DEVICE_PREFIX}AWS1_1").symlink_to(device)
    (folder / f"{DEVICE_PREFIX}AWS1-part1").symlink_to(device)
    (folder / "nvme-Amazon_Elastic_Block_Store_vol1").symlink_to(device)
    assert find_devices(machine.node) == [str(folder / f"{DEVICE_PREFIX}AWS1")]


def test_without_a_device_the_root_volume_is_used_without_alarm(machine, caplog):
    assert machine.prepare() == ROOT_VOLUME
    assert [record for record in caplog.records if record.levelname != "INFO"] == []
