"""Wait for the formation of the cluster, a step that precedes all jobs."""

from deeplearning_contract.membership import Member
from deeplearning_member.cluster_folder import ClusterFolder
from deeplearning_node.deadline import Deadline

POLL_SECONDS = 5


def wait_for_members(folder: ClusterFolder, count: int, deadline: Deadline) -> str:
    """Wait until so many members have installed the membership; return the missing ones, or an empty text."""
    missing = describe_missing(folder, count)
    while missing and not deadline.is_over:
        deadline.pause(POLL_SECONDS)
        missing = describe_missing(folder, count)
    return missing


def describe_missing(folder: ClusterFolder, count: int) -> str:
    """Return which of `count` nodes have not installed the membership, with the remedy; empty when all have."""
    folder.check()
    announced, state = folder.read_announcements(), folder.read_membership()
    members = {member.instance_id for member in state.members} if state else set()
    installed = {name for name, each in announced.items() if state and name in members and each.has_installed(state)}
    if len(installed) >= count:
        return ""
    parts = []
    late = [announcement.member for name, announcement in announced.items() if name not in installed]
    if late:
        names = ", ".join(map(_name, late))
        parts.append(f"not on {names}: read /var/log/deeplearning-agent.log there")
    absent = count - len(announced)
    if absent > 0:
        others = ", ".join(_name(announcement.member) for announcement in announced.values()) or "none"
        parts.append(
            f"{absent} of the nodes must still announce themselves (announced: {others}): read "
            "node/<instance id>/bootstrap-actions/1/stderr.gz of each other instance in the cluster's log bucket"
        )
    return f"{len(installed)} of {count} nodes have installed the membership; {'; '.join(parts)}"


def _name(member: Member) -> str:
    return f"{member.instance_id} ({member.address})"
