"""A failure as its reader needs it: where, why and what to do, in the space that a signal has."""

from deeplearning_contract.messages import MAX_REASON
from deeplearning_node.programs import ProgramError


class StageFailure(Exception):  # noqa: N818 - a failure of the cluster, not an error of the program
    """A stage of the node ended without its result."""

    def __init__(self, cause: str, remedy: str, *, stage: str = "", output: str = "") -> None:
        """
        Describe the failure.

        Args:
            cause: What was found, in one line.
            remedy: What the user can do, in one line.
            stage: What the node was doing. Default: filled in by the stage's runner.
            output: What a program last wrote.
        """
        super().__init__(cause)
        self.cause = cause
        self.remedy = remedy
        self.stage = stage
        self.output = output

    def reason(self, node: str) -> str:
        """Return one line of at most 1000 characters; the output is what gives way."""
        reason = f"{node} failed to {self.stage}: {self.cause}"
        if self.remedy:
            reason += f"; {self.remedy}"
        lines = " | ".join(line.strip() for line in self.output.splitlines() if line.strip())
        space = MAX_REASON - len(reason) - len("; last lines: ")
        if lines and space > 0:
            reason += f"; last lines: {lines if len(lines) <= space else '...' + lines[3 - space :]}"
        return reason[:MAX_REASON]


def describe_failure(error: Exception, stage: str) -> StageFailure:
    """Turn any error of a stage into a failure that names the stage."""
    if isinstance(error, StageFailure):
        error.stage = error.stage or stage
        return error
    if isinstance(error, ProgramError):
        return StageFailure(str(error), "", stage=stage, output=error.output)
    return StageFailure(f"{type(error).__name__}: {error}", "see the agent's log on the node", stage=stage)


class ReportedFailure(StageFailure):
    """What a worker said of its own failure, in its words."""

    def __init__(self, instance_id: str, reason: str) -> None:
        """Keep the worker's reason, under the name that SQS vouches for."""
        super().__init__(reason if instance_id in reason else f"worker {instance_id}: {reason}", "")

    def reason(self, node: str) -> str:  # noqa: ARG002 - the worker is the node that matters
        """Return the worker's reason."""
        return self.cause[:MAX_REASON]
