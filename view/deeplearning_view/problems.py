"""Problems with cause and remedy: the stack's own reason first, then nodes, then launches that AWS refused."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from deeplearning_contract.cluster_state import ClusterState, Phase
from deeplearning_contract.launch_failures import clean_message, find_remedy
from deeplearning_contract.log_record import ADJUSTER
from deeplearning_contract.names import NodeRole
from deeplearning_contract.reason import NO_REASON, Reason
from deeplearning_view.aws_responses import AwsResponses
from deeplearning_view.capacity_search import find_refused_groups, name_groups
from deeplearning_view.log_lines import LEVELS, Line, clean, clean_reason
from deeplearning_view.remedies import advise_on_node, advise_on_resource
from deeplearning_view.resources import find_groups, find_vpc
from deeplearning_view.view import CapacityView, LogExcerpt, NodeView, Problem

_SIGNALLED = "WaitCondition received failed message: "
_CONSEQUENCES = ("cancelled", "Rollback requested by user", "The following resource(s) failed")
_INSTANCE = re.compile(r"i-[0-9a-f]{8,17}")
_TAKEN = re.compile(r"health.?check|unhealthy|spot", re.IGNORECASE)
"""Causes in Auto Scaling of a termination that no user requested."""
_LAST_LINES = 5


def find_problems(
    responses: AwsResponses,
    state: ClusterState | None,
    lines: Sequence[Line],
    capacity: CapacityView | None,
    *,
    is_formed: bool,
) -> tuple[Problem, ...]:
    """
    Return the problems, each cause once; `lines` are all log lines, oldest first.

    The launches of a candidate that was left are past ones once another is asked.
    """
    problems = [
        *_find_stack_problems(responses, state, lines),
        *_find_cluster_problems(state),
        *_find_node_problems(responses, state, lines, is_formed=is_formed),
        *_find_launch_problems(responses, find_refused_groups(responses, capacity), is_formed=is_formed),
    ]
    reported: list[Problem] = []
    for problem in problems:
        known = next((k for k, other in enumerate(reported) if _covers(other.cause, problem.cause)), None)
        if known is None:
            reported.append(problem)
        elif not reported[known].remedy:
            reported[known] = replace(reported[known], remedy=problem.remedy)
    return tuple(_attach_lines(problem, lines) for problem in reported)


def _covers(earlier: str, cause: str) -> bool:
    """Return whether a cause is part of an earlier one, ignoring the full stop of AWS's sentences."""
    return cause.rstrip(". ") in earlier


def _find_stack_problems(
    responses: AwsResponses, state: ClusterState | None, lines: Sequence[Line]
) -> Iterable[Problem]:
    failures = [event for event in reversed(responses.events) if str(event["ResourceStatus"]).endswith("_FAILED")]
    for event in failures:
        reason = str(event.get("ResourceStatusReason", ""))
        if not reason or any(word in reason for word in _CONSEQUENCES):
            continue
        if reason.startswith(_SIGNALLED):
            yield _explain("stack", _find_signalled(state, lines) or Reason(clean(reason)))
        else:
            remedy = advise_on_resource(reason, find_vpc(responses.resources))
            yield Problem(f"stack: {event['LogicalResourceId']}", clean(reason), remedy)


def _find_signalled(state: ClusterState | None, lines: Sequence[Line]) -> Reason:
    """
    Return the reason that was signalled to the stack: the record's, or the first logged failure's after its deletion.

    Only the adjuster and the master signal, each right after that line; CloudFormation uses the first signal.
    """
    if state is not None and state.phase is Phase.FAILED:
        return clean_reason(state.reason)
    signallers = (ADJUSTER, NodeRole.MASTER.value)
    failures = (line.reason for line in lines if line.role in signallers and line.level == "ERROR" and line.reason)
    return next(failures, NO_REASON)


def _explain(what: str, reason: Reason) -> Problem:
    cause = str(replace(reason, remedy=""))
    return Problem(what, cause, reason.remedy or advise_on_resource(cause))


def _find_cluster_problems(state: ClusterState | None) -> Iterable[Problem]:
    if state is not None and state.reason:
        yield _explain("cluster", clean_reason(state.reason))


def _find_node_problems(
    responses: AwsResponses, state: ClusterState | None, lines: Sequence[Line], *, is_formed: bool
) -> Iterable[Problem]:
    departed = {entry.instance_id: clean_reason(entry.reason) for entry in state.departed} if state else {}
    failed = {line.node: line.reason for line in lines if line.reason and line.node != ADJUSTER}
    taken = _find_taken(responses)
    members = {member.instance_id for member in state.members} if state else set()
    for instance_id in dict.fromkeys([*departed, *failed, *taken]):
        if instance_id in members:
            continue  # it failed, was mended, and came back
        reason = departed.get(instance_id) or failed.get(instance_id) or Reason(taken[instance_id])
        cause = str(replace(reason, remedy=""))
        remedy = reason.remedy or advise_on_node(cause, instance_id)
        yield Problem(f"node {instance_id}", cause, remedy, is_past=is_formed)


