"""The command line of `deeplearning-cdk`."""

import json
import resource
import subprocess
import sys

import pytest

from cdk_rehearsal import main as cdk_rehearse
from deeplearning_cli.main import COMMANDS, SHELLS, main, make_parser
from deeplearning_contract.version import VERSION
from deeplearning_rehearsal.options import RehearsalOptions

HEAVY = ("aws_cdk", "boto3", "botocore", "jinja2", "moto", "rich", "jsii")


def _run_help():
    code = (
        "import sys\nfrom deeplearning_cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_help_imports_nothing_heavy(capsys):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = _run_help()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with capsys.disabled():
        print(f"\ndeeplearning-cdk --help: {seconds:.2f} s of CPU")
    assert "rehearse" in answer.stdout
    assert "loaded: []" in answer.stdout


def test_commands_about_an_account_import_no_rehearsal():
    modules = [COMMANDS[name] for name in ("submit", "jobs", "stop", "plan", "status", "logs", "ssh", "upgrade")]
    code = (
        f"import importlib, sys\nfor name in {modules!r}:\n    importlib.import_module(f'deeplearning_cli.{{name}}')\n"
        "print(sorted(name for name in sys.modules if 'rehearsal' in name))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # The command itself prints by this module, which imports the standard library alone.
    assert answer.stdout == "['cdk_rehearsal', 'cdk_rehearsal.printing']\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rehearse", "cdk.out", "--nodes", "0"], "argument --nodes: must be a whole number from 1 to 250, got '0'"),
        (["rehearse", "cdk.out", "--nodes", "four"], "must be a whole number from 1 to 250, got 'four'"),
        (["rehearse", "cdk.out", "--gpus-per-node", "-1"], "must be a whole number from 0 to 16, got '-1'"),
        (["rehearse"], "the following arguments are required: assembly"),
        (["train"], "invalid choice: 'train'"),
        (["rehearse", "cdk.out", "--minutes", "0"], "--minutes: must be a number of minutes above 0, at most 1440"),
        (["rehearse", "cdk.out", "--minutes", "nan"], "must be a number of minutes above 0, at most 1440, got 'nan'"),
        (["rehearse", "cdk.out", "--minutes", "soon"], "must be a number of minutes above 0, at most 1440, got 'soon'"),
        (["logs", "--level", "loud"], "invalid choice: 'LOUD'"),
        (["completion", "sh"], "invalid choice: 'sh'"),
    ],
)
def test_bad_arguments_end_with_status_2_and_a_reason(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", [*COMMANDS, "completion"])
def test_an_unknown_argument_is_reported_with_the_usage_of_its_command(command, capsys):
    required = {
        "deploy": "--regions=us-east-1",
        "rehearse": "cdk.out",
        "submit": "job.toml",
        "stop": "x",
        "plan": "job.toml",
    }
    words = [command, "--bogus", *([required[command]] if command in required else [])]
    with pytest.raises(SystemExit) as ended:
        main([*words, *(["bash"] if command == "completion" else [])])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usage: deeplearning-cdk {command} ")
    assert f"deeplearning-cdk {command}: error: unrecognized arguments: --bogus" in error


GROUP = {
    "Type": "AWS::AutoScaling::AutoScalingGroup",
    "Properties": {"DesiredCapacity": "1", "Tags": [{"Key": "deeplearning:role", "Value": "master"}]},
}
BUCKET = {"Type": "AWS::S3::Bucket", "Properties": {}}


def write_assembly(folder, **stacks):
    """Write an assembly with a stack for each name, which has one resource."""
    artifacts = {}
    for name, resource_ in stacks.items():
        (folder / f"{name}.template.json").write_text(json.dumps({"Resources": {"Only": resource_}}))
        properties = {"templateFile": f"{name}.template.json", "stackName": name}
        artifacts[name] = {"type": "aws:cloudformation:stack", "properties": properties}
    (folder / "manifest.json").write_text(json.dumps({"artifacts": artifacts}))
    return folder


def test_a_stack_without_a_cluster_is_refused_before_anything_slow_is_begun(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeplearning_cli.rehearsal.prepare_software", lambda *_: pytest.fail("it made the base root"))
    write_assembly(tmp_path, store=BUCKET)
    assert main(["rehearse", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "stack must have a cluster, got store without an Auto Scaling group" in capsys.readouterr().err


def test_a_stack_that_the_assembly_has_not_is_refused_before_anything_slow_is_begun(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("deeplearning_cli.rehearsal.prepare_software", lambda *_: pytest.fail("it made the base root"))
    write_assembly(tmp_path, one=GROUP, two=GROUP)
    for options in (["--stack", "three"], []):
        assert main(["rehearse", str(tmp_path), *options, "--out", str(tmp_path / "out")]) == 2
        assert "stack must name one of one, two, got" in capsys.readouterr().err


def test_errors_are_json_for_programs_and_a_line_for_people(tmp_path, capsys, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    commands = (
        ["rehearse", str(tmp_path)],
        ["status"],
        ["logs"],
        ["changes", "--assembly", str(tmp_path)],
        ["upgrade"],
    )
    for command in commands:
        assert main([*command, "--json"]) == 2
        printed = capsys.readouterr()
        error = json.loads(printed.out)["error"]
        assert error["exit_status"] == 2
        assert printed.err == f"deeplearning-cdk: {error['message']}\n"


@pytest.mark.parametrize(("program", "run"), [("deeplearning-cdk", main), ("cdk-rehearse", cdk_rehearse.main)])
def test_both_commands_print_the_projects_version(program, run, capsys):
    with pytest.raises(SystemExit) as ended:
        run(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"{program} {VERSION}\n"


def test_without_a_command_the_help_is_printed_and_the_status_is_2(capsys):
    assert main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == make_parser().format_help()


@pytest.mark.parametrize("command", ["", *COMMANDS, "completion"])
def test_the_help_of_every_level_has_exit_statuses(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([*filter(None, [command]), "--help"])
    assert ended.value.code == 0
    statuses = capsys.readouterr().out.partition("exit status: ")[2]
    assert " ".join(statuses.split()).partition("; example")[0].count(" 2 ") == 1


def test_levels_are_taken_in_any_case():
    assert make_parser().parse_args(["logs", "--level", "warning"]).level == "WARNING"


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("rehearse", "status", "upgrade", "completion"):
        assert word in script


def test_bash_completes_commands_and_options(tmp_path, capsys):
    main(["completion", "bash"])
    script = tmp_path / "completion.sh"
    script.write_text(capsys.readouterr().out)
    ask = (
        f". {script}; COMP_WORDS=(deeplearning-cdk $1 $2); COMP_CWORD=$#; "
        'complete -p deeplearning-cdk >/dev/null && "$(complete -p deeplearning-cdk | sed -E "s/.*-F ([^ ]+).*/\\1/")" '
        '&& echo "${COMPREPLY[@]}"'
    )
    for words, expected in ((["reh"], "rehearse"), (["logs", "--fol"], "--follow")):
        answer = subprocess.run(["bash", "-c", ask, "bash", *words], capture_output=True, text=True, check=False)
        assert answer.stdout.strip() == expected, answer.stderr


def test_without_root_it_says_why_and_ends_with_status_2(tmp_path):
    write_assembly(tmp_path, only=GROUP)
    code = (
        "import os, sys\n"
        "from deeplearning_cli.main import main\n"
        "os.geteuid = lambda: 1000\n"
        f"sys.exit(main(['rehearse', {str(tmp_path)!r}, '--out', {str(tmp_path)!r} + '/out']))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "a rehearsal needs root" in answer.stderr


@pytest.mark.parametrize(
    ("expected", "options", "shown"),
    [(8, [], 1), (0, [], 0), (0, ["--gpus-per-node", "2"], 2), (8, ["--gpus-per-node", "0"], 0)],
)
def test_nodes_show_gpus_by_default_only_where_their_type_has_some(expected, options, shown, tmp_path, monkeypatch):
    given = []
    monkeypatch.setattr("deeplearning_cli.rehearsal.require_namespaces", lambda: None)
    monkeypatch.setattr("deeplearning_cli.rehearsal.prepare_software", lambda *_: None)
    monkeypatch.setattr(
        "deeplearning_cli.rehearsal.run_enclosed", lambda _, text: given.append(RehearsalOptions.from_json(text)) or 0
    )
    write_assembly(tmp_path, only=GROUP)
    data = {"UserData": {"Fn::Base64": f'{{"expected_gpu_count":{expected}}}'}}
    document = {
        "Group": GROUP,
        "Nodes": {"Type": "AWS::EC2::LaunchTemplate", "Properties": {"LaunchTemplateData": data}},
    }
    (tmp_path / "only.template.json").write_text(json.dumps({"Resources": document}))
    folders = ["--out", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
    assert main(["rehearse", str(tmp_path), "--no-referees", *folders, *options]) == 0
    assert [each.gpus_per_node for each in given] == [shown]
