"""What is wrong with a policy, or with what is known about a call."""

from cdk_rehearsal.errors import RehearsalError


class PolicyError(RehearsalError):
    """A policy says what AWS would refuse, or what this evaluator does not know; nothing of it is ignored."""


class UnknownOperationError(RehearsalError):
    """A call was made of which nobody has written down which rights it needs."""
