"""
Search for capacity among candidates: its record, and each step from one candidate to the next.

One candidate is asked at a time; the order is that of the settings. The record is an item beside the state record:

    (none) ── the stack's request is applied ──> asking ── refused, or its patience is over ──> leaving
    leaving ── nothing is left ──> asking the next that does not rest, or resting while all do, or the search is over

A verdict in the state record ends the search; the record then only names the candidate that the cluster has. The policy
is pure.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from capacity_adjuster.policy.candidate_content import CandidateContent, find_zones, read_content
from capacity_adjuster.policy.shrink_record import LONGEST_LEASE_SECONDS
from deeplearning_contract.cluster_state import CapacityAttempt
from deeplearning_contract.launch_failures import Scope
from deeplearning_contract.names import FIRST_CANDIDATE
from deeplearning_contract.reason import Reason

REST_SECONDS = 180
"""Rest of a candidate after its first refusal, doubled with each further one."""
LONGEST_REST_SECONDS = 900
_MOST_ATTEMPTS = 16
_MOST_ZONES = 4


class Stage(str, Enum):
    """Stage of the search."""

    ASKING = "asking"
    LEAVING = "leaving"
    RESTING = "resting"


@dataclass(frozen=True)
class Refusal:
    """Launches of a candidate that give too few nodes."""

    scope: Scope  # Candidates that they rule out
    kind: str  # Kind of the failed launch
    launched: int  # Workers that launched
    requested: int  # Requested workers
    message: str = ""  # Auto Scaling's status message; empty without a failed launch
    zone: str = ""  # Zone of the failed launch; empty when unknown


@dataclass(frozen=True)
class Rest:
    """Time in which a candidate is not asked again."""

    until: int  # In seconds since the epoch
    seconds: int  # Length of its last rest for a refusal of its own; 0 for that of another of its quota


@dataclass(frozen=True)
class CandidateSearch:
    """Record of the search."""

    revision: int  # Counts every write; the compare-and-set condition
    candidate: str  # Value of the candidate tag; empty for every candidate
    stage: Stage
    began: int  # Begin of the search in seconds since the epoch
    since: int = 0  # Time from which its patience counts, in seconds since the epoch; 0 until its request is applied
    asked: int = 0  # Number of candidates that were asked before, which tells the rounds apart
    # During a verdict or a departure, the time after which its invocation is certainly over, in seconds since the
    # epoch; else 0
    lease_until: int = 0
    attempts: tuple[CapacityAttempt, ...] = ()  # Refused candidates, the newest last
    resting: Mapping[str, Rest] = field(default_factory=dict)  # Candidate -> its rest
    # Group -> processes that leaving it suspends, and must resume
    processes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    named: tuple[str, ...] = ()  # Zones that EC2 named in its refusals

    def is_held(self, now: float) -> bool:
        """Return whether an invocation that may be alive works on it."""
        return now < self.lease_until <= now + LONGEST_LEASE_SECONDS

    def count_from(self, now: int) -> "CandidateSearch":
        """Return the next revision, with the patience counted from now."""
        return replace(self, revision=self.revision + 1, since=now)

    def hold(self, lease_until: int) -> "CandidateSearch":
        """Return the next revision, with the lease of an invocation."""
        return replace(self, revision=self.revision + 1, lease_until=lease_until)

    def leave(self, refusal: Refusal, contents: Mapping[str, CandidateContent], now: int) -> "CandidateSearch":
        """
        Return the next revision, which leaves the refused candidate, without lease and processes.

        `contents` has the candidates in order; the refused one is in it unless an update has removed it.
        """
        content = contents.get(self.candidate) or read_content(self.candidate)
        content = replace(content, zone=content.zone or refusal.zone)
        attempt = CapacityAttempt(
            candidate=self.candidate,
            words=content.words,
            launched=refusal.launched,
            requested=refusal.requested,
            kind=refusal.kind,
            began=self.since or now,
            ended=now,
        )
        zones = dict.fromkeys((*self.named, *find_zones(refusal.message)))
        return replace(
            self,
            revision=self.revision + 1,
            stage=Stage.LEAVING,
            attempts=(*self.attempts, attempt)[-_MOST_ATTEMPTS:],
            resting=self._rest(content, refusal.scope, contents, now),
            named=tuple(zone for zone in zones if zone != content.zone)[:_MOST_ZONES],
        )

    def ask_next(
        self, order: Sequence[str], now: int, *, patience_seconds: int, search_seconds: int
    ) -> "CandidateSearch | None":
        """
        Return the next revision, which asks the next candidate, or rests while all do; None once the search is over.

        A candidate is asked only while there is time for all of its patience.
        """
        latest = self.began + search_seconds - patience_seconds
        place = order.index(self.candidate) + 1 if self.candidate in order else 0
        ready = (name for name in (*order[place:], *order[:place]) if self._count_rest(name, now) <= 0)
        following = replace(self, revision=self.revision + 1, since=0, lease_until=0, processes={})
        if now <= latest and (name := next(ready, None)) is not None:
            return replace(following, candidate=name, stage=Stage.ASKING, asked=self.asked + 1)
        earliest = now + min(self._count_rest(name, now) for name in order)
        return None if max(now, earliest) > latest else replace(following, stage=Stage.RESTING)

    def end_patience(self, patience_seconds: int, search_seconds: int) -> float:
        """Return the time at which the candidate must have given enough; infinite before it was asked."""
        if not self.since:
            return math.inf
        return min(self.since + patience_seconds, self.began + search_seconds)

    def count_tried(self) -> int:
        """Return the number of candidates that were asked."""
        return len({self.candidate, *(attempt.candidate for attempt in self.attempts)})

    def _count_rest(self, candidate: str, now: int) -> int:
        rest = self.resting.get(candidate)
        return rest.until - now if rest else 0

    def _rest(
        self, content: CandidateContent, scope: Scope, contents: Mapping[str, CandidateContent], now: int
    ) -> Mapping[str, Rest]:
        last = self.resting.get(self.candidate)
        seconds = min(LONGEST_REST_SECONDS, 2 * last.seconds) if last and last.seconds else REST_SECONDS
        rests = {**self.resting, self.candidate: Rest(now + seconds, seconds)}
        if scope is Scope.QUOTA:
            for name, other in contents.items():
                if name != self.candidate and other.shares_quota(content):
                    before = self.resting.get(name, Rest(0, 0))
                    rests[name] = replace(before, until=max(before.until, now + seconds))
        return {name: rest for name, rest in rests.items() if name in contents}


BLANK_SEARCH = CandidateSearch(0, "", Stage.LEAVING, began=0)
"""Replacement of an unreadable record, which leaves every candidate."""


def explain_search(search: CandidateSearch, minimum: int, now: float) -> Reason:
    """Return the reason of a search that is over: what each candidate gave, with the zones that EC2 named."""
    last = {attempt.candidate: attempt for attempt in search.attempts}
    given = "; ".join(f"{each.words}: {each.kind}, {each.launched} of {each.requested}" for each in last.values())
    minutes = round((now - search.began) / 60)
    named = [zone for zone in search.named if not any(zone in each.words for each in last.values())]
    return Reason(
        f"no candidate gave at least {max(1, minimum)} workers in {minutes} min: {given}",
        (f"EC2 names {', '.join(named)}; " if named else "")
        + "try again later, add a candidate to workers.fallbacks, or reserve capacity",
    )


def list_order(candidates: str) -> tuple[str, ...]:
    """Return the candidates in order from the setting; none without further ones."""
    return tuple(name.strip() or FIRST_CANDIDATE for name in candidates.split(",")) if candidates else ()


def list_contents(order: Sequence[str], first: str) -> Mapping[str, CandidateContent]:
    """Return the content of each candidate in order; `first` names that of the first."""
    return {name: read_content(first if name == FIRST_CANDIDATE else name) for name in order}
