"""Gates over stacks that run in this process: cdk-nag, the CDK's validator, cfn-lint and the referees."""

from cdk_rehearsal.referees.judge import judge_template
from cdk_rehearsal.referees.lint import lint_template
from tests.gates.assembly import Assembly
from tests.gates.finding import Finding

NAG, VALIDATOR, LINT, REFEREES = "cdk-nag", "CDK validator", "cfn-lint", "referees"

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
    matches = lint_template(assembly.template, regions=[_REGION], include_checks=["I"], ignore_checks=ignored)
    return [
        Finding(
            gate=LINT,
            preset=assembly.preset,
            rule=match.rule.id,
            place=assembly.locate([str(part) for part in match.path or []]),
            what=match.message,
            more=match.rule.source_url,
        )
        for match in matches
    ]


def judge(assembly: Assembly) -> list[Finding]:
    """Return what the referees of the rehearsal find."""
    return [
        Finding(
            gate=REFEREES,
            preset=assembly.preset,
            rule=finding.rule,
            place=assembly.locate(finding.path.replace(".Properties", "").split(".")),
            what=str(finding),
            more=finding.source,
        )
        for finding in judge_template(assembly.template, _REGION, {})
    ]
