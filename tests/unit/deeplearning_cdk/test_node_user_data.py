"""User data is bootstrap.sh with the node's settings, and nothing of the user's can leave its place in it."""

import hashlib
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deeplearning_cdk import TrainingCluster
from deeplearning_cdk.node_user_data import LIMIT, check_size, fill
from deeplearning_cdk.payload import find_payload, pack_agent
from deeplearning_contract.names import NodeRole


@pytest.mark.parametrize("role", list(NodeRole))
def test_user_data_is_a_shell_script_without_open_ends(synthesize: Any, role: NodeRole) -> None:
    text = synthesize().user_data(role)
    assert text.startswith("#!/bin/bash\n")
    checked = subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "__" not in text.replace('"__main__"', "").replace("__name__", "")


def test_user_data_carries_the_program_that_fetches_the_agent_unchanged(synthesize: Any) -> None:
    assert find_payload("fetch_agent.py").read_text() in synthesize().user_data(NodeRole.WORKER)


def test_nodes_are_told_the_digest_of_the_bytes_that_the_asset_has(make_stack: Any, read_stack: Any) -> None:
    stack = make_stack()
    TrainingCluster(stack, "Cluster")
    digest = hashlib.sha256(Path(pack_agent().path).read_bytes()).hexdigest()
    assert f'"{digest}"' in read_stack(stack).user_data(NodeRole.MASTER)


def test_settings_are_one_line_of_a_quoted_here_document(synthesize: Any) -> None:
    text = synthesize(stack_name="quoting").user_data(NodeRole.MASTER)
    (line,) = (line for line in text.splitlines() if line.startswith('{"cluster":'))
    assert line.endswith("}")
    assert "<<'SETTINGS'" in text


@given(st.dictionaries(st.from_regex(r"__[A-Z]{1,8}__", fullmatch=True), st.text(), min_size=1, max_size=4))
def test_every_placeholder_is_filled_by_its_value_and_values_are_not_read_again(values: dict[str, str]) -> None:
    template = "|".join(values)
    assert fill(template, values) == "|".join(values.values())


@pytest.mark.parametrize(
    ("template", "got"),
    [("__ONE__ __OTHER__", "['__ONE__', '__OTHER__']"), ("", "[]")],
)
def test_unknown_or_missing_placeholder_is_refused(template: str, got: str) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        fill(template, {"__ONE__": "1"})
    assert str(caught.value).startswith(f"bootstrap.sh must have the placeholders ['__ONE__'], got {got}; ")


def test_text_over_the_limit_is_refused_with_room_for_what_is_known_later() -> None:
    check_size("x" * (LIMIT - 2000))
    with pytest.raises(ValueError, match=f"user data must be at most {LIMIT} bytes, got about"):
        check_size("x" * LIMIT)
    tokens = [{"Ref": "AWS::Region"}] * 128
    with pytest.raises(ValueError, match="user data must be at most"):
        check_size({"Fn::Join": ["", tokens]})


def test_bytes_are_counted_not_characters() -> None:
    with pytest.raises(ValueError, match="user data must be at most"):
        check_size("ü" * (LIMIT // 2))


def test_longest_props_still_fit(synthesize: Any, tmp_path: Any) -> None:
    script = tmp_path / "script.sh"
    script.write_text("#!/bin/bash\n")
    synthesize(stack_name="s" * 128, mount_point="/" + "m" * 100, setup_script=str(script), run_script=str(script))
