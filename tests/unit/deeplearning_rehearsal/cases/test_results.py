"""Records of cases: entries of `cases.json`, a table, a section of the report; and how a case gets its stack."""

import json
import os
import sys
from pathlib import Path

import pytest

from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.embedded_aws.server.call_log import CallCounts
from cdk_rehearsal.errors import PromiseError, UnavailableError
from cdk_rehearsal.report.report import render_text
from cdk_rehearsal.run.timeline import Event, Span, Timeline
from deeplearning_rehearsal.cases.case import Elastic
from deeplearning_rehearsal.cases.results import merge_result, read_results, render_results, summarize_report
from deeplearning_rehearsal.cases.run import synthesis
from deeplearning_rehearsal.cases.run.synthesis import synthesize_case
from deeplearning_rehearsal.checks.contract_check import Membership
from deeplearning_rehearsal.checks.results import CaseReport
from deeplearning_rehearsal.report.assessment import Evidence, judge
from deeplearning_rehearsal.report.report import list_sections
from deeplearning_rehearsal.report.report_page import render_page
from tests.unit.deeplearning_rehearsal.trial import make_trial

APP = """
import json, os, pathlib, sys
out = pathlib.Path(os.environ["CDK_OUTDIR"])
out.mkdir(parents=True)
(out / "seen.json").write_text(json.dumps([json.loads(os.environ["CDK_CONTEXT_JSON"]), sys.argv[1:]]))
"""


@pytest.fixture
def report():
    evidence = Evidence(
        "trial",
        {},
        4,
        StackOutcome("CREATE_COMPLETE", "", (), {}, ()),
        CallCounts(40, {}, {}, {}),
        formation_seconds=12.54321,
        membership=Membership(1, (("deeplearning-worker1", "i-1", "10.0.0.5"),) * 3),
        case=CaseReport(
            name="worker-silent",
            title="A worker <b>falls</b> silent",
            faults=(45,),
            injections=(
                {
                    "at": 3.0,
                    "when": "formed",
                    "what": "silence worker 2",
                    "instance_id": "i-2",
                    "recovery_seconds": 8.25,
                },
            ),
            findings=(
                {"expectation": "the generation is at least 2", "held": False, "found": "1"},
                {"expectation": "the stack is CREATE_COMPLETE", "held": True, "found": "CREATE_COMPLETE"},
            ),
            failure_seconds=None,
            recovery_seconds=8.25,
            lost_commits=0,
            problems=(),
        ),
    )
    timeline = Timeline()
    timeline.spans += [Span("deploy", 0.0, 2.0), Span("form", 2.0, 20.04)]
    timeline.events.append(Event(3.0, "injected", "silence worker 2"))
    return judge("trained", evidence, timeline, [], 1, seed=7) | {"reasons": ("it is expected, found: 1",)}


def test_an_entry_has_verdict_seconds_and_the_figures_that_there_are(report):
    entry = summarize_report(json.loads(json.dumps(report)))
    assert entry == {
        "verdict": "fail",
        "seconds": 22.0,
        "peak_memory_mib": 1,
        "recovery_seconds": 8.25,
        "lost_commits": 0,
        "formation_seconds": 12.5432,
        "requested": 4,
        "formed": 3,
        "generation": 1,
        "reasons": ["it is expected, found: 1"],
    }


def test_a_case_that_is_rehearsed_again_replaces_its_own_entry_only(tmp_path):
    merge_result(tmp_path, "b", {"verdict": "pass", "seconds": 1.0, "reasons": []})
    merge_result(tmp_path, "a", {"verdict": "fail", "seconds": 1.0, "reasons": ["x"]})
    merge_result(tmp_path, "a", {"verdict": "pass", "seconds": 2.0, "reasons": []})
    results = json.loads((tmp_path / "cases.json").read_text())
    assert list(results) == ["a", "b"]
    assert (results["a"]["verdict"], results["a"]["seconds"]) == ("pass", 2.0)
    assert [path.name for path in tmp_path.iterdir()] == ["cases.json"]


