"""
Drives clusters of EKS: starts and stops their control planes, and takes them and their parts through their states.

Sources: EKS API reference, Cluster, Nodegroup and Addon; EKS user guide, "View Amazon EKS networking requirements".
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.autoscaling.driver import JobQueue, ScalingDriver
from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.principals import PrincipalRegistry
from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.ec2.images import ImageCatalogue
from cdk_rehearsal.embedded_aws.eks.access import ClusterAccess
from cdk_rehearsal.embedded_aws.eks.cluster import (
    Addon,
    Association,
    Cluster,
    Issue,
    NodeGroup,
    Update,
    is_over,
    make_unique,
)
from cdk_rehearsal.embedded_aws.eks.errors import in_use, invalid_parameter, invalid_request, not_found
from cdk_rehearsal.embedded_aws.eks.host import ClusterHost, ClusterOrder
from cdk_rehearsal.embedded_aws.eks.node_groups import NodeGroups
from cdk_rehearsal.embedded_aws.eks.node_updates import NodeReplacement
from cdk_rehearsal.embedded_aws.eks.request import DEFAULT_VERSION, DEPLOYMENTS, check_addon, check_cluster
from cdk_rehearsal.embedded_aws.eks.rights import ClusterRights
from cdk_rehearsal.place import Credentials, Place

EKS = "eks.amazonaws.com"
_THREADS = 4
_PATIENCE_MINUTES = 20.0
"""Time after which what waits for nodes fails (terraform-aws-modules/terraform-aws-eks#2041 and #2069)."""
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_SYSTEM = "kube-system"


class EksDriver:
    """Runs clusters; `minute_seconds` is the length of a minute of waiting for nodes, in seconds."""

    def __init__(
        self,
        *,
        place: Place,
        host: ClusterHost | None,
        scaling: ScalingDriver,
        images: ImageCatalogue,
        rights: ClusterRights,
        principals: PrincipalRegistry,
        observations: Observations,
        minute_seconds: float = 60.0,
    ) -> None:
        self._place, self._host, self._rights, self._observations = place, host, rights, observations
        self._scaling, self._minute_seconds = scaling, minute_seconds
        self._patience = _PATIENCE_MINUTES * minute_seconds
        self._reaction = scaling.pace.reaction
        self._jobs = JobQueue(_THREADS)
        self._ec2 = place.client("ec2")
        self.access = ClusterAccess(place=place, rights=rights, principals=principals)
        self.groups = NodeGroups(place=place, scaling=scaling, images=images, rights=rights, patience=self._patience)
        self.lock = threading.RLock()
        self.clusters: dict[str, Cluster] = {}

    def create_cluster(self, request: Mapping[str, Any]) -> Cluster:
        """Begin to create a cluster; EksError for a request that EKS or the rehearsal refuses."""
        check_cluster(request)
        request = {"version": DEFAULT_VERSION, **request}
        name, role = str(request["name"]), str(request["roleArn"])
        arn = self._place.arn("eks", f"cluster/{name}")
        if self._host is None:
            raise invalid_request("the rehearsal has no control planes of Kubernetes here")
        if name in self.clusters:  # terraform-aws-modules/terraform-aws-eks#1262
            raise in_use(f"Cluster already exists with name: {name}")
        if not self._rights.trusts(role, EKS, arn):  # terraform-aws-modules/terraform-aws-eks#2406
            raise invalid_parameter(
                f"Role with arn: {role}, could not be assumed because it does not exist or the trusted entity is not "
                "correct"
            )
        subnets = self._check_subnets(request["resourcesVpcConfig"]["subnetIds"])
        vpc = str(subnets[0]["VpcId"])
        group = self._make_security_group(name, vpc)
        self._make_log_group(request)
        interfaces = tuple(self._make_interface(name, str(each["SubnetId"]), group) for each in subnets)
        cluster = self.clusters[name] = Cluster(request, arn, vpc, group, interfaces)
        self._observations.report("stack", name, "cluster CREATING")
        self._jobs.after(self._reaction, partial(self._start, cluster))
        return cluster

    def find(self, name: str) -> Cluster:
        """Return a cluster; EksError where there is none (terraform-aws-modules/terraform-aws-eks#793)."""
        if name not in self.clusters:
            raise not_found(f"No cluster found for name: {name}.")
        return self.clusters[name]

    def find_active(self, name: str) -> Cluster:
        """Return a cluster that can get parts."""
        cluster = self.find(name)
        if cluster.status != "ACTIVE":
            raise invalid_request(f"Cluster {name} must be ACTIVE, it is {cluster.status}")
        return cluster

    def find_group(self, cluster: Cluster, name: str) -> NodeGroup:
        """Return a node group as it is now."""
        if name not in cluster.groups:
            raise not_found(f"No node group found for name: {name}.")
        self.groups.refresh(cluster.groups[name])
        return cluster.groups[name]

    def find_addon(self, cluster: Cluster, name: str) -> Addon:
        """Return an add-on as it is now."""
        if name not in cluster.addons:
            raise not_found(f"No addon: {name} found in cluster: {cluster.name}")
        addon = cluster.addons[name]
        self._refresh_addon(cluster, addon)
        return addon

    def create_group(self, cluster: Cluster, request: Mapping[str, Any]) -> NodeGroup:
        """Begin to launch a node group."""
        group = self.groups.create(cluster, request)
        self.access.admit_nodes(cluster, group.role)
        return group

    def update_group(self, cluster: Cluster, group: NodeGroup, request: Mapping[str, Any]) -> Update:
        """Change the configuration of a node group."""
        self.groups.update(cluster, group, request)
        names = ("scalingConfig", "labels", "taints", "updateConfig", "nodeRepairConfig")
        update = Update("ConfigUpdate", {name: request[name] for name in names if name in request}, "Successful")
        group.updates[update.id] = update
        return update

    def update_group_version(self, cluster: Cluster, group: NodeGroup, request: Mapping[str, Any]) -> Update:
        """Begin to replace the nodes of a group by those of another version of its launch template."""
        former = self.groups.update_version(cluster, group, request)
        update = Update("VersionUpdate", {"LaunchTemplateVersion": request["launchTemplate"].get("version", "")})
        group.updates[update.id] = update
        group.status = "UPDATING"
        self._jobs.after(self._reaction, partial(self._replace_nodes, cluster, group, update, former))
        return update

    def _replace_nodes(self, cluster: Cluster, group: NodeGroup, update: Update, undo: Callable[[], None]) -> None:
        replacement = NodeReplacement(
            self._scaling, cluster, group, minute_seconds=self._minute_seconds, patience=self._patience
        )
        update.errors = replacement.run()
        with self.lock:
            if update.errors:
                undo()
            update.status, group.status = "Failed" if update.errors else "Successful", "ACTIVE"
        self._observations.report("stack", group.name, f"update of the nodes: {update.status}")

    def create_addon(self, cluster: Cluster, request: Mapping[str, Any]) -> Addon:
        """Begin to install an add-on, with the identities of its accounts."""
        check_addon(request, cluster.version)
        name = str(request["addonName"])
        if name in cluster.addons:
            raise in_use("Addon already exists.")
        arn = self._place.arn("eks", f"addon/{cluster.name}/{name}/{make_unique()}")
        own = [
            {"clusterName": cluster.name, "namespace": _SYSTEM, **each}
            for each in request.get("podIdentityAssociations", [])
        ]
        made = tuple(self.access.create_association(cluster, each, arn).id for each in own)
        addon = cluster.addons[name] = Addon(request, arn, time.monotonic() + self._patience, made)
        return addon

    def delete_addon(self, cluster: Cluster, addon: Addon) -> None:
        """Remove an add-on with its identities."""
        for name in addon.associations:
            cluster.associations.pop(name, None)
        del cluster.addons[addon.name]

    def delete_cluster(self, cluster: Cluster) -> None:
        """Delete a cluster; EksError while it has node groups."""
        if cluster.groups:
            raise in_use("Cluster has nodegroups attached")
        cluster.status = "DELETING"
        if cluster.running is not None:
            cluster.running.stop()
        for name in cluster.interfaces:
            self._ec2.delete_network_interface(NetworkInterfaceId=name)
        self._ec2.delete_security_group(GroupId=cluster.security_group)
        del self.clusters[cluster.name]

    def settle_cluster(self, cluster: Cluster) -> Outcome | None:
        """Return the outcome of a cluster's creation; None while it lasts."""
        if cluster.status == "FAILED":
            return Outcome(cluster.reason)
        return Outcome() if cluster.status == "ACTIVE" else None

    def settle_group(self, cluster: Cluster, group: NodeGroup) -> Outcome | None:
        """Return the outcome of a node group's creation, in CloudFormation's words; None while it lasts."""
        self.groups.refresh(group)
        return _settle(group.status, f"Nodegroup {group.name}", group.issues) if cluster.groups else Outcome()

    def settle_addon(self, cluster: Cluster, addon: Addon) -> Outcome | None:
        """Return the outcome of an add-on's creation; None while it lasts."""
        self._refresh_addon(cluster, addon)
        return _settle(addon.status, f"Addon {addon.name}", addon.issues)

    def find_credentials(self, cluster: str, namespace: str, account: str, node: str) -> Credentials | None:
        """Return the credentials of a pod by its service account and node; None where there are none for it."""
        known = self.clusters.get(cluster)
        return self.access.find_credentials(known, namespace, account, node) if known else None

    def find_mount_obstacle(self, cluster: str, node: str, volume: tuple[str, str]) -> tuple[str, str]:
        """Return the step of the kubelet that fails for a file system and access point on a node; empty for none."""
        known = self.clusters[cluster]
        group = next(group for group in known.groups.values() if node in group.nodes)
        return self._rights.find_mount_obstacle(known, group.role, group.nodes[node].machine, volume)

    def find_pull_denial(self, cluster: str, node: str, image: str) -> str:
        """Return why a node of a cluster may not pull an image, for a pod of the user; empty where it may."""
        known = self.clusters[cluster]
        self._rights.note_missing_addons(known)
        group = next(group for group in known.groups.values() if node in group.nodes)
        return self._rights.find_pull_denial(group.role, node, image)

    def may_write(self, cluster: str, node: str, volume: tuple[str, str]) -> bool:
        """Return whether a node of a cluster writes to a file system through an access point."""
        known = self.clusters[cluster]
        group = next(group for group in known.groups.values() if node in group.nodes)
        return self._rights.may_write(known, group.role, group.nodes[node].machine, volume)

    def find_part(self, path: Sequence[str]) -> tuple[str, Mapping[str, str]] | None:
        """Return ARN and tags of a cluster, or of a part by its cluster, kind and name; None where there is none."""
        cluster = self.clusters.get(path[0])
        if cluster is None or len(path) == 1:
            return None if cluster is None else (cluster.arn, cluster.tags)
        kinds: Mapping[str, Mapping[str, NodeGroup | Addon | Association]] = {
            "nodegroup": cluster.groups,
            "addon": cluster.addons,
            "association": cluster.associations,
        }
        if path[1] == "entry":
            entry = cluster.entries.get(path[2])
            return None if entry is None else (entry.arn, entry.tags)
        found = kinds[path[1]].get(path[2])
        return None if found is None else (found.arn, found.request.get("tags", {}))

    def close(self) -> None:
        """Stop all control planes."""
        self._jobs.close()
        for cluster in self.clusters.values():
            if cluster.running is not None:
                cluster.running.stop()

    def _start(self, cluster: Cluster) -> None:
        assert self._host is not None
        review: Callable[..., Any] = partial(self.access.review, cluster)
        try:
            running = self._host.start(ClusterOrder(cluster.name, cluster.version, review))
        except Exception as error:  # noqa: BLE001 - the lab's own failure must not pass for a slow start
            cluster.status, cluster.reason = "FAILED", f"the control plane did not start: {error}"
            return
        with self.lock:
            if cluster.status == "DELETING":  # meanwhile
                running.stop()
                return
            cluster.running, cluster.status = running, "ACTIVE"
        self._observations.report("stack", cluster.name, "cluster ACTIVE")

    def _refresh_addon(self, cluster: Cluster, addon: Addon) -> None:
        """Take a new add-on to its next state, if it is there; deployments wait for a node that takes their pods."""
        if addon.status in ("ACTIVE", "CREATE_FAILED"):
            return
        if addon.name not in DEPLOYMENTS or any(
            _takes_pods(node) and self._rights.may_run_addon(group.role, node.machine.instance_id, addon.name)
            for group in cluster.groups.values()
            for node in group.nodes.values()
            if not node.obstacle
        ):
            addon.status, addon.issues = "ACTIVE", ()
            return
        # aws/containers-roadmap#2328
        said = "The add-on is unhealthy because it doesn't have the desired number of replicas."
        addon.issues = (Issue("InsufficientNumberOfReplicas", said),)
        addon.status = "CREATE_FAILED" if is_over(addon.deadline) else "DEGRADED"

    def _check_subnets(self, names: Sequence[str]) -> list[Any]:
        try:
            subnets: list[Any] = self._ec2.describe_subnets(SubnetIds=list(names))["Subnets"]
        except ClientError as error:
            raise invalid_parameter(str(error.response["Error"]["Message"])) from error
        if len({each["VpcId"] for each in subnets}) != 1:
            raise invalid_parameter("subnetIds must be of one VPC")
        if len({each["AvailabilityZone"] for each in subnets}) < 2:  # noqa: PLR2004 - the rule itself
            # awsdocs/amazon-eks-user-guide#795
            raise invalid_parameter("Subnets specified must be in at least two different AZs")
        return subnets

    def _make_security_group(self, name: str, vpc: str) -> str:
        """Make the group of control plane and nodes, which admits itself (EKS user guide, "sec-group-reqs")."""
        tags = {"aws:eks:cluster-name": name, f"kubernetes.io/cluster/{name}": "owned"}
        group = self._ec2.create_security_group(
            GroupName=f"eks-cluster-sg-{name}-{int(make_unique()[:8], 16)}",
            Description="EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, "
            "as well as any managed workloads.",
            VpcId=vpc,
            TagSpecifications=[
                {"ResourceType": "security-group", "Tags": [{"Key": key, "Value": tags[key]} for key in tags]}
            ],
        )["GroupId"]
        permission = {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}
        self._ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[permission])
        return str(group)

    def _make_log_group(self, request: Mapping[str, Any]) -> None:
        """Make the group of a cluster's logs where there is none; it outlives the cluster, and keeps logs forever."""
        logs, name = self._place.client("logs"), f"/aws/eks/{request['name']}/cluster"
        rows = request.get("logging", {}).get("clusterLogging", [])
        known = logs.describe_log_groups(logGroupNamePrefix=name)["logGroups"]
        if any(row.get("enabled") for row in rows) and not any(each["logGroupName"] == name for each in known):
            logs.create_log_group(logGroupName=name)

    def _make_interface(self, name: str, subnet: str, group: str) -> str:
        """Make an interface of the control plane; EKS makes two to four, at least one in each zone."""
        answer = self._ec2.create_network_interface(SubnetId=subnet, Groups=[group], Description=f"Amazon EKS {name}")
        return str(answer["NetworkInterface"]["NetworkInterfaceId"])


def _takes_pods(node: Any) -> bool:
    tainted = any(taint.effect in _KEEPS_AWAY for taint in node.joined.taints)
    return not tainted and not node.joined.find_fault()


def _settle(status: str, what: str, issues: Sequence[Issue]) -> Outcome | None:
    if status == "CREATE_FAILED":
        return Outcome(f"{what} failed to stabilize: [{', '.join(issue.to_text() for issue in issues)}]")
    return Outcome() if status == "ACTIVE" else None
