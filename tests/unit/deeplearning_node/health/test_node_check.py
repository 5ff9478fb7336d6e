"""A node's check of itself; its programs are tiny executables, and nvidia-smi prints output that users have posted."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from deeplearning_contract.document import ContractError
from deeplearning_node.failure import StageFailure
from deeplearning_node.health.findings import Finding, HealthReport, clean, last_line
from deeplearning_node.health.gpus import (
    ECC,
    FIELDS,
    GPU,
    GpuReading,
    check_gpus,
    count_gpus,
    parse_query,
    read_gpus,
    read_utilization,
)
from deeplearning_node.health.network import NETWORK
from deeplearning_node.health.node_check import AGENT, MEMBERSHIP, check_agent, check_health, check_node, judge_clock
from deeplearning_node.health.storage import DISK, FILE_SYSTEM, check_disks, check_file_system, judge_disk
from deeplearning_node.node_facts import NodeFacts
from tests.unit.node_lab import SlowDriver

QUERY = (
    "--query-gpu=index,uuid,ecc.errors.uncorrected.volatile.total,retired_pages.pending,remapped_rows.failure"
    " --format=csv,noheader,nounits"
)
H100 = Path(__file__).parents[3] / "events/nvidia-smi-h100"
"""Output of the NVIDIA driver 580.159.04 on one H100 80GB HBM3; only the UUID is replaced."""
CARD = (H100 / "query.txt").read_text().strip()
HOPPER = f"{CARD}\n1{CARD.removeprefix('0')}"
VOLTA = "0, GPU-5ab0, 0, No, [N/A]\n1, GPU-5ab1, 0, No, [N/A]"
GAMING = "0, GPU-5ab0, [N/A], [N/A], [N/A]\n1, GPU-5ab1, [Not Supported], [N/A], N/A"


@pytest.fixture
def node(lab, ticking_clock):
    return lab.node(0, ticking_clock())


def answer(lab, text, status=0):
    """Let nvidia-smi give one answer to every query, and list two GPUs."""
    lab.program(
        0,
        "nvidia-smi",
        f"""echo "$@" >>"$FAKES/nvidia-smi.calls"
        case "$1" in
          -L) echo "GPU 0: NVIDIA A100 (UUID: GPU-5ab0)"; echo "GPU 1: NVIDIA A100 (UUID: GPU-5ab1)" ;;
          *) cat <<'ANSWER'
{text}
ANSWER
          exit {status} ;;
        esac""",
    )


def gpus(node, expected=2):
    return check_gpus(node.programs, expected, 20)


# --- GPUs -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", [HOPPER, VOLTA, GAMING], ids=["Hopper", "Volta", "without ECC"])
def test_fields_that_a_gpu_does_not_support_count_as_no_fault(lab, node, text):
    answer(lab, text)
    assert gpus(node) == (Finding.fit(GPU, "2 GPUs answer, 2 expected"), Finding.fit(ECC, "no faults"))


def test_the_driver_of_an_h100_knows_every_field_of_the_query():
    known = re.findall(r'^"([^"]+)"', (H100 / "help-query-gpu.txt").read_text(), re.MULTILINE)
    assert set(FIELDS) | {"utilization.gpu"} <= set(known)


def test_a_real_h100_is_listed_read_and_idle(lab, node):
    lab.program(
        0,
        "nvidia-smi",
        f"""case "$1" in
          -L) cat {H100}/list.txt ;;
          --query-gpu=utilization.gpu) cat {H100}/utilization-idle.txt ;;
          *) cat {H100}/query.txt ;;
        esac""",
    )
    assert count_gpus(node) == 1
    assert read_gpus(node.programs, node.limit(20)) == GpuReading(1)
    assert read_utilization(node.programs, 20) == 0


def test_one_query_asks_for_everything(lab, node):
    answer(lab, HOPPER)
    gpus(node)
    assert (lab.directory / "programs0/nvidia-smi.calls").read_text() == f"{QUERY}\n"


ERRORS = "has uncorrected ECC errors since the driver was loaded (ecc.errors.uncorrected.volatile.total 2)"
PENDING = "has pages to be retired at the next reset (retired_pages.pending Yes)"
NOT_REMAPPED = "has a memory row that could not be remapped (remapped_rows.failure {})"


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    ("values", "detail"),
    [
        ("2, [N/A], No", ERRORS),
        ("0, Yes, [N/A]", PENDING),
        ("0, [N/A], 1", NOT_REMAPPED.format("1")),
        ("0, [N/A], Yes", NOT_REMAPPED.format("Yes")),
    ],
)
def test_failed_memory_of_one_gpu_is_found_and_named(lab, node, values, detail):
    answer(lab, f"{CARD}\n1, GPU-5ab1, {values}")
    count, memory = gpus(node)
    assert count.ok
    assert memory == Finding.fault(ECC, f"GPU 1 {detail}", "terminate the instance, so that its group launches another")


@pytest.mark.fault(58)
def test_a_missing_gpu_is_a_fault_and_one_more_is_none(lab, node):
    answer(lab, HOPPER)
    assert gpus(node, 8)[0].detail == "2 GPUs answer, 8 are expected"
    assert not gpus(node, 8)[0].ok
    assert gpus(node, 1)[0].ok


NO_HANDLE = "Unable to determine the device handle for GPU1: 0000:5F:00.0"


@pytest.mark.fault(58)
@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        (f"{CARD}\n1, [GPU is lost], [GPU is lost], [N/A], [N/A]", 0, "GPU 1 reports [GPU is lost]"),
        (f"{CARD}\n1, GPU-5ab1, [GPU requires reset], [N/A], No", 0, "GPU 1 reports [GPU requires reset]"),
        (f"{CARD}\n1, GPU-5ab1, [Unknown Error], [N/A], No", 0, "GPU 1 reports [Unknown Error]"),
        (f"{NO_HANDLE}: Unknown Error\n{CARD}", 0, f"{NO_HANDLE}: Unknown Error"),
        (f"{NO_HANDLE}: GPU is lost.", 15, f"{NO_HANDLE}: GPU is lost."),
    ],
)
def test_a_gpu_that_fell_off_the_bus_is_a_fault_even_where_none_is_expected(lab, node, text, status, said):
    answer(lab, text, status)
    for expected in (0, 2):
        count, _ = gpus(node, expected)
        assert (count.ok, count.detail) == (False, said)


def test_a_driver_that_does_not_know_a_field_is_asked_for_the_others(lab, node):
    lab.program(
        0,
        "nvidia-smi",
        """case "$1" in
          *remapped*) echo 'Field "remapped_rows.failure" is not a valid field to query.'; exit 2 ;;
          *) echo "0, GPU-1, 3, No" ;;
        esac""",
    )
    count, memory = gpus(node, 1)
    assert count.ok
    assert memory.detail.endswith("(ecc.errors.uncorrected.volatile.total 3)")


def test_gpus_are_counted_by_the_list_when_the_query_fails(lab, node):
    for text, status in (("Segmentation fault", 139), ("an answer in words", 0), ("", 0)):
        answer(lab, text, status)
        count, memory = gpus(node)
        assert count == Finding.fit(GPU, "2 GPUs answer, 2 expected")
        assert memory == Finding.fit(ECC, f"nvidia-smi does not report it: {text or 'no response'}")


def test_a_driver_that_does_not_run_is_a_fault_only_where_gpus_are_expected(lab, node):
    for body in (None, "echo NVIDIA-SMI has failed; exit 9"):
        lab.program(0, "nvidia-smi", body)
        said = "nvidia-smi is not installed" if body is None else "nvidia-smi failed: NVIDIA-SMI has failed"
        assert gpus(node, 8)[0].detail == f"0 GPUs answer, 8 are expected: {said}"
        assert all(finding.ok for finding in gpus(node, 0))


def test_a_driver_that_hangs_is_given_up(lab, node):
    lab.program(0, "nvidia-smi", 'echo "$1" >>"$FAKES/nvidia-smi.calls"; sleep 60')
    count, _ = check_gpus(node.programs, 2, 1, is_joining=True)
    assert (lab.directory / "programs0/nvidia-smi.calls").read_text().count("\n") == 1, "one wait is enough"
    assert count.detail == "0 GPUs answer, 2 are expected: nvidia-smi did not respond in 1 s"


@pytest.mark.parametrize(
    "text",
    ["", ",,,,", "0, GPU", "x, GPU-1, 9, Yes, 1", "-1, GPU-1, 9, Yes, 1", "0; GPU-1; 9; Yes; 1", "\x1b[2J" * 9000],
)
def test_lines_that_are_no_gpu_count_as_nothing(text):
    assert parse_query(text, FIELDS) == GpuReading()


def test_values_that_nobody_foresaw_are_no_fault():
    for value in ("9" * 5000, "-3", "1e9", "maybe", "[Insufficient Permissions]"):
        assert parse_query(f"0, GPU-1, {value}, {value}, {value}", FIELDS) == GpuReading(1)


# --- Disks and the shared file system ---------------------------------------------------------------


def statvfs(free_bytes=10**9, free_inodes=10**6, flag=0, blocks=10**6, files=10**7):
    return os.statvfs_result((4096, 1, blocks, free_bytes, free_bytes, files, free_inodes, free_inodes, flag, 255))


@pytest.mark.fault(55)
@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (statvfs(), ""),
        (statvfs(free_bytes=2**20), "1 MiB are free, at least 64 are needed"),
        (statvfs(free_inodes=3), "3 inodes are free, at least 1000 are needed"),
        (statvfs(flag=os.ST_RDONLY), "is read-only"),
        (statvfs(free_bytes=0, blocks=0), ""),
        (statvfs(free_inodes=0, files=0), ""),
    ],
    ids=["room", "bytes", "inodes", "read-only", "tmpfs without a limit", "btrfs"],
)
def test_a_disk_needs_bytes_and_inodes_and_must_be_writable(found, complaint):
    assert judge_disk(found) == complaint


@pytest.mark.fault(55)
def test_a_full_disk_is_named_with_every_folder_that_is_on_it(tmp_path):
    full = {tmp_path / "tmp": statvfs(free_bytes=0), tmp_path / "var": statvfs(free_bytes=0)}
    finding = check_disks(tmp_path, lambda path: full.get(path, statvfs()))
    assert (finding.ok, finding.detail) == (False, "/var, /tmp: 0 MiB are free, at least 64 are needed")


def test_a_disk_that_cannot_be_looked_at_is_a_fault(tmp_path):
    assert check_disks(tmp_path / "absent").detail == "/, /var, /tmp: cannot be read: No such file or directory"


@pytest.fixture
def mounted(node):
    mount_point = node.path("/mnt/efs")
    mount_point.mkdir()
    (mount_point / ".mounted").touch()
    return mount_point


def test_the_file_system_is_written_read_and_left_as_it_was(node, mounted):
    assert check_file_system(node.programs, mounted) == Finding.fit(FILE_SYSTEM, f"{mounted} can be written and read")
    assert [path.name for path in mounted.iterdir()] == [".mounted"]


def test_a_mount_point_without_a_mount_is_a_fault(node, mounted):
    (mounted / ".mounted").unlink()
    assert check_file_system(node.programs, mounted).detail == f"nothing is mounted on {mounted}"


@pytest.mark.fault(61)
@pytest.mark.parametrize("program", ["mountpoint", "python"], ids=["its test", "a write"])
def test_a_file_system_that_hangs_is_given_up_and_its_child_left(lab, node, mounted, monkeypatch, program):
    lab.program(0, program, "sleep 60")
    monkeypatch.setattr(sys, "executable", str(lab.directory / "programs0/python"))
    finding = check_file_system(node.programs, mounted, 0.2)
    assert (finding.ok, finding.detail) == (False, f"{mounted} did not respond in 0.2 s")


def test_a_file_system_that_refuses_says_how(node, mounted, tmp_path):
    # Permissions do not stop root: something that cannot hold a file does.
    refused = tmp_path / "file"
    refused.touch()
    finding = check_file_system(node.programs, mounted)
    assert finding.ok
    programs = tmp_path / "programs0" / "mountpoint"
    programs.write_text("#!/bin/sh\n")
    finding = check_file_system(node.programs, refused)
    assert (finding.ok, finding.detail) == (False, f"{refused} cannot be written and read: Not a directory")


# --- Clock, agent, membership -----------------------------------------------------------------------


@pytest.mark.fault(54)
@pytest.mark.parametrize(
    ("at", "detail"),
    [
        (1000.0, "at most 30 s off"),
        (1045.0, "at most 30 s off"),
        (975.0, "at most 30 s off"),
        (1650.0, "600 s ahead of the checking node"),
        (400.0, "600 s behind the checking node"),
        (1e10, "9999998950 s ahead of the checking node"),
    ],
)
def test_a_clock_is_off_when_no_moment_of_the_question_fits_it(at, detail):
    finding = judge_clock(at, sent=1000.0, received=1050.0)
    assert (finding.detail, finding.ok) == (detail, "off" in detail)


@pytest.fixture
def facts(node):
    return NodeFacts.of(node)


def install(node, gpu_count=2, instance_id=None):
    member = {
        "host": "deeplearning-worker1",
        "instance_id": instance_id or node.identity.instance_id,
        "address": "10.0.0.9",
        "gpu_count": gpu_count,
        "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey",
    }
    path = node.path("/opt/deeplearning/membership.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"cluster": "c", "generation": 3, "members": [member]}))


def findings(report):
    return {finding.name: finding for finding in report.findings}


def test_a_fit_member_has_nothing_to_complain_of(node, facts, mounted):
    install(node)
    report = check_node(facts, node.programs, node.root, lambda: 1234.5)
    assert report.is_healthy, report.findings
    assert (report.instance_id, report.at, report.generation) == (node.identity.instance_id, 1234.5, 3)
    assert list(findings(report)) == [GPU, ECC, DISK, FILE_SYSTEM, NETWORK, AGENT, MEMBERSHIP]


@pytest.mark.fault(58)
def test_a_member_must_keep_the_gpus_with_which_it_joined(lab, node, facts, mounted):
    install(node, gpu_count=4)
    assert findings(check_node(facts, node.programs, node.root))[GPU].detail == "2 GPUs answer, 4 are expected"
    answer(lab, "0, GPU-5ab0, 0, No, 0")
    install(node, gpu_count=1)
    assert findings(check_node(facts, node.programs, node.root))[GPU].ok


@pytest.mark.fault(68)
def test_a_driver_that_is_slow_is_waited_for(node, facts, mounted):
    install(node)
    found = findings(check_node(facts, SlowDriver(node.programs.search_path), node.root))
    assert found[GPU] == Finding.fit(GPU, "2 GPUs answer, 2 expected")


@pytest.mark.fault(68)
def test_a_member_whose_driver_is_late_is_not_known_to_lack_a_gpu(lab, node, facts, mounted, monkeypatch):
    """As with a slow fi_info: a busy node is slow, and no reason to leave the cluster."""
    monkeypatch.setattr("deeplearning_node.health.node_check.GPU_SECONDS", 0.2)
    install(node)
    lab.program(0, "nvidia-smi", "sleep 60")
    report = check_node(facts, node.programs, node.root)
    assert report.is_healthy
    late = "nvidia-smi did not respond in 0 s"
    assert findings(report)[GPU] == Finding.fit(GPU, f"not known: {late}")
    assert findings(report)[ECC] == Finding.fit(ECC, f"not known: {late}")


@pytest.mark.parametrize("body", ["echo failed; exit 3", "echo activating; exit 3", "sleep 60", None])
def test_an_agent_that_does_not_run_is_a_fault(lab, node, body, monkeypatch):
    monkeypatch.setattr("deeplearning_node.health.node_check.SERVICE_SECONDS", 0.2)
    lab.program(0, "systemctl", body)
    found = check_agent(node.programs)
    assert not found.ok
    assert found.detail.startswith("deeplearning-agent.service is not active: ")
    assert found.remedy == "run: sudo systemctl restart deeplearning-agent.service"


def test_a_node_without_a_membership_of_its_own_is_no_member(node, facts, mounted):
    def membership():
        report = check_node(facts, node.programs, node.root)
        assert report.generation == 0
        assert not report.is_healthy
        return findings(report)[MEMBERSHIP].detail

    assert membership() == "none is installed yet"
    install(node, instance_id="i-0123456789abcdef0")
    assert membership() == "generation 3 does not name this node"
    path = node.path("/opt/deeplearning/membership.json")
    for text in ("{torn", "[]", '{"generation": 1, "members": [{}]}', '{"generation": "1", "members": []}'):
        path.write_text(text)
        assert membership().startswith("it cannot be read: ")
    path.write_bytes(b"\xff")
    assert membership().startswith("it cannot be read: ")


# --- Fit to join ------------------------------------------------------------------------------------


def test_a_fit_node_may_join(node):
    check_health(node)


@pytest.mark.fault(55, 58)
def test_an_unfit_node_does_not_join_and_says_everything_that_is_wrong(lab, node):
    answer(lab, "0, GPU-5ab0, 7, [N/A], No")
    node.path("/tmp").rmdir()
    with pytest.raises(StageFailure) as raised:
        check_health(node)
    assert raised.value.cause == (
        "the node is unfit to join, GPU count: 1 GPUs answer, 2 are expected; GPU memory: GPU 0 has uncorrected ECC "
        "errors since the driver was loaded (ecc.errors.uncorrected.volatile.total 7); disk: /tmp: cannot be read"
        ": No such file or directory"
    )
    assert raised.value.remedy.startswith("terminate the instance, so that its group launches another; free space")


@pytest.mark.fault(68)
def test_a_node_whose_driver_hangs_does_not_join(lab, node, monkeypatch):
    monkeypatch.setattr("deeplearning_node.health.node_check.QUERY_SECONDS", 0.2)
    lab.program(0, "nvidia-smi", "sleep 60")
    with pytest.raises(StageFailure, match="0 GPUs answer, 2 are expected: nvidia-smi did not respond in 0 s"):
        check_health(node)


def test_fewer_gpus_than_the_type_has_are_enough_when_the_caller_says_so(lab, node):
    answer(lab, CARD)
    check_health(node, fewest_gpus=1)
    with pytest.raises(StageFailure, match="1 GPUs answer, 2 are expected"):
        check_health(node)


# --- The report ---------------------------------------------------------------------------------------


REPORT = HealthReport("i-0123456789abcdef0", 12.5, 3, (Finding.fit("a", "well"), Finding.fault("b", "ill", "rest")))


def test_a_report_survives_the_noise_of_a_login():
    noise = "Welcome!\n{not json\n"
    assert HealthReport.from_output(f"{noise}{REPORT.to_line()}\nBye.\n") == REPORT
    assert not REPORT.is_healthy


def make_output(text='{"kind": "health", "at": 1, "instance_id": "i", "generation": 1, "findings": []}', **changes):
    """Return a report of which some values are others, written as they are."""
    for name, value in changes.items():
        text = re.sub(f'"{name}": [^,}}]+', f'"{name}": {value}', text)
    return text


def test_the_least_report_is_one():
    assert HealthReport.from_output(make_output()) == HealthReport("i", 1.0, 1, ())


@pytest.mark.parametrize(
    "output",
    [
        *("", "command not found", "{", "{}", '{"kind": "health"}', "{" * 100_000),
        *(make_output(at=at) for at in ("true", "NaN", "Infinity", "1e300", "9" * 5000)),
        make_output(instance_id="5"),
        make_output(generation="true"),
        *(make_output(findings=findings) for findings in ("[1]", '[{"name": "x", "ok": 1}]')),
    ],
)
def test_output_that_is_not_a_report_is_refused(output):
    with pytest.raises(ContractError):
        HealthReport.from_output(output)


def test_texts_of_others_are_one_short_line_without_control_characters():
    hostile = json.dumps(
        {
            "kind": "health",
            "instance_id": "i-1\x1b[31m",
            "at": 1,
            "generation": 1,
            "findings": [{"name": "x" * 100, "ok": False, "detail": "a\nb\x1b]0;\x07" + "c" * 999, "remedy": ""}] * 99,
        }
    )
    report = HealthReport.from_output(hostile)
    assert report.instance_id == "i-1 [31m"
    assert len(report.findings) == 50
    finding = report.findings[0]
    assert (len(finding.name), len(finding.detail)) == (40, 300)
    assert finding.detail.startswith("a b ]0; c")
    assert all(letter.isprintable() for letter in finding.detail)


def test_the_last_line_that_says_something_is_the_one_that_counts():
    assert last_line("first\n  second  \n\n \n") == "second"
    assert last_line(f"-----\nmpirun has detected an attempt to run as root.\n{'-' * 74}\n") == (
        "mpirun has detected an attempt to run as root."
    )
    assert last_line("====\n****\n") == ""
    assert last_line("") == ""
    assert clean(" a \t b ") == "a b"


def test_the_node_checks_import_nothing_heavy(agent_folder):
    code = "import sys; import deeplearning_command.main; assert not {'botocore', 'boto3'} & set(sys.modules)"
    environment = {"PYTHONPATH": str(agent_folder)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)
