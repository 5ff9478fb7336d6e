"""Whether this instance may still be the master: who has lost the office does not take it again."""

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node


class MasterEpoch:
    """
    The generation from which on this instance was to be the master, kept on its disk.

    Auto Scaling can run two masters for a while: one that it has given up, and its replacement. The newer one takes
    over; the older one finds itself replaced in a generation that is not before its own, and stands by.
    """

    def __init__(self, node: Node) -> None:
        """Bind the node; nothing is read yet."""
        self._file = node.instance_file("master-since")

    def record(self, generation: int) -> None:
        """
        Note that this instance is about to write itself into a generation.

        It comes before the write: an agent that dies between both finds an item before its claim, and may try again.
        """
        write_file(self._file, f"{generation}\n")

    def is_superseded(self, state: ClusterState) -> bool:
        """Return whether another master has followed, when the item names one that is not this instance."""
        try:
            claimed = int(self._file.read_text())
        except (OSError, ValueError):
            return False
        return state.generation >= claimed
