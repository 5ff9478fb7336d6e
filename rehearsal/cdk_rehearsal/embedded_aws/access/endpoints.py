"""
Endpoints of a VPC, and the policies that decide the calls that go through them.

AWS PrivateLink guide: a gateway endpoint takes the calls of the subnets whose route table names it, an interface
endpoint with private DNS those of its whole VPC.
"""

from collections.abc import Iterator
from typing import Any

from moto.ec2.models import ec2_backends

from cdk_rehearsal.errors import PolicyError
from cdk_rehearsal.iam.limits import Document
from cdk_rehearsal.iam.policy import read_policy_text
from cdk_rehearsal.place import Place

_SUFFIXES = {"cloudwatch": "monitoring", "tag": "tagging", "ecr": "ecr.dkr"}
"""Last part of an endpoint's service where it is not the prefix of its actions."""
_LOGIN = "ecr:GetAuthorizationToken"
_MOUNTS = "elasticfilesystem:Client"
"""Rights of mounts, which take the mount target."""


def find_instance_subnet(place: Place, instance_id: str) -> str:
    """Return the subnet of an EC2 instance; empty when there is no such instance."""
    instances = list(ec2_backends[place.account][place.region].all_instances())
    return next((str(instance.subnet_id or "") for instance in instances if instance.id == instance_id), "")


def find_endpoint_policy(place: Place, subnet: str, action: str) -> Document | None:
    """
    Return the policy of the endpoint through which a call from a subnet goes; None where it takes another way.

    Raises:
        PolicyError: AWS refuses the policy, or its Principal at a gateway endpoint.
    """
    endpoint = _find_endpoint(place, subnet, action)
    if endpoint is None:
        return None
    statements = read_policy_text(endpoint.policy_document, "resource")
    if _is_gateway(endpoint):
        for statement in statements:
            names = {match.name for match in statement.principals or ()}
            if names != {"*"} or statement.excludes_principals:
                raise PolicyError(
                    f"Principal of a gateway endpoint's policy must be *, got {sorted(names)} in {endpoint.id}; name "
                    "roles by the condition key aws:PrincipalArn"
                )
    return Document(endpoint.id, statements)


def _find_endpoint(place: Place, subnet_id: str, action: str) -> Any:
    if action.startswith(_MOUNTS):
        return None
    backend = ec2_backends[place.account][place.region]
    vpc = backend.get_subnet(subnet_id).vpc_id
    prefix = action.partition(":")[0]
    suffix = "ecr.api" if action == _LOGIN else _SUFFIXES.get(prefix, prefix)
    endpoints = [
        each
        for each in list(backend.vpc_end_points.values())
        if each.vpc_id == vpc and str(each.service_name).endswith(f".{place.region}.{suffix}")
    ]
    tables = set(_list_tables(backend, subnet_id, vpc))
    gateways = (each for each in endpoints if _is_gateway(each) and tables & set(each.route_table_ids or ()))
    private = (each for each in endpoints if not _is_gateway(each) and _is_private(each))
    return next(gateways, None) or next(private, None)


def _list_tables(backend: Any, subnet_id: str, vpc: str) -> Iterator[str]:
    """Yield the route table of a subnet: its own, or else the VPC's main one."""
    tables = [table for table in list(backend.route_tables.values()) if table.vpc_id == vpc]
    own = [table for table in tables if any(each.get("SubnetId") == subnet_id for each in table.associations)]
    yield from (table.id for table in own or [table for table in tables if table.main_association_id])


def _is_gateway(endpoint: Any) -> bool:
    return str(endpoint.vpc_endpoint_type or "Gateway").lower() == "gateway"


def _is_private(endpoint: Any) -> bool:
    return str(endpoint.private_dns_enabled).lower() == "true"
