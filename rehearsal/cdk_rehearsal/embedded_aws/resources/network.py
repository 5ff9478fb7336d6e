"""Creates VPCs and what is in them."""

import ipaddress
import json
from dataclasses import replace
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import Simple, is_true, specify_tags

_LONGEST_PREFIX = 28
"""Of a subnet; moto fails on longer ones (VPC user guide, "Subnet sizing for IPv4")."""

_PROTOCOLS = ("-1", "tcp", "udp", "icmp", "icmpv6")
"""Names of protocols (EC2 API, `IpPermission`); others have their number, up to 255."""
_LAST_PROTOCOL = 255


def _canonical(block: Any) -> str:
    """Return a block without host bits, which EC2 takes and removes (EC2 API, `CreateSubnet`)."""
    return str(ipaddress.ip_network(str(block), strict=False))


def _create_vpc(creation: Creation) -> Created:
    ec2 = creation.client("ec2")
    properties = creation.properties
    request = properties.select("InstanceTenancy") | specify_tags(creation, "vpc")
    vpc = ec2.create_vpc(CidrBlock=_canonical(properties["CidrBlock"]), **request)["Vpc"]
    for name in ("EnableDnsSupport", "EnableDnsHostnames"):
        if name in properties:
            ec2.modify_vpc_attribute(VpcId=vpc["VpcId"], **{name: {"Value": is_true(properties[name])}})
    here = [{"Name": "vpc-id", "Values": [vpc["VpcId"]]}]
    groups = ec2.describe_security_groups(Filters=[*here, {"Name": "group-name", "Values": ["default"]}])
    acls = ec2.describe_network_acls(Filters=[*here, {"Name": "default", "Values": ["true"]}])
    return Created(
        vpc["VpcId"],
        {
            "VpcId": vpc["VpcId"],
            "CidrBlock": vpc["CidrBlock"],
            "DefaultSecurityGroup": groups["SecurityGroups"][0]["GroupId"],
            "DefaultNetworkAcl": acls["NetworkAcls"][0]["NetworkAclId"],
        },
        delete=partial(_delete_vpc, ec2, vpc["VpcId"]),
    )


def _delete_vpc(ec2: Any, vpc: str) -> None:
    # moto refuses for subnets and route tables, and takes any group away.
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc]}])["SecurityGroups"]
    if any(group["GroupName"] != "default" for group in groups):
        raise _depends("DeleteVpc", f"vpc '{vpc}'")
    ec2.delete_vpc(VpcId=vpc)


def _delete_subnet(ec2: Any, subnet: str) -> None:
    # moto takes a subnet away whatever is in it, and leaves the interfaces of terminated instances there.
    ended = ec2.describe_instances(Filters=[{"Name": "instance-state-name", "Values": ["terminated"]}])["Reservations"]
    gone = {instance["InstanceId"] for entry in ended for instance in entry["Instances"]}
    here = ec2.describe_network_interfaces(Filters=[{"Name": "subnet-id", "Values": [subnet]}])["NetworkInterfaces"]
    if any(interface.get("Attachment", {}).get("InstanceId") not in gone for interface in here):
        raise _depends("DeleteSubnet", f"subnet '{subnet}'")
    ec2.delete_subnet(SubnetId=subnet)


def _delete_nat_gateway(ec2: Any, gateway: str) -> None:
    addresses = ec2.describe_nat_gateways(NatGatewayIds=[gateway])["NatGateways"][0]["NatGatewayAddresses"]
    ec2.delete_nat_gateway(NatGatewayId=gateway)
    for address in addresses:  # moto leaves the interface in the subnet
        ec2.delete_network_interface(NetworkInterfaceId=address["NetworkInterfaceId"])


def _depends(operation: str, what: str) -> ClientError:
    """Return the error of EC2 for what something else still uses."""
    message = f"The {what} has dependencies and cannot be deleted."
    return ClientError({"Error": {"Code": "DependencyViolation", "Message": message}}, operation)


def _create_subnet(creation: Creation) -> Created:
    ec2 = creation.client("ec2")
    block = _canonical(creation.properties["CidrBlock"])
    if int(block.rpartition("/")[2]) > _LONGEST_PREFIX:
        message = f"The CIDR '{block}' is invalid."
        raise ClientError({"Error": {"Code": "InvalidSubnet.Range", "Message": message}}, "CreateSubnet")
    request = creation.properties.select("VpcId", "AvailabilityZone", "AvailabilityZoneId")
    subnet = ec2.create_subnet(CidrBlock=block, **request, **specify_tags(creation, "subnet"))["Subnet"]
    if "MapPublicIpOnLaunch" in creation.properties:
        value = {"Value": is_true(creation.properties["MapPublicIpOnLaunch"])}
        ec2.modify_subnet_attribute(SubnetId=subnet["SubnetId"], MapPublicIpOnLaunch=value)
    names = ("SubnetId", "AvailabilityZone", "CidrBlock", "VpcId")
    delete = partial(_delete_subnet, ec2, subnet["SubnetId"])
    return Created(subnet["SubnetId"], {name: subnet[name] for name in names}, delete=delete)


