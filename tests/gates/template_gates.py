"""Gates over stacks that run in this process: cdk-nag, the CDK's validator, cfn-lint, the referees and cfn-guard."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cfn_guard_rs.cfn_guard_rs import run_checks_rs
from cfnlint import api as cfnlint
from cfnlint.config import ManualArgs

from cdk_rehearsal.referees.judge import judge_template
from tests.gates.assembly import Assembly
from tests.gates.finding import Finding

NAG, VALIDATOR, LINT, REFEREES, GUARD = "cdk-nag", "CDK validator", "cfn-lint", "referees", "cfn-guard"

RULES = Path(__file__).parent / "rules"
_REGION = "us-east-1"
_NAG_PACKS = frozenset({"AwsSolutions", "NIST.800.53.R5", "HIPAA.Security", "PCI.DSS.321"})
_NAG_RULES = "https://github.com/cdklabs/cdk-nag/blob/main/RULES.md"
_VALIDATOR_RULES = "https://docs.aws.amazon.com/cdk/v2/guide/policy-validation-synthesis.html"
# It is about how people write templates: CDK writes Fn::Join wherever two texts meet.
_LINT_FORM = ["I1022"]
_LINT_REPEATED = ["W3005"]
"""The CDK lists among the dependencies of a resource what its properties refer to as well; both give the same order."""
_LINT_ZONE = ["W3010"]
"""A zone that a user names stands in the template as it was named: a reservation of capacity lies in one zone."""
# What decides whether the rest is looked at at all; to fail there is no finding.
_GUARD_CONDITIONS = frozenset({"RuleCondition", "TypeCondition", "WhenCondition", "BlockCondition", "Filter"})


def look_with_cdk(assembly: Assembly) -> list[Finding]:
    """Return what the packs of cdk-nag and the CDK's validator reported, warnings too."""
    return [
        Finding(
            gate=NAG if pack in _NAG_PACKS else VALIDATOR,
            preset=assembly.preset,
            rule=violation["ruleName"],
            place=construct["constructPath"],
            what=violation["description"],
            more=_NAG_RULES if pack in _NAG_PACKS else _VALIDATOR_RULES,
        )
        for pack, report in assembly.reports.items()
        for violation in report["violations"]
        for construct in violation["violatingConstructs"]
    ]


def lint(assembly: Assembly) -> list[Finding]:
    """Return what cfn-lint finds, of every severity."""
    ignored = _LINT_FORM + _LINT_REPEATED + (_LINT_ZONE if "network.availability_zone" in assembly.context else [])
    config = ManualArgs(regions=[_REGION], include_checks=["I"], ignore_checks=ignored)
    return [
        Finding(
            gate=LINT,
            preset=assembly.preset,
            rule=match.rule.id,
            place=_place_of(assembly, [str(part) for part in match.path or []]),
            what=match.message,
            more=match.rule.source_url,
        )
        for match in cfnlint.lint(json.dumps(assembly.template), config=config)
    ]


def judge(assembly: Assembly) -> list[Finding]:
    """Return what the referees of the rehearsal find."""
    return [
        Finding(
            gate=REFEREES,
            preset=assembly.preset,
            rule=finding.rule,
            place=_place_of(assembly, finding.path.replace(".Properties", "").split(".")),
            what=str(finding),
            more=finding.source,
        )
        for finding in judge_template(assembly.template, _REGION, {})
    ]


def guard(assembly: Assembly) -> list[Finding]:
    """Return which of our own promises in `rules` a template breaks."""
    files = sorted(RULES.glob("*.guard"))
    if "encryption_key" in assembly.context:
        files += sorted((RULES / "customer_key").glob("*.guard"))
    template = json.dumps(assembly.template)
    return [finding for file in files for finding in _guard_with(assembly, template, file)]


def _guard_with(assembly: Assembly, template: str, file: Path) -> Iterator[Finding]:
    # The short form of the report is cut off when a value in it is long.
    report = json.loads(run_checks_rs(template, file.read_text(), verbose=True))
    for rule in report["children"]:
        for check in _failed(rule):
            path = str(_find(check, "path") or "").strip("/").split("/")
            yield Finding(
                gate=GUARD,
                preset=assembly.preset,
                rule=rule["context"],
                place=_place_of(assembly, path),
                what=str(_find(check, "custom_message")),
                more=f"tests/gates/rules/{file.relative_to(RULES)}",
            )


def _failed(node: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the clauses because of which a rule fails; a clause may fail inside an alternative that does not matter."""
    ((kind, content),) = node["container"].items()
    if kind in _GUARD_CONDITIONS:
        return
    if kind == "ClauseValueCheck":
        if content != "Success":
            yield content
    elif _status(content) == "FAIL":
        for child in node["children"]:
            yield from _failed(child)


def _status(content: Any) -> str:
    if isinstance(content, str):
        return content
    return str(content.get("status") or _status(content["block"]))


def _find(node: Any, name: str) -> Any:
    """Return the first value of a name in a report's clause that is not empty."""
    if isinstance(node, dict):
        if node.get(name):
            return node[name]
        node = list(node.values())
    if isinstance(node, list):
        return next((found for found in (_find(item, name) for item in node) if found), None)
    return None


def _place_of(assembly: Assembly, path: list[str]) -> str:
    """Return the construct that a path in the template is in, and the rest of the path."""
    if len(path) < 2 or path[0] != "Resources":
        return "/".join(path) or assembly.preset
    return " ".join([assembly.place(path[1]), ".".join(path[2:])]).strip()
