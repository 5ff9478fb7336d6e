"""A case of a test, and an account for it."""

from typing import Any

from deeplearning_rehearsal.cases.case import Case, case


def make_trial(**keys: Any) -> Case:
    """Return a case that only waits for the end."""

    def trial(run: Any) -> None:
        run.finish()

    return case("A trial", **keys)(trial)


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
