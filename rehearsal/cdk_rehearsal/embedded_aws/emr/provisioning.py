"""
Provisions the instances of a cluster as EMR does: with the rights of its service role.

The calls are those that both of AWS's policies for the role allow, `AmazonEMRServicePolicy_v2` and
`AmazonElasticMapReduceRole` (Amazon EMR Management Guide, "Service role for Amazon EMR"). Which of the Describe calls
EMR makes for a cluster is documented nowhere, so all of them must be allowed. It launches uniform instance groups by
RunInstances, as refusals of launches without `iam:PassRole` show.
"""

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdk_rehearsal.embedded_aws.access.gatekeeper import Gatekeeper
from cdk_rehearsal.embedded_aws.access.principals import Principal
from cdk_rehearsal.embedded_aws.ec2.launcher import LaunchOrder
from cdk_rehearsal.embedded_aws.emr.cluster import Cluster, ClusterInstance, InstanceGroup
from cdk_rehearsal.embedded_aws.place import Place

EMR = "elasticmapreduce.amazonaws.com"
DEFAULT_ROOT_GIB = 15
"""Root volume of releases from 6.10.0 on (Management Guide, "Customizing the Amazon EBS root device volume")."""
_ROOT_DEVICE = "/dev/xvda"
_READS = (
    *("DescribeAccountAttributes", "DescribeDhcpOptions", "DescribeImages", "DescribeInstances", "DescribeNetworkAcls"),
    *("DescribeRouteTables", "DescribeSecurityGroups", "DescribeSubnets", "DescribeVolumes", "DescribeVolumeStatus"),
    *("DescribeVpcEndpoints", "DescribeVpcs"),
)
_SERVICE_PORT = 9443
_ANY = "-1"
Call = tuple[str, Mapping[str, Any]]


class Provisioner:
    """Judges the requests of clusters and orders their instances."""

    def __init__(self, place: Place, gatekeeper: Gatekeeper) -> None:
        self._place = place
        self._gatekeeper = gatekeeper

    def find_obstacle(self, cluster: Cluster) -> str:
        """Return why EMR terminates a new cluster before it launches anything; empty where it does not."""
        role = self.service_role(cluster)
        if not self._gatekeeper.trusts(role, EMR, cluster.arn):
            return f"EMR service role {role} is invalid"
        if not self._gatekeeper.trusts(self.instance_role(cluster), "ec2.amazonaws.com"):
            return f"Failed to authorize instance profile {cluster.request['JobFlowRole']}."
        return self._find_network_obstacle(cluster) or self.find_denial(cluster, self._list_calls(cluster))

    def find_denial(self, cluster: Cluster, calls: Iterator[Call]) -> str:
        """Return which of EMR's calls the service role may not make, in EMR's words; empty where it may make all."""
        role = self.service_role(cluster)
        caller = Principal("other", "", "EMR", role)
        for operation, parameters in calls:
            if denial := self._gatekeeper.check_call(caller, operation, parameters):
                said = f"You are not authorized to perform this operation. {denial.message}"
                return f"Service role {role} has insufficient EC2 permissions. EC2 Message: {said}"
        return ""

    def service_role(self, cluster: Cluster) -> str:
        """Return the ARN of the service role; requests name it or give its ARN."""
        role = str(cluster.request["ServiceRole"])
        return self._gatekeeper.state.find_role(role) or role

    def instance_role(self, cluster: Cluster) -> str:
        """Return the ARN of the role of the instance profile."""
        return self._gatekeeper.state.find_profile_role(str(cluster.request["JobFlowRole"]))

    def order_instance(self, cluster: Cluster, group: InstanceGroup, image_id: str, user_data: str) -> LaunchOrder:
        """Return the order for an instance of a group."""
        settings, request = cluster.settings, cluster.request
        data = {
            "ImageId": image_id,
            "InstanceType": group.instance_type,
            "SecurityGroupIds": list_security_groups(cluster, group),
            "IamInstanceProfile": {"Name": str(request["JobFlowRole"]).rpartition("/")[2]},
            "UserData": base64.b64encode(user_data.encode()).decode(),
            "KeyName": settings.get("Ec2KeyName", ""),
            "BlockDeviceMappings": [{"DeviceName": _ROOT_DEVICE, "Ebs": {"VolumeSize": root_gib(request)}}],
        }
        return LaunchOrder(
            name=f"{cluster.name} {group.role}",
            data=data,
            subnet_ids=[settings["Ec2SubnetId"]],
            tags=tag_instance(cluster, group),
            login_user="hadoop",
            parts=frozenset({"emr"}),
        )

    def _list_calls(self, cluster: Cluster) -> Iterator[Call]:
        settings = cluster.settings
        yield from ((f"ec2.{name}", {}) for name in _READS)
        yield "ec2.DescribeVpcAttribute", {"VpcId": self._find_vpc(cluster)}
        # EMR adds the rules that are missing; whether it tries those that are there is documented nowhere.
        for name in ("EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup"):
            yield "ec2.AuthorizeSecurityGroupIngress", {"GroupId": settings[name]}
            yield "ec2.AuthorizeSecurityGroupEgress", {"GroupId": settings[name]}
        yield "iam.PassRole", {"RoleArn": self.instance_role(cluster), "PassedToService": "ec2.amazonaws.com"}
        for group in cluster.groups:
            launch = {
                "ImageId": cluster.request.get("CustomAmiId", "ami-emr"),
                "SubnetId": settings["Ec2SubnetId"],
                "SecurityGroupIds": list_security_groups(cluster, group),
                "KeyName": settings.get("Ec2KeyName", ""),
                "Tags": tag_instance(cluster, group),
            }
            yield "ec2.RunInstances", launch
            yield "ec2.CreateTags", {"CreateAction": "RunInstances", "Tags": tag_instance(cluster, group)}

    def _find_vpc(self, cluster: Cluster) -> str:
        subnets = self._place.client("ec2").describe_subnets(SubnetIds=[str(cluster.settings["Ec2SubnetId"])])
        return str(subnets["Subnets"][0]["VpcId"])

    def _find_network_obstacle(self, cluster: Cluster) -> str:
        settings, ec2 = cluster.settings, self._place.client("ec2")
        subnet_id, vpc = str(settings["Ec2SubnetId"]), self._find_vpc(cluster)
        ways = find_ways_out(ec2, subnet_id, vpc)
        if not ways:
            said = f"No route to any external sources detected in Route Table for Subnet: {subnet_id} for VPC: {vpc}"
            return f"The VPC/subnet configuration was invalid: {said}"
        service_group = settings.get("ServiceAccessSecurityGroup")
        if any(way.startswith("igw-") for way in ways):
            return ""
        if not service_group:  # azavea/terraform-aws-emr-cluster#7
            return (
                "You must also specify a ServiceAccessSecurityGroup if you use custom security groups when creating a "
                "cluster in a private subnet."
            )
        master = settings["EmrManagedMasterSecurityGroup"]
        rules = ec2.describe_security_groups(GroupIds=[service_group])["SecurityGroups"][0]["IpPermissions"]
        if not any(opens(rule, _SERVICE_PORT, master) for rule in rules):
            # Management Guide, "Working with Amazon EMR-managed security groups": from 5.30.0 on, by the user.
            return (
                f"ServiceAccessSecurityGroup is missing ingress rule from EmrManagedMasterSecurityGroup on port "
                f"{_SERVICE_PORT}"
            )
        return ""


