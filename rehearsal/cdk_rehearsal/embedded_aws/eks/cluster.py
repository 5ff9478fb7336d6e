"""A cluster of EKS as data, with its node groups, add-ons, access entries and identities, in the API's form."""

import secrets
import string
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from cdk_rehearsal.embedded_aws.base.scaling_group import ScalingGroup, now
from cdk_rehearsal.embedded_aws.eks.host import AccessPolicy, ClusterNode, RunningCluster
from cdk_rehearsal.machine import Machine

ClusterStatus = Literal["CREATING", "ACTIVE", "DELETING", "FAILED"]
PartStatus = Literal["CREATING", "ACTIVE", "UPDATING", "DEGRADED", "CREATE_FAILED"]
STANDARD, NODES = "STANDARD", "EC2_LINUX"
"""Types of access entries: of people and programs, and of nodes."""


@dataclass(frozen=True)
class Issue:
    """An issue of a node group or an add-on."""

    code: str
    message: str
    resources: tuple[str, ...] = ()

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        return {"code": self.code, "message": self.message, "resourceIds": list(self.resources)}

    def to_text(self) -> str:
        """Return the form that CloudFormation shows (eksctl-io/eksctl#3477)."""
        return f"{{Code: {self.code},Message: {self.message},ResourceIds: [{', '.join(self.resources)}]}}"


@dataclass
class Update:
    """An update of a node group."""

    kind: Literal["VersionUpdate", "ConfigUpdate"]
    params: Mapping[str, Any]
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    status: Literal["InProgress", "Successful", "Failed"] = "InProgress"
    errors: tuple[Issue, ...] = ()
    created: datetime = field(default_factory=now)

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        errors = [
            {"errorCode": each.code, "errorMessage": each.message, "resourceIds": list(each.resources)}
            for each in self.errors
        ]
        params = [{"type": name, "value": str(value)} for name, value in self.params.items()]
        own = {"id": self.id, "status": self.status, "type": self.kind, "createdAt": self.created}
        return {**own, "params": params, "errors": errors}


@dataclass
class Node:
    """An instance of a node group; `obstacle` is why it has not joined, empty where it has."""

    machine: Machine
    joined: ClusterNode
    obstacle: str = ""


@dataclass
class NodeGroup:
    """A node group; `deadline` is the monotonic time at which its creation fails, None until its instances run."""

    request: Mapping[str, Any]
    arn: str
    scaling: ScalingGroup
    profile: str
    deadline: float | None = None
    status: PartStatus = "CREATING"
    issues: tuple[Issue, ...] = ()
    nodes: dict[str, Node] = field(default_factory=dict)
    updates: dict[str, Update] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)  # instances whose network plugin has begun
    created: datetime = field(default_factory=now)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.request["nodegroupName"])

    @property
    def role(self) -> str:
        """ARN of the role of its nodes."""
        return str(self.request["nodeRole"])

    def to_api(self, version: str) -> dict[str, Any]:
        """Return the API's form."""
        same = ("nodegroupName", "clusterName", "subnets", "amiType", "nodeRole", "taints", "updateConfig")
        more = ("nodeRepairConfig", "launchTemplate", "tags", "instanceTypes")
        group = self.scaling
        return {
            **{name: self.request[name] for name in (*same, *more) if name in self.request},
            "nodegroupArn": self.arn,
            "version": version,
            "createdAt": self.created,
            "modifiedAt": self.created,
            "status": self.status,
            "capacityType": self.request.get("capacityType", "ON_DEMAND"),
            "scalingConfig": {"minSize": group.min_size, "maxSize": group.max_size, "desiredSize": group.desired},
            "labels": self.request.get("labels", {}),
            "resources": {"autoScalingGroups": [{"name": group.name}]},
            "health": {"issues": [issue.to_api() for issue in self.issues]},
        }


@dataclass
class Addon:
    """An add-on; `deadline` is the monotonic time at which its creation fails."""

    request: Mapping[str, Any]
    arn: str
    deadline: float
    associations: tuple[str, ...] = ()
    status: PartStatus = "CREATING"
    issues: tuple[Issue, ...] = ()
    created: datetime = field(default_factory=now)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.request["addonName"])

    def to_api(self, associations: list[str]) -> dict[str, Any]:
        """Return the API's form; `associations` are the ARNs of its identities."""
        return {
            "addonName": self.name,
            "clusterName": self.request["clusterName"],
            "status": self.status,
            "health": {"issues": [issue.to_api() for issue in self.issues]},
            "addonArn": self.arn,
            "createdAt": self.created,
            "modifiedAt": self.created,
            "tags": self.request.get("tags", {}),
            "owner": "aws",
            "publisher": "eks",
            "podIdentityAssociations": associations,
        }


