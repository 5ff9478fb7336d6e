"""The command line of `deeplearning-cdk`."""

import resource
import subprocess
import sys

import pytest

from deeplearning_cli.main import main

HEAVY = ("aws_cdk", "boto3", "botocore", "jinja2", "moto", "rich", "jsii")


def _run_help() -> "subprocess.CompletedProcess[str]":
    code = (
        "import sys\nfrom deeplearning_cli.main import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)


def test_help_imports_nothing_heavy(capsys: pytest.CaptureFixture[str]) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = _run_help()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with capsys.disabled():
        print(f"\ndeeplearning-cdk --help: {seconds:.2f} s of CPU")
    assert "rehearse" in answer.stdout
    assert "loaded: []" in answer.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rehearse", "cdk.out", "--nodes", "0"], "argument --nodes: must be a whole number from 1 to 250, got '0'"),
        (["rehearse", "cdk.out", "--nodes", "four"], "must be a whole number from 1 to 250, got 'four'"),
        (["rehearse", "cdk.out", "--gpus-per-node", "-1"], "must be a whole number from 0 to 16, got '-1'"),
        (["rehearse"], "the following arguments are required: assembly"),
        (["train"], "invalid choice: 'train'"),
    ],
)
def test_bad_arguments_end_with_status_2_and_a_reason(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_folder_that_is_no_assembly_ends_with_status_2_and_the_remedy(
    tmp_path: object, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["rehearse", str(tmp_path)]) == 2
    expected = f"assembly must be a folder that `cdk synth` wrote, got {tmp_path}; run: cdk synth"
    assert expected in capsys.readouterr().err


def test_without_root_it_says_why_and_ends_with_status_2(tmp_path: object) -> None:
    code = (
        "import os, sys\n"
        "from deeplearning_cli.main import main\n"
        f"open({str(tmp_path)!r} + '/manifest.json', 'w').close()\n"
        "os.geteuid = lambda: 1000\n"
        f"sys.exit(main(['rehearse', {str(tmp_path)!r}, '--out', {str(tmp_path)!r} + '/out']))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "a rehearsal needs root" in answer.stderr
