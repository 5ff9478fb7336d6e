"""
Provisions the instances of a cluster as EMR does: with the rights of its service role.

The calls are those that both of AWS's policies for the role allow, `AmazonEMRServicePolicy_v2` and
`AmazonElasticMapReduceRole` (Amazon EMR Management Guide, "Service role for Amazon EMR"). Which of the Describe calls
EMR makes for a cluster is documented nowhere, so all of them must be allowed. It launches uniform instance groups by
RunInstances, as refusals of launches without `iam:PassRole` show.

In a private subnet it makes an interface of its own with the group for service access ("Working with Amazon EMR-managed
security groups"). Interface, instances and volumes get the user's tags ("Tagging resources to use managed policies"),
and follow their changes: of instances the guide says so ("Tag and categorize cluster resources"), and for volumes and
the interface both policies allow it. Termination protection is an attribute of each instance ("Using termination
protection").
"""

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchError
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.ec2.launcher import LaunchOrder
from cdk_rehearsal.embedded_aws.ec2.reachability import find_ways_out, opens
from cdk_rehearsal.embedded_aws.emr.cluster import Cluster, ClusterInstance, InstanceGroup
from cdk_rehearsal.embedded_aws.emr.node_channel import Message
from cdk_rehearsal.place import Place

EMR = "elasticmapreduce.amazonaws.com"
_ROOT_GIB = 15
"""Root volume of releases from 6.10.0 on (Management Guide, "Customizing the Amazon EBS root device volume")."""
_ROOT_DEVICE = "/dev/xvda"
_READS = (
    *("DescribeAccountAttributes", "DescribeDhcpOptions", "DescribeImages", "DescribeInstances", "DescribeNetworkAcls"),
    *("DescribeNetworkInterfaces", "DescribeRouteTables", "DescribeSecurityGroups", "DescribeSubnets"),
    *("DescribeVolumes", "DescribeVolumeStatus", "DescribeVpcEndpoints", "DescribeVpcs"),
)
_SERVICE_PORT = 9443
Call = tuple[str, Mapping[str, Any]]