@dataclass
class AccessEntry:
    """An access entry."""

    cluster: str
    principal: str
    arn: str
    username: str
    kind: str = STANDARD
    groups: tuple[str, ...] = ()
    policies: tuple[AccessPolicy, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    created: datetime = field(default_factory=now)

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        return {
            "clusterName": self.cluster,
            "principalArn": self.principal,
            "kubernetesGroups": list(self.groups),
            "accessEntryArn": self.arn,
            "createdAt": self.created,
            "modifiedAt": self.created,
            "tags": self.tags,
            "username": self.username,
            "type": self.kind,
        }


@dataclass(frozen=True)
class Association:
    """The role of the pods of a service account; `owner` is the ARN of the add-on that made it, if one did."""

    request: Mapping[str, Any]
    arn: str
    owner: str = ""
    created: datetime = field(default_factory=now)

    @property
    def id(self) -> str:
        """Its id."""
        return self.arn.rpartition("/")[2]

    @property
    def account(self) -> tuple[str, str]:
        """Namespace and service account."""
        return str(self.request["namespace"]), str(self.request["serviceAccount"])

    @property
    def role(self) -> str:
        """ARN of the role."""
        return str(self.request["roleArn"])

    def summarize(self) -> dict[str, Any]:
        """Return the API's form in lists."""
        owner = {"ownerArn": self.owner} if self.owner else {}
        same = {name: self.request[name] for name in ("clusterName", "namespace", "serviceAccount")}
        return {**same, "associationArn": self.arn, "associationId": self.id, **owner}

    def to_api(self) -> dict[str, Any]:
        """Return the API's form."""
        return {
            **self.summarize(),
            "roleArn": self.role,
            "tags": self.request.get("tags", {}),
            "createdAt": self.created,
            "modifiedAt": self.created,
        }


@dataclass
class Cluster:
    """A cluster; `running` is None until its control plane answers, `reason` why it never did."""

    request: Mapping[str, Any]
    arn: str
    vpc: str
    security_group: str
    interfaces: tuple[str, ...]
    status: ClusterStatus = "CREATING"
    running: RunningCluster | None = None
    reason: str = ""
    groups: dict[str, NodeGroup] = field(default_factory=dict)
    addons: dict[str, Addon] = field(default_factory=dict)
    entries: dict[str, AccessEntry] = field(default_factory=dict)
    associations: dict[str, Association] = field(default_factory=dict)
    created: datetime = field(default_factory=now)

    @property
    def name(self) -> str:
        """Its name."""
        return str(self.request["name"])

    @property
    def version(self) -> str:
        """Its version of Kubernetes."""
        return str(self.request["version"])

    @property
    def tags(self) -> Mapping[str, str]:
        """Its tags."""
        return dict(self.request.get("tags", {}))

    def find_association(self, namespace: str, account: str) -> Association | None:
        """Return the association of a service account; None where it has none."""
        wanted = (namespace, account)
        return next((each for each in self.associations.values() if each.account == wanted), None)

    def to_api(self) -> dict[str, Any]:
        """Return the API's form; there is neither endpoint nor authority before the cluster is active."""
        same = ("name", "version", "roleArn", "logging", "encryptionConfig", "accessConfig", "upgradePolicy", "tags")
        network = {"clusterSecurityGroupId": self.security_group, "vpcId": self.vpc, "securityGroupIds": []}
        document: dict[str, Any] = {
            **{name: self.request[name] for name in same if name in self.request},
            "arn": self.arn,
            "createdAt": self.created,
            "resourcesVpcConfig": {**self.request["resourcesVpcConfig"], **network},
            "status": self.status,
        }
        if self.running is not None:
            document["endpoint"] = self.running.endpoint
            document["certificateAuthority"] = {"data": self.running.authority}
        return document


def make_unique() -> str:
    """Return the last part of the ARN of a part of a cluster."""
    return str(uuid.uuid4())


def make_association_id() -> str:
    """Return an id of an association, such as `a-dt1bedfjc72dlwp5n`."""
    return "a-" + "".join(secrets.choice(string.ascii_lowercase + string.digits) for _ in range(17))


def is_over(deadline: float) -> bool:
    """Return whether a monotonic time has come."""
    return time.monotonic() >= deadline
