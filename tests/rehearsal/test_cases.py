"""Fault cases for real: one that must pass, and one whose planted expectation must turn the verdict."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
Rehearsed = tuple[int, dict[str, Any]]
PLANTED = """
from cdk_rehearsal import LaunchFault
from deeplearning_rehearsal.cases.case import WORKERS, CloudFaults, case

@case(
    "Nothing of this is as it says",
    expect="failed",
    workers=3,
    min_capacity=1,
    cloud=CloudFaults(launch_faults=[LaunchFault("InsufficientInstanceCapacity", tags=WORKERS)]),
)
def planted(run):
    seen = run.finish()
    assert "the moon is full" in seen.reason
    run.wait_for_formation()
"""


@pytest.fixture
def rehearse(tmp_path, capfd):
    def run(case):
        out = tmp_path / "out"
        out.mkdir()
        command = [str(Path(sys.executable).with_name("deeplearning-cdk")), "rehearse"]
        command += ["--app", f"{sys.executable} {ROOT / 'app.py'}", "--case", case, "--out", str(out)]
        answer = subprocess.run(command, check=False, capture_output=True, text=True, cwd=tmp_path)
        results = out / "cases.json"
        assert results.is_file(), answer.stderr
        name = Path(case).stem
        entry = json.loads(results.read_text())[name]
        with capfd.disabled():
            print(f"\n{name}: {entry}")
        report = out / name / "report.json"
        assert report.is_file(), answer.stderr
        return answer.returncode, {"entry": entry, "report": json.loads(report.read_text())}

    return run


@pytest.mark.fault(1, 9)
def test_one_of_three_workers_without_capacity_is_left_out_with_the_reason(
    rehearse,
):
    status, seen = rehearse("capacity-one-of-three")
    assert (status, seen["entry"]["verdict"], seen["report"]["reasons"]) == (0, "pass", [])
    assert (seen["entry"]["requested"], seen["entry"]["formed"]) == (4, 3)
    assert seen["entry"]["ranks"] == 3
    assert "InsufficientInstanceCapacity" in seen["report"]["cluster"]["reason"]
    assert all(finding["held"] for finding in seen["report"]["case"]["findings"])


def test_an_expectation_that_does_not_hold_turns_the_verdict(rehearse, tmp_path):
    planted = tmp_path / "planted.py"
    planted.write_text(PLANTED)
    status, seen = rehearse(str(planted))
    assert (status, seen["entry"]["verdict"], seen["report"]["stack"]["status"]) == (1, "fail", "ROLLBACK_COMPLETE")
    expectation, moment = seen["entry"]["reasons"]
    assert expectation.startswith("'the moon is full' in seen.reason is expected, found: ")
    assert "We currently do not have sufficient" in expectation
    assert moment == "the case waits for formed, which never came"
