"""The options that plan and run share."""

import argparse
from dataclasses import replace

import pytest

from deeplearning_command.jobs.options import add_job_options, list_needless, make_request, read_job
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.setting_parts import NO_NEEDS, DataSettings, EnvironmentSettings, JobNeeds, ScriptSettings
from deeplearning_node.provision_status import name_steps

REQUIREMENTS = JobNeeds({}, environment=EnvironmentSettings("requirements", ScriptSettings("b", "k", "0" * 64)))
CONTAINER = JobNeeds({}, environment=EnvironmentSettings("container", image="image:1"))
ENVIRONMENT = "/opt/deeplearning/environments/current/bin"


def parse(*words):
    parser = argparse.ArgumentParser()
    subcommands = parser.add_subparsers()
    add_job_options(subcommands.add_parser("run"))
    return parser.parse_args(["run", *words])


def job(*words):
    return read_job(parse(*words))


def test_everything_after_the_two_dashes_is_the_program():
    found = job("--np", "4", "--", "python", "train.py", "--np", "8", "--", "--env", "a b", "")
    assert found.program == ("python", "train.py", "--np", "8", "--", "--env", "a b", "")
    assert (found.name, found.ranks, found.launcher, found.elastic) == ("train", 4, "horovod", False)
    assert (found.members, found.gpus_per_member) == (None, None)


def test_a_variable_has_its_own_value_or_that_of_the_shell(monkeypatch):
    monkeypatch.setenv("B", "two words")
    monkeypatch.setenv("A", "no")
    words = [f"--env={word}" for word in ("A=1=2", "B", "C=", "A=3")]
    assert job(*words, "--", "p").env == {"A": "3", "B": "two words", "C": ""}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--env", "NOT_THERE"], "--env must be NAME=VALUE, got 'NOT_THERE'; write 'NOT_THERE=VALUE'"),
        (["--env", "A B=1"], "--env must be NAME=VALUE, got 'A B'; names are letters, digits and _"),
        (["--env", "=1"], "--env must be NAME=VALUE, got ''; "),
        (["--slots", "0"], "--slots must be from 1 to 1000, got 0; leave it out for the default"),
        (["--np", "-1"], "--np must be from 1 to 1000000, got -1; leave it out for the default"),
        (["--members", "0"], "--members must be from 1 to 1000, got 0; leave it out for the default"),
        (["--name", "../x"], "--name must be at most 64 letters, digits, '.', '_' and '-', got '../x'; choose another"),
    ],
)
def test_an_option_that_cannot_work_is_refused_by_its_name(words, text):
    with pytest.raises(RefusedError) as refusal:
        job(*words, "--", "p")
    assert str(refusal.value).startswith(text)


@pytest.mark.parametrize(
    ("data", "waits_for"),
    [((), ["data:coco", "data:imagenet", "environment"]), (("coco",), ["data:coco", "environment"])],
)
def test_a_job_waits_for_the_data_that_it_names_and_without_names_for_all(data, waits_for):
    sources = tuple(DataSettings(name, "bucket", f"{name}.tar", "efs") for name in ("coco", "imagenet"))
    needless = list_needless(replace(job("--", "p"), data=data), replace(REQUIREMENTS, data=sources))
    assert [step for step in name_steps(replace(REQUIREMENTS, data=sources)) if step not in needless] == waits_for


@pytest.mark.parametrize(
    ("needs", "words", "python", "container"),
    [
        (NO_NEEDS, [], "", ""),
        (NO_NEEDS, ["--container", "mine"], "", "mine"),
        (REQUIREMENTS, [], ENVIRONMENT, ""),
        (REQUIREMENTS, ["--container", "mine"], ENVIRONMENT, "mine"),
        (CONTAINER, [], "", "image:1"),
        (CONTAINER, ["--container", "mine"], "", "mine"),
    ],
)
def test_jobs_run_in_what_the_cluster_declares_or_in_the_container_that_is_asked_for(needs, words, python, container):
    found = make_request(job(*words, "--", "p"), needs)
    assert (found.python, found.definition.container) == (python, container)
