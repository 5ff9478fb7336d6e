"""Conclusions from the hosts' reports, and their format on the wire."""

import json
from dataclasses import replace

import pytest

from deeplearning_contract.document import ContractError, parse_last_line, read_record
from deeplearning_contract.membership import Member
from deeplearning_jobs.hosts import probe as host_probe
from deeplearning_jobs.hosts.preflight import (
    HostFacts,
    Preflight,
    describe_tcp,
    describe_unready,
    has_failed,
    join_hosts,
)
from deeplearning_node.node_facts import InstalledMembership, NodeFacts
from deeplearning_node.programs import Programs
from deeplearning_node.provision_status import Step
from tests.unit.node_lab import SlowDriver

DONE = Step("done", "", 8, 8, "bytes")
FIT = HostFacts("i-1", 8, "", "ens5", "10.0.0.1", 3, "p5.48xlarge", 8, 32, 32, (20001,), {"data:x": DONE}, "", (), {})
NAMES = ("deeplearning-worker1", "deeplearning-worker2", "deeplearning-worker3")


def read_facts(output):
    return read_record(HostFacts, parse_last_line(output, "facts of a node"), "answer")


def survey(*answers):
    """Return the preflight of hosts 1 to 3; None does not answer."""
    expected = {name: f"i-{index}" for index, name in enumerate(NAMES, 1)}
    given = {
        name: replace(answer, instance_id=f"i-{index}")
        for index, (name, answer) in enumerate(zip(NAMES, answers, strict=True), 1)
        if answer is not None
    }
    return Preflight(3, expected, given, {name: "timed out" for name in NAMES if name not in given})


def test_fit_hosts_are_taken_in_the_order_of_the_membership():
    preflight = survey(FIT, FIT, FIT)
    assert preflight.find_faults() == []
    assert preflight.find_unready() == {}
    hosts = preflight.plan_hosts()
    assert [host.name for host in hosts] == list(NAMES)
    assert (hosts[0].gpu_count, hosts[0].efa_cards, hosts[0].expected_gpu_count) == (8, 32, 8)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"generation": 2}, "deeplearning-worker2: must have membership generation 3, got 2; "),
        ({"interface": ""}, "deeplearning-worker2: has no network interface with the address 10.0.0.1; "),
        (
            {"gpu_count": None, "gpu_detail": "no answer in 20 s"},
            "deeplearning-worker2: its NVIDIA driver does not respond: no answer in 20 s; ",
        ),
        (
            {"jobs": ("old/4",)},
            "job old/4 has processes on deeplearning-worker2; end it first: deeplearning stop old/4",
        ),
        ({"missing": {"/x.py": "does not exist"}}, "/x.py does not exist on deeplearning-worker2"),
    ],
)
def test_a_fault_of_a_host_is_reported_with_its_name(change, said):
    (fault,) = survey(FIT, replace(FIT, **change), FIT).find_faults()
    assert fault.startswith(said)


MEMBER = Member("i-0123456789abcdef0", "10.0.0.1", 8, "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIKey")


@pytest.fixture
def probe(tmp_path):
    """Return a function that probes a host with this nvidia-smi and returns its number of GPUs."""
    facts = NodeFacts("c", "worker", MEMBER.instance_id, "ubuntu", "/mnt/efs", 8)
    membership = InstalledMembership(3, ((NAMES[0], MEMBER),))

    def count(body, programs=Programs):
        (tmp_path / "nvidia-smi").write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "nvidia-smi").chmod(0o755)
        found = programs(f"{tmp_path}:/usr/bin:/bin")
        return host_probe.probe_host(tmp_path, found, facts, membership, {}, port_count=0).gpu_count

    return count


@pytest.mark.fault(68)
@pytest.mark.parametrize(
    ("body", "seconds", "found"),
    [
        ("sleep 60", 0.2, 8),
        ("echo NVIDIA-SMI has failed; exit 9", 60, None),
        ('echo "0, GPU-1, 0, No, 0"', 60, 1),
    ],
    ids=["late", "failed", "answers"],
)
def test_a_host_whose_driver_is_late_has_the_gpus_with_which_it_joined(probe, monkeypatch, body, seconds, found):
    monkeypatch.setattr(host_probe, "GPU_SECONDS", seconds)
    assert probe(body) == found


@pytest.mark.fault(68)
def test_a_driver_that_is_slow_is_waited_for(probe):
    assert probe('echo "0, GPU-1, 0, No, 0"', SlowDriver) == 1


