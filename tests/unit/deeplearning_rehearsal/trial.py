"""A case of a test, and an account for it."""

from pathlib import Path
from typing import Any

import tomllib

from deeplearning_rehearsal.cases.format.case import Case
from deeplearning_rehearsal.cases.format.case_file import parse_case


def parse_trial(text: str) -> Case:
    return parse_case(tomllib.loads(text), Path("trial.toml"))


class Account:
    """An account whose S3 remembers what it was told."""

    region, partition = "eu-west-1", "aws"

    def __init__(self) -> None:
        self.calls: list[tuple[str, dict[str, Any]]] = []

    def client(self, service: str) -> Any:
        assert service == "s3"
        return self

    def __getattr__(self, name: str) -> Any:
        return lambda **arguments: self.calls.append((name, arguments))
