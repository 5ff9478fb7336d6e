"""Status of a stack: once it is deployed, its own resources count as taken in the account's answers."""

from collections.abc import Callable
from functools import partial
from typing import Any

from deeplearning_cli.account.answers import Refused, ask, find
from deeplearning_cli.account.finding import Finding

_EMPTY = ("REVIEW_IN_PROGRESS", "DELETE_COMPLETE")
"""States of a stack without resources (CloudFormation User Guide, "Stack status codes")."""


def read_status(clients: Callable[[str], Any], name: str) -> str | Refused | None:
    """
    Return the status of a stack; None where there is none of that name.

    Source of the error code: CloudFormation API, `DescribeStacks`.
    """
    describe = partial(clients("cloudformation").describe_stacks, StackName=name)
    answer = ask(lambda: find(describe, "ValidationError"))
    return answer if answer is None or isinstance(answer, Refused) else str(answer["Stacks"][0]["StackStatus"])


def judge_status(name: str, status: str | Refused | None) -> Finding:
    """Judge the status; of a deployed stack, the other findings count its own resources as taken."""
    subject = f"stack {name}"
    if isinstance(status, Refused):
        return Finding(subject, "unknown", status.reason, "allow cloudformation:DescribeStacks", is_advice=True)
    if status is None or status in _EMPTY:
        return Finding(subject, "ok", "it is not deployed yet")
    taken = "its own vCPUs, addresses, private names and mount targets count as taken"
    return Finding(subject, "unknown", f"it is deployed already, {status}: {taken}", is_advice=True)
