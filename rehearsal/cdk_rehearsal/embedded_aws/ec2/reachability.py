"""What a subnet and security groups let through, as far as a service looks at it."""

from collections.abc import Mapping, Sequence
from typing import Any

ANY = "-1"
"""Every protocol (EC2 API reference, IpPermission)."""


def find_ways_out(ec2: Any, subnet_id: str, vpc: str) -> list[str]:
    """Return the gateways that a subnet's route table leads to beyond the VPC; a gateway endpoint of S3 is one."""

    def list_tables(name: str, values: Sequence[str]) -> list[Any]:
        tables: list[Any] = ec2.describe_route_tables(Filters=[{"Name": name, "Values": values}])["RouteTables"]
        return tables

    tables = list_tables("association.subnet-id", [subnet_id])
    if not tables:
        main = [
            table for table in list_tables("vpc-id", [vpc]) if any(entry["Main"] for entry in table["Associations"])
        ]
        tables = main[:1]
    ids = {table["RouteTableId"] for table in tables}
    routes = [route for table in tables for route in table["Routes"]]
    ways = [str(route.get("GatewayId") or route.get("NatGatewayId") or "") for route in routes]
    endpoints = ec2.describe_vpc_endpoints(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["VpcEndpoints"]
    ways += [each["VpcEndpointId"] for each in endpoints if ids & set(each.get("RouteTableIds", []))]
    return [way for way in ways if way and way != "local"]


def opens(rule: Mapping[str, Any], port: int, source: str) -> bool:
    """Return whether an inbound rule opens a port to a security group."""
    is_port = rule["IpProtocol"] == ANY or rule.get("FromPort", 0) <= port <= rule.get("ToPort", 0)
    return is_port and any(pair["GroupId"] == source for pair in rule.get("UserIdGroupPairs", []))