def _create_route(creation: Creation) -> Created:
    """Create a route; the error for an internet gateway that is not attached yet is that of aws/aws-cdk issue 1140."""
    ec2, properties = creation.client("ec2"), creation.properties
    table, gateway = str(properties["RouteTableId"]), str(properties.get("GatewayId", ""))
    vpc = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]["VpcId"]
    if gateway.startswith("igw-") and gateway not in _list_gateways(creation, vpc):
        message = f"route table {table} and network gateway {gateway} belong to different networks"
        raise ClientError({"Error": {"Code": "InvalidParameterValue", "Message": message}}, "CreateRoute")
    ec2.create_route(**properties.select("RouteTableId", "DestinationCidrBlock", "GatewayId", "NatGatewayId"))
    return Created(f"{table}|{properties['DestinationCidrBlock']}")


def _create_nat_gateway(creation: Creation) -> Created:
    """Create a NAT gateway; the failure without an internet gateway is that of giantswarm/aws-operator pull 1234."""
    create = Simple("ec2", "create_nat_gateway", id="{NatGatewayId}", tagged="natgateway", delete=_delete_nat_gateway)
    created = create(creation)
    is_public = creation.properties.get("ConnectivityType") != "private"
    if is_public and not _list_gateways(creation, vpc := str(created.attributes["VpcId"])):
        reason = (
            f"NatGateway {created.physical_id} is in state failed and hence failed to stabilize. "
            f"Detailed failure message: Network {vpc} has no Internet gateway attached"
        )
        return replace(created, settle=lambda: Outcome(reason))
    return created


def _create_address(creation: Creation) -> Created:
    """Allocate an Elastic IP address, and associate it with an instance if the template names one."""
    ec2, request = creation.client("ec2"), creation.properties.select("Domain")
    address = ec2.allocate_address(**request, **specify_tags(creation, "elastic-ip"))
    if instance := creation.properties.get("InstanceId"):
        _associate(creation, address["AllocationId"], InstanceId=instance)
    names = ("AllocationId", "PublicIp")
    return Created(address["PublicIp"], {name: address[name] for name in names})


def _create_address_association(creation: Creation) -> Created:
    request = creation.properties.select("InstanceId", "NetworkInterfaceId")
    identity = _associate(creation, creation.properties["AllocationId"], **request)
    delete = partial(creation.client("ec2").disassociate_address, AssociationId=identity)
    return Created(identity, {"Id": identity}, delete=delete)


def _associate(creation: Creation, allocation: str, **target: str) -> str:
    """
    Associate an address, and return the association's id.

    Words for a VPC without an internet gateway: hashicorp/terraform-provider-aws pull 2181; why a template must wait
    for the gateway: template reference, "AWS::EC2::EIP".
    """
    ec2 = creation.client("ec2")
    vpc = _find_network(ec2, **target)
    if not _list_gateways(creation, vpc):
        message = f"Network {vpc} is not attached to any internet gateway"
        raise ClientError({"Error": {"Code": "Gateway.NotAttached", "Message": message}}, "AssociateAddress")
    return str(ec2.associate_address(AllocationId=allocation, **target)["AssociationId"])


def _find_network(ec2: Any, **target: str) -> str:
    if instance := target.get("InstanceId"):
        (reservation,) = ec2.describe_instances(InstanceIds=[instance])["Reservations"]
        return str(reservation["Instances"][0]["VpcId"])
    answer = ec2.describe_network_interfaces(NetworkInterfaceIds=[target["NetworkInterfaceId"]])
    return str(answer["NetworkInterfaces"][0]["VpcId"])


def _list_gateways(creation: Creation, vpc: str) -> set[str]:
    """Return the internet gateways that are attached to a VPC."""
    attached = [{"Name": "attachment.vpc-id", "Values": [vpc]}]
    answer = creation.client("ec2").describe_internet_gateways(Filters=attached)
    return {entry["InternetGatewayId"] for entry in answer["InternetGateways"]}


def _create_security_group(creation: Creation) -> Created:
    ec2 = creation.client("ec2")
    properties = creation.properties
    if "VpcId" in properties:
        # moto makes a group in a VPC that does not exist; this refuses it.
        ec2.describe_vpcs(VpcIds=[properties["VpcId"]])
    group = ec2.create_security_group(
        GroupName=properties.get("GroupName") or creation.name(255),
        Description=properties["GroupDescription"],
        **properties.select("VpcId"),
        **specify_tags(creation, "security-group"),
    )["GroupId"]
    for rule in properties.get("SecurityGroupIngress", []):
        ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[_permission(rule, "Source")])
    egress = properties.get("SecurityGroupEgress", [])
    if egress:
        everything = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ec2.revoke_security_group_egress(GroupId=group, IpPermissions=[everything])
    for rule in egress:
        ec2.authorize_security_group_egress(GroupId=group, IpPermissions=[_permission(rule, "Destination")])
    attributes = {"GroupId": group, "VpcId": properties.get("VpcId", "")}
    return Created(group, attributes, delete=partial(ec2.delete_security_group, GroupId=group))


