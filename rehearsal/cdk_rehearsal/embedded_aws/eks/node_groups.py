"""
Managed node groups: each is an Auto Scaling group with a launch template that EKS makes from the user's.

EKS user guide, "Customize managed nodes with launch templates". Instances are launched as those of every group; none
boots, because nothing here runs Bottlerocket: the cluster's host takes them as nodes.
"""

import re
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.autoscaling.driver import ScalingDriver
from cdk_rehearsal.embedded_aws.base.scaling_group import GroupTag, ScalingGroup
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.ec2.launch_check import PREFIX, check_launch
from cdk_rehearsal.embedded_aws.eks.cluster import Cluster, Issue, Node, NodeGroup, is_over, make_unique
from cdk_rehearsal.embedded_aws.eks.errors import in_use, invalid_parameter, invalid_request, not_found
from cdk_rehearsal.embedded_aws.eks.host import ClusterNode, Taint
from cdk_rehearsal.embedded_aws.eks.node_size import measure_node
from cdk_rehearsal.embedded_aws.eks.node_updates import change_pairs
from cdk_rehearsal.embedded_aws.eks.request import NETWORK, check_pairs, check_request
from cdk_rehearsal.embedded_aws.eks.rights import ClusterRights
from cdk_rehearsal.embedded_aws.eks.user_data import describe_place, make_user_data
from cdk_rehearsal.machine import Machine, private_dns_name
from cdk_rehearsal.place import Place

_AMI_TYPE = re.compile(r"(BOTTLEROCKET_(x86_64|ARM_64)(_NVIDIA)?|AL2023_(x86_64|ARM_64)_(STANDARD|NVIDIA))")
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_DEFAULT_TYPE, _DEFAULT_AMI = "t3.medium", "AL2023_x86_64_STANDARD"
"""EKS API reference, CreateNodegroup."""
_USUAL_SIZES = {"min": 1, "desired": 2, "max": 2}
_NO_NETWORK = (
    "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin "
    "returns error: cni plugin not initialized"
)
_UNINITIALIZED = Taint("node.cloudprovider.kubernetes.io/uninitialized", "true", "NoSchedule")
"""Taint that the cloud controller of the control plane removes (Kubernetes, "Cloud Controller Manager")."""


@dataclass(frozen=True)
class _Plan:
    """Instances that a node group launches."""

    data: Mapping[str, Any]
    instance_type: str
    ami_type: str
    gpu_count: int
    facts: Mapping[str, Any]

    @property
    def security_groups(self) -> list[str]:
        cards = self.data.get("NetworkInterfaces", [])
        named = [*self.data.get("SecurityGroupIds", []), *(name for card in cards for name in card.get("Groups", []))]
        return list(dict.fromkeys(named))

    @property
    def efa_count(self) -> int:
        cards = self.data.get("NetworkInterfaces", [])
        return sum(str(card.get("InterfaceType", "")).startswith("efa") for card in cards)


class _GroupHost:
    """Takes the instances of one node group in the place of the lab."""

    def __init__(self, join: Callable[[Machine], None], leave: Callable[[str], None]) -> None:
        self._join, self._leave = join, leave

    def boot(self, machine: Machine) -> None:
        """Let an instance join the cluster."""
        self._join(machine)

    def power_off(self, instance_id: str) -> None:
        """Take it that an instance is gone."""
        self._leave(instance_id)


