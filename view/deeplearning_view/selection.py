"""Selection of the stack and node that the arguments name."""

from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning_contract.names import CLUSTER_TAG, MASTER_HOST
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.view import NodeView
from deeplearning_view.view_builder import find_master

CLUSTER_OUTPUT = "ClusterName"
DESCRIPTION = "A deep-learning training cluster"
"""Prefix of the description of this project's own stacks, for failed ones, which have no outputs."""


def find_stack(cloudformation: Any, name: str | None) -> dict[str, Any]:
    """
    Return a stack by name or ARN, also a deleted one; without a name, the only stack of a cluster.

    Raises:
        ViewError: There is none of that name, or not exactly one to choose from.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415 - slow, and most that import this need no AWS

    if name is None:
        stacks = [
            stack for page in cloudformation.get_paginator("describe_stacks").paginate() for stack in page["Stacks"]
        ]
        return choose_stack(stacks)
    try:
        stacks = cloudformation.describe_stacks(StackName=name)["Stacks"]
    except ClientError as error:
        if "does not exist" not in error.response["Error"]["Message"]:
            raise
        stacks = _find_deleted(cloudformation, name)
    if not stacks:
        raise ViewError(
            f"STACK must name a stack of this account and region, got {name!r}; see: aws cloudformation list-stacks"
        )
    stack: dict[str, Any] = stacks[0]
    return stack


def choose_stack(stacks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """
    Return the only cluster among stacks.

    Raises:
        ViewError: There is none, or more than one.
    """
    clusters = [stack for stack in stacks if is_cluster(stack)]
    if len(clusters) == 1:
        return clusters[0]
    if clusters:
        names = ", ".join(sorted(str(stack["StackName"]) for stack in clusters))
        raise ViewError(f"STACK must be given where there are several clusters; name one of: {names}")
    raise ViewError(
        "STACK must be given where no stack is marked as a cluster; name one, or choose another --region or --profile"
    )


def is_cluster(stack: Mapping[str, Any]) -> bool:
    """Return whether a stack is a cluster, by an output, a tag or its description."""
    has_output = any(entry["OutputKey"].endswith(CLUSTER_OUTPUT) for entry in stack.get("Outputs", []))
    has_tag = any(tag["Key"] == CLUSTER_TAG for tag in stack.get("Tags", []))
    return has_output or has_tag or str(stack.get("Description", "")).startswith(DESCRIPTION)


def _find_deleted(cloudformation: Any, name: str) -> list[dict[str, Any]]:
    """Return the last deleted stack of that name, which AWS finds only by ARN."""
    pages = cloudformation.get_paginator("list_stacks").paginate(StackStatusFilter=["DELETE_COMPLETE"])
    found = [entry for page in pages for entry in page["StackSummaries"] if entry["StackName"] == name]
    if not found:
        return []
    last = max(found, key=lambda entry: entry["CreationTime"])
    stacks: list[dict[str, Any]] = cloudformation.describe_stacks(StackName=last["StackId"])["Stacks"]
    return stacks


def find_node(nodes: Sequence[NodeView], name: str) -> NodeView:
    """
    Return a node of a view by its host name, instance id or address, or the `master`.

    Raises:
        ViewError: There is none of that name.
    """
    if name in ("master", MASTER_HOST):
        master = find_master(tuple(nodes))
        if master is not None:
            return master
    for node in nodes:
        if name and name in (node.name, node.instance_id, node.address):
            return node
    known = ", ".join(node.name or node.instance_id for node in nodes if not node.is_gone)
    raise ViewError(f"--node must name a node, got {name!r}; there is {known or 'none'}")


def find_running_node(nodes: Sequence[NodeView], name: str) -> NodeView:
    """
    Return a running node, by the same names as `find_node`.

    Raises:
        ViewError: There is none of that name, or it is not running.
    """
    node = find_node(nodes, name)
    if not node.lifecycle.startswith("running"):
        raise ViewError(f"--node must name a running node, got {name}, which is {node.lifecycle}; choose another")
    return node
