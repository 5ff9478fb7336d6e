"""Routes and security groups of a VPC, and the connections that they let through."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import Any

_ANY = "-1"
_ALL_PORTS = (1, 65535)


def find_ways_out(ec2: Any, subnet_id: str, vpc: str) -> list[str]:
    """Return the gateways that a subnet's route table leads to beyond the VPC; a gateway endpoint of S3 is one."""
    tables = _find_tables(ec2, subnet_id, vpc)
    routes = [route for table in tables for route in table["Routes"]]
    ways = [str(route.get("GatewayId") or route.get("NatGatewayId") or "") for route in routes]
    ways += [each["VpcEndpointId"] for each in _list_gateway_endpoints(ec2, vpc, tables)]
    return [way for way in ways if way and way != "local"]


def reaches_s3(ec2: Any, subnet_id: str, vpc: str) -> bool:
    """Return whether an instance without a public address gets to S3 from a subnet: by its endpoint, or by NAT."""
    endpoints = _list_gateway_endpoints(ec2, vpc, _find_tables(ec2, subnet_id, vpc))
    if any(str(each["ServiceName"]).endswith(".s3") for each in endpoints):
        return True
    return any(way.startswith("nat-") for way in find_ways_out(ec2, subnet_id, vpc))


def opens(rule: Mapping[str, Any], port: int, source: str) -> bool:
    """Return whether an inbound rule opens a port to a security group."""
    return _covers(rule, (port, port)) and any(pair["GroupId"] == source for pair in rule.get("UserIdGroupPairs", []))


def lets_through(
    ec2: Any, sources: Collection[str], targets: Collection[str], blocks: Sequence[str], port: int
) -> bool:
    """
    Return whether interfaces with groups `sources` reach a TCP port (0: all) of interfaces with groups `targets`.

    `blocks` are the IPv4 blocks of all these interfaces, for rules that name addresses. The groups of each side add up.
    """
    return lets_connect(ec2, (sources, blocks), (targets, blocks), port)


def lets_connect(
    ec2: Any,
    source: tuple[Collection[str], Sequence[str]],
    target: tuple[Collection[str], Sequence[str]],
    port: int,
) -> bool:
    """
    Return whether interfaces reach a TCP port (0: all) of others, each given with their groups and IPv4 blocks.

    A source without groups, such as a Network Load Balancer that has none, is not held back itself.
    """
    ports = (port, port) if port else _ALL_PORTS
    (sources, source_blocks), (targets, target_blocks) = source, target
    outbound = _list_rules(ec2, sources, "IpPermissionsEgress") if sources else ()
    if sources and not any(_covers(rule, ports) and _meets(rule, targets, target_blocks) for rule in outbound):
        return False
    inbound = _list_rules(ec2, targets, "IpPermissions") if targets else ()
    return any(_covers(rule, ports) and _meets(rule, sources, source_blocks) for rule in inbound)


def lets_out(ec2: Any, groups: Collection[str], port: int) -> bool:
    """Return whether groups let a TCP port out to the addresses of AWS's services, by address or prefix list."""
    rules = [rule for rule in _list_rules(ec2, groups, "IpPermissionsEgress") if _covers(rule, (port, port))]
    return any(_meets(rule, (), ["0.0.0.0/0"]) or rule.get("PrefixListIds") for rule in rules)


def _find_tables(ec2: Any, subnet_id: str, vpc: str) -> list[Any]:
    """Return the route table of a subnet: its own, or else the VPC's main one."""

    def list_tables(name: str, values: Sequence[str]) -> list[Any]:
        tables: list[Any] = ec2.describe_route_tables(Filters=[{"Name": name, "Values": values}])["RouteTables"]
        return tables

    if tables := list_tables("association.subnet-id", [subnet_id]):
        return tables
    return [table for table in list_tables("vpc-id", [vpc]) if any(entry["Main"] for entry in table["Associations"])][
        :1
    ]


def _list_gateway_endpoints(ec2: Any, vpc: str, tables: Sequence[Mapping[str, Any]]) -> list[Any]:
    ids = {table["RouteTableId"] for table in tables}
    endpoints = ec2.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["VpcEndpoints"]
    return [each for each in endpoints if ids & set(each.get("RouteTableIds", []))]


def _list_rules(ec2: Any, groups: Collection[str], direction: str) -> Iterator[Mapping[str, Any]]:
    for group in ec2.describe_security_groups(GroupIds=list(groups))["SecurityGroups"]:
        yield from group.get(direction, [])


def _covers(rule: Mapping[str, Any], ports: tuple[int, int]) -> bool:
    if rule["IpProtocol"] == _ANY:
        return True
    lowest, highest = rule.get("FromPort", 0), rule.get("ToPort", 0)
    return str(rule["IpProtocol"]) in ("tcp", "6") and bool(lowest <= ports[0] and ports[1] <= highest)


def _meets(rule: Mapping[str, Any], groups: Collection[str], blocks: Sequence[str]) -> bool:
    """Return whether the other side of a rule is one of the groups, or has all of the blocks."""
    if any(pair["GroupId"] in groups for pair in rule.get("UserIdGroupPairs", [])):
        return True
    ranges = [IPv4Network(entry["CidrIp"]) for entry in rule.get("IpRanges", [])]
    return all(any(IPv4Network(block).subnet_of(each) for each in ranges) for block in blocks) if blocks else False
