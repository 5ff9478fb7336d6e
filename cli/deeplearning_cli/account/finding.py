"""Finding of a check of the account."""

from dataclasses import dataclass
from typing import Literal

from deeplearning_cli.account.answers import Refused

State = Literal["ok", "wrong", "unknown"]


@dataclass(frozen=True)
class Finding:
    """
    Result of a check of one thing that a deployment needs.

    Attributes:
        subject: The thing.
        state: `ok`, `wrong` for what makes the deployment fail, or `unknown`.
        detail: What was found.
        remedy: What the user can do. Empty: nothing is to be done.
        is_advice: True for what no deployment depends on: if it is unknown, the command does not fail.
    """

    subject: str
    state: State
    detail: str
    remedy: str = ""
    is_advice: bool = False

    @classmethod
    def refused(cls, subject: str, answer: Refused, actions: str) -> "Finding":
        """Return the finding of an answer that the account did not give."""
        return cls(subject, "unknown", answer.reason, f"allow {actions}")
