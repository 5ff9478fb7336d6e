"""The user's scripts: one for each role and one to run, from a file or as user data of the CDK."""

import hashlib
import json
from pathlib import Path

import aws_cdk as cdk
import pytest
from aws_cdk import aws_ec2 as ec2

from deeplearning_cdk import TrainingCluster
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, plan, props_of

PROPS = ("workers.setup_script", "master.setup_script", "master.run_script")
every_prop = pytest.mark.parametrize("prop", PROPS)


@pytest.fixture
def commands():
    made = ec2.UserData.for_linux()
    made.add_commands("apt-get install -y htop", "echo ready")
    return made


def _digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def test_each_role_has_its_own_scripts_with_their_digests_and_reads_no_other(synthesize):
    synthesis = synthesize(**EVERYTHING)
    master, workers = (synthesis.settings(role) for role in NodeRole)
    scripts = (workers.setup_script, master.setup_script, master.run_script)
    assert [script.sha256 for script in scripts] == [_digest(EVERYTHING[prop]) for prop in PROPS]
    assert workers.run_script is None
    reads = [
        json.dumps(synthesis.statements(f"{role.value.title()}Role")) for role in (NodeRole.WORKER, NodeRole.MASTER)
    ]
    assert [[script.key in text for script in scripts] for text in reads] == [[True, False, False], [False, True, True]]


@every_prop
def test_a_role_may_be_without_what_another_has(prop):
    roles = plan({prop: EVERYTHING[prop]}).roles
    found = {
        f"{value}.{script}"
        for value, role in (("workers", NodeRole.WORKER), ("master", NodeRole.MASTER))
        for script in ("setup_script", "run_script")
        if getattr(roles[role].value, script, None)
    }
    assert found == {prop}


def test_user_data_of_linux_is_an_asset_of_what_it_renders_until_it_is_added_to(make_stack, read_stack, commands):
    stack = make_stack()
    TrainingCluster(
        stack, "Cluster", **props_of(dict.fromkeys(PROPS, commands) | {"workers.instance_type": "m5.large"})
    )
    synthesis = read_stack(stack)
    found = [synthesis.settings(role) for role in NodeRole]
    assets = json.loads((Path(stack.node.root.synth().directory) / "Stack.assets.json").read_text())["files"]
    for script in (*(each.setup_script for each in found), found[0].run_script):
        (source,) = (asset["source"]["path"] for name, asset in assets.items() if script.key.startswith(name))
        assert Path(source).read_text() == commands.render() == "#!/bin/bash\napt-get install -y htop\necho ready"
        assert script.sha256 == _digest(source)
    commands.add_commands("echo late")
    with pytest.raises(RuntimeError, match="must be complete when the cluster is made, got commands") as caught:
        read_stack(stack)
    assert all(prop in str(caught.value) for prop in PROPS)


@every_prop
def test_user_data_that_linux_would_not_run_is_refused(prop):
    for made in (ec2.UserData.for_windows(), ec2.MultipartUserData(), ec2.UserData.custom("echo hello")):
        with pytest.raises(ValueError, match=rf"^{prop} must begin with #! and its interpreter, got a \w+; take ec2"):
            plan({prop: made})


def test_user_data_with_the_line_ends_of_windows_is_refused(commands):
    commands.add_commands("echo one\r\necho two")
    with pytest.raises(ValueError, match=r"^master\.run_script must end its lines as Linux does"):
        plan({"master.run_script": commands})


def test_user_data_that_is_known_at_deployment_only_is_refused(commands):
    commands.add_commands(f"echo {cdk.Aws.REGION}")
    with pytest.raises(ValueError, match=r"^master\.run_script must be known at synth, got .*; let it read"):
        plan({"master.run_script": commands})
