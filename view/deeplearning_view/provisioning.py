"""What jobs need beside the cluster, data and software, as the agents of its nodes last said how far it is."""

from collections.abc import Iterator, Sequence

from deeplearning_view.log_lines import Line
from deeplearning_view.remedies import split_reason
from deeplearning_view.view import NodeView, Trouble

_DONE, _FAILED = "done", "failed"


def describe_provisioning(nodes: Sequence[NodeView], lines: Sequence[Line]) -> tuple[str, ...]:
    """Return a line for whatever is still on its way; nodes of which the same is said share one."""
    found: dict[str, list[str]] = {}
    for node, line in _find_latest(nodes, lines):
        if line.state not in (_DONE, _FAILED):
            told = f"{line.provision} is {line.state}: {line.detail}"
            found.setdefault(told, []).append(node.name or node.instance_id)
    return tuple(f"{told} ({', '.join(names)})" for told, names in found.items())


def find_provisioning_troubles(nodes: Sequence[NodeView], lines: Sequence[Line]) -> Iterator[Trouble]:
    """Tell what could not be brought; the cluster stands, and jobs that need it are refused."""
    for node, line in _find_latest(nodes, lines):
        if line.state == _FAILED:
            cause, remedy = split_reason(line.detail)
            yield Trouble(f"{line.provision} on {node.name or node.instance_id}", cause, remedy)


def _find_latest(nodes: Sequence[NodeView], lines: Sequence[Line]) -> Iterator[tuple[NodeView, Line]]:
    latest = {(line.node, line.provision): line for line in lines if line.provision}
    for node in nodes:
        if not node.is_gone:
            yield from ((node, line) for (name, _), line in latest.items() if name == node.instance_id)
