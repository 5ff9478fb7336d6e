"""
Rights of users by role bindings, with the roles that every cluster has.

EKS decides about access policies by an authorizer of its own; it describes `AmazonEKSClusterAdminPolicy` and
`AmazonEKSEditPolicy` as the rights of the roles `cluster-admin` and `edit` (Amazon EKS user guide, "Review access
policy permissions").
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, Manifest
from cdk_rehearsal.kubernetes.stand_in.base.store import Store
from cdk_rehearsal.kubernetes.users import ADMINISTRATORS, AUTHENTICATED, User

_GROUP = "rbac.authorization.k8s.io"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_READ = ("get", "list", "watch")
_WRITE = ("create", "delete", "deletecollection", "patch", "update")
_VIEWED: Mapping[str, tuple[str, ...]] = {
    "": (
        "bindings",
        "configmaps",
        "endpoints",
        "events",
        "limitranges",
        "namespaces",
        "namespaces/status",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "resourcequotas",
        "resourcequotas/status",
        "serviceaccounts",
        "services",
        "services/status",
    ),
    "apps": ("daemonsets", "daemonsets/status", "deployments", "deployments/status", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "cronjobs/status", "jobs", "jobs/status"),
}
_EDITED: Mapping[str, tuple[str, ...]] = {
    "": (
        "configmaps",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "secrets",
        "serviceaccounts",
        "services",
        "services/proxy",
    ),
    "apps": ("daemonsets", "deployments", "replicasets", "statefulsets"),
    "batch": ("cronjobs", "jobs"),
    "coordination.k8s.io": ("leases",),
}


@dataclass(frozen=True)
class Attempt:
    """
    Action of a request, which needs a right.

    Attributes:
        verb: Such as `list`.
        group: API group.
        resource: Plural, with the subresource behind a slash.
        namespace: Namespace; empty for the whole cluster.
        name: Name of the object; empty for several.
        path: Path of a request that is about no object; empty otherwise.
    """

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""


def add_roles(store: Store) -> None:
    """Add the roles of every cluster that role bindings name."""
    view = [{"apiGroups": [group], "resources": [*names], "verbs": [*_READ]} for group, names in _VIEWED.items()]
    edit = [
        *view,
        {"apiGroups": [""], "resources": ["secrets"], "verbs": [*_READ]},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": [*_READ]},
        *({"apiGroups": [group], "resources": [*names], "verbs": [*_WRITE]} for group, names in _EDITED.items()),
        {"apiGroups": [""], "resources": ["pods/eviction", "serviceaccounts/token"], "verbs": ["create"]},
    ]
    everything = [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]
    paths = [
        "/api",
        "/api/*",
        "/apis",
        "/apis/*",
        "/healthz",
        "/livez",
        "/openapi",
        "/openapi/*",
        "/readyz",
        "/version",
    ]
    discovery = [{"nonResourceURLs": paths, "verbs": ["get"]}]
    roles = {"cluster-admin": everything, "edit": edit, "view": view, "system:discovery": discovery}
    for name, rules in roles.items():
        store.create(CLUSTER_ROLES, {"metadata": {"name": name}, "rules": rules})
    for name, group in {"cluster-admin": ADMINISTRATORS, "system:discovery": AUTHENTICATED}.items():
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": _GROUP, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "Group", "apiGroup": _GROUP, "name": group}],
        }
        store.create(CLUSTER_BINDINGS, binding)


def require_right(store: Store, user: User, attempt: Attempt) -> None:
    """Require that a user may do something; ApiError with the words of the server where not."""
    if not any(_allows(rule, attempt) for rule in _list_rules(store, user, attempt.namespace)):
        raise _refuse(user, attempt)


def review_access(store: Store, user: User, review: Manifest) -> Manifest:
    """
    Return the answer to a user's question whether it may do something, as `kubectl auth can-i` asks it.

    Args:
        store: The store.
        user: The user.
        review: `SelfSubjectAccessReview`.
    """
    spec = review.get("spec", {})
    asked, path = spec.get("resourceAttributes", {}), spec.get("nonResourceAttributes", {})
    part = f"/{asked['subresource']}" if asked.get("subresource") else ""
    attempt = Attempt(
        asked.get("verb") or path.get("verb", ""),
        asked.get("group", ""),
        f"{asked.get('resource', '')}{part}",
        asked.get("namespace", ""),
        asked.get("name", ""),
        path.get("path", ""),
    )
    try:
        require_right(store, user, attempt)
    except ApiError:
        return {**review, "status": {"allowed": False}}
    return {**review, "status": {"allowed": True}}


def _list_rules(store: Store, user: User, namespace: str) -> Iterator[Mapping[str, Any]]:
    for binding in store.list(CLUSTER_BINDINGS):
        if _is_subject(user, binding):
            yield from _read_rules(store, binding)
    for binding in store.list(BINDINGS, namespace) if namespace else ():
        if _is_subject(user, binding):
            yield from _read_rules(store, binding)


def _is_subject(user: User, binding: Manifest) -> bool:
    groups = (*user.groups, AUTHENTICATED)
    return any(
        (subject["kind"] == "User" and subject["name"] == user.name)
        or (subject["kind"] == "Group" and subject["name"] in groups)
        for subject in binding.get("subjects", ())
    )


def _read_rules(store: Store, binding: Manifest) -> Sequence[Mapping[str, Any]]:
    reference = binding["roleRef"]
    if reference["kind"] == "ClusterRole":
        role = store.find(CLUSTER_ROLES, ("", reference["name"]))
    else:
        role = store.find(ROLES, (binding["metadata"]["namespace"], reference["name"]))
    return role.get("rules") or [] if role else []


def _allows(rule: Mapping[str, Any], attempt: Attempt) -> bool:
    if not {"*", attempt.verb} & set(rule["verbs"]):
        return False
    if attempt.path:
        paths = rule.get("nonResourceURLs", ())
        return any(attempt.path.startswith(path[:-1]) if path.endswith("*") else attempt.path == path for path in paths)
    names = rule.get("resourceNames", ())
    return bool(
        {"*", attempt.group} & set(rule.get("apiGroups", ()))
        and {"*", attempt.resource} & set(rule.get("resources", ()))
        and (not names or attempt.name in names)
    )


def _refuse(user: User, attempt: Attempt) -> ApiError:
    if attempt.path:
        words = f'forbidden: User "{user.name}" cannot {attempt.verb} path "{attempt.path}"'
        return ApiError(403, "Forbidden", words)
    plural = attempt.resource.partition("/")[0]
    qualified = f"{plural}.{attempt.group}" if attempt.group else plural
    about = f'{qualified} "{attempt.name}"' if attempt.name else qualified
    where = f'in the namespace "{attempt.namespace}"' if attempt.namespace else "at the cluster scope"
    words = (
        f'{about} is forbidden: User "{user.name}" cannot {attempt.verb} resource "{attempt.resource}" in API group '
        f'"{attempt.group}" {where}'
    )
    details = {"group": attempt.group} if attempt.group else {}
    name = {"name": attempt.name} if attempt.name else {}
    return ApiError(403, "Forbidden", words, {**name, **details, "kind": plural})
