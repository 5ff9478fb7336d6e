"""Scripts of the user that nodes run: a file, or user data of the CDK."""

from pathlib import Path
from typing import Annotated

import jsii
from aws_cdk import aws_ec2 as ec2
from constructs import IValidation

from deeplearning_cdk.props.check import Rule, is_token
from deeplearning_cdk.props.rules import is_file

_OPENINGS = (b"#!/", b"#! /")


def _ends_lines(content: bytes) -> bool:
    return not {b"\r"[0], 0} & set(content)


def _read_program(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (OSError, ValueError):
        return b""


ScriptFile = Annotated[
    str,
    Rule(must="be a file", remedy="pass its path from the folder in which the app runs", is_kept=is_file),
    Rule(
        must="begin with #! and its interpreter",
        remedy="begin it with e.g. #!/bin/bash",
        is_kept=lambda path: _read_program(path).startswith(_OPENINGS),
    ),
    Rule(
        must="end its lines as Linux does, without CR and NUL",
        remedy="convert it with dos2unix",
        is_kept=lambda path: _ends_lines(_read_program(path)),
    ),
]
"""Path of a script that nodes run."""

ScriptCommands = Annotated[
    ec2.UserData,
    Rule(
        must="begin with #! and its interpreter",
        remedy="take ec2.UserData.for_linux() and add the commands to it",
        is_kept=lambda commands: commands.render().encode().startswith(_OPENINGS),
    ),
    Rule(
        must="end its lines as Linux does, without CR and NUL",
        remedy="take them out of its commands",
        is_kept=lambda commands: _ends_lines(commands.render().encode()),
    ),
    Rule(
        must="be known at synth",
        remedy="let it read what is known at deployment only, e.g. from an SSM parameter",
        is_kept=lambda commands: not is_token(commands.render()),
    ),
]
"""User data of the CDK that nodes run as a script; it must be complete when the cluster is created."""

Script = ScriptFile | ScriptCommands
"""A script that nodes run."""


@jsii.implements(IValidation)
class CompleteCommands:
    """
    Validation that no commands are added to user data after its asset was created, since no node would run them.

    Args:
        prop: The user's name for the user data.
        commands: The user data.
        content: Content of the asset.
    """

    def __init__(self, prop: str, commands: ec2.UserData, content: bytes) -> None:
        self._prop, self._commands, self._content = prop, commands, content

    def validate(self) -> list[str]:
        """Return the problems, which the CDK reports at synthesis."""
        if self._commands.render().encode() == self._content:
            return []
        return [f"{self._prop} must be complete when the cluster is made, got commands after that; add them before"]
