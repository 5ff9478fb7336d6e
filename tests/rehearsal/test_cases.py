"""Fault cases for real: one that must pass, and one whose planted expectation must turn the verdict."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from deeplearning_rehearsal.cases.format.case_file import find_case

ROOT = Path(__file__).parents[2]
Rehearsed = tuple[int, dict[str, Any]]


@pytest.fixture
def rehearse(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Callable[[str], Rehearsed]:
    def run(case: str) -> Rehearsed:
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
    rehearse: Callable[[str], Rehearsed],
) -> None:
    status, seen = rehearse("capacity-one-of-three")
    assert (status, seen["entry"]["verdict"], seen["report"]["reasons"]) == (0, "pass", [])
    assert (seen["entry"]["requested"], seen["entry"]["formed"]) == (4, 3)
    assert seen["entry"]["accuracy"] >= 0.90
    assert "InsufficientInstanceCapacity" in seen["report"]["cluster"]["reason"]
    assert all(finding["held"] for finding in seen["report"]["case"]["findings"])


def test_an_expectation_that_does_not_hold_turns_the_verdict(
    rehearse: Callable[[str], Rehearsed], tmp_path: Path
) -> None:
    original = find_case("capacity-none").read_text()
    planted = tmp_path / "planted.toml"
    wrong = original.replace("We currently do not have sufficient", "the moon is full")
    planted.write_text(f'{wrong}\n[[inject]]\nwhen = "state formed"\ndo = "send_poison"\n')
    assert wrong != original
    status, seen = rehearse(str(planted))
    assert (status, seen["entry"]["verdict"], seen["report"]["stack"]["status"]) == (1, "fail", "ROLLBACK_COMPLETE")
    expectation, injection = seen["entry"]["reasons"]
    assert expectation.startswith("the reason says 'the moon is full' is expected, found: ")
    assert injection == "send_poison was never injected: 'state formed' never came"
