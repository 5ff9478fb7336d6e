"""Looks at what is acknowledged in a stack: nothing but the rules of the library's table, for their reasons."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console

from deeplearning_cdk.security.acknowledged_rules import ACKNOWLEDGED_RULES, AcknowledgedRule
from tests.gates.assembly import Assembly
from tests.gates.finding import Finding

ACKNOWLEDGED = "acknowledged"

_TABLE = "constructs/deeplearning_cdk/security/acknowledged_rules.py"
_ZONE_OF_THE_USER = "CloudFormation Validate::W3010"
"""The CDK's own `Vpc` acknowledges that a zone is written out, where its user has named one."""
# The places in a resource's metadata where tools look for what they shall not say.
_SILENCERS = frozenset({"cfn-lint", "cfn_nag", "guard", "cfn-guard"})


def look_at_acknowledgements(assembly: Assembly) -> list[Finding]:
    """Return what is acknowledged that is not in the table, or for another reason."""
    return [
        Finding(
            gate=ACKNOWLEDGED,
            preset=assembly.preset,
            rule=found,
            place=place,
            what="only the rules of the table may be acknowledged, for its reasons; mend the finding",
            more=_TABLE,
        )
        for found, reason, place in list_acknowledged(assembly)
        if ((rule := _rule_of(found)) is None or rule.reason != reason)
        and not (found == _ZONE_OF_THE_USER and "network.availability_zone" in assembly.context)
    ]


def list_acknowledged(assembly: Assembly) -> Iterator[tuple[str, str, str]]:
    """Yield the id, the reason and the place of everything that is acknowledged in a stack."""
    for pack, report in assembly.reports.items():
        for violation in report.get("suppressedViolations", []):
            for construct in violation["violatingConstructs"]:
                yield f"{pack}::{violation['ruleName']}", violation["reason"], construct["constructPath"]
    for logical_id, resource in assembly.template["Resources"].items():
        metadata: dict[str, Any] = resource.get("Metadata", {})
        for skip in metadata.get("checkov", {}).get("skip", []):
            yield skip["id"], skip["comment"], assembly.place(logical_id)
        for suppressed in metadata.get("cdk_nag", {}).get("rules_to_suppress", []):
            pack = suppressed["id"].partition("-")[0]
            yield f"{pack}::{suppressed['id']}", suppressed["reason"], assembly.place(logical_id)
        for silencer in _SILENCERS & set(metadata):
            yield silencer, "", assembly.place(logical_id)


def name_rule(found: str) -> str | None:
    """Return the name in the table of a rule that a tool calls by this id, or None."""
    pack, _, ruled = found.rpartition("::") if not found.endswith("]") else found.partition("::")
    bare = ruled.partition("[")[0].removeprefix(f"{pack}-")
    for name, rule in ACKNOWLEDGED_RULES.items():
        if found in rule.checkov_ids or (pack in rule.nag_ids and rule.nag_ids[pack] == bare):
            return name
    return None


def show_acknowledged(console: Console, assemblies: Sequence[Assembly]) -> None:
    """Print what is acknowledged, why, and at how many places."""
    found = {(name_rule(found), place) for each in assemblies for found, _, place in list_acknowledged(each)}
    places = Counter(name for name, _ in found)
    console.print(f"\nacknowledged: {len(ACKNOWLEDGED_RULES)} rules, with reasons in {_TABLE}", highlight=False)
    for name in ACKNOWLEDGED_RULES:
        console.print(f"  {name}: {places[name]} places", highlight=False)


def _rule_of(found: str) -> AcknowledgedRule | None:
    name = name_rule(found)
    return None if name is None else ACKNOWLEDGED_RULES[name]
