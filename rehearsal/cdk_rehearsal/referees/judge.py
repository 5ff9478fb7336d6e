"""All referees together, before anything is deployed."""

import contextlib
import hashlib
import ipaddress
import json
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from cdk_rehearsal.assembly import AssemblyStack
from cdk_rehearsal.cache import require_cache
from cdk_rehearsal.errors import RefusedError, UnsupportedError
from cdk_rehearsal.intrinsics import find_references
from cdk_rehearsal.referees.finding import ORDER, Violation
from cdk_rehearsal.referees.order import judge_order
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, bind, get_map, show
from cdk_rehearsal.referees.resource_support import find_gaps
from cdk_rehearsal.referees.rules import RULES, judge_parameters
from cdk_rehearsal.referees.service_models import judge_calls
from cdk_rehearsal.referees.validation_engine import end_engine, judge_with_engine

_LOCAL_ZONE = re.compile(r"[a-z-]+-[0-9]-[a-z]{3}-[0-9][a-z]")
"""Name of a Local Zone, such as `us-west-2-lax-1a` (AWS Local Zones user guide)."""
JUDGES = (judge_calls, judge_order, *RULES)


@dataclass(frozen=True)
class Acceptance:
    """
    Findings that are no obstacle to a rehearsal.

    Attributes:
        races: Findings that fail some orders of creation alone; the rehearsal takes the usual order.
        accepted: Findings that the user accepts, each with the user's reason.
    """

    races: tuple[str, ...] = ()
    accepted: tuple[str, ...] = ()


def require_acceptance(
    stacks: Sequence[AssemblyStack],
    cache: Path,
    parameters: Mapping[str, str] | None = None,
    accept: Mapping[str, str] | None = None,
) -> Acceptance:
    """
    Hold the templates of stacks and of their nested stacks against all rules, and report the time that it took.

    The cache remembers templates without a finding, so that the next rehearsal of the same templates takes no time.

    Args:
        stacks: The stacks.
        cache: Folder of the cache.
        parameters: Values of parameters. Default: those of the templates.
        accept: Name of a rule -> reason why its findings are no obstacle. Default: none.

    Raises:
        RefusedError: AWS would refuse one; the error lists every finding.
        UnsupportedError: The rehearsal does not implement all of them; the error lists that, and every finding.
        UnavailableError: This process may not write into the cache.
    """
    begin = time.monotonic()
    require_cache(cache)
    templates = {name: template for stack in stacks for name, template in _list_templates(stack)}
    constructs = {name: stack.constructs for stack in stacks for name, _ in _list_templates(stack)}
    region, values = stacks[0].region, parameters or {}
    count = sum(len(template.get("Resources", {})) for template in templates.values())
    clean = cache / "accepted" / _digest(templates, region, values)
    if clean.exists():
        sys.stderr.write(f"referees: {count} resources without a finding, as before\n")
        return Acceptance()
    found = {name: judge_template(each, region, values, constructs[name]) for name, each in templates.items()}
    end_engine()
    acceptance = _sort(
        found, [gap for each in templates.values() for gap in find_gaps(each, values, region)], accept or {}
    )
    if any(found.values()):
        for race in acceptance.races:
            sys.stderr.write(f"may fail, depending on the order of creation: {race}\n")
        return acceptance
    clean.parent.mkdir(exist_ok=True)
    clean.touch()
    sys.stderr.write(f"referees: {count} resources without a finding in {time.monotonic() - begin:.1f} s\n")
    return acceptance


def _sort(found: Mapping[str, Sequence[Violation]], gaps: Sequence[str], accept: Mapping[str, str]) -> Acceptance:
    """Sort findings by their weight; raise the error of those that are an obstacle."""
    prefixed = [(f"{name}: " if len(found) > 1 else "", each) for name, listed in found.items() for each in listed]
    refused = [f"{name}{each}" for name, each in prefixed if each.name not in {ORDER, *accept}]
    if gaps:
        raise UnsupportedError(gaps, refused)
    if refused:
        raise RefusedError(refused)
    return Acceptance(
        races=tuple(f"{name}{each}" for name, each in prefixed if each.name == ORDER and ORDER not in accept),
        accepted=tuple(f"{name}{each}: {accept[each.name]}" for name, each in prefixed if each.name in accept),
    )


def _list_templates(stack: AssemblyStack) -> Iterator[tuple[str, Mapping[str, Any]]]:
    yield stack.name, stack.template
    yield from ((f"{stack.name}, {file}", template) for file, template in stack.nested.items())


def _digest(templates: Mapping[str, Any], region: str, parameters: Mapping[str, str]) -> str:
    """Return a digest of all that a verdict depends on: what is judged, and by which rules."""
    judged = [list(templates.values()), region, dict(parameters)]
    rules = [metadata.version(package) for package in ("cfn-lint", "boto3", "cdk-preflight")]
    rules += [path.read_text() for path in sorted(Path(__file__).parent.glob("*.*"))]
    return hashlib.sha256(json.dumps([judged, rules], sort_keys=True).encode()).hexdigest()


