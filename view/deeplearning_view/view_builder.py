"""Builder of the view of a cluster, from the responses of AWS and the time alone."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.names import CLUSTER_TAG, NodeRole
from deeplearning_view.aws_responses import NO_END, AwsResponses, has_end, read_moment, read_state, read_tags
from deeplearning_view.block_wait import read_waiting
from deeplearning_view.capacity_search import find_left_groups, read_capacity
from deeplearning_view.log_lines import LEVELS, Line, read_lines
from deeplearning_view.node_rows import list_nodes, read_login_user
from deeplearning_view.problems import (
    describe_provisioning,
    describe_suspension,
    find_problems,
    find_provisioning_problems,
)
from deeplearning_view.resources import WAIT
from deeplearning_view.view import CapacityView, ClusterView, NodeView, Verdict

_ENDED_BADLY = ("CREATE_FAILED", "ROLLBACK_IN_PROGRESS", "ROLLBACK_FAILED", "ROLLBACK_COMPLETE", "DELETE_FAILED")
_STANDING = ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "UPDATE_IN_PROGRESS")


def make_view(responses: AwsResponses, now: datetime) -> ClusterView:
    """Return the view at a time, UTC."""
    state, unreadable = read_state(responses)
    node_lines, all_lines = (
        read_lines(responses.node_lines),
        read_lines([*responses.node_lines, *responses.adjuster_lines]),
    )
    nodes = list_nodes(responses, state, node_lines, now)
    verdict = judge(responses, state)
    may_search = state is not None or verdict == "forming"
    capacity, no_capacity = read_capacity(responses, state, now) if may_search else (None, "")
    waiting, no_request = read_waiting(responses) if verdict in ("forming", "formed") else ("", "")
    status = str(responses.stack["StackStatus"])
    members = len(state.members) if state else 0
    desired = sum(int(group["DesiredCapacity"]) for group in responses.groups)
    return ClusterView(
        stack=str(responses.stack["StackName"]),
        region=responses.region,
        stack_status=status,
        verdict=verdict,
        cluster=next((read_tags(group).get(CLUSTER_TAG, "") for group in responses.groups), ""),
        phase=state.phase.value if state else "",
        generation=state.generation if state else 0,
        formed=members if verdict == "formed" else 0,
        asked=max(state.requested, desired) if state else desired,
        since=_find_since(responses, verdict),
        reason=str(state.reason) if state else "",
        notice=state.notice if state else "",
        nodes=nodes,
        problems=(
            *find_problems(responses, state, all_lines, capacity, is_formed=verdict == "formed"),
            *find_provisioning_problems(nodes, node_lines),
        ),
        provisioning=describe_provisioning(nodes, node_lines),
        warnings=(*_find_warnings(responses, nodes, state, capacity), *_find_slow(nodes, node_lines)),
        log_in=_find_log_in(responses, nodes),
        unread=(*responses.unread, *filter(None, (unreadable, no_capacity, no_request))),
        looked_at=now.isoformat(timespec="seconds"),
        capacity=capacity,
        waiting=waiting,
    )


def judge(responses: AwsResponses, state: ClusterState | None) -> Verdict:
    """Return the verdict from stack and state item."""
    status = str(responses.stack["StackStatus"])
    if status in ("DELETE_IN_PROGRESS", "DELETE_COMPLETE"):
        return "deleted"
    if status in _ENDED_BADLY or (state is not None and state.phase is Phase.FAILED):
        return "failed"
    if status in _STANDING and responses.groups and not any(group["DesiredCapacity"] for group in responses.groups):
        return "stopped"
    if state is None:  # without permission to read the item, the stack's status decides
        return "formed" if status in _STANDING else "forming"
    return "formed" if state.phase is Phase.FORMED or state.has_formed else "forming"


def _find_since(responses: AwsResponses, verdict: Verdict) -> str:
    """Return the start of the verdict from the stack's events."""
    created = read_moment(responses.stack.get("LastUpdatedTime") or responses.stack.get("CreationTime"))
    moments = [read_moment(responses.stack.get("CreationTime"))] if verdict == "forming" else []
    for event in responses.events:  # newest first
        status, at = str(event["ResourceStatus"]), read_moment(event["Timestamp"])
        is_end = event["ResourceType"] == WAIT and status == "CREATE_COMPLETE"
        if (verdict == "formed" and is_end) or (verdict == "failed" and status.endswith("_FAILED")):
            moments.append(at)
    found = moments[-1] if moments else (created if verdict != "forming" else None)
    return found.isoformat(timespec="seconds") if found else ""


def _find_warnings(
    responses: AwsResponses, nodes: tuple[NodeView, ...], state: ClusterState | None, capacity: CapacityView | None
) -> tuple[str, ...]:
    left = find_left_groups(responses, capacity)
    standing = (group for group in responses.groups if group["AutoScalingGroupName"] not in left)
    warnings = [text for group in standing if (text := describe_suspension(group))]
    if responses.limits is not None and state is not None and not has_end(responses.limits, responses.templates):
        warnings.append(NO_END)
    if state is not None and state.notice:
        warnings.append(f"the capacity ends soon: {state.notice}")
    pinned = {
        group["AutoScalingGroupName"]: responses.templates.get(group["AutoScalingGroupName"], {})
        for group in responses.groups
    }
    for group in responses.groups:
        image = str(pinned[group["AutoScalingGroupName"]].get("ImageId", ""))
        here = {entry["InstanceId"] for entry in group.get("Instances", [])}
        other = [
            node for node in nodes if node.instance_id in here and image.startswith("ami-") and node.image_id != image
        ]
        warnings += [
            f"{node.name or node.instance_id} has the image {node.image_id}, and new nodes get {image}; replace it: "
            "deeplearning-cdk upgrade"
            for node in other
        ]
    return tuple(warnings)


def _find_slow(nodes: Sequence[NodeView], lines: Sequence[Line]) -> Iterator[str]:
    """Yield a warning for nodes with EFA whose traffic uses TCP, from the last reports of their agents."""
    latest = {line.node: line for line in lines if line.provider}
    faults: dict[str, list[str]] = {}
    for node in nodes:
        line = latest.get(node.instance_id)
        if line is not None and not node.is_gone and LEVELS.index(line.level) >= LEVELS.index("WARNING"):
            faults.setdefault(line.provider, []).append(node.name or node.instance_id)
    for provider, names in faults.items():
        remedy = "see `deeplearning health`, or deploy with network.efa=False"
        yield f"{', '.join(names)}: EFA is not used, {provider}; {remedy}"


def _find_log_in(responses: AwsResponses, nodes: tuple[NodeView, ...]) -> tuple[str, ...]:
    """Return the commands that log in to the running master."""
    master = find_master(nodes)
    if master is None:
        return ()
    commands = [f"aws ssm start-session --region {responses.region} --target {master.instance_id}"]
    entry = next(entry for entry in responses.instances if entry["InstanceId"] == master.instance_id)
    user = read_login_user(responses.templates)
    if entry.get("KeyName") and user:
        host = entry.get("PublicIpAddress") or master.address
        commands.append(f"ssh {user}@{host}")
    return tuple(commands)


def find_master(nodes: tuple[NodeView, ...]) -> NodeView | None:
    """Return the running master: the first of the membership, else the youngest of the role."""
    running = [node for node in nodes if node.role == NodeRole.MASTER.value and node.lifecycle.startswith("running")]
    return next((node for node in running if node.name), running[-1] if running else None)
