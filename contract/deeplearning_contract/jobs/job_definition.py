"""
Definition of a job, the same on every platform.

A user writes it as `job.toml`, or as options of `deeplearning run`. `deeplearning-cdk submit` uploads its source folder
and sends it to the master.
"""

import base64
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from deeplearning_contract.document import ContractError, excerpt, parse_record
from deeplearning_contract.setting_parts import ScriptSettings, compact

SESSION_BEGUN, SESSION_ENDED = "deeplearning-session: begun", "deeplearning-session: ended with"
"""Lines before and after the output of a command in a session; the exit status follows the second."""
COMMAND = "/usr/local/bin/deeplearning"
"""The command on every node."""
JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RANGES = {
    "members": (1, 1000),
    "gpus_per_member": (1, 1000),
    "ranks": (1, 1_000_000),
    "max_seconds": (0, 31_536_000),
    "retries": (0, 100),
}


@dataclass(frozen=True)
class JobDefinition:
    """Distributed job, as its user describes it; ContractError for a value that cannot work."""

    name: str  # Name of the job and of its folder with checkpoints
    program: tuple[str, ...]  # Program and arguments, run in the source folder
    launcher: str = "horovod"  # As in `deeplearning run`
    members: int | None = None  # Nodes, the master included; None for all
    gpus_per_member: int | None = None  # Ranks on each node; None for one a GPU, and one on a node without GPUs
    ranks: int | None = None  # Ranks in all; None for those of every node
    elastic: bool = False  # Whether it continues when nodes are lost, replaced or added
    data: tuple[str, ...] = ()  # Names of the stack's data that it waits for; empty for all
    env: Mapping[str, str] = field(default_factory=dict)  # Variables of every rank
    container: str = ""  # Image in which ranks run; empty for the cluster's own, if any
    without_environment: bool = False  # Whether it runs in the image's own software
    max_seconds: int = 0  # Time limit with all retries; 0 for none
    retries: int = 0  # Further runs after a failure, each from the newest checkpoint
    fresh: bool = False  # Whether it starts without the earlier checkpoints
    resume_args: str = ""  # Words that are added to the program if there is a checkpoint
    checkpoint_pattern: str = ""  # Glob of the checkpoints below their folder; empty for all files
    waits: bool = True  # Whether it waits for data and environment; else it is refused without them
    ends_cluster: bool = False  # Whether the cluster ends with it
    source: ScriptSettings | None = None  # The packed source folder in S3; None while it is not uploaded

    def __post_init__(self) -> None:
        if not JOB_NAME.fullmatch(self.name):
            raise ContractError(
                f"name must be at most 64 letters, digits, '.', '_' and '-', got {excerpt(self.name)}; choose another"
            )
        if not self.program or not self.program[0]:
            raise ContractError('program must have a word, got none; write e.g. program = ["python3", "train.py"]')
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise ContractError(f"{name} must be from {least} to {most}, got {value}; leave it out for the default")
        for name, text in self.env.items():
            if not _VARIABLE.fullmatch(name) or "\0" in text:
                raise ContractError(
                    f"env must be NAME=VALUE, got {excerpt(name)}; names are letters, digits and _, values without NUL"
                )

    @classmethod
    def from_json(cls, text: str) -> "JobDefinition":
        """Read the JSON of `to_document`; ContractError for a malformed one."""
        return parse_record(cls, text, "job")

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object that `from_json` reads."""
        document: dict[str, Any] = compact(self)
        return document

    def encode(self) -> str:
        """Return the argument of `deeplearning start-job`, the base64 of the JSON."""
        return base64.b64encode(json.dumps(self.to_document()).encode()).decode()


def read_variables(words: Sequence[str], inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `NAME=VALUE`, and of `NAME` with its inherited value; ContractError without a value."""
    variables = {}
    for word in words:
        name, is_given, value = word.partition("=")
        if not is_given and name not in inherited:
            raise ContractError(f"env must be NAME=VALUE, got {excerpt(word)}; write {excerpt(f'{word}=VALUE')}")
        variables[name] = value if is_given else inherited[name]
    return variables