def judge_template(
    template: Mapping[str, Any],
    region: str,
    parameters: Mapping[str, str],
    constructs: Mapping[str, str] | None = None,
) -> tuple[Violation, ...]:
    """
    Return what AWS would refuse of a template, in the order of the paths: of each path all that one referee finds.

    Args:
        template: As `cdk synth` wrote it.
        region: Where it is to be deployed.
        parameters: Values of the template's parameters in place of their defaults.
        constructs: Logical id -> path of the construct in the app. Default: none is known.
    """
    template = bind(template, parameters)
    found: dict[str, list[Violation]] = {}
    with ThreadPoolExecutor() as pool:  # AWS's engine is another process, which works while cfn-lint does
        judging = pool.submit(_judge_resolved, template, region, constructs)
        _add(found, (each for each in _lint(template, region) if not _is_taken(template, each)))
    resolved = None
    try:
        resolved, judged = judging.result()
        for findings in judged:
            _add(found, findings)
    except (KeyError, IndexError, TypeError, AttributeError):
        if not found:  # else cfn-lint has named what is malformed
            raise
    return tuple(
        replace(each, construct=resolved.find_construct(path.split(".")[1])) if resolved and "." in path else each
        for path in sorted(found)
        for each in found[path]
    )


def _judge_resolved(
    template: Mapping[str, Any], region: str, constructs: Mapping[str, str] | None
) -> tuple[ResolvedTemplate, list[list[Violation]]]:
    """Return the template with what each referee but cfn-lint finds."""
    resolved = ResolvedTemplate(template, region, constructs)
    judged = [[replace(each, name="parameters") for each in judge_parameters(template)]]
    for judge in JUDGES:
        name = judge.__name__.removeprefix("judge_").replace("_", "-")
        judged.append([replace(each, name=name) for each in judge(resolved)])
    engine = judge_with_engine(resolved)
    judged.append([each for each in engine if not _is_taken(template, each) and not _is_ignored(template, each)])
    return resolved, judged


def _add(found: dict[str, list[Violation]], findings: Iterable[Violation]) -> None:
    """Add the findings of one referee, for paths at which those before it have found nothing."""
    own: dict[str, list[Violation]] = {}
    for each in findings:
        if each.path not in found and each not in own.setdefault(each.path, []):
            own[each.path].append(each)
    found.update(own)


def _lint(template: Mapping[str, Any], region: str) -> Iterator[Violation]:
    """Yield the errors of cfn-lint; what it warns of, AWS takes."""
    # It takes a second to import, which commands that judge nothing need not wait for.
    from cdk_rehearsal.referees.lint import lint_template  # noqa: PLC0415

    for match in lint_template(template, regions=[region]):
        path = [str(key) for key in match.path or ()]
        value = _find(template, path)
        if match.rule.id.startswith("E"):
            text = show(value) if isinstance(value, (str, int, float)) else ""
            source = f"cfn-lint {match.rule.id}, {match.rule.source_url}".rstrip(", ")
            yield Violation(".".join(path), text, match.message, source, name=match.rule.id)


def _is_taken(template: Mapping[str, Any], found: Violation) -> bool:
    """Return whether AWS takes what other referees name an error."""
    value = _find(template, found.path.split("."))
    if "is not a 'ipv4-network'" in found.rule:  # EC2 removes the host bits of a block (EC2 API, CreateSubnet)
        with contextlib.suppress(ValueError):
            return bool(ipaddress.ip_network(str(value), strict=False))
    if found.name in ("E3680", "pf-elbv2-alb-subnet-count"):
        return _has_local_zone(template, value)
    # gp3 has up to 80,000 IOPS (EC2 API, EbsBlockDevice), which `judge_volumes` checks.
    return "maximum of 16000" in found.rule


def _is_ignored(template: Mapping[str, Any], found: Violation) -> bool:
    """Return whether a directive of cfn-lint names the rule, whose number AWS's engine has too."""
    places = (template, get_map(template, *found.path.split(".")[:2]))
    ignored = [
        each for place in places for each in get_map(place, "Metadata", "cfn-lint", "config").get("ignore_checks", [])
    ]
    return found.name[1:] in [str(each)[1:] for each in ignored]


def _has_local_zone(template: Mapping[str, Any], subnets: Any) -> bool:
    """
    Return whether the subnets of a load balancer may be one in a Local Zone, where one is enough.

    "You can specify subnets from one or more Local Zones" (Elastic Load Balancing API, CreateLoadBalancer). The zone of
    a subnet that the template does not create is not known.
    """
    names = [name for name, _ in find_references(subnets)]
    zones = [get_map(template, "Resources", name, "Properties").get("AvailabilityZone") for name in names]
    return not names or any(isinstance(zone, str) and _LOCAL_ZONE.fullmatch(zone) for zone in zones)


def _find(value: Any, path: list[str]) -> Any:
    """Return the value at a path; None where it leads into a text, such as a schedule."""
    for key in path:
        if isinstance(value, Mapping):
            value = value.get(key)
        elif isinstance(value, list) and key.isdigit():
            value = value[int(key)]
        else:
            return None
    return value
