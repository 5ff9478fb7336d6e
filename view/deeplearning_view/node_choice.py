"""Finds the node that the user means."""

from collections.abc import Sequence

from deeplearning_contract.names import MASTER_HOST
from deeplearning_view.aws_responses import LookError
from deeplearning_view.view import NodeView
from deeplearning_view.view_builder import find_master


def find_node(nodes: Sequence[NodeView], name: str) -> NodeView:
    """
    Return a node.

    Args:
        nodes: The nodes of a view.
        name: Its host name, `master`, its instance id, or its address.

    Raises:
        LookError: There is none of that name.
    """
    if name in ("master", MASTER_HOST):
        master = find_master(tuple(nodes))
        if master is not None:
            return master
    for node in nodes:
        if name and name in (node.name, node.instance_id, node.address):
            return node
    known = ", ".join(node.name or node.instance_id for node in nodes if not node.is_gone)
    raise LookError(f"--node must name a node, got {name!r}; there is {known or 'none'}")


def find_running_node(nodes: Sequence[NodeView], name: str) -> NodeView:
    """
    Return a node that runs; arguments as of `find_node`.

    Raises:
        LookError: There is none of that name, or it does not run.
    """
    node = find_node(nodes, name)
    if not node.lifecycle.startswith("running"):
        raise LookError(f"--node must name a node that runs, {name} is {node.lifecycle}; choose another")
    return node