def _find_taken(responses: AwsResponses) -> dict[str, str]:
    """Return the causes for which Auto Scaling took instances out of service by itself."""
    found = {}
    for activities in responses.activities.values():
        for activity in reversed(activities):
            instance, cause = _INSTANCE.search(str(activity["Description"])), str(activity.get("Cause", ""))
            if instance and str(activity["Description"]).startswith("Terminating") and _TAKEN.search(cause):
                found[instance[0]] = clean(cause.partition("Z ")[2] or cause)
    return found


def _find_launch_problems(responses: AwsResponses, refused: frozenset[str], *, is_formed: bool) -> Iterable[Problem]:
    roles, candidates = find_groups(responses.resources), name_groups(responses)
    for name, activities in responses.activities.items():
        launches = [entry for entry in activities if str(entry["Description"]).startswith("Launching")]
        failures = [entry for entry in launches if entry["StatusCode"] == "Failed"]
        counts: dict[str, int] = {}
        for entry in failures:
            message = clean(clean_message(str(entry.get("StatusMessage", ""))))
            counts[message] = counts.get(message, 0) + 1
        has_recovered = bool(launches) and launches[0]["StatusCode"] == "Successful"
        instance_type = str(responses.templates.get(name, {}).get("InstanceType", ""))
        for message, count in counts.items():
            what = f"launch of {roles.get(name, name)}" + (f" for {candidates[name]}" if name in candidates else "")
            what += f", {count} times" if count > 1 else ""
            remedy = find_remedy(message, [instance_type] if instance_type else [])
            yield Problem(what, message or "no message", remedy, is_past=is_formed or has_recovered or name in refused)


def _attach_lines(problem: Problem, lines: Sequence[Line]) -> Problem:
    """Add the last lines of the node that failed, or of the one that reported it."""
    text = f"{problem.what} {problem.cause}"
    # The master repeats a worker's cause after a prefix: the shortest line is that of the failed node.
    causes = ((line.reason.cause, line.node) for line in lines if line.reason and line.reason.cause in text)
    reporter = min(causes, key=lambda found: len(found[0]), default=("", ""))[1]
    named = _INSTANCE.search(text)
    who = reporter or (named[0] if named else ADJUSTER)
    said = [line for line in lines if line.node == who and line.level != LEVELS[0]]
    return replace(problem, lines=tuple(excerpt(line) for line in said[-_LAST_LINES:]))


def excerpt(line: Line) -> LogExcerpt:
    """Return the part of a line for a page."""
    return LogExcerpt(line.at.isoformat(timespec="seconds"), line.level, line.message)


def describe_suspension(group: Mapping[str, Any]) -> str:
    """Return a warning that a group's launches are suspended, with the command to resume; empty otherwise."""
    for process in group.get("SuspendedProcesses", []):
        if process["ProcessName"] == "Launch":
            name, reason = group["AutoScalingGroupName"], process.get("SuspensionReason", "suspended")
            command = "aws autoscaling resume-processes --scaling-processes Launch --auto-scaling-group-name"
            return f"the group {name} launches nothing ({reason}); after the cause is corrected: {command} {name}"
    return ""


_DONE, _FAILED = "done", "failed"


def describe_provisioning(nodes: Sequence[NodeView], lines: Sequence[Line]) -> tuple[str, ...]:
    """Return a line for each data or software in progress; nodes with the same line share it."""
    found: dict[str, list[str]] = {}
    for node, line in _find_latest(nodes, lines):
        if line.state not in (_DONE, _FAILED):
            reported = f"{line.provision} is {line.state}: {line.detail}"
            found.setdefault(reported, []).append(node.name or node.instance_id)
    return tuple(f"{reported} ({', '.join(names)})" for reported, names in found.items())


def find_provisioning_problems(nodes: Sequence[NodeView], lines: Sequence[Line]) -> Iterator[Problem]:
    """Yield data and software whose provisioning failed: the cluster forms, but jobs that need them are refused."""
    for node, line in _find_latest(nodes, lines):
        if line.state == _FAILED:
            reason = line.reason or Reason(line.detail)
            cause = str(replace(reason, remedy=""))
            yield Problem(f"{line.provision} on {node.name or node.instance_id}", cause, reason.remedy)


def _find_latest(nodes: Sequence[NodeView], lines: Sequence[Line]) -> Iterator[tuple[NodeView, Line]]:
    latest = {(line.node, line.provision): line for line in lines if line.provision}
    for node in nodes:
        if not node.is_gone:
            yield from ((node, line) for (name, _), line in latest.items() if name == node.instance_id)
