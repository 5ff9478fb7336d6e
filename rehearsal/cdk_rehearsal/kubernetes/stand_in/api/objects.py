"""Verbs of the API on objects: create, update, patch, delete, and eviction."""

import copy
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cdk_rehearsal.kubernetes.stand_in.api import admission, defaults, validation
from cdk_rehearsal.kubernetes.stand_in.base.failures import (
    ApiError,
    report_existing,
    report_invalid,
    report_missing,
    report_stale,
)
from cdk_rehearsal.kubernetes.stand_in.base.resources import (
    JOBS,
    NAMESPACES,
    NODES,
    PODS,
    Key,
    Manifest,
    Resource,
    get_key,
)
from cdk_rehearsal.kubernetes.stand_in.base.store import Store
from cdk_rehearsal.kubernetes.stand_in.schemas import patches
from cdk_rehearsal.kubernetes.stand_in.schemas.schema import Schema, drop_nulls

APPLY = "application/apply-patch+yaml"
_STRATEGIC, _PLAIN, _LIST = (
    "application/strategic-merge-patch+json",
    "application/merge-patch+json",
    "application/json-patch+json",
)
_ENDED = ("Succeeded", "Failed")


@dataclass
class Write:
    """
    A request that writes.

    Attributes:
        resource: Kind of the object.
        namespace: Its namespace.
        name: Its name; empty for a new one.
        part: Subresource; empty for the object.
        manager: Field manager.
        query: Parameters.
        warnings: Warnings of the answer.
    """

    resource: Resource
    namespace: str
    name: str = ""
    part: str = ""
    manager: str = "unknown"
    query: Mapping[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    @property
    def key(self) -> Key:
        """Namespace and name of the object."""
        return self.namespace, self.name


class Objects:
    """
    Objects of a store, as the API lets them be written.

    Attributes:
        store: The store.
        schema: Schemas of the version.
        version: Minor version of Kubernetes.
    """

    def __init__(self, store: Store, schema: Schema, version: tuple[int, int]) -> None:
        self.store, self.schema, self.version = store, schema, version

    def create(self, write: Write, manifest: Manifest) -> Manifest:
        """Create an object of a request; ApiError where it is refused."""
        new = self._read(write, manifest)
        self._own(write, {"metadata": {}}, new)
        return self._add(write, new)

    def update(self, write: Write, manifest: Manifest) -> Manifest:
        """Replace an object, or its status; ApiError where it is refused."""
        new = self._read(write, manifest)
        with self.store.lock:
            return self._put(write, self.store.get(write.resource, write.key), new)

    def patch(self, write: Write, patch: Any, kind: str) -> tuple[int, Manifest]:
        """
        Change an object by a patch.

        Args:
            write: The request.
            patch: The patch.
            kind: Content type, which says what kind of patch it is.

        Returns:
            HTTP status, which tells whether the object is new, and the object.
        """
        with self.store.lock:
            live = self.store.find(write.resource, write.key)
            if kind.startswith("application/apply-patch"):
                return self._apply(write, live, patch)
            if live is None:
                raise report_missing(write.resource, write.name)
            node = self.schema.get(write.resource)
            if kind == _STRATEGIC:
                new = patches.merge_strategically(self.schema, node, live, patch)
            elif kind == _PLAIN:
                new = patches.merge_plainly(live, patch)
            elif kind == _LIST:
                new = patches.change_by_list(live, patch)
            else:
                words = f"the body of the request was in an unknown format - accepted media types include: {_LIST}, "
                raise ApiError(415, "UnsupportedMediaType", f"{words}{_PLAIN}, {_STRATEGIC}, {APPLY}")
            return 200, self._put(write, live, self._read(write, copy.deepcopy(new)))

    def delete(self, write: Write, options: Mapping[str, Any]) -> Manifest:
        """
        Delete an object, at once or when its finalizers and its grace period are over.

        Args:
            write: The request.
            options: `DeleteOptions`.
        """
        with self.store.lock:
            found = self.store.get(write.resource, write.key)
            wanted = options.get("preconditions", {})
            for name in ("uid", "resourceVersion"):
                if name in wanted and wanted[name] != found["metadata"][name]:
                    raise report_stale(write.resource, write.name)
            if _is_dry(write):
                return found
            policy = options.get("propagationPolicy") or ("Orphan" if write.resource is JOBS else "Background")
            if write.resource is JOBS and not options.get("propagationPolicy"):
                write.warnings.append(
                    "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to "
                    "remove them or set propagationPolicy=Orphan to suppress this warning"
                )
            return self._end(write, found, policy, options.get("gracePeriodSeconds"))

    def evict(self, write: Write, eviction: Manifest) -> Manifest:
        """Evict a pod, as a drain does: it becomes the target of a disruption, and is deleted."""
        with self.store.lock:
            found = self.store.get(PODS, write.key)
            if not _is_dry(write) and found["status"]["phase"] not in _ENDED:
                mark_disrupted(self.store, write.key, "EvictionByEvictionAPI", "Eviction API: evicting")
            self.delete(write, {"propagationPolicy": "Background", **eviction.get("deleteOptions", {})})
        return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}

    def _apply(self, write: Write, live: Manifest | None, wanted: Any) -> tuple[int, Manifest]:
        if "fieldManager" not in write.query:
            words = 'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is required for apply patch'
            raise ApiError(422, "Invalid", words)
        wanted = drop_nulls(wanted)
        self._check_target(write, wanted)
        base = live or {"metadata": {"name": write.name}}
        new = patches.apply(
            self.schema,
            write.resource,
            base,
            wanted,
            manager=write.manager,
            force=write.query.get("force") == "true",
            now=self.store.clock.format(),
        )
        if live is None:
            new["metadata"].setdefault("namespace", write.namespace)
            return 201, self._add(write, self._place(write, new))
        return 200, self._put(write, live, self._place(write, new), is_owned=True)

    def _read(self, write: Write, manifest: Manifest) -> Manifest:
        """Return an object of a request without fields that its kind does not have."""
        manifest = drop_nulls(manifest)
        self._check_target(write, manifest)
        unknown = list(self.schema.drop_unknown(self.schema.get(write.resource), manifest))
        words = [f'unknown field "{path}"' for path in unknown]
        if unknown and write.query.get("fieldValidation") == "Strict":
            kind, version = write.resource.kind, write.resource.version
            message = f'{kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: '
            raise ApiError(400, "BadRequest", message + ", ".join(words))
        if mistakes := list(self.schema.find_mistakes(self.schema.get(write.resource), manifest)):
            kind, version = write.resource.kind, write.resource.version
            refusal = f'{kind} in version "{version}" cannot be handled as a {kind}: {", ".join(mistakes)}'
            raise ApiError(400, "BadRequest", refusal)
        if write.query.get("fieldValidation") != "Ignore":
            write.warnings += words
        return self._place(write, manifest)

    def _check_target(self, write: Write, manifest: Any) -> None:
        resource = write.resource
        if not isinstance(manifest, dict) or not isinstance(manifest.get("metadata"), dict):
            raise ApiError(400, "BadRequest", f"{resource.kind} must be an object with metadata")
        for name, value in (("apiVersion", resource.api_version), ("kind", resource.kind)):
            if manifest.setdefault(name, value) != value:
                words = f"the API version or kind in the data ({manifest[name]}) does not match the expected {value}"
                raise ApiError(400, "BadRequest", words)
        metadata = manifest["metadata"]
        if write.name and (name := metadata.setdefault("name", write.name)) != write.name:
            words = f"the name of the object ({name}) does not match the name on the URL ({write.name})"
            raise ApiError(400, "BadRequest", words)
        given = metadata.get("namespace")
        if given and given != write.namespace:
            words = "the namespace of the provided object does not match the namespace sent on the request"
            raise ApiError(400, "BadRequest", words)

    def _place(self, write: Write, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        metadata.pop("namespace", None)
        if write.resource.is_namespaced:
            metadata["namespace"] = write.namespace
        return manifest

    def _add(self, write: Write, new: Manifest) -> Manifest:
        resource, metadata = write.resource, new["metadata"]
        with self.store.lock:
            if write.namespace and self.store.find(NAMESPACES, ("", write.namespace)) is None:
                raise report_missing(NAMESPACES, write.namespace)
            if "name" not in metadata:
                if "generateName" not in metadata:
                    raise ApiError(422, "Invalid", "metadata.name: Required value: name or generateName is required")
                metadata["name"] = defaults.make_name(metadata["generateName"])
            if self.store.find(resource, get_key(new)) is not None:
                raise report_existing(resource, metadata["name"])
            if resource.has_status and resource is not NODES:  # which bring theirs
                new.pop("status", None)
            self._require_fields(write, new)
            defaults.fill(resource, new)
            metadata["uid"] = str(uuid.uuid4())
            defaults.admit(self.store, resource, new)
            validation.check(resource, new, None, self.version)
            write.warnings += admission.require_admission(self.store, resource, new, None)
            return new if _is_dry(write) else self.store.create(resource, new)

    def _put(self, write: Write, live: Manifest, new: Manifest, *, is_owned: bool = False) -> Manifest:
        resource, metadata, old = write.resource, new["metadata"], live["metadata"]
        version = metadata.get("resourceVersion")
        if version not in (None, "", old["resourceVersion"]):
            raise report_stale(resource, write.name)
        merged = copy.deepcopy(new)
        merged["metadata"].setdefault("managedFields", old.get("managedFields", []))
        if write.part == "status":
            merged = {**copy.deepcopy(live), "status": copy.deepcopy(new.get("status", {}))}
            merged["metadata"]["managedFields"] = metadata.get("managedFields", old.get("managedFields", []))
        elif resource.has_status:
            merged.pop("status", None)
            merged |= {"status": copy.deepcopy(live["status"])} if "status" in live else {}
        self._require_fields(write, merged)
        defaults.fill(resource, merged)
        kept = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds")
        merged["metadata"] |= {name: old[name] for name in (*kept, "resourceVersion") if name in old}
        for name in kept:
            if name not in old:
                merged["metadata"].pop(name, None)
        validation.check(resource, merged, live, self.version)
        write.warnings += admission.require_admission(self.store, resource, merged, live)
        if not is_owned:
            self._own(write, live, merged)
        if _is_unchanged(live, merged) or _is_dry(write):
            return merged if _is_dry(write) else live
        return self.store.replace(resource, merged)

    def _require_fields(self, write: Write, manifest: Manifest) -> None:
        written = {name: part for name, part in manifest.items() if name != "status"}  # Servers take any status.
        if missing := list(self.schema.find_missing(self.schema.get(write.resource), written)):
            raise report_invalid(write.resource, manifest["metadata"].get("name", ""), *missing)

    def _own(self, write: Write, before: Manifest, after: Manifest) -> None:
        patches.own_changes(
            self.schema,
            write.resource,
            before,
            after,
            manager=write.manager,
            part=write.part,
            now=self.store.clock.format(),
        )

    def _end(self, write: Write, found: Manifest, policy: str, grace: int | None) -> Manifest:
        resource, key = write.resource, get_key(found)
        seconds = 0
        if resource is PODS and found["spec"].get("nodeName") and found["status"]["phase"] not in _ENDED:
            seconds = found["spec"]["terminationGracePeriodSeconds"] if grace is None else int(grace)
        if "deletionTimestamp" in found["metadata"]:
            seconds = min(seconds, found["metadata"].get("deletionGracePeriodSeconds", 0))
        blocker = {"Foreground": "foregroundDeletion", "Orphan": "orphan"}.get(policy)
        finalizers = list(found["metadata"].get("finalizers", ()))
        if blocker and resource is not PODS and blocker not in finalizers:
            finalizers.append(blocker)
        if resource is NAMESPACES:
            finalizers.append("kubernetes")  # whose controller empties it first
        if not finalizers and not seconds:
            return self.store.remove(resource, key)

        def edit(manifest: Manifest) -> None:
            metadata = manifest["metadata"]
            metadata.setdefault("deletionTimestamp", self.store.clock.format(seconds))
            metadata["deletionGracePeriodSeconds"] = seconds
            if finalizers:
                metadata["finalizers"] = list(dict.fromkeys(finalizers))
            if resource is NAMESPACES:
                manifest["status"]["phase"] = "Terminating"

        return self.store.change(resource, key, edit) or found


def mark_disrupted(store: Store, key: Key, reason: str, message: str, *, phase: str = "") -> None:
    """
    Give a pod the condition of a disruption, which failure policies of jobs match.

    Args:
        store: The store.
        key: Namespace and name of the pod.
        reason: Who disrupts it.
        message: Words for people.
        phase: Phase that it gets.
    """

    def edit(pod: Manifest) -> None:
        set_condition(pod["status"], "DisruptionTarget", "True", (reason, message), store.clock.format())
        if phase:
            pod["status"]["phase"] = phase

    store.change(PODS, key, edit)


def set_condition(status: dict[str, Any], kind: str, value: str, words: tuple[str, str], now: str) -> bool:
    """
    Set a condition of a status; tell whether it was another before.

    Args:
        status: The status.
        kind: Type of the condition.
        value: `True`, `False` or `Unknown`.
        words: Its reason, and a message for people.
        now: Time of the change.
    """
    reason, message = words
    conditions = status.setdefault("conditions", [])
    condition = {"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now}
    for number, old in enumerate(conditions):
        if old["type"] == kind:
            if (old["status"], old.get("reason"), old.get("message")) == (value, reason, message):
                return False
            if old["status"] == value:
                condition["lastTransitionTime"] = old.get("lastTransitionTime", now)
            conditions[number] = {**old, **condition}
            return True
    conditions.append(condition)
    return True


def _is_dry(write: Write) -> bool:
    return write.query.get("dryRun") == "All"


def _is_unchanged(live: Manifest, new: Manifest) -> bool:
    """Return whether an object is the same but for the times of its managers."""

    def strip(manifest: Manifest) -> str:
        managers = manifest["metadata"].get("managedFields", ())
        plain = [{name: value for name, value in each.items() if name != "time"} for each in managers]
        return json.dumps({**manifest, "metadata": {**manifest["metadata"], "managedFields": plain}}, sort_keys=True)

    return strip(live) == strip(new)
