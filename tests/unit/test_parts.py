"""The parts of `python -m tests`: each test is in one of them, and what runs beside what."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import tomllib

from tests import __main__ as parts
from tests import cpu
from tests.__main__ import PARTS, QUICK_PARTS, Part, Run, read_tests, summarize

ROOT = Path(__file__).parents[2]
LOAD = (0.5, 0.25, 0.0)


def _covers(part, file):
    ignored = [ROOT / path.partition("=")[2] for path in part.paths if path.startswith("--ignore=")]
    given = [ROOT / path for path in part.paths if not path.startswith("--")]
    return any(file.is_relative_to(path) for path in given) and not any(file.is_relative_to(path) for path in ignored)


def test_each_test_is_in_one_part():
    for file in (ROOT / "tests").rglob("test_*.py"):
        if not file.is_relative_to(ROOT / "tests" / "gates"):  # of `make check`
            assert sum(_covers(part, file) for part in PARTS) == 1, file
    for part in PARTS:
        assert all((ROOT / path.removeprefix("--ignore=")).exists() for path in part.paths), part


def test_the_gate_runs_all_parts_in_two_commands():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = [line.split()[1:] for line in (ROOT / ".ci/run").read_text().splitlines() if line.startswith("make ")]
    words = [re.findall(rf"^{name}:.*\n\t.* -m tests *(.*)$", makefile, re.MULTILINE) for (name, *_) in commands]
    assert commands == [["test", "RATCHET=1"], ["test-rehearsals"], ["rehearse"]]
    assert words == [[""], ["base rehearsal changes"], []]
    assert {*QUICK_PARTS} | {part for part in PARTS if part.name.startswith(tuple(words[1][0].split()))} == {*PARTS}


@pytest.mark.parametrize(
    ("ended", "running", "places", "expected"),
    [
        ((), (), 2, "base"),
        ((), ("base",), 2, "unit"),
        ((), ("base", "unit"), 2, None),
        (("base",), ("unit",), 3, "one"),
        (("base",), ("unit", "one"), 3, "plain"),
        (("base", "plain"), ("unit", "one"), 3, None),
        (("base", "plain", "one"), ("unit",), 3, "two"),
        (("base", "plain", "one", "unit"), ("two",), 3, None),
        (("base", "plain", "one", "unit", "two"), (), 3, "last"),
    ],
)
def test_a_part_starts_when_a_place_its_memory_and_what_it_needs_are_there(ended, running, places, expected):
    listed = (
        Part("base"),
        Part("unit", ("x",)),
        Part("one", ("x",), ("base",), 8000),
        Part("two", ("x",), ("base",), 8000),
        Part("plain", ("x",), ("base",)),
        Part("last", ("x",), ("one", "two"), 8000),
    )
    chosen = Run(listed, places, 9000, dict.fromkeys(ended, 0)).choose_next(running)
    assert (chosen and chosen.name) == expected


def test_a_rehearsal_that_is_larger_than_the_memory_runs_all_the_same():
    only = Part("one", ("x",), ("base",), 8000)
    assert Run((only,), 1, 0).choose_next(()) == only


def test_the_wait_of_each_part_and_the_slowest_tests_are_reported(tmp_path):
    told = []
    run = Run((Part("first", ("x",)), Part("second", ("x",), ("first",))), 2, 0)
    statuses = {"first": 3, "second": 0}

    def start(part):
        return subprocess.Popen([sys.executable, "-S", "-c", f"raise SystemExit({statuses[part.name]})"])

    run.carry_out(start, told.append)
    assert run.ended == statuses
    assert [line.partition(" after")[0] for line in told] == [
        "first: starts",
        "first: FAILED with status 3",
        "second: starts",
        "second: passed",
    ]
    run.spans, run.cpu = {"first": (0.0, 61.0), "second": (61.0, 90.0)}, {"first": 40.25, "second": 8.5}
    report = tmp_path / "first.xml"
    report.write_text(
        '<s><testcase classname="a" name="b" time="2.5"/><testcase classname="a" name="c" time="0.5"/></s>'
    )
    assert summarize(run, read_tests(report) + read_tests(tmp_path / "none.xml"), LOAD) == [
        "the 2 slowest of 2 tests:",
        "     2.5 s  a::b",
        "     0.5 s  a::c",
        "where 90 s went (load before: 0.5, 0.2, 0.0):",
        "    61.0 s,   40.2 s of CPU  first",
        "    29.0 s,    8.5 s of CPU  second, waited 61 s for first, a place",
        "              48.8 s of CPU  together",
    ]


def test_the_cpu_of_a_part_is_its_own_and_its_descendants():
    burn = "import time; begin = time.process_time()\nwhile time.process_time() < begin + 0.2: pass"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-S', '-c', {burn!r}])"
    run = Run((Part("one", ("x",)),), 1, 0)
    run.carry_out(lambda part: subprocess.Popen([sys.executable, "-S", "-c", parent]), lambda line: None)
    assert run.cpu["one"] >= 0.2


def test_a_part_that_fails_shows_its_log_and_fails_the_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RATCHET", raising=False)  # of the run whose part this test is
    scripts = {"good": "print('long'); print('1 passed')", "bad": "print('planted'); print('end'); raise SystemExit(1)"}
    monkeypatch.setattr(Part, "command", property(lambda part: [sys.executable, "-S", "-c", scripts[part.name]]))
    listed = (Part("good", ("x",)), Part("bad", ("x",)))
    monkeypatch.setattr(parts, "PARTS", listed)
    monkeypatch.setattr(parts, "QUICK_PARTS", listed)
    monkeypatch.setattr(parts, "compare", lambda cpu, _: (["figures"], ["good"] if "bad" not in cpu else []))
    assert parts.main([]) == 1
    shown = capsys.readouterr().out
    assert "bad: FAILED with status 1" in shown
    assert "=== bad\nplanted\nend\n" in shown
    assert "=== good\n1 passed\n" in shown
    assert parts.main(["go"]) == 0
    monkeypatch.setenv("RATCHET", "1")
    assert parts.main(["go"]) == 1
    assert "good must not take more CPU than tests/cpu.toml says" in capsys.readouterr().out
    assert parts.main(["none"]) == 2
    assert "parts must begin with none, got good, bad" in capsys.readouterr().out


def test_each_part_that_boots_no_node_has_a_figure_of_its_cpu():
    listed = tomllib.loads(cpu.FIGURES.read_text())["parts"]
    assert set(listed) == {part.name for part in PARTS if not part.name.startswith(cpu.UNJUDGED)}


@pytest.mark.parametrize(("seconds", "slowness", "is_wrong"), [(115, 1, False), (121, 1, True), (170, 1.5, False)])
def test_the_cpu_of_a_part_is_judged_by_the_slowness_of_the_machine(tmp_path, monkeypatch, seconds, slowness, is_wrong):
    monkeypatch.setattr(cpu, "FIGURES", tmp_path / "cpu.toml")
    cpu.FIGURES.write_text("work_seconds = 0.1\n[parts]\none = 100.0\n")
    lines, wrong = cpu.compare({"one": seconds, "job": 1000}, 0.1 * slowness)
    assert len(lines) == 2
    assert wrong == (["one"] if is_wrong else [])
    assert cpu.compare({"new": 6.0}, 0.1)[1] == ["new"]