def test_results_that_cannot_be_written_leave_the_old_ones(tmp_path, monkeypatch):
    merge_result(tmp_path, "a", {"verdict": "pass", "seconds": 1.0, "reasons": []})

    def fail(_self, _target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        merge_result(tmp_path, "b", {"verdict": "pass", "seconds": 1.0, "reasons": []})
    assert list(read_results(tmp_path)) == ["a"]


def test_a_damaged_file_of_results_counts_as_none(tmp_path):
    (tmp_path / "cases.json").write_text("{")
    assert read_results(tmp_path) == {}


def test_the_table_names_what_does_not_hold_and_how_fast_training_went_on():
    good = {"verdict": "pass", "seconds": 61.0, "formed": 4, "requested": 4, "recovery_seconds": 8.25, "reasons": []}
    bad = {"verdict": "fail", "seconds": 0.0, "reasons": ["the app failed"]}
    first = {"beside": ["quota"], "reasons": ["too slow"]}
    jobs = {"verdict": "pass", "seconds": 16.0, "requested": 2, "reasons": []}
    results = {"worker-killed": good | {"first": first}, "quota": bad, "eks-data": jobs}
    assert render_results(results).splitlines() == [
        "worker-killed  pass    61.0 s  4 of 4 nodes  training went on after 8.2 s",
        "               failed at first, beside quota, and was rehearsed once more alone:",
        "               too slow",
        "quota          fail     0.0 s  not rehearsed",
        "               the app failed",
        "eks-data       pass    16.0 s  jobs alone",
        "slowest: worker-killed 61 s, eks-data 16 s, quota 0 s",
        "2 of 3 cases passed",
    ]


def test_the_text_shows_injections_and_each_expectation_with_its_finding(report):
    text = render_text(list_sections(report))
    assert "case       worker-silent: A worker <b>falls</b> silent" in text
    assert "injected   3.0 s: silence worker 2 (formed) i-2" in text
    assert "NOT SEEN   the generation is at least 2: 1" in text
    assert "seen       the stack is CREATE_COMPLETE: CREATE_COMPLETE" in text


def test_the_page_shows_the_case_and_marks_injections_on_the_timeline(report):
    page = render_page(report)
    assert "A worker &lt;b&gt;falls&lt;/b&gt; silent" in page
    assert "<dt>NOT SEEN</dt><dd><p>the generation is at least 2: 1</p></dd>" in page
    assert page.count('class="fault"/>') == 1
    assert "silence worker 2: training went on after 8.2 s" in page
    assert 'class="fault"/>' not in render_page(report | {"case": None})


@pytest.fixture
def app(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cdk.json").write_text(json.dumps({"context": {"flag": True, "stack_name": "mine"}}))
    (tmp_path / "app.py").write_text(APP)
    return f"{sys.executable} app.py -c 'key=two words'"


def test_the_app_gets_its_own_context_with_the_cases_on_top(app, tmp_path):
    case = make_trial(context={"stack_name": "master", "workers.min_capacity": 1})
    assembly = synthesize_case(case, app, tmp_path / "trial")
    assert assembly == tmp_path / "trial" / "cdk.out"
    context, arguments = json.loads((assembly / "seen.json").read_text())
    assert context == {"flag": True, "stack_name": "master", "workers.min_capacity": 1, "software.environment": "none"}
    assert arguments == ["-c", "key=two words"]


def test_an_assembly_of_an_earlier_run_is_removed_first(app, tmp_path):
    stale = tmp_path / "trial" / "cdk.out" / "stale.json"
    stale.parent.mkdir(parents=True)
    stale.touch()
    synthesize_case(make_trial(), app, tmp_path / "trial")
    assert not stale.exists()


def test_an_elastic_job_is_the_run_script_with_the_cases_arguments(app, tmp_path, monkeypatch):
    (tmp_path / "run_elastic.sh").write_text('#!/usr/bin/env bash\n# launcher\necho "$@"\n')
    monkeypatch.setattr(synthesis, "example_folder", lambda: tmp_path)
    case = make_trial(job=Elastic(epochs=3))
    assembly = synthesize_case(case, app, tmp_path / "trial")
    (context, _) = json.loads((assembly / "seen.json").read_text())
    launcher = Path(context["master.run_script"])
    assert launcher.read_text().splitlines() == [
        "#!/usr/bin/env bash",
        'set -- "$EFS_MOUNT/train_elastic.py" --epochs 3 --batch-seconds 0.4',
        "# launcher",
        'echo "$@"',
    ]


def test_an_app_that_fails_is_reported_with_its_last_output(tmp_path):
    command = f"{sys.executable} -c 'import sys; sys.exit(\"error: no such key\")'"
    with pytest.raises(PromiseError, match="trial: the app failed: error: no such key"):
        synthesize_case(make_trial(), command, tmp_path)


def test_an_app_that_does_not_exist_is_reported(tmp_path):
    with pytest.raises(UnavailableError, match="--app must be a command that synthesizes, got 'no-such-app'"):
        synthesize_case(make_trial(), "no-such-app", tmp_path)


def test_the_users_environment_reaches_the_app(app, tmp_path, monkeypatch):
    monkeypatch.setenv("CDK_DEFAULT_REGION", "eu-west-1")
    (tmp_path / "app.py").write_text(APP + '(out / "region").write_text(os.environ["CDK_DEFAULT_REGION"])\n')
    assembly = synthesize_case(make_trial(), app, tmp_path / "trial")
    assert (assembly / "region").read_text() == os.environ["CDK_DEFAULT_REGION"]
