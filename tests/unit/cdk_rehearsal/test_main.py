"""The command `cdk-rehearse`: its exit statuses, without a lab."""

import json

import pytest

from cdk_rehearsal import orders, plan
from cdk_rehearsal.errors import RefusedError
from cdk_rehearsal.main import main
from cdk_rehearsal.referees import judge
from cdk_rehearsal.referees.judge import Acceptance
from cdk_rehearsal.report.report import STAND_IN, Report, Section, StackReport


@pytest.fixture
def end(monkeypatch, tmp_path):
    """A function that runs the command on an assembly whose enclosed process ends with a status."""
    artifact = {"type": "aws:cloudformation:stack", "properties": {"templateFile": "s.template.json"}}
    (tmp_path / "manifest.json").write_text(json.dumps({"artifacts": {"s": artifact}}))
    (tmp_path / "s.template.json").write_text('{"Resources": {}}')
    for name in ("require_namespaces", "prepare_base_root", "prepare_layers"):
        monkeypatch.setattr(plan, name, lambda *_: None)
    monkeypatch.setattr(plan, "require_acceptance", lambda *_: Acceptance())

    def run(status, *options):
        monkeypatch.setattr(plan, "run_enclosed", lambda *_: status)
        folders = ("--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache"))
        return main([str(tmp_path), *folders, "--json", *options])

    return run


def test_an_interrupt_has_a_status_of_its_own(end):
    assert end(130) == 130


def test_a_rehearsal_that_could_not_run_is_reported_to_people_and_programs(end, capsys):
    assert end(2) == 2
    said = capsys.readouterr()
    assert said.err == "cdk-rehearse: the rehearsal could not be carried out: its process ended with status 2\n"
    assert json.loads(said.out)["error"]["exit_status"] == 2


def test_orders_are_tried_in_place_of_a_rehearsal_and_a_failure_is_not_as_expected(end, capsys, monkeypatch):
    tried = []
    monkeypatch.setattr(judge, "require_acceptance", lambda *_: tried.append("referees"))
    monkeypatch.setattr(orders, "try_orders", lambda _, count, **__: tried.append(count) or ["seed 2: no"])
    assert end(130, "--orders", "3") == 1
    said = capsys.readouterr()
    assert json.loads(said.out) == {"failures": ["seed 2: no"]}
    assert "--seed repeats one with instances" in said.err
    monkeypatch.setattr(orders, "try_orders", lambda _, count, **__: tried.append(count) or [])
    assert end(130, "--orders", "4", "--no-referees") == 0
    assert tried == ["referees", 3, 4]


def test_no_order_is_not_a_success(end, capsys):
    assert end(0, "--orders", "0", "--no-referees") == 2
    assert "orders must be at least 1, got 0" in capsys.readouterr().err


def test_an_experiment_is_written_before_the_rehearsal_for_a_fault_alone(end, capsys, tmp_path):
    group = {"Type": "AWS::AutoScaling::AutoScalingGroup", "Properties": {"LaunchTemplate": {}}}
    (tmp_path / "s.template.json").write_text(json.dumps({"Resources": {"Group": group}}))
    assert end(130, "--fault", "instance", "--fis", str(tmp_path / "fis.json")) == 130
    said = capsys.readouterr().err
    assert f"aws cloudformation deploy --template-file {tmp_path / 'fis.json'} --stack-name fis-instance" in said
    assert "Experiment" in json.loads((tmp_path / "fis.json").read_text())["Resources"]
    assert end(130, "--fis", str(tmp_path / "other.json")) == 2
    assert "--fis must come with --fault" in capsys.readouterr().err
    assert not (tmp_path / "other.json").exists()


def test_a_fault_without_a_group_is_refused_before_anything_is_deployed(end, capsys):
    assert end(0, "--fault", "network") == 2
    assert (
        "a fault strikes an Auto Scaling group of a stack that is not nested, got none in s" in capsys.readouterr().err
    )


def test_a_template_that_aws_would_refuse_is_not_as_expected(end, capsys, monkeypatch):
    def refuse(*_):
        raise RefusedError(["Resources.Queue.Properties.DelaySeconds: must be at most 900, got 901"])

    monkeypatch.setattr(plan, "require_acceptance", refuse)
    assert end(0) == 1
    said = capsys.readouterr()
    assert "Resources.Queue.Properties.DelaySeconds: must be at most 900, got 901" in said.err
    assert json.loads(said.out)["error"]["exit_status"] == 1
    assert end(130, "--no-referees") == 130


@pytest.mark.parametrize(
    ("verdict", "problems", "following"),
    [
        ("pass", (), "npx cdk deploy --app cdk.out"),
        (
            "fail",
            ("the stack must be complete, got ROLLBACK_COMPLETE",),
            "--seed 7 repeats this order of creation; the",
        ),
    ],
)
def test_the_last_lines_are_the_verdict_the_report_and_what_to_do_next(
    capsys, monkeypatch, tmp_path, *, verdict, problems, following
):
    sections = (Section("calls", ("lambda: 3",)), Section(STAND_IN, ("a for b: c", "d for e: f")))
    report = Report(verdict, "complete", (StackReport("fleet", "X_COMPLETE", "", {}),), problems, sections)
    monkeypatch.setattr(plan, "rehearse", lambda _: report)
    monkeypatch.chdir(tmp_path)
    assert main(["cdk.out", "--seed", "7", "--cache", str(tmp_path)]) == len(problems)
    *before, last = capsys.readouterr().out.splitlines()
    assert before == [
        "calls      lambda: 3",
        "stand-in   2 parts are not the real thing; the report lists each",
        f"verdict    {verdict.upper()} (expected: complete)",
        *(f"           {problem}" for problem in problems),
        "stack      fleet  X_COMPLETE",
        "report     build/rehearsal/report.txt (also .json)",
    ]
    assert last.startswith(f"next       {following}")
    assert "a for b: c" in report.to_text()
