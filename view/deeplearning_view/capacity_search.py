"""
Search for capacity: the candidate that the cluster has or asks, those that gave too little, and what follows.

The adjuster's record of the search is an item beside the state record, which ends it. This module reads of it only what
a page needs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Literal

from deeplearning_contract.cluster_state import CapacityAttempt, ClusterState, Phase
from deeplearning_contract.document import ContractError, parse_record
from deeplearning_contract.names import FIRST_CANDIDATE, ROLE_TAG, NodeRole
from deeplearning_view.aws_responses import SEARCH_VARIABLES, AwsResponses, Record, read_candidate, read_tags
from deeplearning_view.log_lines import clean
from deeplearning_view.view import AttemptView, CapacityView

_RESERVED_ONLY = "capacity-reservations-only"
_IS_OVER = "the search is over"


@dataclass(frozen=True)
class _Rest:
    until: int


@dataclass(frozen=True)
class _SearchRecord:
    candidate: str
    stage: Literal["asking", "leaving", "resting"]
    began: int
    since: int = 0
    attempts: tuple[CapacityAttempt, ...] = ()
    resting: Mapping[str, _Rest] = field(default_factory=dict)


@dataclass(frozen=True)
class _Plan:
    """Candidates in order, and the seconds of each and of all; no candidate where the settings were not read."""

    order: tuple[str, ...] = ()
    patience: int = 0
    search: int = 0


def read_capacity(
    responses: AwsResponses, state: ClusterState | None, now: datetime
) -> tuple[CapacityView | None, str]:
    """
    Return the candidate that a cluster has or asks, or None with the reason why its record could not be read.

    None without a reason is a cluster without further candidates, or one whose search has not begun.
    """
    plan = _read_plan(responses.search_settings)
    if state is not None:
        return (_describe_verdict(responses, state, plan) if state.candidate else None), ""
    if responses.search is None:
        return None, ""
    try:
        record = parse_record(_SearchRecord, responses.search.get("document", {}).get("S", ""), "search")
    except ContractError as error:
        return None, f"the record of the search for capacity: {error}"
    known = CapacityView(
        stage=record.stage,
        candidate=clean(record.candidate),
        words=_name_candidate(responses, record.candidate, record.attempts),
        position=_find_position(plan, record.candidate),
        count=len(plan.order),
        attempts=tuple(map(_show_attempt, record.attempts)),
    )
    describe = {"asking": _describe_asking, "leaving": _describe_leaving, "resting": _describe_resting}
    return describe[record.stage](responses, known, record, plan, now), ""


def name_groups(responses: AwsResponses) -> dict[str, str]:
    """Return the words of each group's candidate by the group's name; none for a cluster with one candidate."""
    tags = _read_candidates(responses)
    return {name: _name_candidate(responses, tag) for name, tag in tags.items()} if len({*tags.values()}) > 1 else {}


def find_left_groups(responses: AwsResponses, capacity: CapacityView | None) -> frozenset[str]:
    """Return the groups that the adjuster is emptying, whose launches it has suspended until they are empty."""
    if capacity is None or capacity.stage != "leaving":
        return frozenset()
    return frozenset(
        name for name, tag in _read_candidates(responses).items() if capacity.candidate in ("", clean(tag))
    )


def find_refused_groups(responses: AwsResponses, capacity: CapacityView | None) -> frozenset[str]:
    """Return the groups of other candidates than the one that the cluster has or asks."""
    if capacity is None or capacity.stage not in ("asking", "found"):
        return frozenset()
    return frozenset(name for name, tag in _read_candidates(responses).items() if clean(tag) != capacity.candidate)


def _describe_verdict(responses: AwsResponses, state: ClusterState, plan: _Plan) -> CapacityView:
    is_none = state.phase is Phase.FAILED and not state.expected
    return CapacityView(
        stage="none" if is_none else "found",
        candidate=clean(state.candidate),
        words=_name_candidate(responses, state.candidate, state.attempts),
        position=_find_position(plan, state.candidate),
        count=len(plan.order),
        launched=max(0, len(state.expected) - 1),
        requested=max(0, state.requested - 1),
        attempts=tuple(map(_show_attempt, state.attempts)),
    )


def _describe_asking(
    responses: AwsResponses, known: CapacityView, record: _SearchRecord, plan: _Plan, _now: datetime
) -> CapacityView:
    launched, requested = _count_workers(responses, record.candidate)
    asking = replace(known, launched=launched, requested=requested, since=_show_time(record.since))
    if not record.since or not plan.order:
        return asking
    end = min(record.since + plan.patience, record.began + plan.search)
    others = [name for name in _rotate(plan, record.candidate) if name != record.candidate]
    then = _foresee(responses, record, plan, others, end) or "every other candidate rests"
    return replace(asking, until=_show_time(end), then=then)


def _describe_leaving(
    responses: AwsResponses, known: CapacityView, record: _SearchRecord, plan: _Plan, now: datetime
) -> CapacityView:
    left = find_left_groups(responses, known)
    groups = (group for group in responses.groups if group["AutoScalingGroupName"] in left)
    return replace(
        known,
        launched=sum(len(group.get("Instances", ())) for group in groups),
        since=known.attempts[-1].ended if known.attempts else "",
        then=(_follow(responses, record, plan, now.timestamp()) or "every candidate rests") if plan.order else "",
    )


def _describe_resting(
    responses: AwsResponses, known: CapacityView, record: _SearchRecord, plan: _Plan, now: datetime
) -> CapacityView:
    since = known.attempts[-1].ended if known.attempts else ""
    if not plan.order:
        return replace(known, since=since)
    end = max(now.timestamp(), _end_rest(record, plan))
    return replace(known, since=since, until=_show_time(math.ceil(end)), then=_follow(responses, record, plan, end))


def _follow(responses: AwsResponses, record: _SearchRecord, plan: _Plan, at: float) -> str:
    """Return what the adjuster does next at a time; empty while every candidate rests."""
    is_late = max(at, _end_rest(record, plan)) > _find_last_moment(record, plan)
    following = _foresee(responses, record, plan, _rotate(plan, record.candidate), at)
    return following or (_IS_OVER if is_late else "")


def _foresee(responses: AwsResponses, record: _SearchRecord, plan: _Plan, order: Sequence[str], at: float) -> str:
    """Return the first candidate of an order that does not rest at a time; empty without one."""
    if at > _find_last_moment(record, plan):
        return _IS_OVER
    rested = (name for name in order if _find_rest_end(record, name) <= at)
    return next((_name_candidate(responses, name, record.attempts) for name in rested), "")


def _rotate(plan: _Plan, candidate: str) -> Sequence[str]:
    """Return the order from the candidate after this one on, in which the adjuster looks for the next."""
    place = _find_position(plan, candidate)
    return (*plan.order[place:], *plan.order[:place])


def _find_rest_end(record: _SearchRecord, candidate: str) -> int:
    rest = record.resting.get(candidate)
    return rest.until if rest else 0


def _end_rest(record: _SearchRecord, plan: _Plan) -> int:
    """Return the time from which the first candidate has rested, in seconds since the epoch."""
    return min((_find_rest_end(record, name) for name in plan.order), default=0)


def _find_last_moment(record: _SearchRecord, plan: _Plan) -> int:
    """Return the last time at which a candidate is asked, in seconds since the epoch: it needs all of its patience."""
    return record.began + plan.search - plan.patience


def _read_plan(settings: Mapping[str, str]) -> _Plan:
    try:
        candidates, patience, search = (settings[name] for name in SEARCH_VARIABLES)
        order = tuple(name.strip() or FIRST_CANDIDATE for name in candidates.split(","))
        return _Plan(order, int(patience), int(search))
    except (KeyError, ValueError):
        return _Plan()


def _find_position(plan: _Plan, candidate: str) -> int:
    """Return the place of a candidate from 1; 0 when the settings have it no longer, or were not read."""
    return plan.order.index(candidate) + 1 if candidate in plan.order else 0


def _read_candidates(responses: AwsResponses) -> dict[str, str]:
    """Return the candidate of each group by its name."""
    return {str(group["AutoScalingGroupName"]): read_candidate(group) for group in responses.groups}


def _find_workers(responses: AwsResponses, candidate: str) -> Record | None:
    for group in responses.groups:
        if read_tags(group).get(ROLE_TAG) == NodeRole.WORKER.value and read_candidate(group) == candidate:
            return group
    return None


def _name_candidate(responses: AwsResponses, candidate: str, attempts: Sequence[CapacityAttempt] = ()) -> str:
    """Return the type, zone and purchase of a candidate from its group of workers, or the adjuster's words."""
    group = _find_workers(responses, candidate)
    template = responses.templates.get(str(group["AutoScalingGroupName"]), {}) if group else {}
    if group and (instance_type := str(template.get("InstanceType", ""))):
        zones = ", ".join(map(str, group.get("AvailabilityZones", ())))
        market = str(template.get("InstanceMarketOptions", {}).get("MarketType", ""))
        preference = str(group.get("CapacityReservationSpecification", {}).get("CapacityReservationPreference", ""))
        reserved = "reserved" if preference == _RESERVED_ONLY else ""
        return ", ".join(filter(None, (f"{instance_type} in {zones}" if zones else instance_type, market or reserved)))
    told = next((each.words for each in reversed(attempts) if each.candidate == candidate), "")
    return clean(told or candidate) or "every candidate"


def _count_workers(responses: AwsResponses, candidate: str) -> tuple[int, int]:
    """Return the workers that are in service and healthy, as the adjuster counts them, and the requested ones."""
    group = _find_workers(responses, candidate)
    if group is None:
        return 0, 0
    states = [(entry["LifecycleState"], entry.get("HealthStatus", "Healthy")) for entry in group.get("Instances", ())]
    return states.count(("InService", "Healthy")), int(group["DesiredCapacity"])


def _show_attempt(attempt: CapacityAttempt) -> AttemptView:
    return AttemptView(
        candidate=clean(attempt.candidate),
        words=clean(attempt.words),
        launched=attempt.launched,
        requested=attempt.requested,
        kind=clean(attempt.kind),
        began=_show_time(attempt.began),
        ended=_show_time(attempt.ended),
    )


def _show_time(seconds: int) -> str:
    """Return a time, UTC; empty for none, and for one that no calendar has."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="seconds") if seconds else ""
    except (OverflowError, ValueError, OSError):
        return ""
