"""`ssh` opens what Session Manager opens, and says what is missing."""

import argparse
import json
import shlex

import pytest

from cdk_rehearsal.errors import RehearsalError
from deeplearning_cli import ssh
from deeplearning_cli.cloud_access import CloudAccess, open_cloud
from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.main import main, split_command
from deeplearning_cli.ssh import enter_node, make_session_command

PLACE = ["--region", "us-east-1", "--profile", "team"]


def test_a_shell_is_a_session():
    command = make_session_command("i-1", PLACE, "ubuntu", [], is_ssh=False)
    assert shlex.join(command) == "aws ssm start-session --region us-east-1 --profile team --target i-1"


def test_a_command_runs_as_the_login_user_with_its_words_kept_apart():
    command = make_session_command("i-1", PLACE, "ubuntu", ["echo", "$HOME; rm x", "it's"], is_ssh=False)
    assert command[-4:-1] == ["--document-name", "AWS-StartInteractiveCommand", "--parameters"]
    (run,) = json.loads(command[-1])["command"]
    assert shlex.split(run) == ["sudo", "--login", "--user=ubuntu", "--", "echo", "$HOME; rm x", "it's"]


def test_openssh_goes_through_a_session_to_the_instance_by_its_id():
    command = make_session_command("i-1", PLACE, "ec2-user", ["uptime"], is_ssh=True)
    proxy = next(word for word in command if word.startswith("ProxyCommand=")).removeprefix("ProxyCommand=")
    assert proxy == (
        "aws ssm start-session --region us-east-1 --profile team --target %h "
        "--document-name AWS-StartSSHSession --parameters portNumber=%p"
    )
    assert command[-2:] == ["ec2-user@i-1", "uptime"]


def test_without_a_login_user_the_error_names_the_remedy():
    with pytest.raises(UnavailableError, match=r"the login user must be known, .*; give --user"):
        make_session_command("i-1", PLACE, "", [], is_ssh=True)


@pytest.mark.parametrize("missing", ["aws", "session-manager-plugin", "ssh"])
def test_a_program_that_is_missing_is_named_with_where_to_get_it(missing, monkeypatch):
    monkeypatch.setattr(ssh.shutil, "which", lambda name: None if name == missing else f"/usr/bin/{name}")
    access = CloudAccess(lambda _service: None, "us-east-1", None)
    arguments = argparse.Namespace(ssh=True, dry_run=False, command=[])
    node = argparse.Namespace(instance_id="i-1")
    with pytest.raises(UnavailableError, match=f"missing: {missing}; install"):
        ssh._make_command(access, arguments, node, "ubuntu")


def test_words_after_two_dashes_are_a_command_for_ssh_alone():
    assert split_command(["ssh", "--node", "master", "--", "ls", "--", "-l"]) == (
        ["ssh", "--node", "master"],
        ["ls", "--", "-l"],
    )
    assert split_command(["status", "--", "name"]) == (["status", "--", "name"], [])


@pytest.mark.parametrize("command", ["status", "logs", "ssh"])
def test_without_a_kept_rehearsal_every_command_ends_with_status_2_and_the_cause(command, tmp_path, capsys):
    assert main([command, "--rehearsal", str(tmp_path)]) == 2
    assert f"no rehearsal is kept in {tmp_path}" in capsys.readouterr().err


def test_a_node_of_a_rehearsal_that_does_not_run_is_an_error_of_the_command():
    class Lab:
        def find_node(self, instance_id):
            raise RehearsalError(f"node {instance_id} must run, it does not")

    with pytest.raises(UnavailableError, match="node i-1 must run"):
        enter_node(Lab(), "i-1", [])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--profile", "nobody"], "choose another --profile"),
        (["--profile", "x", "--rehearsal"], "--profile and --region must be left out with --rehearsal"),
    ],
)
def test_a_place_that_cannot_be_opened_is_an_error_with_status_2(option, message, capsys):
    assert main(["status", *option]) == 2
    assert message in capsys.readouterr().err


def test_without_a_region_the_error_names_the_remedy(monkeypatch, capsys):
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    assert main(["status"]) == 2
    assert "give --region or set AWS_REGION" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "variables", "region"),
    [
        (None, {"AWS_REGION": "eu-west-1"}, "eu-west-1"),
        (None, {"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "us-west-2"}, "eu-west-1"),
        (None, {"AWS_DEFAULT_REGION": "us-west-2"}, "us-west-2"),
        ("ap-south-1", {"AWS_REGION": "eu-west-1"}, "ap-south-1"),
        (None, {"AWS_REGION": ""}, "us-east-1"),
    ],
)
def test_the_region_is_found_as_the_aws_cli_finds_it(option, variables, region, monkeypatch):
    """AWS_REGION counts first: https://docs.aws.amazon.com/cli/latest/userguide/cli-configure-envvars.html."""
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    access = open_cloud(argparse.Namespace(rehearsal=None, profile=None, region=option, stack=None))
    assert access.region == region
    assert access.clients("ec2").meta.region_name == region


def test_without_its_packages_a_command_names_what_installs_them(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(UnavailableError) as caught:
        open_cloud(argparse.Namespace(rehearsal=None, profile=None, region=None, stack=None))
    packages = "'boto3<2,>=1.35' 'lightkube<2,>=1.0.1' 'rich<16,>=15' 'shtab<2,>=1.7'"
    assert str(caught.value) == f"missing: boto3, rich; run: pip install {packages}"


def test_an_unreachable_aws_ends_with_status_2(capsys):
    assert main(["status", "training"]) == 2
    assert "could not read the stack: Could not connect" in capsys.readouterr().err
