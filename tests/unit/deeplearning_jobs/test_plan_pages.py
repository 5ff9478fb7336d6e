"""Plans as they are printed: kept in plans/, and held against what AWS says of the instance types, in words."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from deeplearning_jobs.plan.page import render_plan
from deeplearning_jobs.planner import make_plan
from tests.unit.deeplearning_jobs.plan_samples import HARDWARE, PLANS, SAMPLES, keep, make_hosts, make_request

CATALOGUE = Path(__file__).parents[3] / "constructs/deeplearning_cdk/catalog/instance_catalog.json"
NEVER_SET = (
    "FI_PROVIDER",
    "FI_EFA_USE_DEVICE_RDMA",
    "FI_EFA_USE_HUGE_PAGE",
    "NCCL_PROTO",
    "RDMAV_FORK_SAFE",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MIN_NRINGS",
    "NCCL_BUFFSIZE",
    "NCCL_DEBUG",
)
EFA_NAMES = NEVER_SET[:5]
GPU_TYPES = ("p3dn.24xlarge", "p4d.24xlarge", "p5.48xlarge", "g5.xlarge")
EFA_TYPES = GPU_TYPES[:3]
HOROVOD = [name for name in SAMPLES if name.startswith("horovod")]


def read_page(name):
    """Return the page of a sample."""
    return SAMPLES[name].render()


def section(name, title):
    """Return the lines of one part of a page."""
    _, _, rest = read_page(name).partition(f"\n\n{title}\n")
    return rest.partition("\n\n")[0].splitlines()


def places(name):
    """Return the rows of the table of ranks: rank, host, local rank, GPU, network card."""
    return [tuple(line.split()) for line in section(name, "Where each rank runs")[1:]]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_page_of_a_plan_is_the_one_that_is_kept(name):
    path, page = keep(name)
    assert page == path.read_text(), (
        "if the change is meant: .venv/bin/python -m tests.unit.deeplearning_jobs.plan_samples"
    )


def test_no_kept_page_is_left_over():
    assert set(PLANS.iterdir()) == {keep(name)[0] for name in SAMPLES}


@pytest.mark.parametrize("instance_type", HARDWARE)
def test_the_hardware_of_the_samples_is_that_of_the_catalogue(instance_type):
    entry = json.loads(CATALOGUE.read_text())["types"][instance_type]
    first, _, last = entry.get("efa_cards", "").partition("-")
    hardware = HARDWARE[instance_type]
    assert hardware.gpu_count == entry.get("gpus", 0)
    assert hardware.network_cards == entry.get("network_cards", 1)
    assert hardware.efa_cards == (int(last) - int(first) + 1 if first else 0)


FORBIDDEN = (
    *(rf"(^|[\s;]){variable}=(?!0$|INFO$)|export [^\n]*{variable}=|-x {variable}" for variable in NEVER_SET),
    r"IFNAME=(ens|eth|en\b)",
    r"ubuntu|ec2-user|/home/|anaconda|source activate|tensorflow_p|/usr/local/mpi",
    r"StrictHostKeyChecking=no|UserKnownHostsFile",
)
"""Settings that EFA and NCCL choose better, names of an interface, a user or an image, and unchecked host keys."""


@pytest.mark.defect("D72", "D75")
@pytest.mark.parametrize("name", SAMPLES)
def test_no_page_sets_what_hosts_find_or_libraries_choose_better_themselves(name):
    page = read_page(name)
    assert [pattern for pattern in FORBIDDEN if re.search(pattern, page, re.MULTILINE)] == []
    assert re.search(r"export .*NCCL_SOCKET_IFNAME=\"\$interface\"", page)


@pytest.mark.defect("D75")
@pytest.mark.parametrize("instance_type", EFA_TYPES)
def test_a_page_of_a_type_with_efa_says_of_each_setting_why_it_is_left_alone(instance_type):
    why = section(f"horovod-{instance_type}", "Why")
    for variable in EFA_NAMES:
        at = why.index(f"  {variable} not set")
        assert len(why[at + 1].split()) > 3, variable


@pytest.mark.parametrize(
    ("instance_type", "cards"),
    [
        ("p3dn.24xlarge", "1 network card, 1 with EFA"),
        ("p4d.24xlarge", "4 network cards, 4 with EFA"),
        ("p5.48xlarge", "32 network cards, 32 with EFA"),
        ("g5.xlarge", "1 network card, no EFA"),
    ],
)
def test_a_page_names_the_cards_of_its_type_and_how_many_have_efa(instance_type, cards):
    assert f"  {instance_type}: {cards}" in section(f"horovod-{instance_type}", "Why")


def test_a_page_says_by_which_provider_nccl_speaks_and_why():
    for name, provider in (("horovod-p5.48xlarge", "efa"), ("horovod-g5.xlarge", "tcp")):
        assert f"(provider {provider})" in "\n".join(section(name, "Why"))
    hosts = make_hosts("p5.48xlarge")
    broken = [hosts[0], replace(hosts[1], efa_fault="libfabric lists no EFA")]
    page = render_plan(make_plan(broken, make_request("torchrun", broken)))
    assert "  p5.48xlarge: 32 network cards, 32 with EFA\n      NCCL uses the EFAs (provider efa)" in page
    assert "  deeplearning-worker2, p5.48xlarge: 32 network cards, 32 with EFA\n" in page
    assert "uses TCP (provider tcp) nevertheless, at a fraction of the speed: libfabric lists no EFA" in page


@pytest.mark.parametrize("instance_type", EFA_TYPES)
def test_eight_gpus_share_the_cards_of_their_host_evenly(instance_type):
    cards = HARDWARE[instance_type].network_cards
    expected = {1: "0 0 0 0 0 0 0 0", 4: "0 0 1 1 2 2 3 3", 32: "0-3 4-7 8-11 12-15 16-19 20-23 24-27 28-31"}[cards]
    rows = places(f"horovod-{instance_type}")
    assert [row[4] for row in rows] == 2 * expected.split()
    assert [row[3] for row in rows] == 2 * list("01234567")


def test_the_card_without_efa_of_a_p6_b300_is_given_to_no_gpu():
    hosts = make_hosts("p6-b300.48xlarge")
    page = render_plan(make_plan(hosts, make_request("torchrun", hosts)))
    assert re.search(r"^  0 +deeplearning-worker1 +0 +0 +1-2$", page, re.MULTILINE)
    assert re.search(r"^  15 +deeplearning-worker2 +7 +7 +15-16$", page, re.MULTILINE)


def test_a_page_of_a_type_without_efa_says_nothing_of_its_settings():
    text = read_page("horovod-g5.xlarge")
    assert not re.search(r"\bFI_|RDMAV|NCCL_PROTO|infiniband", text)


def test_a_page_of_a_cpu_type_gives_no_rank_a_gpu():
    assert [row[3] for row in places("horovod-c7i.4xlarge")] == ["-", "-"]
    text = read_page("horovod-c7i.4xlarge")
    assert "these hosts have no GPUs" in text
    assert not re.search(r"EFA (by|at)|\bFI_|CUDA|--gpus|NCCL_PROTO", text)


@pytest.mark.parametrize("name", [*HOROVOD, "mpi-p4d.24xlarge"])
def test_np_is_hosts_times_slots_though_nobody_asked_for_it(name):
    sample = SAMPLES[name]
    slots = max(1, HARDWARE[sample.instance_type].gpu_count)
    assert sum(f" -np {sample.host_count * slots} " in line for line in section(name, "What runs")) == 1
    assert len(places(name)) == sample.host_count * slots


@pytest.mark.parametrize("name", SAMPLES)
def test_every_option_of_a_command_line_and_every_variable_has_its_reason(name):
    why = "\n".join(section(name, "Why"))
    for line in section(name, "What runs"):
        words = line.strip().removesuffix(" \\")
        if words.startswith("--") or re.match(r"-n?p", words):
            assert words in why or f"{words.split()[0]} " in why, words
        elif re.match(r"[A-Z_]+=", words):
            assert words.partition("=")[0] in why or words.startswith("DEEPLEARNING_TASK") or "RANK" in words, words


def test_a_long_table_shows_both_its_ends_and_how_much_it_leaves_out():
    hosts = make_hosts("p5.48xlarge", 20)
    page = render_plan(make_plan(hosts, make_request("mpi", hosts)))
    assert "mpi: 160 ranks = 20 hosts x 8 slots" in page
    assert "128 more ranks" in page
    assert re.search(r"^  159 +deeplearning-worker20 +7 +7 +28-31$", page, re.MULTILINE)
