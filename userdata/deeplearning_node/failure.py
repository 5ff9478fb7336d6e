"""Failures of a stage of a node."""

from deeplearning_contract.reason import Reason
from deeplearning_node.programs import ProgramError


class StageFailure(Exception):  # noqa: N818 - a failure of the cluster, not an error of the program
    """Failure of a stage of the node."""

    def __init__(self, cause: str, remedy: str, *, stage: str = "", output: str = "", where: str | None = None) -> None:
        """
        Describe the failure: cause and remedy in one line each.

        The stage is the node's activity as an infinitive; the stage's runner adds it. `where` replaces node and stage
        at the start of the reason; empty for the cause alone.
        """
        super().__init__(f"{where or ''}{cause}")
        self.cause = cause
        self.remedy = remedy
        self.stage = stage
        self.output = output
        self.where = where

    def reason(self, node: str) -> Reason:
        """Return the reason; its cause begins with the place of the failure."""
        where = f"{node} failed to {self.stage}: " if self.where is None else self.where
        return Reason(f"{where}{self.cause}", self.remedy, self.output)


def describe_failure(error: Exception, stage: str) -> StageFailure:
    """Return an error of a stage as a failure that names the stage."""
    if isinstance(error, StageFailure):
        error.stage = error.stage or stage
        return error
    if isinstance(error, ProgramError):
        return StageFailure(str(error), "", stage=stage, output=error.output)
    return StageFailure(f"{type(error).__name__}: {error}", "see the agent's log on the node", stage=stage)
