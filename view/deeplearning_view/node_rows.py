"""Row of each node: identity, state in EC2 and group, and progress."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.membership import named_members
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_view.aws_responses import AwsResponses, decode_user_data, read_moment, read_tags
from deeplearning_view.log_lines import Line
from deeplearning_view.resources import find_groups
from deeplearning_view.view import NodeView

GROUP_TAG = "aws:autoscaling:groupName"
_LOGIN_USER = re.compile(rb'"login_user"\s*:\s*"([a-z_][a-z0-9_-]{0,31})"')
_LONGEST_PHASE = 44


def list_nodes(
    responses: AwsResponses, state: ClusterState | None, lines: Sequence[Line], now: datetime
) -> tuple[NodeView, ...]:
    """Return the nodes: members in rank order, then others, youngest last; `lines` are sorted, oldest first."""
    groups = {entry["InstanceId"]: entry for group in responses.groups for entry in group.get("Instances", [])}
    names = {member.instance_id: name for name, member in named_members(state.members)} if state else {}
    last = {line.node: line for line in lines}
    failed = {line.node for line in lines if line.reason}
    roles = find_groups(responses.resources)
    nodes = []
    for entry in responses.instances:
        instance_id = str(entry["InstanceId"])
        tags = read_tags(entry)
        launched = read_moment(entry.get("LaunchTime"))
        lifecycle = _describe_lifecycle(entry, groups.get(instance_id))
        nodes.append(
            NodeView(
                name=names.get(instance_id, ""),
                role=tags.get(ROLE_TAG) or roles.get(tags.get(GROUP_TAG, ""), ""),
                instance_id=instance_id,
                instance_type=str(entry.get("InstanceType", "")),
                address=str(entry.get("PrivateIpAddress", "")),
                zone=str(entry.get("Placement", {}).get("AvailabilityZone", "")),
                image_id=str(entry.get("ImageId", "")),
                lifecycle=lifecycle,
                purchase=str(entry.get("InstanceLifecycle", "on-demand")),
                phase=_find_phase(
                    instance_id, state, last.get(instance_id), lifecycle, has_failed=instance_id in failed
                ),
                gpu_count=_find_gpu_count(instance_id, state),
                launched_at=launched.isoformat(timespec="seconds") if launched else "",
                age_seconds=int((now - launched).total_seconds()) if launched else 0,
            )
        )
    ranks = {name: rank for rank, name in enumerate(names)}
    return tuple(
        sorted(
            nodes, key=lambda n: (ranks.get(n.instance_id, len(ranks)), n.role != NodeRole.MASTER.value, n.launched_at)
        )
    )


def read_login_user(templates: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the image's login user from the user data of the launch templates; empty if none has it."""
    for data in templates.values():
        found = _LOGIN_USER.search(decode_user_data(data))
        if found:
            return found[1].decode()
    return ""


def _describe_lifecycle(entry: Mapping[str, Any], in_group: Mapping[str, Any] | None) -> str:
    state = str(entry.get("State", {}).get("Name", ""))
    if in_group is None or state in ("terminated", "shutting-down"):
        return state
    health = "" if in_group.get("HealthStatus", "Healthy") == "Healthy" else f", {in_group['HealthStatus']}"
    return f"{state}, {in_group['LifecycleState']}{health}"


def _find_phase(
    instance_id: str, state: ClusterState | None, last: Line | None, lifecycle: str, *, has_failed: bool
) -> str:
    if state is not None and state.has_member(instance_id):
        return state.phase.value
    if has_failed:
        return "failed"
    if lifecycle.startswith(("terminated", "shutting-down")):
        return "gone"
    if last is not None:
        return (last.step or last.message)[:_LONGEST_PHASE]
    return "launching" if lifecycle.startswith("pending") else "booting"


def _find_gpu_count(instance_id: str, state: ClusterState | None) -> int | None:
    members = state.members if state else ()
    return next((member.gpu_count for member in members if member.instance_id == instance_id), None)
