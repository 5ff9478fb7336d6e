"""`deeplearning-cdk rehearse --case`: what is refused before anything runs, and what is kept of each case."""

import argparse
import json
import sys
from collections.abc import Callable

import pytest

from cdk_rehearsal.assembly import AssemblyStack
from deeplearning_cli.main import main
from deeplearning_cli.rehearsal import read_chosen, rehearse_cases
from deeplearning_rehearsal.cases.loader import list_cases
from deeplearning_rehearsal.cases.results import merge_result
from deeplearning_rehearsal.cases.run import one_case
from deeplearning_rehearsal.options import RehearsalOptions

CASES = """
from deeplearning_rehearsal.cases.case import case

@case("Two nodes", expect="formed", minutes=3, gpus_per_node=4)
def pair(run):
    run.finish()
"""
REPORT = {
    "verdict": "pass",
    "reasons": [],
    "case": {"recovery_seconds": None, "lost_commits": None, "failure_seconds": None},
    "cluster": {"has_nodes": True, "formation_seconds": 9.0, "requested": 2, "formed": 2, "generation": 1},
    "training": None,
    "count": None,
    "phases": [{"name": "form", "start": 1.0, "seconds": 9.0}],
    "peak_memory_mib": 900,
}
Enclosure = Callable[[str, str], int]


def test_the_list_has_a_line_for_each_case(capsys):
    assert main(["rehearse", "--list-cases"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [case.name for case in list_cases()]
    assert any("Every message comes twice and out of order" in line for line in lines)
    assert main(["rehearse", "--list-cases", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    width = max(len(case["name"]) for case in listed)
    assert [f"{case['name']:<{width}}  {case['title']}" for case in listed] == lines


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cdk.out", "--case", "nothing"], "--case must be one of "),
        (["cdk.out", "--case", "quota"], "case quota must have a stack of its own; give --app 'COMMAND' instead"),
        (["cdk.out", "--app", "x", "--case", "quota"], "assembly must be given, or --app with --case; give one of"),
        (["--app", "x"], "--app must be given with --case; without one, synthesize and name the assembly"),
        (["--app", "x", "--case", "quota", "--nodes", "3"], "--nodes must be left out with --case"),
        (["--app", "x", "--case", "quota", "--expect", "formed"], "--expect must be left out with --case"),
        (["--app", "x", "--case", "quota", "--minutes", "3"], "--minutes must be left out with --case"),
        (["--app", "x", "--case", "quota", "--gpus-per-node", "1"], "--gpus-per-node must be left out with --case"),
        (["--app", "x", "--case", "quota", "--lustre-client"], "--lustre-client must be left out with --case"),
        (["--app", "x", "--case", "all", "--keep"], "--keep must be given with one case, got --case all; name a case"),
        (["--app", "x", "--case", "quota,bad-image", "--keep"], "got --case quota,bad-image; name a case"),
        (["--app", "x", "--case", "quota,nothing"], "--case must be one of "),
    ],
)
def test_arguments_that_contradict_each_other_end_with_status_2(arguments, message, capsys):
    assert main(["rehearse", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.fixture
def options(tmp_path):
    return RehearsalOptions(
        assembly=tmp_path / "cdk.out",
        stack=None,
        nodes=None,
        gpus_per_node=1,
        expect="trained",
        minutes=15,
        keep=False,
        json=False,
        out=tmp_path,
        cache=tmp_path / "cache",
    )


@pytest.fixture(autouse=True)
def _nothing_to_download(monkeypatch):
    """There is no assembly here to look for packages in."""
    monkeypatch.setattr(one_case, "read_cluster", lambda *_: AssemblyStack("s", "123456789012", "us-east-1", {}, ()))
    monkeypatch.setattr(one_case, "prepare_software", lambda *_: ())
    monkeypatch.setattr(one_case, "require_acceptance", lambda *_: None)


@pytest.fixture
def enclose(monkeypatch):
    return lambda enclosure: monkeypatch.setattr(one_case, "run_enclosed", enclosure)


def _choose(folder):
    arguments = argparse.Namespace(
        nodes=None,
        expect=None,
        minutes=None,
        gpus_per_node=None,
        lustre_client=None,
        orders=None,
        keep=False,
        app=None,
        json=False,
    )
    (folder / "own.py").write_text(CASES)
    return read_chosen(f"{folder / 'own.py'}::pair", arguments)


def _rehearse(chosen, app, options):
    return rehearse_cases(chosen, app, options, jobs=None, again=False)


def _write_report(argument, **changes):
    options = RehearsalOptions.from_json(argument)
    options.folder.mkdir(parents=True, exist_ok=True)
    (options.folder / "report.json").write_text(json.dumps(REPORT | changes))
    return options


def test_a_case_runs_with_its_own_options_and_leaves_its_entry(options, enclose, tmp_path):
    seen = []

    def enclosure(module, argument):
        seen.append((module, _write_report(argument)))
        return 0

    enclose(enclosure)
    assert _rehearse(_choose(tmp_path), None, options) == 0
    ((module, given),) = seen
    assert module == "deeplearning_rehearsal.rehearsal:carry_out"
    assert (given.nodes, given.expect, given.minutes, given.gpus_per_node) == (None, "formed", 3.0, 4)
    assert (given.folder, given.cache) == (tmp_path / "pair", tmp_path / "cache")
    assert given.case == f"{tmp_path / 'own.py'}::pair"
    assert json.loads((tmp_path / "cases.json").read_text())["pair"]["verdict"] == "pass"


def test_a_case_that_leaves_no_report_fails_though_an_older_one_passed(options, enclose, tmp_path):
    (tmp_path / "pair").mkdir()
    (tmp_path / "pair" / "report.json").write_text(json.dumps(REPORT))
    merge_result(tmp_path, "pair", {"verdict": "pass", "seconds": 1.0, "reasons": []})
    enclose(lambda *_: 2)
    assert _rehearse(_choose(tmp_path), None, options) == 2
    entry = json.loads((tmp_path / "cases.json").read_text())["pair"]
    assert (entry["verdict"], entry["reasons"]) == (
        "fail",
        ["the rehearsal ended with status 2 and left no report"],
    )


def test_an_interrupted_case_ends_with_status_130(options, enclose, tmp_path):
    enclose(lambda *_: 130)
    assert _rehearse(_choose(tmp_path), None, options) == 130


def test_a_named_case_is_rehearsed_though_it_passed_on_the_same_sources(options, enclose, tmp_path):
    ran = []

    def enclosure(_module, argument):
        ran.append(_write_report(argument))
        return 0

    enclose(enclosure)
    for _ in range(2):
        assert _rehearse(_choose(tmp_path), None, options) == 0
    assert len(ran) == 2


def test_an_app_that_fails_is_the_cases_failure(options, enclose, tmp_path, capsys):
    enclose(lambda *_: pytest.fail("nothing was synthesized"))
    command = f"{sys.executable} -c 'import sys; sys.exit(\"error: planted\")'"
    assert _rehearse(_choose(tmp_path), command, options) == 1
    assert "pair: the app failed: error: planted" in capsys.readouterr().err
    assert json.loads((tmp_path / "cases.json").read_text())["pair"]["verdict"] == "fail"
