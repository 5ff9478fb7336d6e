"""Environment of the jobs, as the report shows it."""

import json
from dataclasses import asdict

import pytest

from deeplearning_rehearsal.report.environment_report import EnvironmentReport, read_environment
from deeplearning_rehearsal.report.report import describe_environment

MANIFEST = {
    "key": "k1",
    "built_by": "i-1",
    "seconds": 251.4,
    "packages": ["torch==2.13.0+cpu", "numpy==2.4.6"],
    "recipe": {"kind": "horovod", "frameworks": {}},
    "horovod": {"version": "0.28.1"},
}


def _disk(folder, state, manifest=MANIFEST):
    status = folder / "var/lib/deeplearning/provision.json"
    status.parent.mkdir(parents=True)
    status.write_text(json.dumps({"steps": {"environment": {"state": state, "detail": "what the node says"}}}))
    if manifest is not None:
        environments = folder / "opt/deeplearning/environments"
        (environments / "k1").mkdir(parents=True)
        (environments / "k1" / "complete.json").write_text(json.dumps(manifest))
        (environments / "current").symlink_to("k1")
    return folder


@pytest.fixture(autouse=True)
def _status_file(monkeypatch):
    place = "/var/lib/deeplearning/provision.json"
    monkeypatch.setattr("deeplearning_rehearsal.report.environment_report.PROVISION_FILE", place)


def test_one_that_a_node_built_names_where_its_parts_came_from(tmp_path):
    disk = _disk(tmp_path, "done")
    history = disk / "var/log/apt/history.log"
    history.parent.mkdir(parents=True)
    history.write_text("Commandline: apt-get install --yes g++ make\n")
    report = read_environment(disk, set())
    assert report == EnvironmentReport(
        "built",
        "k1",
        "i-1",
        251.4,
        "what the node says",
        {
            "2 packages (numpy==2.4.6, torch==2.13.0+cpu)": "the package index",
            "Horovod 0.28.1": "its source, which a node compiled",
            "its compiler": "the Debian archive",
        },
    )
    assert "k1, made in this rehearsal, by i-1 in 251 s; 2 packages" in describe_environment(asdict(report))


def test_a_framework_and_a_compiler_of_the_image_are_named_so(tmp_path):
    recipe = {"recipe": {"frameworks": {"torch": "2.13.0+cpu"}}, "packages": []}
    origins = read_environment(_disk(tmp_path, "done", MANIFEST | recipe), set()).origins
    assert (origins["torch 2.13.0+cpu"], origins["its compiler"]) == ("the image", "the image")
    assert "the package index" not in origins.values()


@pytest.mark.parametrize("target", ["/opt/pytorch", "image"])
def test_an_image_that_brings_everything_is_not_taken_for_a_build(tmp_path, target):
    disk = _disk(tmp_path, "done", None)
    environments = disk / "opt/deeplearning/environments"
    environments.mkdir(parents=True)
    (environments / "current").symlink_to(target)
    assert read_environment(disk, set()) == EnvironmentReport("image", detail="what the node says")


def test_one_of_an_earlier_rehearsal_is_named_as_kept(tmp_path):
    report = read_environment(_disk(tmp_path, "done"), {"k1"})
    assert (report.state, report.origins) == ("kept", {})
    assert "of an earlier rehearsal, from the cache, by i-1 in 251 s" in describe_environment(asdict(report))


@pytest.mark.parametrize(("state", "shown"), [("done", "image"), ("failed", "failed"), ("running", "running")])
def test_without_one_it_is_said_why(tmp_path, state, shown):
    report = read_environment(_disk(tmp_path, state, None), set())
    assert describe_environment(asdict(report)) == f"{shown}: what the node says"


def test_a_node_that_has_said_nothing_is_waited_for(tmp_path):
    assert describe_environment(asdict(read_environment(tmp_path, set()))) == "waiting: nothing was said of it"
