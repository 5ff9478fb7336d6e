"""Admission: what the server refuses of valid objects, and fields that the stand-in does not obey."""

from cdk_rehearsal.kubernetes.stand_in.api import pod_security
from cdk_rehearsal.kubernetes.stand_in.api.supported_fields import require_support
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError
from cdk_rehearsal.kubernetes.stand_in.base.resources import CLAIMS, DAEMONS, JOBS, PODS, Manifest, Resource
from cdk_rehearsal.kubernetes.stand_in.base.selectors import read_quantity
from cdk_rehearsal.kubernetes.stand_in.base.store import Store


def require_admission(store: Store, resource: Resource, manifest: Manifest, before: Manifest | None) -> list[str]:
    """
    Require that admission takes an object; return the warnings of the answer.

    Args:
        store: The store.
        resource: Kind of the object.
        manifest: The valid object.
        before: The object before the update; None for a new one.

    Raises:
        ApiError: Admission refuses the object, or the stand-in does not implement what it wants.
    """
    if resource is PODS:
        if before is None:
            pod_security.require_security(store, manifest)
            require_support(resource, manifest, is_daemon=is_daemon(manifest))
        return []
    if resource is CLAIMS and before is not None:
        _require_size(manifest, before)
    if resource in (JOBS, DAEMONS):
        namespace, template = manifest["metadata"]["namespace"], manifest["spec"]["template"]
        if words := pod_security.warn_of_security(store, namespace, template):
            return [words]
        level = pod_security.read_level(store, namespace, "enforce")
        if pod_security.describe_violations(level, template):
            return []  # No pod of it will be: the server refuses each, and nothing of it needs to be obeyed.
    require_support(resource, manifest)
    return []


def is_daemon(pod: Manifest) -> bool:
    """Return whether a pod is one of a DaemonSet."""
    return any(owner["kind"] == DAEMONS.kind for owner in pod["metadata"].get("ownerReferences", ()))


def _require_size(claim: Manifest, before: Manifest) -> None:
    """Require that a claim keeps its size: no class of the stand-in's volumes can be resized."""
    new, old = (each["spec"]["resources"]["requests"]["storage"] for each in (claim, before))
    if read_quantity(new) > read_quantity(old):
        name = claim["metadata"]["name"]
        words = "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must "
        message = f'persistentvolumeclaims "{name}" is forbidden: {words}support resize'
        raise ApiError(403, "Forbidden", message, {"name": name, "kind": "persistentvolumeclaims"})
