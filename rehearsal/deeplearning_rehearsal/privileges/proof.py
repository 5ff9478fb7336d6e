"""Proof by the recorded calls of several rehearsals that each grant of a cluster's roles is needed."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.embedded_aws.access.authorizer import RIGHTS_FILE
from cdk_rehearsal.errors import UnavailableError
from cdk_rehearsal.iam.call_record import RecordedCall
from deeplearning_rehearsal.privileges.grants import Grant, count_allowed, expand_roles, find_needed
from deeplearning_rehearsal.privileges.must_deny import CallOutcome, judge_forbidden_calls
from deeplearning_rehearsal.privileges.rights import Rights


@dataclass
class Proof:
    """
    The proof in both directions.

    Attributes:
        recorded: Number of recorded calls, each as often as it was made.
        allowed: Those of them that the policies allow.
        grants: Every grant of every rehearsed stack; for each case that fails without it, a call that is denied then.
        denials: Calls that were denied in a rehearsal, by case.
    """

    recorded: int = 0
    allowed: int = 0
    distinct: list[dict[str, Any]] = field(default_factory=list)
    grants: dict[Grant, dict[str, str]] = field(default_factory=dict)
    verdicts: list[CallOutcome] = field(default_factory=list)
    denials: dict[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def unused(self) -> list[Grant]:
        """Grants that no recorded call needs."""
        return sorted(grant for grant, cases in self.grants.items() if not cases)

    @property
    def is_complete(self) -> bool:
        """True if every call is allowed, every grant is needed, and every forbidden call is denied."""
        is_denied = all(not verdict.decision.is_allowed for verdict in self.verdicts)
        return self.recorded == self.allowed > 0 and not self.unused and is_denied and bool(self.verdicts)

    def to_document(self) -> dict[str, Any]:
        """Return the JSON object."""
        denied = [verdict for verdict in self.verdicts if not verdict.decision.is_allowed]
        return {
            "complete": self.is_complete,
            "recorded": self.recorded,
            "allowed": self.allowed,
            "unused": [str(grant) for grant in self.unused],
            "must_deny": len(self.verdicts),
            "denied": len(denied),
            "wrongly_allowed": [f"{v.role}: {v.call.name}" for v in self.verdicts if v.decision.is_allowed],
            "denied_in_rehearsals": dict(self.denials),
            "grants": [{**vars(grant), "cases": cases} for grant, cases in sorted(self.grants.items())],
            "forbidden": [
                {"call": v.call.name, "role": v.role, "action": v.call.action, "why": v.call.reason}
                for v in self.verdicts
            ],
            "calls": self.distinct,
        }


def prove(folders: Iterable[Path]) -> Proof:
    """Merge the records in the folders of several rehearsals; UnavailableError when one left none."""
    proof = Proof()
    for folder in folders:
        file = folder / RIGHTS_FILE
        if not file.is_file():
            raise UnavailableError(f"each case must leave {RIGHTS_FILE}, got none in {folder}; rehearse it again")
        _merge(proof, json.loads(file.read_text(encoding="utf-8")))
    return proof


def _merge(proof: Proof, document: Mapping[str, Any]) -> None:
    rights = Rights(*(document[name] for name in ("account", "region", "roles", "resources", "names", "boundaries")))
    calls = {RecordedCall.from_document(entry): int(entry["count"]) for entry in document["calls"]}
    held = expand_roles(rights)
    needed = find_needed(rights, held, calls)
    case = document["case"] or "default"
    for grant in held:
        cases = proof.grants.setdefault(grant.grant, {})
        if (call := needed.get(grant.grant)) is not None:
            cases[case] = rights.shorten(f"{call.action} on {call.resource}")
    proof.recorded += sum(calls.values()) + document["left_out"]
    proof.allowed += count_allowed(rights, held, calls)
    proof.distinct += [
        {"case": case, "kind": c.kind, "action": c.action, "resource": rights.shorten(c.resource), "count": count}
        for c, count in calls.items()
    ]
    if document["denials"]:
        proof.denials[case] = document["denials"]
    proof.verdicts += judge_forbidden_calls(rights)


def render_proof(proof: Proof) -> str:
    """Render a table for a terminal: what each grant is needed for, then what does not hold."""
    lines = [f"{grant}\n    {', '.join(cases) or 'NEEDED BY NOTHING'}" for grant, cases in sorted(proof.grants.items())]
    wrong = [f"{v.role} may {v.call.name}: {v.call.reason}" for v in proof.verdicts if v.decision.is_allowed]
    denied = len(proof.verdicts) - len(wrong)
    return "\n".join(
        [
            *lines,
            "",
            f"recorded   {proof.recorded} calls, of which the policies allow {proof.allowed}",
            f"grants     {len(proof.grants)}, of which {len(proof.unused)} are needed by nothing",
            f"forbidden  {len(proof.verdicts)} calls, of which {denied} are denied",
            *(f"UNUSED     {grant}" for grant in proof.unused),
            *(f"ALLOWED    {text}" for text in wrong),
            *(f"DENIED     in {case}: {text}" for case, said in proof.denials.items() for text in said.values()),
        ]
    )
