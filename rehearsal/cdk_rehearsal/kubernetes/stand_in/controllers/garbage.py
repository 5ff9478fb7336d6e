"""Collector of what depends on removed objects, and controller of namespaces."""

from collections.abc import Sequence

from cdk_rehearsal.kubernetes.stand_in.api.objects import Objects, Write
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    ACCOUNTS,
    DAEMONS,
    JOBS,
    NAMESPACES,
    PODS,
    RESOURCES,
    Manifest,
    get_key,
)


class GarbageCollector:
    """
    Removes pods of removed jobs, and empties deleted namespaces.

    Args:
        objects: Objects of the control plane.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects, self._store = objects, objects.store

    def settle(self) -> Sequence[float]:
        """Look at owners, their pods and namespaces once."""
        for namespace in self._store.list(NAMESPACES):
            self._keep_namespace(namespace)
        jobs = {job["metadata"]["uid"]: job for job in self._store.list(JOBS)}
        owners = jobs | {each["metadata"]["uid"]: each for each in self._store.list(DAEMONS)}
        for pod in self._store.list(PODS):
            for owner in pod["metadata"].get("ownerReferences", ()):
                if owner["kind"] in (JOBS.kind, DAEMONS.kind):
                    self._look_at_owner(pod, owners.get(owner["uid"]))
        for job in jobs.values():
            self._end_job(job)
        return []

    def _look_at_owner(self, pod: Manifest, job: Manifest | None) -> None:
        finalizers = job["metadata"].get("finalizers", ()) if job else ()
        if job is not None and "orphan" in finalizers:
            self._store.change(PODS, get_key(pod), lambda each: each["metadata"].pop("ownerReferences"))
        elif (job is None or "foregroundDeletion" in finalizers) and "deletionTimestamp" not in pod["metadata"]:
            self._objects.delete(Write(PODS, *get_key(pod)), {"propagationPolicy": "Background"})

    def _end_job(self, job: Manifest) -> None:
        """Let a deleted job go once no pod names it."""
        uid, metadata = job["metadata"]["uid"], job["metadata"]
        if "deletionTimestamp" not in metadata:
            return
        pods = self._store.list(PODS, metadata["namespace"])
        owners = {owner["uid"] for pod in pods for owner in pod["metadata"].get("ownerReferences", ())}
        if uid not in owners:
            left = [each for each in metadata.get("finalizers", ()) if each not in ("orphan", "foregroundDeletion")]
            self._store.change(JOBS, get_key(job), lambda each: each["metadata"].update(finalizers=left))

    def _keep_namespace(self, namespace: Manifest) -> None:
        """Give a namespace its account, or remove what is in a deleted one."""
        name = namespace["metadata"]["name"]
        if "deletionTimestamp" not in namespace["metadata"]:
            if self._store.find(ACCOUNTS, (name, "default")) is None:
                self._store.create(ACCOUNTS, {"metadata": {"name": "default", "namespace": name}})
            return
        is_empty = True
        for resource in RESOURCES:
            for each in self._store.list(resource, name) if resource.is_namespaced else ():
                is_empty = False
                if "deletionTimestamp" not in each["metadata"]:
                    self._objects.delete(Write(resource, *get_key(each)), {"propagationPolicy": "Background"})
        if is_empty:
            self._store.change(NAMESPACES, get_key(namespace), lambda each: each["metadata"].update(finalizers=[]))
