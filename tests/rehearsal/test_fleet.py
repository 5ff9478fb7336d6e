"""A fleet that has nothing to do with deep learning: it serves, and a mistake in its user data rolls its stack back."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdk_rehearsal import LaunchFault, Plan, rehearse
from cdk_rehearsal.errors import RehearsalError

FLEET = Path(__file__).parents[2] / "examples/fleet"
RUNNER = Path(__file__).parents[1] / "example_app.py"


@pytest.fixture(scope="module")
def synthesized(tmp_path_factory):
    """The fleet, synthesized."""
    folder = tmp_path_factory.mktemp("fleet") / "cdk.out"
    environment = os.environ | {"CDK_OUTDIR": str(folder)}
    subprocess.run([sys.executable, RUNNER, FLEET / "app.py"], env=environment, check=True, capture_output=True)
    return folder


@pytest.fixture
def assembly(synthesized, tmp_path):
    """The fleet's assembly, a copy that may be changed."""
    return shutil.copytree(synthesized, tmp_path / "cdk.out")


def test_a_fleet_serves_and_replaces_a_machine_that_dies(assembly, tmp_path):
    report = rehearse(Plan(assembly, check=FLEET / "checks.py", out=tmp_path / "out"))
    assert report.problems == ()
    assert (report.verdict, report.stack.status) == ("pass", "CREATE_COMPLETE")
    (machines,) = (section for section in report.sections if section.title == "machine")
    assert len(machines.rows) == 3


def test_a_mistake_in_user_data_rolls_the_stack_back_with_the_reason(assembly, tmp_path):
    template = assembly / "fleet.template.json"
    template.write_text(template.read_text().replace("systemctl enable --now", "exit 7; systemctl enable --now"))
    report = rehearse(Plan(assembly, expect="rolled-back", out=tmp_path / "out"))
    assert (report.verdict, report.stack.status) == ("pass", "ROLLBACK_COMPLETE")
    assert re.fullmatch(
        r"Received [12] FAILURE signal\(s\) out of 2\. "
        "Unable to satisfy 100% MinSuccessfulInstancesPercent requirement",
        report.stack.reason,
    )


@pytest.mark.parametrize(
    "fault", [{"launch_faults": [LaunchFault("InsufficientInstanceCapacity")]}, {"fault": "capacity"}]
)
def test_a_full_region_rolls_the_stack_back_and_fails_the_verdict_that_expects_it_complete(assembly, tmp_path, fault):
    report = rehearse(Plan(assembly, out=tmp_path / "out", **fault))
    assert report.verdict == "fail"
    (problem,) = report.problems
    assert problem.startswith("the stack must be complete, got ROLLBACK_COMPLETE: ")
    assert "sufficient t3.micro capacity" in problem


def test_an_instance_that_ends_is_replaced_by_one_whose_user_data_is_judged_too(assembly, tmp_path):
    report = rehearse(Plan(assembly, fault="instance", out=tmp_path / "out"))
    assert report.problems == ()
    rows = {section.title: section.rows for section in report.sections}
    assert rows["fault"] == ("instance",)
    assert len(rows["machine"]) == 3


def test_a_subnet_that_is_cut_off_is_one_network_still_when_the_check_is_called(assembly, tmp_path):
    """As with FIS: scope `all` "allows intra-subnet traffic" (AWS FIS Actions reference)."""
    check = tmp_path / "check.py"
    check.write_text(
        "def check(run):\n"
        "    one, two = run.machines\n"
        "    urls = (f'http://{two.address}:8080', 'http://100.64.0.1:4566')\n"
        "    codes = [run.execute(one, ['curl', '-s', '-m', '5', url]).returncode for url in urls]\n"
        "    assert codes == [0, 28], codes\n"
    )
    report = rehearse(Plan(assembly, fault="network", check=check, out=tmp_path / "out"))
    assert report.problems == ()


def test_a_plan_that_cannot_be_tried_names_what_is_wrong(assembly, tmp_path):
    with pytest.raises(ValueError, match="expect must be one of complete, rolled-back, got 'formed'"):
        Plan(assembly, expect="formed")
    with pytest.raises(ValueError, match="fault must be one of capacity, instance, network, got 'flood'"):
        Plan(assembly, fault="flood")
    with pytest.raises(ValueError, match="minutes must be more than 0, got -1"):
        Plan(assembly, minutes=-1)
    with pytest.raises(RehearsalError, match=r"assembly must be the folder of a synthesized app, got .*absent"):
        rehearse(Plan(tmp_path / "absent"))
    with pytest.raises(RehearsalError, match=r"check must be a Python file, got .*absent\.py"):
        rehearse(Plan(assembly, check=tmp_path / "absent.py"))
