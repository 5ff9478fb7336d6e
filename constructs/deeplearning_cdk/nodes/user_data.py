"""Renders the user data of a node: `bootstrap.sh` with the node's settings and the program that fetches the agent."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import jsii
from aws_cdk import Fn, IResolveContext, IStringProducer, Lazy, Stack
from constructs import Construct

from deeplearning_cdk.nodes.payload import find_payload
from deeplearning_cdk.props.check import Rule, check_prop
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_contract.settings import NodeSettings

LIMIT = 16 * 1024
"""Bytes of user data that EC2 takes, before base64."""

_TOKEN_BYTES = 128
_SIGNAL_URL_BYTES = 1024
_PLACEHOLDER = re.compile(r"__[A-Z][A-Z0-9_]*__")
# They stay where people read them: user data is short of bytes.
_COMMENT = re.compile(r"^# .*\n", re.MULTILINE)
REPORT_FAILURE = """trap 'echo "status $? of: $BASH_COMMAND" >&2' ERR"""
"""Names the user's command that fails, since bootstrap.sh names the file that they are in."""

Command = Annotated[
    str,
    Rule(
        must="end its lines as Linux does, without CR and NUL, and have no line USER_DATA",
        remedy="take them out, and name its here-document otherwise",
        is_kept=lambda command: not {"\r", "\0"} & set(command) and "USER_DATA" not in command.split("\n"),
        can_carry=lambda _: True,
    ),
]
"""A command of the user's, or several lines of them, in bootstrap.sh's here-document."""


@jsii.implements(IStringProducer)
class NodeUserData:
    """
    The user data of a node group, to which users add commands until the app is synthesized.

    Args:
        scope: A construct of the stack.
        settings: Settings of the agent; values may be tokens.
        agent: The agent's zip.
        interpreter: Python that runs the agent.

    Attributes:
        base64: The base64 intrinsic for a launch template.

    Raises:
        ValueError: The text is over EC2's limit, or bootstrap.sh and this module name different placeholders.
    """

    def __init__(self, scope: Construct, settings: NodeSettings, agent: ScriptSettings, interpreter: str) -> None:
        self._stack = Stack.of(scope)
        self._commands: list[str] = []
        self._text = fill(
            _COMMENT.sub("", find_payload("bootstrap.sh").read_text()),
            {
                "__SETTINGS__": self._stack.to_json_string(settings.to_document()),
                "__FETCH_AGENT__": find_payload("fetch_agent.py").read_text().rstrip("\n"),
                "__PYTHON__": interpreter,
                "__AGENT_BUCKET__": agent.bucket,
                "__AGENT_KEY__": agent.key,
                "__AGENT_SHA256__": agent.sha256,
                "__REGION__": self._stack.region,
                "__USER_DATA__": Lazy.uncached_string(self),
            },
        )
        self.base64 = Fn.base64(self._text)
        check_size(self._stack.resolve(self._text))

    def add_commands(self, *commands: str) -> None:
        """
        Add commands after those that are there.

        Raises:
            ValueError: A command would not reach the node as it is, or the text is over EC2's limit.
        """
        for index, command in enumerate(commands):
            check_prop(f"commands[{index}]", command, Command)
        self._commands += commands
        check_size(self._stack.resolve(self._text))

    def produce(self, context: IResolveContext) -> str:  # noqa: ARG002 - CDK passes it
        """Return the commands, as CDK asks at synth."""
        return "\n".join([REPORT_FAILURE, *self._commands] if self._commands else [])


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
            "bring it and nodes/user_data.py together"
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
            f"user data must be at most {LIMIT} bytes, got about {size}; "
            "shorten paths and names in the props, and take long commands as workers.setup_script or "
            "master.setup_script"
        )
