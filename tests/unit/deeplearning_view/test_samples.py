"""
From a failed case the page alone tells cause and remedy: read on what AWS answered about rehearsed cases.

Each sample is recorded from a rehearsal that was kept: `<case>.json` holds the responses,
one record a line (`tests.records.write_records(document, 2)` of their JSON), `<case>.txt` the page.
"""

from datetime import timedelta
from pathlib import Path

import pytest

from deeplearning_view.aws_responses import AwsResponses, read_moment
from deeplearning_view.rendering import render_text
from deeplearning_view.view_builder import make_view

SAMPLES = Path(__file__).with_name("samples")
LOOKED_AFTER = timedelta(minutes=2)
CAUSES_AND_REMEDIES = {
    "bad-image": (
        "The image id '[ami-0123456789abcdef0]' does not exist",
        "choose an image that exists in this region",
    ),
    "capacity-none": ("We currently do not have sufficient p3dn.24xlarge capacity", "try again later, choose another"),
    "disk-full": ("disk: /, /var, /tmp: 0 MiB are free", "free space, enlarge the disk, or terminate the instance"),
    "gpu-missing": (
        "the instance type has 1 GPUs and the node shows 0",
        "use an image whose NVIDIA driver supports them",
    ),
    "gpu-missing-needed": (
        "1 of 2 workers failed and at least 2 must remain",
        "use an image whose NVIDIA driver supports them",
    ),
    "quota": ("You have requested more vCPU capacity than your current vCPU limit of 0", "in Service Quotas"),
    "worker-killed-before-joining": ("EC2 health check", "nothing: its group replaces it"),
}
"""Case -> what its page must say of the cause, and of what to do; the first three words of each are never broken."""
STANDING = ("forming", "formed")


def read_view(name):
    responses = AwsResponses.from_json((SAMPLES / f"{name}.json").read_text())
    return make_view(responses, read_moment(responses.stack["CreationTime"]) + LOOKED_AFTER)


def unwrap(page):
    return " ".join(page.split())


@pytest.mark.parametrize("name", [*CAUSES_AND_REMEDIES, *STANDING])
def test_the_page_of_a_recorded_case_is_the_one_that_was_read(name):
    assert render_text(read_view(name)) + "\n" == (SAMPLES / f"{name}.txt").read_text()


@pytest.mark.parametrize(("name", "expected"), CAUSES_AND_REMEDIES.items())
def test_the_page_alone_shows_cause_and_remedy(name, expected):
    cause, remedy = expected
    page = unwrap((SAMPLES / f"{name}.txt").read_text())
    assert cause in page
    assert remedy in page.partition(cause)[2]


@pytest.mark.parametrize("name", CAUSES_AND_REMEDIES)
def test_every_cause_comes_with_a_remedy_of_its_own(name):
    problems = read_view(name).problems
    assert problems
    for problem in problems:
        assert problem.cause
        assert len(problem.remedy.split()) >= 3
        assert problem.remedy not in problem.cause


def test_a_master_that_fails_for_a_workers_reason_does_not_repeat_it():
    (problem,) = read_view("gpu-missing-needed").problems
    assert problem.what == "stack"
    assert problem.remedy.startswith("use an image")


def test_every_sample_is_read_by_a_test_and_a_standing_cluster_has_no_problems():
    recorded = {path.stem for path in SAMPLES.iterdir()}
    assert recorded == {*CAUSES_AND_REMEDIES, *STANDING}
    assert read_view("formed").problems == read_view("forming").problems == ()
