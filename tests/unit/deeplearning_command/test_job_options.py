"""The options that plan and run share."""

import argparse

import pytest

from deeplearning_command.jobs.options import add_job_options, make_request, read_variables
from deeplearning_command.terminal import RefusedError
from deeplearning_contract.setting_parts import NO_NEEDS, EnvironmentSettings, JobNeeds, ScriptSettings

REQUIREMENTS = JobNeeds({}, environment=EnvironmentSettings("requirements", ScriptSettings("b", "k", "0" * 64)))
CONTAINER = JobNeeds({}, environment=EnvironmentSettings("container", image="image:1"))
ENVIRONMENT = "/opt/deeplearning/environments/current/bin"


def parse(*words):
    parser = argparse.ArgumentParser()
    subcommands = parser.add_subparsers()
    add_job_options(subcommands.add_parser("run"))
    return parser.parse_args(["run", *words])


def request(*words, needs=NO_NEEDS, variables=None):
    options = parse(*words)
    return make_request(options, needs, options.program, variables or {})


def test_everything_after_the_two_dashes_is_the_program():
    found = request("--np", "4", "--", "python", "train.py", "--np", "8", "--", "--env", "a b", "")
    assert found.program == ("python", "train.py", "--np", "8", "--", "--env", "a b", "")
    assert (found.ranks, found.launcher, found.slots, found.elastic) == (4, "horovod", None, False)


def test_a_variable_has_its_own_value_or_that_of_the_shell():
    found = read_variables(["A=1=2", "B", "C=", "A=3"], {"B": "two words", "A": "no"})
    assert found == {"A": "3", "B": "two words", "C": ""}
    for word in ("NOT_THERE", "A B=1", "=1", "-x"):
        with pytest.raises(RefusedError):
            read_variables([word], {"B": "1"})


def test_the_users_variables_win_over_the_jobs():
    found = request("--env", "A=user", "--", "p", variables={"A": "job", "B": "job"})
    assert found.environment == {"A": "user", "B": "job"}


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
    found = request(*words, "--", "p", needs=needs)
    assert (found.python, found.container) == (python, container)