def list_security_groups(cluster: Cluster, group: InstanceGroup) -> list[str]:
    """Return the security groups of a group's instances."""
    kind = "Master" if group.role == "MASTER" else "Slave"
    managed = str(cluster.settings[f"EmrManaged{kind}SecurityGroup"])
    return [managed, *cluster.settings.get(f"Additional{kind}SecurityGroups", [])]


def tag_instance(cluster: Cluster, group: InstanceGroup) -> dict[str, str]:
    """Return the tags of a group's instances: the cluster's, and EMR's own (Management Guide, "Tag a cluster")."""
    own = {
        "aws:elasticmapreduce:job-flow-id": cluster.id,
        "aws:elasticmapreduce:instance-group-role": group.role,
    }
    return cluster.tags | own


def root_gib(request: Mapping[str, Any]) -> int:
    """Return the size of the root volumes of a cluster, in GiB."""
    return int(request.get("EbsRootVolumeSize", DEFAULT_ROOT_GIB))


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
    is_port = rule["IpProtocol"] == _ANY or rule.get("FromPort", 0) <= port <= rule.get("ToPort", 0)
    return is_port and any(pair["GroupId"] == source for pair in rule.get("UserIdGroupPairs", []))


def describe_node(cluster: Cluster, instance: ClusterInstance) -> dict[str, Any]:
    """
    Return what EMR writes about a node and its cluster below /mnt/var/lib/info, file -> content.

    Fields and values are those of a release 3 cluster, which YARN's applications read to this day. There, a primary has
    `localhost` for its own name; newer ones were seen with the private DNS name, which core nodes always have.
    """
    is_master, master = instance.role == "MASTER", cluster.master
    groups = [
        {
            "instanceGroupId": group.id,
            "instanceGroupName": group.name,
            "instanceRole": group.role.capitalize(),
            "marketType": "OnDemand",
            "instanceType": group.instance_type,
            "requestedInstanceCount": group.count,
        }
        for group in cluster.groups
    ]
    return {
        "instance.json": {
            "instanceGroupId": instance.group_id,
            "isMaster": is_master,
            "isRunningNameNode": is_master,
            "isRunningDataNode": not is_master,
            "isRunningJobTracker": False,
            "isRunningTaskTracker": False,
            "isRunningResourceManager": is_master,
            "isRunningNodeManager": not is_master,
        },
        "job-flow.json": {
            "jobFlowId": cluster.id,
            "jobFlowCreationInstant": int(cluster.created.timestamp() * 1000),
            "instanceCount": sum(group.count for group in cluster.groups),
            "masterInstanceId": master.ec2_id if master else "",
            "masterPrivateDnsName": "localhost" if is_master else master.private_dns if master else "",
            "masterInstanceType": cluster.groups[0].instance_type,
            "slaveInstanceType": cluster.groups[-1].instance_type,
            "instanceGroups": groups,
        },
    }