def _create_rule(direction: str, peer: str, creation: Creation) -> Created:
    authorize = getattr(creation.client("ec2"), f"authorize_security_group_{direction}")
    authorize(GroupId=creation.properties["GroupId"], IpPermissions=[_permission(creation.properties, peer)])
    return Created(creation.logical_id)


def _permission(rule: Any, peer: str) -> dict[str, Any]:
    protocol = str(rule["IpProtocol"])
    if protocol.lower() not in _PROTOCOLS and not (protocol.isdecimal() and int(protocol) <= _LAST_PROTOCOL):
        message = f"Invalid value '{protocol}' for IP protocol. Unknown protocol."
        raise ClientError({"Error": {"Code": "InvalidParameterValue", "Message": message}}, "AuthorizeSecurityGroup")
    permission: dict[str, Any] = {"IpProtocol": protocol}
    for name in ("FromPort", "ToPort"):
        if name in rule:
            permission[name] = int(rule[name])
    described = {"Description": rule["Description"]} if "Description" in rule else {}
    if "CidrIp" in rule:
        permission["IpRanges"] = [{"CidrIp": rule["CidrIp"], **described}]
    elif "CidrIpv6" in rule:
        permission["Ipv6Ranges"] = [{"CidrIpv6": rule["CidrIpv6"], **described}]
    else:
        permission["UserIdGroupPairs"] = [{"GroupId": rule[f"{peer}SecurityGroupId"], **described}]
    return permission


def _deliver_flows(creation: Creation, role_arn: str, log_group: str) -> None:
    """Check the calls of the delivery by its role (VPC user guide, "IAM role for publishing flow logs")."""
    service = Principal("other", "", "vpc-flow-logs", role_arn)
    stream = {"logGroupName": log_group, "logStreamName": "eni-00000000-all"}
    for operation in ("logs.DescribeLogStreams", "logs.CreateLogStream", "logs.PutLogEvents"):
        creation.services.authorizer.check_call(service, operation, stream)


def _create_flow_log(creation: Creation) -> Created:
    properties = creation.properties
    request = properties.select(
        "ResourceType", "TrafficType", "LogDestinationType", "LogGroupName", "DeliverLogsPermissionArn"
    )
    answer = creation.client("ec2").create_flow_logs(ResourceIds=[properties["ResourceId"]], **request)
    if answer.get("Unsuccessful"):
        raise RuntimeError(answer["Unsuccessful"][0]["Error"]["Message"])
    if "DeliverLogsPermissionArn" in properties:
        _deliver_flows(creation, properties["DeliverLogsPermissionArn"], properties["LogGroupName"])
    return Created(answer["FlowLogIds"][0], {"Id": answer["FlowLogIds"][0]})


CREATORS: dict[str, Creator] = {
    "AWS::EC2::VPC": _create_vpc,
    "AWS::EC2::Subnet": _create_subnet,
    "AWS::EC2::RouteTable": Simple(
        "ec2", "create_route_table", id="{RouteTableId}", tagged="route-table", delete="delete_route_table"
    ),
    "AWS::EC2::SubnetRouteTableAssociation": Simple(
        "ec2", "associate_route_table", id="{AssociationId}", delete="disassociate_route_table"
    ),
    "AWS::EC2::Route": _create_route,
    "AWS::EC2::InternetGateway": Simple(
        "ec2", "create_internet_gateway", id="{InternetGatewayId}", tagged="internet-gateway"
    ),
    "AWS::EC2::VPCGatewayAttachment": Simple("ec2", "attach_internet_gateway", id="IGW|{VpcId}"),
    "AWS::EC2::EIP": _create_address,
    "AWS::EC2::EIPAssociation": _create_address_association,
    "AWS::EC2::NatGateway": _create_nat_gateway,
    "AWS::EC2::VPCEndpoint": Simple(
        "ec2",
        "create_vpc_endpoint",
        id="{VpcEndpointId}",
        renamed={"Id": "VpcEndpointId"},
        tagged="vpc-endpoint",
        convert={"PrivateDnsEnabled": is_true, "PolicyDocument": json.dumps},
        delete=lambda ec2, endpoint: ec2.delete_vpc_endpoints(VpcEndpointIds=[endpoint]),
    ),
    "AWS::EC2::SecurityGroup": _create_security_group,
    "AWS::EC2::SecurityGroupIngress": partial(_create_rule, "ingress", "Source"),
    "AWS::EC2::SecurityGroupEgress": partial(_create_rule, "egress", "Destination"),
    "AWS::EC2::FlowLog": _create_flow_log,
}
