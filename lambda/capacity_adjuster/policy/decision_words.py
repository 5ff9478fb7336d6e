"""Says in words what was decided, for the log."""

from capacity_adjuster.policy.decision_kinds import Decision, Resume, Shrink, Verdict, Wait


def describe_decision(decision: Decision) -> str:
    """Return a decision as a reader of the log wants it: what, and why."""
    match decision:
        case Wait():
            return f"wait: {decision.why}"
        case Verdict():
            state = decision.state
            counts = f"generation {state.generation}, {len(state.expected)} of {state.requested} nodes"
            return f"{state.phase.value}, {counts}" + (f": {state.reason}" if state.reason else "")
        case Resume():
            return "resume what a shrink that died had suspended"
        case Shrink():
            return f"shrink from {decision.requested} to {decision.desired} workers: {decision.reason}"
        case _:
            return type(decision).__name__.lower()
