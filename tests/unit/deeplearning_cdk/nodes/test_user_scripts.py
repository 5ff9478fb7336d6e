"""The user's scripts: for all nodes or for each role, from a file or as user data of the CDK."""

import hashlib
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import assertions
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import SetupScripts, TrainingCluster
from deeplearning_cdk.cluster_plan import plan_cluster
from deeplearning_contract.names import NodeRole

CPU: dict[str, Any] = {"worker_instance_type": "m5.large"}


@pytest.fixture
def commands() -> ec2.UserData:
    made = ec2.UserData.for_linux()
    made.add_commands("apt-get install -y htop", "echo ready")
    return made


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "setup.sh"
    path.write_text("#!/bin/bash\ntrue\n")
    return str(path)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_each_role_has_its_own_set_up_script_and_reads_no_other(
    synthesize: Any, script: str, commands: ec2.UserData
) -> None:
    synthesis = synthesize(setup_script=SetupScripts(master=script, worker=commands), **CPU)
    found = {role: synthesis.settings(role).setup_script for role in NodeRole}
    assert found[NodeRole.MASTER].sha256 == _digest(Path(script).read_bytes())
    assert found[NodeRole.WORKER].sha256 == _digest(commands.render().encode())
    for role in NodeRole:
        reads = str(synthesis.statements(f"{role.value.title()}Role")[-1])
        other = found[NodeRole.WORKER if role is NodeRole.MASTER else NodeRole.MASTER]
        assert found[role].key in reads
        assert other.key not in reads


@pytest.mark.parametrize("role", NodeRole)
def test_a_role_may_be_without_a_set_up_script(synthesize: Any, script: str, role: NodeRole) -> None:
    synthesis = synthesize(setup_script=SetupScripts(**{role.value: script}), **CPU)
    assert {each for each in NodeRole if synthesis.settings(each).setup_script} == {role}


@pytest.mark.parametrize("prop", ["setup_script", "run_script"])
def test_user_data_of_linux_is_a_script(synthesize: Any, prop: str, commands: ec2.UserData) -> None:
    found = getattr(synthesize(**{prop: commands}, **CPU).settings(NodeRole.MASTER), prop)
    assert found.sha256 == _digest(b"#!/bin/bash\napt-get install -y htop\necho ready")


def test_the_asset_of_user_data_is_what_it_renders(commands: ec2.UserData, tmp_path: Path) -> None:
    stack = cdk.Stack(cdk.App(analytics_reporting=False, outdir=str(tmp_path)), "Stack")
    TrainingCluster(stack, "Cluster", run_script=commands, **CPU)
    cdk.App.of(stack).synth()
    (asset,) = tmp_path.glob("asset.*.sh")
    assert asset.read_text() == commands.render()


@pytest.mark.parametrize("prop", ["setup_script", "run_script"])
def test_user_data_that_linux_would_not_run_is_refused(prop: str) -> None:
    for made in (ec2.UserData.for_windows(), ec2.MultipartUserData(), ec2.UserData.custom("echo hello")):
        with pytest.raises(ValueError, match=rf"{prop} must begin with #! and its interpreter, got a \w+; take ec2"):
            plan_cluster(**{prop: made})


def test_user_data_with_the_line_ends_of_windows_is_refused(commands: ec2.UserData) -> None:
    commands.add_commands("echo one\r\necho two")
    with pytest.raises(ValueError, match="run_script must end its lines as Linux does"):
        plan_cluster(run_script=commands)


def test_user_data_that_is_known_at_deployment_only_is_refused(commands: ec2.UserData) -> None:
    commands.add_commands(f"echo {cdk.Aws.REGION}")
    with pytest.raises(ValueError, match=r"run_script must be known at synth, got .*; let it read"):
        plan_cluster(run_script=commands)


def test_commands_that_are_added_too_late_are_refused(make_stack: Any, commands: ec2.UserData) -> None:
    stack = make_stack()
    TrainingCluster(stack, "Cluster", setup_script=commands, **CPU)
    commands.add_commands("echo late")
    with pytest.raises(RuntimeError, match="setup_script must be complete when the cluster is made, got commands"):
        assertions.Template.from_stack(stack)


def test_a_script_of_a_role_is_checked_by_its_name(tmp_path: Path) -> None:
    absent = str(tmp_path / "absent.sh")
    with pytest.raises(ValueError, match=r"setup_script\.worker must be a file, got .*absent"):
        SetupScripts(worker=absent)
