"""`deeplearning plan`: it shows what `run` runs, asks who can be asked, and changes nothing."""

import argparse
import json
import subprocess

import pytest

from deeplearning_command.jobs import plan, run
from deeplearning_contract.setting_parts import HardwareSettings, JobNeeds


def run_on_worker(job_lab, *arguments):
    address = job_lab.addresses[1]
    return subprocess.run(
        [job_lab.folder / address / "deeplearning", *arguments],
        env=job_lab._environment({"LAB": f"{job_lab.folder}@{address}"}),
        cwd=job_lab.folder / "user",
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_plan_is_what_the_run_that_follows_does(job_lab):
    words = ["--env", "LR=0.1", "--slots", "2", "--", job_lab.write_job("true"), "--epochs", "3"]
    planned = job_lab.run("plan", "--json", *words)
    page = job_lab.run("plan", *words)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert job_lab.run("run", *words).returncode == 0
    document = json.loads(planned.stdout)
    assert [place["rank"] for place in document.pop("places")] == [0, 1, 2, 3]
    assert (document.pop("notes"), document.pop("faults")) == ([], [])
    assert document == json.loads(job_lab.read("train/runs/1/plan.json"))
    assert page.stdout == job_lab.read("train/runs/1/plan.txt")


def test_a_plan_asks_every_host_for_its_ports_and_leaves_nothing_behind(job_lab):
    done = job_lab.run("plan", "--json", "--launcher", "torchrun", "--", job_lab.write_job("true"))
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    ports = {argv[argv.index("--master_port") + 1] for argv in (p["argv"] for p in document["processes"])}
    assert len(ports) == 1
    assert 20000 <= int(ports.pop()) < 32000
    assert document["notes"] == []
    assert [job_lab.asked(index) for index in (0, 1)] == [["node-facts"]] * 2
    assert not (job_lab.folder / "efs/jobs").exists()
    assert job_lab.processes() == {}


def test_hosts_whose_efa_is_not_used_are_warned_of_by_plan_and_run(job_lab):
    efa = HardwareSettings("p3dn.24xlarge", 0, 1, 1)
    for index in (0, 1):
        job_lab.set_facts(index, needs=JobNeeds({"master": efa, "worker": efa}))
    words = ["--", job_lab.write_job("true")]
    said = (
        "the ranks of deeplearning-worker1, deeplearning-worker2 use TCP instead of EFA, at a fraction of the speed: "
        "libfabric with EFA is not installed, there is no fi_info; see `deeplearning health`\n"
    )
    planned = job_lab.run("plan", *words)
    assert (planned.returncode, planned.stderr) == (0, f"warning: {said}")
    assert f"warning: {said}" in job_lab.run("run", *words).stderr


def test_offline_no_host_is_asked_and_the_page_says_what_is_an_example(job_lab):
    job_lab.silence(1)
    done = job_lab.run("plan", "--offline", "--launcher", "mxnet", "--", job_lab.write_job("true"))
    assert done.returncode == 0
    assert done.stderr == (
        "note: GPUs, EFA and interfaces are from this node's files, and ports are examples: --offline\n"
    )
    assert "DMLC_PS_ROOT_PORT=20000" in done.stdout
    assert "DMLC_INTERFACE=ens5" in done.stdout
    assert [job_lab.asked(index) for index in (0, 1)] == [[], []]


def test_a_worker_plans_with_what_it_has_installed(job_lab):
    done = run_on_worker(job_lab, "plan", "--", job_lab.write_job("true"))
    assert done.returncode == 0
    assert "launcher on deeplearning-worker1:" in done.stdout
    assert "the node must be the master, got a worker" in done.stderr


def test_a_plan_reports_the_refusal_of_run_and_still_shows_the_whole_cluster(job_lab):
    job_lab.silence(1)
    done = job_lab.run("plan", "--", job_lab.write_job("true"))
    assert done.returncode == 1
    assert "2 ranks = 2 hosts x 1 slot" in done.stdout
    assert "ports are examples: deeplearning-worker2 does not respond" in done.stderr
    assert "run would refuse this: deeplearning-worker2 (i-00000000000000001) does not respond" in done.stderr


def test_an_impossible_plan_is_refused_with_the_reason(job_lab):
    done = job_lab.run("plan", "--np", "3", "--", job_lab.write_job("true"))
    assert (done.returncode, done.stdout) == (2, "")
    cause = "--np must not exceed 2 hosts x 1 slots = 2, got 3; leave it out for 2"
    assert done.stderr.startswith(f"deeplearning plan: {cause}")


def test_a_node_that_has_not_formed_or_has_left_says_so(job_lab):
    job = job_lab.write_job("true")
    job_lab.set_facts(0, instance_id="i-0000000000000dead")
    assert "this node must be a member, got i-0000000000000dead" in job_lab.run("plan", "--", job).stderr
    (job_lab.folder / job_lab.addresses[0] / "opt/deeplearning/membership.json").unlink()
    done = job_lab.run("plan", "--", job)
    assert done.returncode == 2
    assert "the cluster has not formed yet" in done.stderr


@pytest.mark.defect("D73")
def test_a_plan_goes_on_from_the_newest_checkpoint_as_the_run_would(job_lab):
    checkpoints = job_lab.folder / "efs/jobs/train/checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "epoch-4.pt").touch()
    words = ["--resume-args=--load {checkpoint}", "--", job_lab.write_job("true")]
    shown = job_lab.run("plan", *words).stdout
    assert "train.sh --load " in shown
    assert "DEEPLEARNING_RESUME_FROM=/" in shown
    fresh = job_lab.run("plan", "--fresh", *words).stdout
    assert "--load" not in fresh
    assert "epoch-4.pt" not in fresh


def test_every_option_of_run_is_one_of_plan():
    options = {}
    for name, module in (("plan", plan), ("run", run)):
        parser = argparse.ArgumentParser()
        module.add_options(parser)
        options[name] = {word for action in parser._actions for word in action.option_strings}
    assert options["plan"] - options["run"] == {"--offline", "--json"}
    assert options["run"] <= options["plan"], "the word run of a command line can become plan"
