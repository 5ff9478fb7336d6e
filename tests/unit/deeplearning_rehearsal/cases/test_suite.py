"""Several cases in one command: their order, what runs beside what, what is repeated, and who writes results."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tomllib

from deeplearning_cli.rehearsal import rehearse_cases
from deeplearning_rehearsal.cases.loader import find_case, list_cases
from deeplearning_rehearsal.cases.suite import runner
from deeplearning_rehearsal.cases.suite.schedule import Wanted, choose_next, estimate, read_free_mib
from deeplearning_rehearsal.cases.suite.sources import PACKAGES, digest_case, digest_sources
from deeplearning_rehearsal.options import RehearsalOptions
from tests.unit.deeplearning_rehearsal.trial import make_trial

ROOT = Path(__file__).parents[4]
CHILD = """
import json, os, pathlib, sys, time
options = json.loads(json.loads(sys.argv[1])["options"])
out, name = pathlib.Path(options["out"]), options["case"].rpartition("::")[2]
with (out / "started").open("a") as started:
    started.write(name + "\\n")
print("this is", name, flush=True)
exec((out / f"{name}.py").read_text() if (out / f"{name}.py").exists() else "")
verdict = (out / f"{name}.verdict").read_text() if (out / f"{name}.verdict").exists() else "pass"
(out / name / "report.json").write_text(json.dumps({
    "verdict": verdict, "reasons": [] if verdict == "pass" else ["planted"], "peak_memory_mib": 100,
    "training": None, "count": None,
    "case": {"recovery_seconds": None, "lost_commits": None, "failure_seconds": None},
    "cluster": {"has_nodes": True, "formation_seconds": 9.0, "requested": 2, "formed": 2, "generation": 1},
    "phases": [{"name": "form", "start": 1.0, "seconds": 9.0}],
}))
"""
"""Stands for the process of a case; `NAME.py` says what else it does."""
Run = Callable[..., int]


def _wanted(name, seconds=60.0, memory_mib=1000, **how):
    return Wanted(name, seconds, memory_mib, **how)  # type: ignore[arg-type]


def test_the_longest_starts_first_and_what_runs_alone_comes_last():
    cases = [_wanted("short", 5), _wanted("alone", 500, is_alone=True), _wanted("long", 90)]
    started = []
    while cases:
        wanted = choose_next(cases, [], 1, 0)
        assert wanted is not None
        cases.remove(wanted)
        started.append(wanted.name)
    assert started == ["long", "short", "alone"]


@pytest.mark.parametrize(
    ("waiting", "running", "jobs", "free_mib", "expected"),
    [
        ([_wanted("b")], [_wanted("a")], 1, 64000, None),
        ([_wanted("b")], [_wanted("a")], 2, 64000, "b"),
        ([_wanted("b")], [_wanted("a"), _wanted("c")], 2, 64000, None),
        ([_wanted("b")], [], 2, 0, "b"),
        ([_wanted("big", memory_mib=7000), _wanted("small")], [_wanted("a", memory_mib=7000)], 2, 16000, "small"),
        ([_wanted("big", memory_mib=7000)], [_wanted("a", memory_mib=7000)], 2, 17000, "big"),
        ([_wanted("b", is_alone=True)], [_wanted("a")], 2, 64000, None),
        ([_wanted("b")], [_wanted("a", is_alone=True)], 2, 64000, None),
        ([_wanted("b", after="a"), _wanted("a", 1)], [], 2, 64000, "a"),
        ([_wanted("b", after="a")], [_wanted("a")], 2, 64000, None),
        ([_wanted("b", after="a")], [], 2, 64000, "b"),
        ([], [_wanted("a")], 2, 64000, None),
    ],
)
def test_a_case_starts_when_a_place_and_its_memory_are_free(waiting, running, jobs, free_mib, expected):
    wanted = choose_next(waiting, running, jobs, free_mib)
    assert (wanted and wanted.name) == expected


def test_a_case_is_expected_to_take_what_its_last_run_took():
    failing, case = map(find_case, ("emr-mount-target-absent", "worker-killed"))
    assert estimate(case, None) == Wanted("worker-killed", 60.0, 700 + 4 * 1000, is_alone=True)
    assert estimate(failing, None).memory_mib == 700 + 4 * 100
    assert estimate(find_case("cpu-master"), None).memory_mib == 700 + 3 * 1900
    assert estimate(case, {"seconds": 77.5, "peak_memory_mib": 5000}).memory_mib == 5000
    assert estimate(case, {"verdict": "fail", "seconds": 0.0}).seconds == 60.0


def test_free_memory_is_what_programs_can_have_without_swapping():
    assert read_free_mib("MemTotal: 9 kB\nMemFree: 1 kB\nMemAvailable:   2097152 kB\n") == 2048


def test_cases_that_measure_recovery_run_alone_and_a_predecessor_is_a_case_of_its_own():
    cases = {case.name: case for case in list_cases()}
    assert {"worker-killed", "worker-silent", "sixty-four-nodes"} <= {c.name for c in cases.values() if c.alone}
    for case in cases.values():
        assert not case.after or cases[case.after].after == "", f"{case.name} must come after a case of its own"


def test_sources_are_the_projects_packages_and_the_files_of_the_app(tmp_path):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    where = project["tool"]["hatch"]["build"]["dev-mode-dirs"]
    found = {path.parent.name for folder in where for path in (ROOT / folder).glob("*/__init__.py")}
    assert set(PACKAGES) == found

    app, out = tmp_path / "app", tmp_path / "app" / "results"
    for name in ("app.py", "parts/part.py", "cdk.json", "tests/test.py", ".git/x.py", "results/x.json", "venv/x.py"):
        (app / name).parent.mkdir(parents=True, exist_ok=True)
        (app / name).write_text("1")
    (app / "venv" / "pyvenv.cfg").touch()
    before = digest_sources(app, out, ["app"])
    assert digest_sources(app, out, ["another"]) != before
    for name in ("tests/test.py", ".git/x.py", "results/x.json", "venv/x.py"):
        (app / name).write_text("2")
        assert digest_sources(app, out, ["app"]) == before, name
    for name in ("app.py", "parts/part.py", "cdk.json", "parts/new.py"):
        (app / name).write_text("2")
        assert before != (before := digest_sources(app, out, ["app"])), name


def test_a_case_has_the_digest_of_its_own_file(tmp_path):
    (tmp_path / "a.py").write_text("1")
    (tmp_path / "b.py").write_text("2")
    assert digest_case("x", tmp_path / "a.py") != digest_case("x", tmp_path / "b.py")
    assert digest_case("x", tmp_path / "a.py") != digest_case("y", tmp_path / "a.py")


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "COMMAND", (sys.executable, "-c", CHILD))
    monkeypatch.setattr(runner, "prepare_base_root", lambda *_: None)
    monkeypatch.setattr(runner, "_POLL_SECONDS", 0.01)
    monkeypatch.setattr(runner, "read_free_mib", lambda _meminfo: 64_000)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def rehearse(out, tmp_path):
    options = RehearsalOptions(tmp_path, out, tmp_path, minutes=15)

    def run(*names, jobs=2, again=False):
        chosen = [replace(make_trial(expect="formed"), name=name, reference=f"own.py::{name}") for name in names]
        return rehearse_cases(chosen, None, options, jobs=jobs, again=again)

    return run


def _results(out):
    return json.loads((out / "cases.json").read_text())


def _started(out):
    return (out / "started").read_text().split()


def _make(out, name, verdict, script=""):
    (out / f"{name}.verdict").write_text(verdict)
    (out / f"{name}.py").write_text(script)


def test_each_case_leaves_its_log_and_a_line_and_the_table_comes_last(rehearse, out, capsys):
    assert rehearse("one", "two") == 0
    assert sorted(_started(out)) == ["one", "two"]
    assert (out / "one" / "run.log").read_text() == "this is one\n"
    assert {name: entry["verdict"] for name, entry in _results(out).items()} == {"one": "pass", "two": "pass"}
    shown = capsys.readouterr()
    assert "2 of 2 cases, at most 2 at once" in shown.err
    assert "[2 of 2]" in shown.err
    assert shown.out.endswith("2 of 2 cases passed\n")


def test_a_pass_is_not_repeated_on_the_same_sources_a_failure_is(rehearse, out, tmp_path, capsys):
    _make(out, "bad", "fail")
    assert rehearse("bad", "good", jobs=1) == 1
    assert rehearse("bad", "good", jobs=1) == 1
    assert sorted(_started(out)) == ["bad", "bad", "good"]
    (out / "bad.verdict").write_text("pass")
    assert rehearse("bad", "good", jobs=1) == 0
    capsys.readouterr()
    assert rehearse("bad", "good", jobs=1) == 0
    assert "nothing is left to run: 2 cases passed on these sources before: bad, good" in capsys.readouterr().err
    assert sorted(_started(out)) == ["bad", "bad", "bad", "good"]

    assert rehearse("bad", "good", jobs=1, again=True) == 0
    (tmp_path / "app.py").write_text("changed")
    assert rehearse("bad", "good", jobs=1) == 0
    assert sorted(_started(out)) == ["bad"] * 5 + ["good"] * 3


def test_sources_that_change_while_a_case_runs_leave_no_pass_to_rely_on(rehearse, out, tmp_path, monkeypatch):
    class Hasty(subprocess.Popen[bytes]):
        """A case that has changed everything before its runner takes another look."""

        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.wait()

    monkeypatch.setattr(subprocess, "Popen", Hasty)
    _make(out, "one", "pass", f"pathlib.Path({str(tmp_path)!r}, 'app.py').write_text('changed')")
    assert rehearse("one", "two", jobs=1) == 0
    assert ["sources" in _results(out)[name] for name in ("one", "two")] == [False, True]


def test_a_case_that_fails_beside_others_is_rehearsed_once_more_alone_and_both_are_reported(rehearse, out, capsys):
    both = "while not {'noisy', 'broken'} <= set((out / 'started').read_text().split()): time.sleep(0.01)\n"
    once = "(out / f'{name}.verdict').write_text('fail' if open(out / 'started').read().count(name) == 1 else 'pass')"
    _make(out, "noisy", "pass", both + once)
    _make(out, "broken", "fail", both)
    assert rehearse("noisy", "broken") == 1
    assert sorted(_started(out)) == ["broken", "broken", "noisy", "noisy"]
    results = _results(out)
    assert {name: entry["verdict"] for name, entry in results.items()} == {"broken": "fail", "noisy": "pass"}
    assert [results[name]["first"]["beside"] for name in ("noisy", "broken")] == [["broken"], ["noisy"]]  # type: ignore[index]
    assert (out / "noisy.beside" / "report.json").is_file()
    assert "failed at first, beside broken, and was rehearsed once more alone:" in capsys.readouterr().out


def test_a_case_that_fails_alone_is_not_rehearsed_again(rehearse, out):
    _make(out, "bad", "fail")
    assert rehearse("bad", "good", jobs=1) == 1
    assert sorted(_started(out)) == ["bad", "good"]


def test_a_case_without_a_report_fails_with_the_last_words_of_its_log(rehearse, out):
    _make(out, "lost", "pass", "sys.exit('error: planted')")
    assert rehearse("lost", "good", jobs=1) == 1
    (reason,) = _results(out)["lost"]["reasons"]  # type: ignore[misc]
    assert reason.startswith("the rehearsal ended with status 1 and left no report; ")
    assert reason.endswith("ends with: error: planted")


def test_an_interrupt_ends_the_cases_that_run_and_the_next_command_goes_on(rehearse, out, monkeypatch, capsys):
    _make(out, "waits", "pass", "(out / 'pid').write_text(str(os.getpid())); time.sleep(600)")

    def interrupt(_seconds):
        if (out / "pid").exists() and (out / "pid").read_text():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(runner.time, "sleep", interrupt)
        assert rehearse("waits", "good", jobs=2) == 130
    assert "the same command goes on with the cases that are left" in capsys.readouterr().err
    with pytest.raises(ProcessLookupError):
        os.kill(int((out / "pid").read_text()), 0)
    assert "waits" not in _results(out) if (out / "cases.json").exists() else True
    (out / "waits.py").write_text("")
    assert rehearse("waits", "good") == 0


def test_a_killed_runner_leaves_no_case_behind(tmp_path):
    parent = f"""
import subprocess, sys
from deeplearning_rehearsal.cases.suite import runner
sleeper = [*runner.COMMAND[:3], sys.executable, "-c", "import time; print('up', flush=True); time.sleep(600)"]
process = subprocess.Popen(sleeper, stdout=open({str(tmp_path / "log")!r}, "w"), start_new_session=True)
print(process.pid, flush=True)
process.wait()
"""
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as runner_process:
        assert runner_process.stdout is not None
        child = int(runner_process.stdout.readline())
        while (tmp_path / "log").read_text() != "up\n":
            time.sleep(0.01)
        runner_process.kill()
        runner_process.wait()
    # It is gone, or a zombie that nobody has buried yet.
    state = Path(f"/proc/{child}/stat")
    while state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z":
        time.sleep(0.01)
