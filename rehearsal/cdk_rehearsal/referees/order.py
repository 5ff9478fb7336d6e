"""
Dependencies that CloudFormation does not see: without them it may create a resource before what the resource uses.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-dependson.html
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate

_SOURCE = "https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-attribute-dependson.html"
_NOT_ATTACHED = "the gateway is not attached to the VPC before"
_NO_RIGHTS = "its role lacks rights before"


class _Race(NamedTuple):
    """A resource that may be created before another one, and why it should not."""

    name: str
    other: str
    reason: str


def judge_order(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield what may be created before something that it uses, for lack of a dependency."""
    races: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, other, reason in _list_races(template):
        races[name, reason].append(other)
    for (name, reason), others in races.items():
        rule = f"must wait for {', '.join(others)}, because {reason}"
        remedy = f"add {'it' if len(others) == 1 else 'them'} to its DependsOn"
        own, *paths = dict.fromkeys(template.find_construct(each).rpartition("/")[0] for each in (name, *others))
        if own and all(paths):
            remedy += f", or let {own} call node.add_dependency with {', '.join(paths)} in the app"
        yield Violation(f"Resources.{name}.DependsOn", "", rule, _SOURCE, remedy)


def find_usual_order(template: Mapping[str, Any], region: str) -> Mapping[str, frozenset[str]]:
    """Return which resources come before others when nothing goes wrong, though the template does not say so."""
    resolved = ResolvedTemplate(template, region)
    found: dict[str, set[str]] = defaultdict(set)
    for name, other, _ in (*_list_races(resolved), *_judge_flow_logs(resolved)):
        if name not in resolved.find_needs(other):
            found[name].add(other)
    return {name: frozenset(others) for name, others in found.items()}


def _list_races(template: ResolvedTemplate) -> Iterator[_Race]:
    yield from _judge_gateways(template)
    yield from _judge_groups(template)
    yield from _judge_functions(template)


def _judge_gateways(template: ResolvedTemplate) -> Iterator[_Race]:
    attachments = {
        name: (template.list_references(name, "InternetGatewayId"), template.list_references(name, "VpcId"))
        for name, properties in template.list_type("AWS::EC2::VPCGatewayAttachment")
        if "InternetGatewayId" in properties
    }
    for name, _ in template.list_type("AWS::EC2::Route"):
        for attachment, (gateway, _) in attachments.items():
            if gateway & template.list_references(name, "GatewayId"):
                yield from _require(template, name, attachment, _NOT_ATTACHED)
    for name, _ in template.list_type("AWS::EC2::EIP", "AWS::EC2::EIPAssociation"):
        instances = template.list_references(name, "InstanceId")
        parts = {part for each in instances for part in template.list_references(each)}
        vpc = {found for part in parts for found in template.list_references(part, "VpcId")}
        for attachment, (_, attached) in attachments.items():
            if vpc & attached:
                yield from _require(template, name, attachment, _NOT_ATTACHED)
    for name, properties in template.list_type("AWS::EC2::NatGateway"):
        subnets = template.list_references(name, "SubnetId")
        vpc = {found for subnet in subnets for found in template.list_references(subnet, "VpcId")}
        for attachment, (_, attached) in attachments.items():
            if properties.get("ConnectivityType") != "private" and vpc & attached:
                yield from _require(template, name, attachment, _NOT_ATTACHED)


def _judge_groups(template: ResolvedTemplate) -> Iterator[_Race]:
    """Yield groups before their routes, where the stack waits for signals of the instances."""
    handles = {name for name, _ in template.list_type("AWS::CloudFormation::WaitConditionHandle")}
    for name, _ in template.list_type("AWS::AutoScaling::AutoScalingGroup"):
        if handles & template.find_needs(name) or "CreationPolicy" in template.resources[name]:
            for route in sorted(_find_routes(template, template.list_references(name, "VPCZoneIdentifier"))):
                yield from _require(template, name, route, "its instances have no way out of their subnets before")


def _judge_functions(template: ResolvedTemplate) -> Iterator[_Race]:
    """Yield functions before the policies of their roles; those that only custom resources call may wait less long."""
    for name, _ in template.list_type("AWS::Lambda::Function"):
        callers = _list_callers(template, name)
        for policy in _find_policies(template, template.list_references(name, "Role")):
            if not callers or not all(policy in template.find_needs(each) for each in callers):
                yield from _require(template, name, policy, _NO_RIGHTS)


def _judge_flow_logs(template: ResolvedTemplate) -> Iterator[_Race]:
    """Yield flow logs before the policies of their roles: AWS delivers later, and the rehearsal at once."""
    for name, _ in template.list_type("AWS::EC2::FlowLog"):
        for policy in _find_policies(template, template.list_references(name, "DeliverLogsPermissionArn")):
            yield from _require(template, name, policy, _NO_RIGHTS)


def _find_policies(template: ResolvedTemplate, roles: set[str]) -> Iterator[str]:
    """Yield the policies of roles that are resources of their own."""
    for policy, _ in template.list_type("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        if roles & (template.list_references(policy, "Roles") | template.list_references(policy, "RoleName")):
            yield policy


def _list_callers(template: ResolvedTemplate, function: str) -> list[str]:
    """Return the custom resources that call a function; none where a service may call it too."""
    others = ("AWS::Lambda::Permission", "AWS::Lambda::EventSourceMapping")
    if any(function in template.list_references(name, "FunctionName") for name, _ in template.list_type(*others)):
        return []
    return [name for name in template.resources if function in template.list_references(name, "ServiceToken")]


def _find_routes(template: ResolvedTemplate, subnets: set[str]) -> set[str]:
    """Return what a way out of some subnets consists of: associations with route tables, and routes in these."""
    associations = {
        name
        for name, _ in template.list_type("AWS::EC2::SubnetRouteTableAssociation")
        if template.list_references(name, "SubnetId") & subnets
    }
    tables = {table for name in associations for table in template.list_references(name, "RouteTableId")}
    routes = {
        name
        for name, _ in template.list_type("AWS::EC2::Route")
        if template.list_references(name, "RouteTableId") & tables
    }
    return associations | routes


def _require(template: ResolvedTemplate, name: str, other: str, reason: str) -> Iterator[_Race]:
    if other not in template.find_needs(name):
        yield _Race(name, other, reason)