NO_PROVIDER = replace(FIT, efa_fault="libfabric lists no EFA")


def test_hosts_with_and_without_efa_do_not_run_a_job_together():
    (fault,) = survey(FIT, NO_PROVIDER, FIT).find_faults()
    assert fault == (
        "all hosts must use EFA or none, got TCP on deeplearning-worker2: libfabric lists no EFA; see "
        "`deeplearning health`, or terminate these instances, which their group replaces"
    )
    head = replace(FIT, gpu_count=0, efa_cards=0)
    assert survey(head, FIT, FIT).find_faults() == [], "a master that does not train has no EFA"


def test_hosts_that_all_lack_efa_run_over_tcp_and_it_is_never_silent():
    preflight = survey(NO_PROVIDER, NO_PROVIDER, NO_PROVIDER)
    assert preflight.find_faults() == []
    (line,) = describe_tcp(preflight.plan_hosts())
    assert line == (
        "the ranks of deeplearning-worker1, deeplearning-worker2, deeplearning-worker3 use TCP instead of EFA, at a "
        "fraction of the speed: libfabric lists no EFA; see `deeplearning health`"
    )
    assert describe_tcp(survey(FIT, FIT, FIT).plan_hosts()) == []
    assert describe_tcp(preflight.plan_hosts()[:1]) == [], "ranks of one host need no network"


def test_many_hosts_are_named_in_one_line():
    assert join_hosts(["a", "b", "c", "d"]) == "a, b, c, d"
    assert join_hosts([str(number) for number in range(64)]) == "0, 1, 2 and 61 more"


def test_facts_come_back_from_behind_what_a_shell_prints_and_the_reason_for_tcp_is_optional():
    assert read_facts(f"Welcome!\n{FIT.to_line()}") == FIT
    assert read_facts(replace(FIT, gpu_count=None).to_line()).gpu_count is None
    assert read_facts(NO_PROVIDER.to_line()) == NO_PROVIDER
    older = json.loads(FIT.to_line())
    del older["efa_fault"]
    assert read_facts(json.dumps(older)) == FIT


def test_an_elastic_job_starts_without_a_worker_but_not_without_the_master():
    assert survey(FIT, None, FIT).find_faults(is_elastic=True) == []
    assert len(survey(FIT, None, FIT).find_faults()) == 1
    assert (
        "deeplearning-worker1 (i-1) does not respond: timed out"
        in survey(None, FIT, FIT).find_faults(is_elastic=True)[0]
    )


def test_another_instance_at_a_hosts_address_is_refused():
    preflight = survey(FIT, FIT, FIT)
    preflight = replace(preflight, expected={**preflight.expected, NAMES[1]: "i-9"})
    assert preflight.find_faults() == ["deeplearning-worker2: must be i-9, got i-2; wait until its agent has joined"]


def test_progress_is_that_of_the_host_that_is_furthest_behind():
    def answer(done):
        return replace(FIT, steps={"data:x": Step("running", "fetching", done, 8, "bytes")})

    unready = survey(answer(6), answer(2), FIT).find_unready()
    assert describe_unready(unready) == [
        "data:x is running 25 % of 8 bytes on deeplearning-worker2 and 1 more: fetching"
    ]
    assert not has_failed(unready)


def test_a_step_that_the_job_does_without_is_left_out_and_a_percentage_is_said_as_one():
    step = Step("running", "compiling Horovod", 42, 100, "%")
    preflight = survey(FIT, replace(FIT, steps={"environment": step}), FIT)
    assert describe_unready(preflight.find_unready()) == [
        "environment is running 42 % on deeplearning-worker2: compiling Horovod"
    ]
    assert preflight.find_unready(("environment",)) == {}


@pytest.mark.parametrize(("is_final", "expected"), [(True, True), (False, False)])
def test_only_a_failure_for_good_makes_waiting_useless(is_final, expected):
    step = Step("failed", "no such key", final=is_final)
    assert has_failed(survey(FIT, replace(FIT, steps={"data:x": step}), FIT).find_unready()) is expected


@pytest.mark.parametrize(
    "output", ["", "command not found", "{}", "[]", FIT.to_line().replace('"ports": [', '"ports": ["x", ')]
)
def test_output_that_is_not_a_document_of_facts_is_refused(output):
    with pytest.raises(ContractError):
        read_facts(output)
