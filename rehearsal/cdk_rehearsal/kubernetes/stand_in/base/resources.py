"""Kinds of objects that the stand-in keeps."""

from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]
"""Object of the API as its JSON."""
Key = tuple[str, str]
"""Namespace and name of an object; no namespace for one of the whole cluster."""


@dataclass(frozen=True)
class Resource:
    """
    Kind of objects, and where the API has it.

    Attributes:
        group: API group; empty for the core group.
        plural: Name in paths.
        kind: Name in objects.
        version: API version.
        is_namespaced: Whether its objects are in namespaces.
        has_status: Whether it has the subresource `status`.
        has_generation: Whether its objects count the changes of their specification.
        short_names: Names that `kubectl` takes.
    """

    group: str
    plural: str
    kind: str
    version: str = "v1"
    is_namespaced: bool = True
    has_status: bool = False
    has_generation: bool = False
    short_names: tuple[str, ...] = ()

    @property
    def api_version(self) -> str:
        """`apiVersion` of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Name in messages."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


JOBS = Resource("batch", "jobs", "Job", has_status=True, has_generation=True)
PODS = Resource("", "pods", "Pod", has_status=True, has_generation=True, short_names=("po",))
NODES = Resource("", "nodes", "Node", is_namespaced=False, has_status=True, short_names=("no",))
NAMESPACES = Resource("", "namespaces", "Namespace", is_namespaced=False, has_status=True, short_names=("ns",))
VOLUMES = Resource(
    "", "persistentvolumes", "PersistentVolume", is_namespaced=False, has_status=True, short_names=("pv",)
)
CLAIMS = Resource("", "persistentvolumeclaims", "PersistentVolumeClaim", has_status=True, short_names=("pvc",))
EVENTS = Resource("", "events", "Event", short_names=("ev",))
SECRETS = Resource("", "secrets", "Secret")
CONFIGURATIONS = Resource("", "configmaps", "ConfigMap", short_names=("cm",))
ACCOUNTS = Resource("", "serviceaccounts", "ServiceAccount", short_names=("sa",))
LEASES = Resource("coordination.k8s.io", "leases", "Lease")
CLASSES = Resource("storage.k8s.io", "storageclasses", "StorageClass", is_namespaced=False, short_names=("sc",))
_RBAC = "rbac.authorization.k8s.io"
ROLES = Resource(_RBAC, "roles", "Role")
CLUSTER_ROLES = Resource(_RBAC, "clusterroles", "ClusterRole", is_namespaced=False)
BINDINGS = Resource(_RBAC, "rolebindings", "RoleBinding")
CLUSTER_BINDINGS = Resource(_RBAC, "clusterrolebindings", "ClusterRoleBinding", is_namespaced=False)
DAEMONS = Resource("apps", "daemonsets", "DaemonSet", has_status=True, has_generation=True, short_names=("ds",))
DEPLOYMENTS = Resource(
    "apps", "deployments", "Deployment", has_status=True, has_generation=True, short_names=("deploy",)
)
RESOURCES = (
    JOBS,
    PODS,
    NODES,
    NAMESPACES,
    VOLUMES,
    CLAIMS,
    EVENTS,
    SECRETS,
    CONFIGURATIONS,
    ACCOUNTS,
    LEASES,
    CLASSES,
    ROLES,
    CLUSTER_ROLES,
    BINDINGS,
    CLUSTER_BINDINGS,
    DAEMONS,
    DEPLOYMENTS,
)


def get_key(manifest: Manifest) -> Key:
    """Return namespace and name of an object."""
    return manifest["metadata"].get("namespace", ""), manifest["metadata"]["name"]
