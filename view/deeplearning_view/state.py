"""Reads the state item out of the answers."""

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.errors import ContractError
from deeplearning_view.aws_responses import Answers


def read_state(answers: Answers) -> tuple[ClusterState | None, str]:
    """Return the state, or None and why it cannot be read; None without a reason when there is none yet."""
    if answers.item is None:
        return None, ""
    try:
        return ClusterState.from_item(answers.item, answers.parts), ""
    except ContractError as error:
        return None, f"the state item: {error}"
