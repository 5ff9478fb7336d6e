"""Renders the user data of a node: `bootstrap.sh` with the node's settings and the program that fetches the agent."""

import re
from collections.abc import Mapping
from typing import Any

from aws_cdk import Fn, Stack
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct

from deeplearning_cdk.payload import find_payload, pack_agent
from deeplearning_contract.settings import NodeSettings

LIMIT = 16 * 1024
"""Bytes of user data that EC2 takes, before base64."""

_TOKEN_BYTES = 128
_SIGNAL_URL_BYTES = 1024
_PLACEHOLDER = re.compile(r"__[A-Z][A-Z0-9_]*__")
# They stay where people read them: user data is short of bytes.
_COMMENT = re.compile(r"^# .*\n", re.MULTILINE)


class AgentAsset(Construct):
    """
    The agent's zip as an asset of the stack.

    Args:
        scope: The parent.
        construct_id: The id in the parent.

    Attributes:
        asset: The asset.
        sha256: Digest of its bytes, in hex; nodes check it.

    Raises:
        ValueError: What the agent is packed from is not there.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        archive = pack_agent()
        self.asset = s3_assets.Asset(self, "Asset", path=archive.path)
        self.sha256 = archive.sha256


def render_user_data(scope: Construct, settings: NodeSettings, agent: AgentAsset, interpreter: str) -> str:
    """
    Render the user data of a node.

    Args:
        scope: A construct of the stack.
        settings: What the agent is told; values may be tokens.
        agent: The agent's zip.
        interpreter: Python that runs the agent.

    Returns:
        The base64 intrinsic for a launch template.

    Raises:
        ValueError: The text is over EC2's limit, or bootstrap.sh and this module name different placeholders.
    """
    stack = Stack.of(scope)
    text = fill(
        _COMMENT.sub("", find_payload("bootstrap.sh").read_text()),
        {
            "__SETTINGS__": stack.to_json_string(settings.to_document()),
            "__FETCH_AGENT__": find_payload("fetch_agent.py").read_text().rstrip("\n"),
            "__PYTHON__": interpreter,
            "__AGENT_BUCKET__": agent.asset.s3_bucket_name,
            "__AGENT_KEY__": agent.asset.s3_object_key,
            "__AGENT_SHA256__": agent.sha256,
            "__REGION__": stack.region,
        },
    )
    check_size(stack.resolve(text))
    return Fn.base64(text)


def fill(template: str, values: Mapping[str, str]) -> str:
    """
    Replace the placeholders of bootstrap.sh, each wherever it stands.

    Raises:
        ValueError: A placeholder has no value, or a value no placeholder.
    """
    found = set(_PLACEHOLDER.findall(template))
    if found != set(values):
        raise ValueError(
            f"bootstrap.sh must have the placeholders {sorted(values)}, got {sorted(found)}; "
            "bring it and node_user_data.py together"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[0]], template)


def check_size(resolved: Any) -> None:
    """
    Check that user data fits, with an estimate for what is known at deployment only.

    Args:
        resolved: The text, or the join that it resolves to.

    Raises:
        ValueError: It is over EC2's limit.
    """
    parts = resolved["Fn::Join"][1] if isinstance(resolved, dict) else [resolved]
    literal = sum(len(part.encode()) for part in parts if isinstance(part, str))
    size = literal + _TOKEN_BYTES * sum(not isinstance(part, str) for part in parts) + _SIGNAL_URL_BYTES
    if size > LIMIT:
        raise ValueError(
            f"user data must be at most {LIMIT} bytes, got about {size}; shorten paths and names in the props"
        )
