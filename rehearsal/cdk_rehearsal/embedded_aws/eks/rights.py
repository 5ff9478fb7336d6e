"""
Calls that a cluster's parts make with their roles, decided by the deployed policies.

The calls are those that AWS's guides and policies name: AmazonEKSWorkerNodePolicy and the image pulls of "Amazon EKS
node IAM role", AmazonEKS_CNI_Policy, and the least permissions of "Amazon EKS cluster IAM role" (EKS user guide).
"""

from collections.abc import Iterable, Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer
from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.ec2.reachability import find_ways_out, lets_through
from cdk_rehearsal.embedded_aws.eks.cluster import NODES, Association, Cluster
from cdk_rehearsal.embedded_aws.eks.request import FILES, IDENTITY, IMAGES, NETWORK
from cdk_rehearsal.iam.cluster_resources import is_in_registry, name_eks_image
from cdk_rehearsal.machine import Machine
from cdk_rehearsal.place import Place

NODE, CONTROL_PLANE, POD = "node", "cluster", "pod"
"""Kinds of callers in the record of calls."""
PODS_SERVICE = "pods.eks.amazonaws.com"
_SYSTEM, _NETWORK_ACCOUNT, _FILES_ACCOUNT = "kube-system", "aws-node", "efs-csi-node-sa"
_API_PORT, _KUBELET_PORT, _FILES_PORT = 443, 10250, 2049
_NO_DRIVER = (
    "kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name efs.csi.aws.com not "
    "found in the list of registered CSI drivers"
)
"""kubernetes-sigs/aws-efs-csi-driver#180 and #1284."""
_NEEDED = {
    "coredns": "its pods resolve no name of a Service or of another pod",
    "kube-proxy": "its nodes route no packet to a Service, the API server's and that of DNS included",
}
"""Add-ons that the pods of every user need, and what fails without them."""
Call = tuple[str, Mapping[str, Any]]


