"""User data is bootstrap.sh with the node's settings and commands; scripts of the user are assets beside it."""

import hashlib
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import aws_cdk as cdk
import pytest
from aws_cdk import Aws, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cdk import TrainingCluster
from deeplearning_cdk.coordination.payload import find_payload, pack_agent
from deeplearning_cdk.nodes.user_data import LIMIT, check_size, fill
from deeplearning_contract.names import NodeRole
from tests.unit.deeplearning_cdk.clusters import EVERYTHING, plan, props_of


@pytest.mark.parametrize("role", list(NodeRole))
def test_user_data_is_a_shell_script_without_open_ends(synthesize, role):
    text = synthesize().user_data(role)
    assert text.startswith("#!/bin/bash\n")
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "__" not in text.replace('"__main__"', "").replace("__name__", "")


def test_user_data_has_the_program_that_fetches_the_agent_its_digest_and_one_line_of_settings(synthesize):
    text = synthesize().user_data(NodeRole.MASTER)
    assert find_payload("fetch_agent.py").read_text() in text
    (line,) = (line for line in text.splitlines() if line.startswith('{"cluster":'))
    assert line.endswith("}")
    assert f'"{hashlib.sha256(Path(pack_agent().path).read_bytes()).hexdigest()}"' in text
    assert "<<'SETTINGS'" in text
    assert _commands(text) == ""


@given(st.dictionaries(st.from_regex(r"__[A-Z]{1,8}__", fullmatch=True), st.text(), min_size=1, max_size=4))
def test_every_placeholder_is_filled_by_its_value_and_values_are_not_read_again(values):
    template = "|".join(values)
    assert fill("a.sh", template, values) == "|".join(values.values())


@pytest.mark.parametrize(
    ("template", "got"),
    [("__ONE__ __OTHER__", "['__ONE__', '__OTHER__']"), ("", "[]")],
)
def test_unknown_or_missing_placeholder_is_refused(template, got):
    with pytest.raises(ValueError, match="must") as caught:
        fill("bootstrap.sh", template, {"__ONE__": "1"})
    assert str(caught.value).startswith(f"bootstrap.sh must have the placeholders ['__ONE__'], got {got}; ")


def test_text_over_the_limit_is_refused_with_room_for_what_is_known_later():
    check_size("x" * (LIMIT - 2000))
    with pytest.raises(ValueError, match=f"user data must be at most {LIMIT} bytes, got about"):
        check_size("x" * LIMIT)
    tokens = [{"Ref": "AWS::Region"}] * 128
    with pytest.raises(ValueError, match="user data must be at most"):
        check_size({"Fn::Join": ["", tokens]})
    # Bytes are counted, not characters.
    with pytest.raises(ValueError, match="user data must be at most"):
        check_size("ü" * (LIMIT // 2))


def test_longest_props_still_fit(make_app):
    TrainingCluster(cdk.Stack(make_app(), "s" * 128), "Cluster", **props_of(EVERYTHING))


CPU: dict[str, Any] = {"workers.instance_type": "m5.large"}


def _commands(text):
    match = re.search(r"<<'USER_DATA'\n(.*?)\nUSER_DATA\n", text, re.DOTALL)
    assert match is not None
    return match[1]


def test_commands_that_are_added_later_are_in_the_user_data_of_their_group_in_order(make_stack, read_stack):
    stack = make_stack()
    bucket = s3.Bucket(stack, "Models")
    cluster = TrainingCluster(stack, "Cluster", **props_of(CPU))
    cluster.workers.add_user_data("echo one", "echo \"two\" 'and' $HOME `x` \\ && cat <<EOF\n${HOME}\nEOF")
    cluster.workers.add_user_data("echo __REGION__ and é")
    # A token is filled in at deployment.
    cluster.master.add_user_data(f"aws s3 cp s3://{bucket.bucket_name}/model . --region {Aws.REGION}")
    synthesis = read_stack(stack)
    assert _commands(synthesis.user_data(NodeRole.WORKER)).splitlines()[1:] == [
        "echo one",
        "echo \"two\" 'and' $HOME `x` \\ && cat <<EOF",
        "${HOME}",
        "EOF",
        "echo __REGION__ and é",
    ]
    name = stack.get_logical_id(bucket.node.default_child)
    command = f"aws s3 cp s3://<{name}>/model . --region <AWS::Region>"
    assert _commands(synthesis.user_data(NodeRole.MASTER)).splitlines()[1:] == [command]


@pytest.fixture(scope="module")
def cluster(make_app):
    return TrainingCluster(cdk.Stack(make_app(), "Stack"), "Cluster", **props_of(CPU))


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (
            "true\r\n",
            "commands[1] must end its lines as Linux does, without CR and NUL, and have no line USER_DATA, got",
        ),
        ("cat <<USER_DATA\nx\nUSER_DATA", "name its here-document otherwise"),
        (["true"], "commands[1] must be a text, got a list; "),
        (Token.as_number({"Ref": "Count"}), "commands[1] must be a text, got a token; "),
    ],
)
def test_a_command_that_would_not_reach_the_node_as_it_is_is_refused(cluster, command, message):
    with pytest.raises(ValueError, match="must") as caught:
        cluster.workers.add_user_data("true", command)
    assert message in str(caught.value)


def test_commands_count_for_the_limit(cluster):
    cluster.master.add_user_data("true " + "x" * 1000)
    with pytest.raises(
        ValueError, match=rf"at most {LIMIT} bytes, got about .*take long commands as workers\.setup_script or master\."
    ):
        cluster.master.add_user_data("true " + "x" * LIMIT)


# --- Scripts of the user -----------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("echo one\r\necho two", "must end its lines as Linux does"),
        (f"echo {cdk.Aws.REGION}", "must be known at synth, got .*; let it read"),
    ],
    ids=["line ends of Windows", "token"],
)
def test_user_data_that_nodes_would_not_get_as_it_is_is_refused(commands, command, said):
    commands.add_commands(command)
    with pytest.raises(ValueError, match=rf"^master\.run_script {said}"):
        plan({"master.run_script": commands})