class NodeGroups:
    """Creates node groups; `patience` is how many seconds EKS waits for their nodes."""

    def __init__(
        self, *, place: Place, scaling: ScalingDriver, images: ImageCatalogue, rights: ClusterRights, patience: float
    ) -> None:
        self._place, self._scaling, self._images, self._rights = place, scaling, images, rights
        self._patience = patience
        self._ec2, self._iam = place.client("ec2"), place.client("iam")

    def create(self, cluster: Cluster, request: Mapping[str, Any]) -> NodeGroup:
        """Begin to launch a node group; EksError for a request that EKS or the rehearsal refuses."""
        check_request("CreateNodegroup", request)
        name, role = str(request["nodegroupName"]), str(request["nodeRole"])
        if name in cluster.groups:
            raise in_use(f"NodeGroup already exists with name {name} and cluster name {cluster.name}")
        if not self._rights.trusts(role, "ec2.amazonaws.com"):  # eksctl-io/eksctl#3290
            raise invalid_parameter(
                "Following required service principals [ec2.amazonaws.com] were not found in the trust relationships "
                f"of nodeRole {role}"
            )
        check_pairs(request)
        zones = self._check_subnets(cluster, request)
        plan = self._plan(request)
        unique = make_unique()
        group = NodeGroup(
            request,
            self._place.arn("eks", f"nodegroup/{cluster.name}/{name}/{unique}"),
            self._describe_scaling(cluster, request, zones, unique),
            f"eks-{unique}",
        )
        self._launch(cluster, group, plan)
        return group

    def update_version(self, cluster: Cluster, group: NodeGroup, request: Mapping[str, Any]) -> Callable[[], None]:
        """
        Take another version of the group's launch template for every node that is launched from now on.

        Returns:
            A function that takes the former version again.
        """
        check_request("UpdateNodegroupVersion", request)
        _require_active(group)
        given, former = request["launchTemplate"], group.request["launchTemplate"]
        if not {"id", "name"} & given.keys() or {"id", "name"} <= given.keys():  # eksctl-io/eksctl#3104
            raise invalid_parameter("Either provide launch template ID or launch template name in the request.")
        if any(given[name] != former.get(name, given[name]) for name in ("id", "name") if name in given):
            # EKS user guide, "Customize managed nodes with launch templates".
            raise invalid_parameter("The launch template of a node group cannot change, only its version")
        changed = {**group.request, "launchTemplate": given}
        plan = self._plan(changed)
        data = self._complete(cluster, group, plan)
        scaling = group.scaling
        before = (group.request, scaling.launch_template_version, scaling.host)

        def undo() -> None:
            group.request, scaling.launch_template_version, scaling.host = before

        made = self._ec2.create_launch_template_version(
            LaunchTemplateId=scaling.launch_template_id, LaunchTemplateData=data
        )
        scaling.launch_template_version = str(made["LaunchTemplateVersion"]["VersionNumber"])
        group.request = changed
        self._take_nodes(cluster, group, plan)
        return undo

    def update(self, cluster: Cluster, group: NodeGroup, request: Mapping[str, Any]) -> None:
        """Change sizes, labels, taints or the update configuration of a node group; no node is replaced."""
        check_request("UpdateNodegroupConfig", request)
        _require_active(group)
        given = {name: request[name] for name in ("updateConfig", "nodeRepairConfig") if name in request}
        pairs = {name: change_pairs(group.request, request, name) for name in ("labels", "taints") if name in request}
        check_pairs({**group.request, **pairs})
        self._resize(group.scaling, request.get("scalingConfig", {}))
        group.request = {**group.request, **given, **pairs}
        for node in [*group.nodes.values()] if pairs else []:
            place = describe_place(node.machine, node.joined.name, node.joined.ami_type)
            taints = [*_describe_taints(group), *(each for each in node.joined.taints if each == _UNINITIALIZED)]
            node.joined = replace(node.joined, labels=_describe_labels(group) | place, taints=taints)
            if cluster.running is not None and not node.obstacle:
                cluster.running.change_node(node.joined)

    def _resize(self, scaling: ScalingGroup, sizes: Mapping[str, int]) -> None:
        with self._scaling.lock:
            low, high = sizes.get("minSize", scaling.min_size), sizes.get("maxSize", scaling.max_size)
            desired = sizes.get("desiredSize", scaling.desired)
            if not low <= desired <= high:
                raise invalid_parameter(f"desiredSize must be from minSize to maxSize, got {desired}, {low} and {high}")
            scaling.min_size, scaling.max_size, scaling.desired = low, high, desired
            scaling.capacity_cause = f"a user request changed the desired capacity to {desired}"
        self._scaling.reconcile_soon(scaling)

    def delete(self, cluster: Cluster, group: NodeGroup) -> None:
        """End a node group with its instances."""
        self._scaling.delete_group(group.scaling.name)
        self._ec2.delete_launch_template(LaunchTemplateId=group.scaling.launch_template_id)
        self._iam.remove_role_from_instance_profile(
            InstanceProfileName=group.profile, RoleName=group.role.rpartition("/")[2]
        )
        self._iam.delete_instance_profile(InstanceProfileName=group.profile)
        del cluster.groups[group.name]

    def refresh(self, group: NodeGroup) -> None:
        """Take a new group to its next state, if it is there."""
        if group.status != "CREATING":
            return
        with self._scaling.lock:
            scaling = group.scaling
            failed = next((activity for activity in scaling.activities if activity.is_failed_launch), None)
            if failed is not None and scaling.pending_launches == 0 and scaling.in_service < scaling.awaited:
                kind = "Spot" if group.request.get("capacityType") == "SPOT" else "On-Demand"
                # aws/containers-roadmap#2204; an instance that ended is told as hashicorp/terraform-provider-aws#39904.
                code = f"Could not launch {kind} Instances. {failed.error_code} - " if failed.error_code else ""
                issue = Issue("AsgInstanceLaunchFailures", f"{code}{failed.status_message}", (scaling.name,))
                group.status, group.issues = "CREATE_FAILED", (issue,)
                return
            if scaling.in_service < scaling.awaited:
                return
        nodes = list(group.nodes.items())
        outside = [name for name, node in nodes if node.obstacle]
        sick = [name for name, node in nodes if not node.obstacle and node.joined.find_fault()]
        if group.deadline is None:
            group.deadline = time.monotonic() + self._patience
        if not outside and not sick:
            group.status = "ACTIVE"
        elif is_over(group.deadline):
            # terraform-aws-modules/terraform-aws-eks#2041 and eksctl-io/eksctl#3477.
            said = "Instances failed to join the kubernetes cluster" if outside else "Unhealthy nodes in the kubernetes"
            said = said if outside else f"{said} cluster"
            issue = Issue("NodeCreationFailure", said, tuple(outside or sick))
            group.status, group.issues = "CREATE_FAILED", (issue,)

    def _check_subnets(self, cluster: Cluster, request: Mapping[str, Any]) -> list[str]:
        try:
            subnets = self._ec2.describe_subnets(SubnetIds=list(request["subnets"]))["Subnets"]
        except ClientError as error:
            raise invalid_parameter(str(error.response["Error"]["Message"])) from error
        if any(each["VpcId"] != cluster.vpc for each in subnets):
            raise invalid_parameter(f"subnets must be of {cluster.vpc}, the VPC of the cluster")
        return sorted({each["AvailabilityZone"] for each in subnets})

    def _plan(self, request: Mapping[str, Any]) -> _Plan:
        data = self._read_template(request)
        types = list(request.get("instanceTypes", []))
        if types and data.get("InstanceType"):  # terraform-aws-modules/terraform-aws-eks#1386
            raise invalid_request("Cannot specify instance types in launch template and API Request")
        if len(types) > 1:
            raise invalid_parameter(f"the rehearsal launches one type of instances, got {', '.join(types)}")
        kind = str(data.get("InstanceType") or (types or [_DEFAULT_TYPE])[0])
        ami_type = str(request.get("amiType", _DEFAULT_AMI))
        if not _AMI_TYPE.fullmatch(ami_type):
            raise invalid_parameter(f"the rehearsal knows Bottlerocket and Amazon Linux 2023, got amiType {ami_type}")
        try:
            (facts,) = self._ec2.describe_instance_types(InstanceTypes=[kind])["InstanceTypes"]
        except ClientError as error:
            raise invalid_parameter(f"The specified instance type {kind} is not valid") from error
        architecture = "arm64" if "ARM_64" in ami_type else "x86_64"
        if architecture not in facts["ProcessorInfo"]["SupportedArchitectures"]:  # eksctl-io/eksctl#7754
            raise invalid_parameter(f"[{kind}] is not a valid instance type for requested amiType {ami_type}")
        gpus = facts.get("GpuInfo", {}).get("Gpus", []) if "NVIDIA" in ami_type else []
        count = sum(gpu["Count"] for gpu in gpus if gpu["Manufacturer"] == "NVIDIA")
        return _Plan(data, kind, ami_type, count, facts)

    def _read_template(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the data of the user's launch template, without what a managed node group may not have there."""
        if "launchTemplate" not in request:
            raise invalid_parameter("the rehearsal launches nodes by a launch template; give launchTemplate")
        given = request["launchTemplate"]
        reference = {"LaunchTemplateId": given["id"]} if "id" in given else {"LaunchTemplateName": given["name"]}
        try:
            answer = self._ec2.describe_launch_template_versions(
                **reference, Versions=[str(given.get("version", "$Default"))]
            )
            data: dict[str, Any] = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        except (ClientError, IndexError) as error:
            raise invalid_request(f"Launch template {given} does not exist") from error
        found = [name for name in ("IamInstanceProfile",) if data.get(name)]
        found += ["NetworkInterfaces.SubnetId" for card in data.get("NetworkInterfaces", []) if card.get("SubnetId")]
        if data.get("InstanceMarketOptions", {}).get("MarketType") == "spot":
            found.append("InstanceMarketOptions")
        for name in found:
            raise invalid_request(
                f'Launch template must not have {name}: the node group says it (EKS user guide, "Customize managed '
                'nodes with launch templates")'
            )
        if data.get("ImageId"):
            raise invalid_request("the rehearsal launches nodes with EKS's image, got ImageId")
        return data

    def _describe_scaling(
        self, cluster: Cluster, request: Mapping[str, Any], zones: list[str], unique: str
    ) -> ScalingGroup:
        sizes = request.get("scalingConfig", {})
        low, desired, high = (int(sizes.get(f"{name}Size", usual)) for name, usual in _USUAL_SIZES.items())
        if not low <= desired <= high:
            raise invalid_parameter(f"desiredSize must be from minSize to maxSize, got {desired}, {low} and {high}")
        name = f"eks-{request['nodegroupName']}-{unique}"
        tags = {
            "eks:cluster-name": cluster.name,
            "eks:nodegroup-name": str(request["nodegroupName"]),
            f"kubernetes.io/cluster/{cluster.name}": "owned",
        }
        return ScalingGroup(
            name=name,
            arn=self._place.arn("autoscaling", f"autoScalingGroup:{uuid.uuid4()}:autoScalingGroupName/{name}"),
            min_size=low,
            max_size=high,
            desired=desired,
            awaited=desired,
            launch_template_id="",
            launch_template_name=f"eks-{unique}",
            launch_template_version="1",
            subnet_ids=tuple(request["subnets"]),
            tags=tuple(GroupTag(key, value, propagate=True) for key, value in tags.items()),
            zones=tuple(zones),
        )

    def _launch(self, cluster: Cluster, group: NodeGroup, plan: _Plan) -> None:
        data = self._complete(cluster, group, plan)
        self._iam.create_instance_profile(InstanceProfileName=group.profile)
        role = group.role.rpartition("/")[2]
        self._iam.add_role_to_instance_profile(InstanceProfileName=group.profile, RoleName=role)
        answer = self._ec2.create_launch_template(
            LaunchTemplateName=group.scaling.launch_template_name, LaunchTemplateData=data
        )
        group.scaling.launch_template_id = answer["LaunchTemplate"]["LaunchTemplateId"]
        self._take_nodes(cluster, group, plan)
        cluster.groups[group.name] = group
        self._scaling.add_group(group.scaling)

    def _complete(self, cluster: Cluster, group: NodeGroup, plan: _Plan) -> dict[str, Any]:
        """Return the data of the launch template that EKS makes; EksError where EC2 would not launch it."""
        image = f"ami-eks-{plan.ami_type.lower().replace('_', '-')}-{cluster.version}"
        self._images.admit(image)
        data: dict[str, Any] = {
            **plan.data,
            "ImageId": image,
            "InstanceType": plan.instance_type,
            "IamInstanceProfile": {"Name": group.profile},
        }
        if not plan.security_groups:
            data["SecurityGroupIds"] = [cluster.security_group]
        labels, taints = _describe_labels(group), _describe_taints(group)
        data["UserData"] = make_user_data(cluster, plan.ami_type, labels, taints)
        try:
            check_launch(group.scaling, data, self._place, self._scaling.faults)
        except ValueError as error:
            raise invalid_request(str(error).removeprefix(PREFIX)) from error
        return data

    def _take_nodes(self, cluster: Cluster, group: NodeGroup, plan: _Plan) -> None:
        """Take the instances that are launched from now on as nodes of a plan."""
        group.scaling.host = _GroupHost(
            lambda machine: self._join(cluster, group, plan, machine), lambda name: _leave(cluster, group, name)
        )

    def _join(self, cluster: Cluster, group: NodeGroup, plan: _Plan, machine: Machine) -> None:
        if cluster.running is None:
            raise not_found(f"No cluster found for name: {cluster.name}.")
        groups = plan.security_groups or [cluster.security_group]
        obstacle = self._rights.find_join_obstacle(cluster, group.role, machine, groups)
        taints = _describe_taints(group)
        if not obstacle and self._rights.find_controller_denial(cluster, machine):
            taints = [*taints, _UNINITIALIZED]
        name = private_dns_name(machine)
        joined = ClusterNode(
            machine,
            name,
            group.name,
            plan.ami_type,
            _describe_labels(group) | describe_place(machine, name, plan.ami_type),
            taints,
            plan.gpu_count,
            plan.efa_count,
            *measure_node(plan.facts, plan.data),
            lambda: self._find_fault(cluster, group, machine),
        )
        if not obstacle:
            cluster.running.add_node(joined)
        group.nodes[machine.instance_id] = Node(machine, joined, obstacle)

    def _find_fault(self, cluster: Cluster, group: NodeGroup, machine: Machine) -> str:
        """Return why a node is not ready; what its network plugin may do is asked until it is ready."""
        if NETWORK not in cluster.addons:
            return _NO_NETWORK
        if machine.instance_id in group.ready:
            return ""
        if self._rights.find_network_denial(cluster, group.role, machine):
            return _NO_NETWORK
        group.ready.add(machine.instance_id)
        return ""


def _require_active(group: NodeGroup) -> None:
    if group.status != "ACTIVE":  # aws/containers-roadmap#2204
        raise in_use("Nodegroup cannot be updated as it is currently not in Active State")


def _leave(cluster: Cluster, group: NodeGroup, instance_id: str) -> None:
    group.nodes.pop(instance_id, None)
    if cluster.running is not None:
        cluster.running.remove_node(instance_id)


def _describe_labels(group: NodeGroup) -> dict[str, str]:
    capacity = str(group.request.get("capacityType", "ON_DEMAND"))
    own = {"eks.amazonaws.com/nodegroup": group.name, "eks.amazonaws.com/capacityType": capacity}
    return {**group.request.get("labels", {}), **own}


def _describe_taints(group: NodeGroup) -> list[Taint]:
    given = group.request.get("taints", [])
    return [Taint(each["key"], each.get("value", ""), _EFFECTS[each["effect"]]) for each in given]
