"""Registry of launchers: a launcher comes with a plan page, a trial, an example and a row of the documentation."""

import re
import shutil
from pathlib import Path

import pytest

from deeplearning_jobs.launchers import LAUNCHERS
from deeplearning_rehearsal.launchers.trials import EXTRA_TRIALS, TRIALS, Trial, Way, run_command

ROOT = Path(__file__).parents[3]
PAGES = "tests/unit/deeplearning_jobs/plans"
WRITE_PAGES = "write it with python -m tests.unit.deeplearning_jobs.plan_samples"
TABLE = "docs/software.md"
PLANTED = Trial("planted", (Way("run", run_command("planted", "train_planted.py")),))


def find_missing(root, names, trials):
    """Return a line for each part that a launcher lacks."""
    missing = []
    for name in names:
        if not any(page.read_text().startswith(f"{name}: ") for page in (root / PAGES).glob(f"{name}-*.txt")):
            missing.append(f"{name}: no page {PAGES}/{name}-*.txt; {WRITE_PAGES}")
        ways = [way.command for trial in trials if trial.launcher == name for way in trial.ways if way.kind == "run"]
        programs = [re.search(rf"--launcher {name} .*-- python3 (\S+)", command) for command in ways]
        if not any(programs):
            missing.append(f"{name}: no trial in rehearsal/deeplearning_rehearsal/launchers/trials.py")
        missing += [
            f"{name}: no example examples/{program[1]}, which its trial runs"
            for program in programs
            if program and not (root / "examples" / program[1]).is_file()
        ]
        if not re.search(rf"^\| `{name}`", (root / TABLE).read_text(), re.MULTILINE):
            missing.append(f"{name}: no row in the table of launchers of {TABLE}")
    return missing


def test_every_launcher_has_a_page_a_trial_an_example_and_a_row():
    assert find_missing(ROOT, LAUNCHERS, (*TRIALS, *EXTRA_TRIALS)) == []


@pytest.fixture
def planted(tmp_path):
    """A checkout with one more launcher that has all its parts."""
    for path in (PAGES, "examples", "docs"):
        (tmp_path / path).mkdir(parents=True)
    (tmp_path / PAGES / "planted-g5.xlarge.txt").write_text("planted: 2 ranks = 2 hosts x 1 slot\n")
    (tmp_path / "examples/train_planted.py").touch()
    shutil.copy(ROOT / TABLE, tmp_path / TABLE)
    with (tmp_path / TABLE).open("a") as table:
        table.write("| `planted` | nothing |\n")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "missing"),
    [
        ("", []),
        (f"{PAGES}/planted-g5.xlarge.txt", ["planted: no page"]),
        ("examples/train_planted.py", ["planted: no example examples/train_planted.py"]),
        (TABLE, ["planted: no row"]),
        ("trial", ["planted: no trial in rehearsal/"]),
    ],
)
def test_a_missing_part_of_a_launcher_is_named(planted, file, missing):
    if file == TABLE:
        (planted / file).write_text("")
    elif "/" in file:
        (planted / file).unlink()
    found = find_missing(planted, ["planted"], TRIALS if file == "trial" else [PLANTED])
    assert len(found) == len(missing)
    assert all(line.startswith(start) for line, start in zip(found, missing, strict=True))


def test_the_table_says_which_launchers_are_elastic_and_run_in_containers():
    rows = re.findall(r"^\| `([a-z-]+)`.*\| (yes|no) \| (yes|no)\b.*\|$", (ROOT / TABLE).read_text(), re.MULTILINE)
    word = {True: "yes", False: "no"}
    expected = [(each.name, word[each.is_elastic], word[not each.why_no_container]) for each in LAUNCHERS.values()]
    assert rows == expected
