"""The user's scripts that nodes run: which file or user data, and on which role's nodes."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import jsii
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3_assets as s3_assets
from constructs import Construct, IValidation

from deeplearning_cdk.nodes.payload import keep_file
from deeplearning_cdk.props.check import Rule, check_prop, is_token
from deeplearning_cdk.props.rules import is_file
from deeplearning_contract.names import NodeRole
from deeplearning_contract.setting_parts import ScriptSettings

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
        must="say what runs it",
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
"""User data of the CDK that nodes run as a script; it is complete when the cluster is made."""

Script = ScriptFile | ScriptCommands
"""A script that nodes run."""


@dataclass(frozen=True, kw_only=True)
class SetupScripts:
    """
    The set-up script of each role.

    Attributes:
        master: That of the master: a path, or `ec2.UserData` for Linux. Default: none.
        worker: That of the workers. Default: none.
    """

    master: Script | None = None
    worker: Script | None = None

    def __post_init__(self) -> None:
        """Check both."""
        for role in NodeRole:
            check_prop(f"setup_script.{role.value}", self.of(role), Script | None)

    def of(self, role: NodeRole) -> str | ec2.UserData | None:
        """Return the script of the nodes of a role."""
        return self.master if role is NodeRole.MASTER else self.worker


def take_setup(script: SetupScripts | str | ec2.UserData | None) -> SetupScripts:
    """Return the set-up script of each role; a single one is that of all nodes."""
    return script if isinstance(script, SetupScripts) else SetupScripts(master=script, worker=script)


class ScriptAsset(Construct):
    """
    A user's script as an asset of the stack.

    Args:
        scope: The parent.
        construct_id: The id in the parent.
        prop: The user's name for it.
        script: The script.

    Attributes:
        asset: The asset.
        settings: What nodes are told.
    """

    def __init__(self, scope: Construct, construct_id: str, *, prop: str, script: str | ec2.UserData) -> None:
        super().__init__(scope, construct_id)
        if isinstance(script, str):
            content, path = Path(script).read_bytes(), script
        else:
            content = script.render().encode()
            path = keep_file("script.sh", content)
            self.node.add_validation(CompleteCommands(prop, script, content))
        self.asset = s3_assets.Asset(self, "Asset", path=path)
        digest = hashlib.sha256(content).hexdigest()
        self.settings = ScriptSettings(bucket=self.asset.s3_bucket_name, key=self.asset.s3_object_key, sha256=digest)


@jsii.implements(IValidation)
class CompleteCommands:
    """
    Refuses commands that are added to user data after its asset was made, since no node would run them.

    Args:
        prop: The user's name for the user data.
        commands: The user data.
        content: What the asset has.
    """

    def __init__(self, prop: str, commands: ec2.UserData, content: bytes) -> None:
        self._prop, self._commands, self._content = prop, commands, content

    def validate(self) -> list[str]:
        """Return what is wrong, as CDK asks at synth."""
        if self._commands.render().encode() == self._content:
            return []
        return [f"{self._prop} must be complete when the cluster is made, got commands after that; add them before"]