class Provisioner:
    """Judges the requests of clusters and orders their instances."""

    def __init__(self, place: Place, authorizer: Authorizer) -> None:
        self._place = place
        self._authorizer = authorizer

    def find_obstacle(self, cluster: Cluster) -> str:
        """Return why EMR terminates a new cluster before it launches anything; empty where it does not."""
        role = self.service_role(cluster)
        if not self._authorizer.trusts(role, EMR, cluster.arn):
            return f"EMR service role {role} is invalid"
        if not self._authorizer.trusts(self.instance_role(cluster), "ec2.amazonaws.com"):
            return f"Failed to authorize instance profile {cluster.request['JobFlowRole']}."
        return self._find_network_obstacle(cluster) or self.find_denial(cluster, self._list_calls(cluster))

    def find_taken_store(self, cluster: Cluster, images: ImageCatalogue) -> str:
        """
        Return why EMR cannot format the instance store of instances; empty where it can, or there is none.

        EMR formats it for HDFS and logs (Management Guide, "Instance store"). Nobody knows what EMR does with devices
        that are in use: until a trial on an account shows otherwise, it does not get through.
        """
        image = str(cluster.request.get("CustomAmiId", ""))
        for kind in [group.instance_type for group in cluster.groups] if images.takes_instance_store(image) else ():
            (facts,) = self._place.client("ec2").describe_instance_types(InstanceTypes=[kind])["InstanceTypes"]
            if facts["InstanceStorageSupported"]:
                return (
                    f"Failed to start the job flow due to an internal error: image {image} combines the instance store "
                    f"of {kind} before EMR can format it; use an image in which dlami-nvme.service is masked"
                )
        return ""

    def find_denial(self, cluster: Cluster, calls: Iterable[Call]) -> str:
        """Return which of EMR's calls the service role may not make, in EMR's words; empty where it may make all."""
        role = self.service_role(cluster)
        caller = Principal("other", "", "EMR", role)
        for operation, parameters in calls:
            if denial := self._authorizer.check_call(caller, operation, parameters):
                if denial.is_about_key:  # gchq/sleeper#3447
                    return (
                        "Amazon EMR couldn't launch the cluster because the KMS key is invalid. Make sure the key is "
                        "valid and that your service role has permissions to use the key."
                    )
                said = f"You are not authorized to perform this operation. {denial.message}"
                return f"Service role {role} has insufficient EC2 permissions. EC2 Message: {said}"
        return ""

    def check_launch(self, cluster: Cluster, group: InstanceGroup) -> None:
        """Raise LaunchError unless the service role may launch instances of a group."""
        if denial := self.find_denial(cluster, self._list_launch_calls(cluster, group)):
            raise LaunchError("UnauthorizedOperation", denial)

    def note_lost_log(self, instance_id: str, report: Message) -> None:
        """Record that a node could not write a log to the cluster's bucket, which on AWS nobody would notice."""
        node = Principal("other", "", instance_id)
        self._authorizer.note_failure(node, "s3:PutObject", f"log {report['target']} is lost: {report['error']}")

    def service_role(self, cluster: Cluster) -> str:
        """Return the ARN of the service role; requests name it or give its ARN."""
        role = str(cluster.request["ServiceRole"])
        return self._authorizer.state.find_role(role) or role

    def instance_role(self, cluster: Cluster) -> str:
        """Return the ARN of the role of the instance profile."""
        return self._authorizer.state.find_profile_role(str(cluster.request["JobFlowRole"]))

    def order_instance(self, cluster: Cluster, group: InstanceGroup, image_id: str, user_data: str) -> LaunchOrder:
        """Return the order for an instance of a group."""
        settings, request = cluster.settings, cluster.request
        disk: dict[str, Any] = {"VolumeSize": int(request.get("EbsRootVolumeSize", _ROOT_GIB))}
        if cluster.disk_key and cluster.disk_key.encrypts_volumes:
            disk |= {"Encrypted": True, "KmsKeyId": cluster.disk_key.arn}
        data = {
            "ImageId": image_id,
            "InstanceType": group.instance_type,
            "SecurityGroupIds": list_security_groups(cluster, group),
            "IamInstanceProfile": {"Name": str(request["JobFlowRole"]).rpartition("/")[2]},
            "UserData": base64.b64encode(user_data.encode()).decode(),
            "KeyName": settings.get("Ec2KeyName", ""),
            "BlockDeviceMappings": [{"DeviceName": _ROOT_DEVICE, "Ebs": disk}],
        }
        return LaunchOrder(
            name=f"{cluster.name} {group.role}",
            data=data,
            subnet_ids=[settings["Ec2SubnetId"]],
            tags=tag_instance(cluster, group),
            volume_tags=cluster.user_tags,
            login_user="hadoop",
            parts=frozenset({"emr"}),
        )

    def make_interface(self, cluster: Cluster, address: str) -> None:
        """Make EMR's own interface in a private subnet, at a free address; nothing without a group for it."""
        if group := cluster.settings.get("ServiceAccessSecurityGroup"):
            tags = [{"Key": key, "Value": value} for key, value in cluster.user_tags.items()]
            answer = self._place.client("ec2").create_network_interface(
                SubnetId=cluster.settings["Ec2SubnetId"],
                Groups=[group],
                PrivateIpAddress=address,
                TagSpecifications=[{"ResourceType": "network-interface", "Tags": tags}],
            )
            cluster.interface_id = answer["NetworkInterface"]["NetworkInterfaceId"]

    def remove_interface(self, cluster: Cluster) -> None:
        """Remove EMR's own interface, if there is one and the role may."""
        call = "ec2.DeleteNetworkInterface", {"NetworkInterfaceId": cluster.interface_id}
        if cluster.interface_id and not self.find_denial(cluster, [call]):
            self._place.client("ec2").delete_network_interface(NetworkInterfaceId=cluster.interface_id)
            cluster.interface_id = ""

    def change_tags(self, cluster: Cluster, verb: str, tags: Mapping[str, str]) -> None:
        """Give the tags to what EMR has made for the cluster, or take them (`create`, `delete`), where the role may."""
        ec2 = self._place.client("ec2")
        names = [entry.ec2_id for entry in cluster.alive]
        attached = [{"Name": "attachment.instance-id", "Values": names}]
        names += [volume["VolumeId"] for volume in ec2.describe_volumes(Filters=attached)["Volumes"]]
        names += filter(None, [cluster.interface_id])
        call = f"ec2.{verb.capitalize()}Tags", {"Resources": names, "Tags": tags}
        if not self.find_denial(cluster, [call]):
            # To delete a tag with any value, its key comes alone.
            pairs = [{"Key": key, **({"Value": value} if verb == "create" else {})} for key, value in tags.items()]
            getattr(ec2, f"{verb}_tags")(Resources=names, Tags=pairs)

    def protect(self, cluster: Cluster, *, is_protected: bool) -> None:
        """Let EC2 refuse to end the instances, or end them; where the role may not, they stay as they are."""
        for entry in cluster.alive:
            if not self.find_denial(cluster, [("ec2.ModifyInstanceAttribute", {"InstanceId": entry.ec2_id})]):
                attribute = {"DisableApiTermination": {"Value": is_protected}}
                self._place.client("ec2").modify_instance_attribute(InstanceId=entry.ec2_id, **attribute)

    def _list_calls(self, cluster: Cluster) -> Iterator[Call]:
        settings = cluster.settings
        yield from ((f"ec2.{name}", {}) for name in _READS)
        yield "ec2.DescribeVpcAttribute", {"VpcId": self._find_vpc(cluster)}
        # EMR adds the rules that are missing; whether it tries those that are there is documented nowhere.
        for name in ("EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup"):
            yield "ec2.AuthorizeSecurityGroupIngress", {"GroupId": settings[name]}
            yield "ec2.AuthorizeSecurityGroupEgress", {"GroupId": settings[name]}
        if service := settings.get("ServiceAccessSecurityGroup"):
            # To the other two (hashicorp/terraform-provider-aws#5413); a missing rule from them is an obstacle.
            yield "ec2.AuthorizeSecurityGroupEgress", {"GroupId": service}
            tags, site = cluster.user_tags, {"SubnetId": settings["Ec2SubnetId"], "SecurityGroupIds": [service]}
            yield "ec2.CreateNetworkInterface", {**site, "Tags": tags}
            yield "ec2.CreateTags", {"CreateAction": "CreateNetworkInterface", "Tags": tags}
        for group in cluster.groups:
            yield from self._list_launch_calls(cluster, group)

    def _list_launch_calls(self, cluster: Cluster, group: InstanceGroup) -> Iterator[Call]:
        """Yield the calls to launch instances of a group; EC2 encrypts volumes as their caller."""
        tags = tag_instance(cluster, group)
        launch = {
            "ImageId": cluster.request.get("CustomAmiId", "ami-emr"),
            "SubnetId": cluster.settings["Ec2SubnetId"],
            "SecurityGroupIds": list_security_groups(cluster, group),
            "KeyName": cluster.settings.get("Ec2KeyName", ""),
            "Tags": tags,
        }
        yield "iam.PassRole", {"RoleArn": self.instance_role(cluster), "PassedToService": "ec2.amazonaws.com"}
        yield "ec2.RunInstances", launch
        # Whether the interfaces of instances are tagged too, the guide leaves open; both policies allow it.
        kinds = ("instance", "volume", "network-interface")
        yield "ec2.CreateTags", {"CreateAction": "RunInstances", "Kinds": kinds, "Tags": tags}
        if cluster.disk_key and cluster.disk_key.encrypts_volumes:
            yield "ec2.EncryptVolume", {"SSEKMSKeyId": cluster.disk_key.arn}

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


def order_bootstrap(cluster: Cluster, instance: ClusterInstance) -> dict[str, Any]:
    """Return the order to a node to bootstrap."""
    actions = [action["ScriptBootstrapAction"] for action in cluster.request.get("BootstrapActions", [])]
    return {
        "do": "bootstrap",
        "info": describe_node(cluster, instance),
        "actions": [{"path": action["Path"], "arguments": action.get("Args", [])} for action in actions],
        "logs": f"{cluster.log_uri}node/{instance.ec2_id}/" if cluster.log_uri else "",
        "log_key": cluster.request.get("LogEncryptionKmsKeyId", ""),
        "disk_key": cluster.disk_key.arn if cluster.disk_key else "",
    }


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