class ClusterRights:
    """Decides what the roles of a cluster may do, and what its nodes reach."""

    def __init__(self, place: Place, authorizer: Authorizer) -> None:
        self._place, self._authorizer = place, authorizer

    def trusts(self, role: str, service: str, source: str = "") -> bool:
        """Return whether a role lets a service assume it, for a source."""
        return self._authorizer.trusts(role, service, source)

    def find_join_obstacle(self, cluster: Cluster, role: str, machine: Machine, groups: Iterable[str]) -> str:
        """Return why a node does not get into its cluster; empty where it does."""
        entry = cluster.entries.get(role)
        if entry is None or entry.kind != NODES:  # EKS user guide, "Create access entries"
            return f"the access entry of {role} must be of type {NODES}"
        return self._find_network_obstacle(cluster, machine, list(groups)) or self._find_denial(
            Principal(NODE, "", machine.instance_id, role), self._list_node_calls(cluster)
        )

    def find_pull_denial(self, role: str, instance_id: str, image: str) -> str:
        """
        Return why a node may not pull an image from ECR, with its role; empty where it may, and for other registries.

        Amazon ECR user guide, "Using Amazon ECR images with Amazon EKS".
        """
        calls = _list_pull_calls(image) if is_in_registry(image) else []
        return self._find_denial(Principal(NODE, "", instance_id, role), calls)

    def note_missing_addons(self, cluster: Cluster) -> None:
        """
        Report the add-ons without which the pods of a user fail (EKS user guide, "Amazon EKS add-ons").

        The lab resolves names and routes Services by itself, so that nothing else shows that they are missing.
        """
        for name, effect in _NEEDED.items():
            if name not in cluster.addons:
                message = f"cluster {cluster.name} has no add-on {name}, and {effect}"
                self._authorizer.note_failure(Principal(POD, "", cluster.name), f"eks.CreateAddon of {name}", message)

    def may_run_addon(self, role: str, instance_id: str, name: str) -> bool:
        """Return whether a node may pull the image of an add-on."""
        return not self.find_pull_denial(role, instance_id, self._name_image(name))

    def find_network_denial(self, cluster: Cluster, role: str, machine: Machine) -> str:
        """
        Return why the network plugin of a node fails; empty where it does not.

        Its pod has the role of its service account where the account has one, and otherwise that of the node.
        """
        caller = Principal(NODE, "", machine.instance_id, role)
        if association := cluster.find_association(_SYSTEM, _NETWORK_ACCOUNT):
            if not self.admits_pod(cluster, association, role, machine.instance_id):
                return f"the pod of {_NETWORK_ACCOUNT} gets no credentials"
            caller = Principal(POD, "", machine.instance_id, association.role)
        return self.find_pull_denial(role, machine.instance_id, self._name_image(NETWORK)) or self._find_denial(
            caller, self._list_network_calls(cluster, machine)
        )

    def find_mount_obstacle(
        self, cluster: Cluster, role: str, machine: Machine, volume: tuple[str, str]
    ) -> tuple[str, str]:
        """
        Return the step of the kubelet that fails for a volume of the EFS driver on a node, and why; empty for none.

        The driver mounts with the role of its account `efs-csi-node-sa` where that has one, and otherwise with that of
        the node (EKS user guide, "Use elastic file system storage with Amazon EFS"); the file system and the access
        point of the volume are those of its handle. Words: aws-ia/terraform-aws-eks-blueprints#1171, and efs-utils for
        a name without an address.
        """
        system, point = volume
        if FILES not in cluster.addons or not self.may_run_addon(role, machine.instance_id, FILES):
            return "MountDevice", _NO_DRIVER
        groups = self._find_target_groups(machine, system)
        if groups is None:
            name = f"{system}.efs.{self._place.region}.{self._place.url_suffix}"
            return "SetUp", (
                f'Failed to resolve "{name}" - check that your file system ID is correct, and ensure that the VPC has '
                "an EFS mount target for this file system ID."
            )
        if not lets_through(
            self._place.client("ec2"), self._find_groups(machine), groups, list(machine.vpc_networks), _FILES_PORT
        ):
            return "SetUp", "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
        points = self._place.client("efs").describe_access_points(FileSystemId=system)["AccessPoints"]
        is_own = any(each["AccessPointId"] == point for each in points)
        if not is_own or not self._may_use_files(cluster, role, machine, volume, "ClientMount"):
            return "SetUp", "mount.nfs4: access denied by server while mounting 127.0.0.1:/"
        return "", ""

    def may_write(self, cluster: Cluster, role: str, machine: Machine, volume: tuple[str, str]) -> bool:
        """
        Return whether a node writes to a volume of the EFS driver; without ClientWrite it is mounted read-only.

        EFS user guide, "Using IAM to control access to file systems".
        """
        return self._may_use_files(cluster, role, machine, volume, "ClientWrite")

    def _may_use_files(
        self, cluster: Cluster, role: str, machine: Machine, volume: tuple[str, str], action: str
    ) -> bool:
        caller = Principal(NODE, "", machine.instance_id, role)
        if association := cluster.find_association(_SYSTEM, _FILES_ACCOUNT):
            caller = Principal(POD, "", machine.instance_id, association.role)
        parameters = {"FileSystemId": volume[0], "AccessPointId": volume[1]}
        return not self._find_denial(caller, [(f"elasticfilesystem.{action}", parameters)])

    def find_controller_denial(self, cluster: Cluster, machine: Machine) -> str:
        """Return why the cloud controller of the control plane cannot take a node; empty where it can."""
        caller = Principal(CONTROL_PLANE, "", cluster.name, str(cluster.request["roleArn"]))
        tags = {f"kubernetes.io/cluster/{cluster.name}": "owned"}
        names = ("AvailabilityZones", "DhcpOptions", "InstanceTopology", "Instances", "NetworkInterfaces", "Vpcs")
        calls: list[Call] = [(f"ec2.Describe{name}", {}) for name in names]
        calls.append(("ec2.CreateTags", {"Resources": [machine.instance_id], "Tags": tags}))
        keys = [str(each["provider"]["keyArn"]) for each in cluster.request.get("encryptionConfig", ())]
        calls += [("kms.DescribeKey", {"KeyId": key}) for key in keys]
        return self._find_denial(caller, calls)

    def admits_pod(self, cluster: Cluster, association: Association, node_role: str, node: str) -> bool:
        """
        Return whether the pods of an association get credentials on a node.

        The agent's add-on must be there, the node's role must have its right, and the association's role must trust EKS
        with session tags (EKS user guide, "Learn how EKS Pod Identity works" and "pod-id-abac").
        """
        if IDENTITY not in cluster.addons or not self.may_run_addon(node_role, node, IDENTITY):
            return False
        caller = Principal(NODE, "", node, node_role)
        if self._find_denial(caller, [("eks-auth.AssumeRoleForPodIdentity", {"clusterName": cluster.name})]):
            return False
        namespace, account = association.account
        tags = {
            "eks-cluster-arn": cluster.arn,
            "eks-cluster-name": cluster.name,
            "kubernetes-namespace": namespace,
            "kubernetes-service-account": account,
        }
        return self._authorizer.trusts(association.role, PODS_SERVICE, cluster.arn, tags)

    def _name_image(self, addon: str) -> str:
        return name_eks_image(self._place.region, self._place.url_suffix, IMAGES[addon])

    def _find_denial(self, caller: Principal, calls: Iterable[Call]) -> str:
        for operation, parameters in calls:
            if denial := self._authorizer.check_call(caller, operation, parameters):
                return denial.message
        return ""

    def _find_network_obstacle(self, cluster: Cluster, machine: Machine, groups: list[str]) -> str:
        """Return what keeps packets from the API server, the kubelet or AWS (EKS user guide, "sec-group-reqs")."""
        ec2, subnet = self._place.client("ec2"), self._describe(machine)["SubnetId"]
        blocks = list(machine.vpc_networks)
        if not lets_through(ec2, groups, [cluster.security_group], blocks, _API_PORT):
            return f"no security group lets it through to port {_API_PORT} of the API server"
        if not lets_through(ec2, [cluster.security_group], groups, blocks, _KUBELET_PORT):
            return f"no security group lets the API server through to port {_KUBELET_PORT} of it"
        ways = find_ways_out(ec2, subnet, cluster.vpc)
        if not any(way.startswith(("nat-", "igw-")) for way in ways):
            return f"subnet {subnet} has no route to the services of AWS"
        return ""

    def _find_target_groups(self, machine: Machine, system: str) -> list[str] | None:
        """Return the security groups of a file system's mount target in the zone of a node; None without one."""
        efs = self._place.client("efs")
        for target in efs.describe_mount_targets(FileSystemId=system)["MountTargets"]:
            if target["AvailabilityZoneName"] == machine.zone:
                name = target["MountTargetId"]
                return list(efs.describe_mount_target_security_groups(MountTargetId=name)["SecurityGroups"])
        return None

    def _describe(self, machine: Machine) -> dict[str, Any]:
        answer = self._place.client("ec2").describe_instances(InstanceIds=[machine.instance_id])
        instance: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return instance

    def _find_groups(self, machine: Machine) -> list[str]:
        cards = self._describe(machine)["NetworkInterfaces"]
        return [each["GroupId"] for card in cards for each in card["Groups"]]

    def _list_node_calls(self, cluster: Cluster) -> list[Call]:
        return [
            ("ec2.DescribeInstances", {}),
            ("ec2.DescribeInstanceTypes", {}),
            ("eks.DescribeCluster", {"name": cluster.name}),
            *_list_pull_calls(self._name_image(NETWORK)),
        ]

    def _list_network_calls(self, cluster: Cluster, machine: Machine) -> list[Call]:
        instance = self._describe(machine)
        primary, subnet = instance["NetworkInterfaces"][0], instance["SubnetId"]
        groups = [each["GroupId"] for each in primary["Groups"]]
        tags = {
            "cluster.k8s.amazonaws.com/name": cluster.name,
            "node.k8s.amazonaws.com/instance_id": machine.instance_id,
        }
        interface = {"NetworkInterfaceId": primary["NetworkInterfaceId"], "SubnetId": subnet}
        attached = {**interface, "InstanceId": machine.instance_id}
        reads = ("InstanceTypes", "Instances", "NetworkInterfaces", "Subnets", "Tags")
        # When pods end, the plugin gives addresses and interfaces back.
        ends = ("UnassignPrivateIpAddresses", "DeleteNetworkInterface")
        return [
            *((f"ec2.Describe{name}", {}) for name in reads),
            ("ec2.CreateNetworkInterface", {"SubnetId": subnet, "SecurityGroupIds": groups, "Tags": tags}),
            ("ec2.CreateTags", {"CreateAction": "CreateNetworkInterface", "Tags": tags}),
            # The plugin tags an interface again that lacks its tags (amazon-vpc-cni-k8s, pkg/awsutils, TagENI).
            ("ec2.CreateTags", {"Resources": [primary["NetworkInterfaceId"]], "SubnetId": subnet, "Tags": tags}),
            *((f"ec2.{name}NetworkInterface", attached) for name in ("Attach", "Detach")),
            *(("ec2.ModifyNetworkInterfaceAttribute", {**attached, "GroupId": group}) for group in groups),
            ("ec2.AssignPrivateIpAddresses", interface),
            *((f"ec2.{name}", interface) for name in ends),
        ]


def _list_pull_calls(image: str) -> list[Call]:
    pull = {"Image": image}
    return [
        ("ecr.GetAuthorizationToken", {}),
        *((f"ecr.{name}", pull) for name in ("BatchGetImage", "GetDownloadUrlForLayer")),
    ]
