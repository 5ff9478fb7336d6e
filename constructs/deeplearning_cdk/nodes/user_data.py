"""User data of a node: `bootstrap.sh` with the node's settings and the program that fetches the agent."""

import re
from collections.abc import Mapping
from typing import Annotated, Any

import jsii
from aws_cdk import Fn, IResolveContext, IStringProducer, Lazy, Stack
from constructs import Construct

from deeplearning_cdk.coordination.payload import find_payload
from deeplearning_cdk.props.check import Rule, check_prop
from deeplearning_contract.setting_parts import ScriptSettings
from deeplearning_contract.settings import NodeSettings

LIMIT = 16 * 1024
"""Largest user data that EC2 accepts, in bytes before base64."""

_TOKEN_BYTES = 128
_SIGNAL_URL_BYTES = 1024
_PLACEHOLDER = re.compile(r"__[A-Z][A-Z0-9_]*__")
# Comments are left out of user data, whose size is limited.
_COMMENT = re.compile(r"^# .*\n", re.MULTILINE)
REPORT_FAILURE = """trap 'echo "status $? of: $BASH_COMMAND" >&2' ERR"""
"""Trap that reports the user's failing command; bootstrap.sh itself reports only the file."""

Command = Annotated[
    str,
    Rule(
        must="end its lines as Linux does, without CR and NUL, and have no line USER_DATA",
        remedy="take them out, and name its here-document otherwise",
        is_kept=lambda command: not {"\r", "\0"} & set(command) and "USER_DATA" not in command.split("\n"),
        can_carry=lambda _: True,
    ),
]
"""User's command, of one or several lines, in bootstrap.sh's here-document."""


@jsii.implements(IStringProducer)
class NodeUserData:
    """
    User data of a node group, to which commands can be added until the app is synthesized.

    Args:
        scope: A construct of the stack.
        settings: Settings of the agent; values may be tokens.
        agent: The agent's zip.
        interpreter: Python that runs the agent.
        commands: The commands that are added, which the groups of a role in all candidates share. Default: its own.

    Attributes:
        base64: The base64 intrinsic for a launch template.

    Raises:
        ValueError: The text exceeds EC2's limit, or bootstrap.sh and this module have different placeholders.
    """

    def __init__(
        self,
        scope: Construct,
        settings: NodeSettings,
        agent: ScriptSettings,
        interpreter: str,
        *,
        commands: list[str] | None = None,
    ) -> None:
        self._stack = Stack.of(scope)
        self._commands = [] if commands is None else commands
        self._text = fill(
            "bootstrap.sh",
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
        Add commands after the present ones.

        Raises:
            ValueError: A command would not reach the node unchanged, or the text exceeds EC2's limit.
        """
        for index, command in enumerate(commands):
            check_prop(f"commands[{index}]", command, Command)
        self._commands.extend(commands)
        check_size(self._stack.resolve(self._text))

    def produce(self, context: IResolveContext) -> str:  # noqa: ARG002 - CDK passes it
        """Return the commands; called by the CDK at synth."""
        return "\n".join([REPORT_FAILURE, *self._commands] if self._commands else [])


def fill(name: str, template: str, values: Mapping[str, str]) -> str:
    """
    Replace all occurrences of the placeholders of a script.

    Raises:
        ValueError: A placeholder has no value, or a value no placeholder.
    """
    found = set(_PLACEHOLDER.findall(template))
    if found != set(values):
        raise ValueError(
            f"{name} must have the placeholders {sorted(values)}, got {sorted(found)}; bring it and its caller together"
        )
    return _PLACEHOLDER.sub(lambda match: values[match[0]], template)


def check_size(resolved: Any) -> None:
    """
    Check the size of user data, with an estimate for values that are known at deployment only.

    Args:
        resolved: Resolved text: a string or an `Fn::Join`.

    Raises:
        ValueError: It exceeds EC2's limit.
    """
    size = estimate_size(resolved) + _SIGNAL_URL_BYTES
    if size > LIMIT:
        raise ValueError(
            f"user data must be at most {LIMIT} bytes, got about {size}; "
            "shorten paths and names in the props, and take long commands as workers.setup_script or "
            "master.setup_script"
        )


def estimate_size(resolved: Any) -> int:
    """Return the bytes of a resolved text, a string or an `Fn::Join`, with an estimate for each token."""
    parts = resolved["Fn::Join"][1] if isinstance(resolved, dict) else [resolved]
    return sum(len(part.encode()) if isinstance(part, str) else _TOKEN_BYTES for part in parts)
