"""Rehearsals submit one job on every platform, and what they send is what `deeplearning-cdk submit` sends."""

import argparse
from dataclasses import replace
from types import SimpleNamespace

import pytest

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.jobs import finding
from deeplearning_cli.jobs.definition import read_job as read_users_job
from deeplearning_cli.jobs.ec2 import Ec2Platform
from deeplearning_contract.jobs.submission import SubmissionSettings, make_agent_copy
from deeplearning_contract.jobs.training_job import SIGNING_PARAMETER
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_rehearsal.checks.training import (
    JOB_FILE,
    PROGRAM,
    copy_programs,
    example_folder,
    list_sources,
    read_job,
    upload_job,
)
from deeplearning_rehearsal.platforms.registry import CLUSTER_PLATFORMS
from deeplearning_rehearsal.platforms.sagemaker import run_training_job
from tests.unit.deeplearning_contract.test_training_job import TRAINING

SOURCE = ScriptSettings("assets", f"deeplearning-jobs/c/{'ab' * 32}.tar.gz", "ab" * 32)
SETTINGS = {
    "ec2": SubmissionSettings("ec2", "c", "ubuntu", "assets", "deeplearning-jobs/c/"),
    "emr": SubmissionSettings("emr", "c", "hadoop", "assets", "deeplearning-jobs/c/", cluster_id="j-1"),
    "sagemaker": SubmissionSettings("sagemaker", "c", "root", "assets", "deeplearning-jobs/c/", training=TRAINING),
}
TIME_DIGITS = 14
"""Digits of the time at the end of a training job's name."""


class SentError(Exception):
    """A call or command that starts a job, which is not carried out."""


class Service:
    """A service without jobs or steps, which takes the call that starts one."""

    exceptions = SimpleNamespace(ResourceLimitExceeded=KeyError)

    def get_paginator(self, _):
        return self

    def paginate(self, **_):
        return []

    def copy_object(self, **_):
        """Take the programs, which are copied before a job starts."""

    def create_training_job(self, **request):
        request["TrainingJobName"] = request["TrainingJobName"][:-TIME_DIGITS]
        assert len(request["HyperParameters"].pop(SIGNING_PARAMETER)) == 64  # Each submission has its own.
        raise SentError(request)

    def add_job_flow_steps(self, **request):
        raise SentError(request)


class Master:
    """A master that takes the command that starts a job."""

    def run(self, _, words, **__):
        raise SentError(words[1:])


def run_over_ssh(_, words, __):
    raise SentError([word for word in words if word != "--detach"])


def catch(start):
    """Return what a start sends."""
    with pytest.raises(SentError) as caught:
        start()
    return caught.value.args[0]


@pytest.fixture
def job(monkeypatch):
    """Return the job of the file as `submit` reads it, and let a master's command be seen."""
    monkeypatch.setattr(Ec2Platform, "run", run_over_ssh)
    return read_users_job(example_folder() / JOB_FILE, argparse.Namespace(env=[])).job


def test_every_rehearsal_submits_the_job_of_one_file_that_submit_takes(job, tmp_path):
    file = read_users_job(example_folder() / JOB_FILE, argparse.Namespace(env=[]))
    assert file.source is not None
    assert (file.source / PROGRAM).samefile(example_folder() / PROGRAM)
    assert read_job() == job
    (tmp_path / "digits.csv.gz").write_bytes(b"")
    copies = []
    store = SimpleNamespace(put_object=lambda **_: None, copy_object=lambda **request: copies.append(request))
    files = list_sources(job, lambda: tmp_path / "digits.csv.gz")
    for settings in SETTINGS.values():
        uploaded = upload_job(lambda _: store, settings, read_job(), files)
        assert replace(uploaded, source=None) == job
        copy_programs(lambda _: store, settings)
    assert copies == [make_agent_copy(SETTINGS["sagemaker"])]


@pytest.mark.parametrize("platform", SETTINGS)
def test_a_rehearsal_sends_what_submit_sends(platform, job):
    settings, service, packed = SETTINGS[platform], Service(), replace(job, source=SOURCE)
    user = finding.PLATFORMS[platform](CloudAccess(lambda _: service, "eu-west-1", None), settings)
    sent = catch(lambda: user.start(packed, print))

    def rehearse():
        if platform == "sagemaker":
            return run_training_job(lambda _: service, settings, packed, 1.0)
        master = Master()
        cluster = CLUSTER_PLATFORMS[platform]
        return cluster.run_job(master, "i-1", packed, 1.0, clients=lambda _: service, submission=settings)

    rehearsed = catch(rehearse)
    assert rehearsed == sent
    assert rehearsed != catch(lambda: user.start(replace(packed, program=("true",)), print))
