"""Store of the objects: versions, and the history that watches read."""

import copy
import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from cdk_rehearsal.kubernetes.stand_in.base.clock import Clock
from cdk_rehearsal.kubernetes.stand_in.base.failures import ApiError, report_existing, report_missing
from cdk_rehearsal.kubernetes.stand_in.base.resources import EVENTS, RESOURCES, Key, Manifest, Resource, get_key

_MOST_CHANGES = 20_000
"""Changes that watches can read; the API server keeps those of five minutes."""


@dataclass(frozen=True)
class Change:
    """
    Change of an object.

    Attributes:
        version: Version of the store afterwards.
        resource: Kind of the object.
        before: The object before; None when it was created.
        after: The object afterwards; None when it was removed.
    """

    version: int
    resource: Resource
    before: Manifest | None
    after: Manifest | None


class Store:
    """
    Objects by kind, namespace and name. What it returns is never changed: `change` makes a new one.

    Attributes:
        clock: The clock.
        lock: Held by whoever reads and then writes.
        changed: Notified after each change.
        failure: Why the controllers have ended; None while they run.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self._objects: dict[Resource, dict[Key, Manifest]] = {resource: {} for resource in RESOURCES}
        self.failure: Exception | None = None
        self._version = 1
        self._changes: deque[Change] = deque(maxlen=_MOST_CHANGES)

    @property
    def version(self) -> int:
        """Version of the last change."""
        return self._version

    def find(self, resource: Resource, key: Key) -> Manifest | None:
        """Return an object; None when it does not exist."""
        with self.lock:
            return self._objects[resource].get(key)

    def get(self, resource: Resource, key: Key) -> Manifest:
        """Return an object; ApiError when it does not exist."""
        found = self.find(resource, key)
        if found is None:
            raise report_missing(resource, key[1])
        return found

    def list(self, resource: Resource, namespace: str = "") -> list[Manifest]:
        """Return the objects of a namespace, or all, in the order of their names."""
        with self.lock:
            found = sorted(self._objects[resource].items())
            return [manifest for (where, _), manifest in found if namespace in ("", where)]

    def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Add an object; ApiError when there is one of its name."""
        with self.lock:
            new = copy.deepcopy(manifest)
            key = get_key(new)
            if key in self._objects[resource]:
                raise report_existing(resource, key[1])
            new.setdefault("apiVersion", resource.api_version)
            new.setdefault("kind", resource.kind)
            metadata = new["metadata"]
            metadata.setdefault("uid", str(uuid.uuid4()))
            metadata["creationTimestamp"] = self.clock.format()
            if resource.has_generation:
                metadata["generation"] = 1
            return self._write(resource, key, None, new)

    def replace(self, resource: Resource, new: Manifest) -> Manifest:
        """
        Write an object in place of the one of its name.

        One that is the same leaves everything as it is. One that is being deleted and waits for nothing is removed.
        """
        with self.lock:
            key = get_key(new)
            before = self.get(resource, key)
            if new == before:
                return before
            metadata = new["metadata"]
            if resource.has_generation and _get_content(new) != _get_content(before):
                metadata["generation"] = before["metadata"].get("generation", 1) + 1
            is_ending = "deletionTimestamp" in metadata and not metadata.get("deletionGracePeriodSeconds")
            if is_ending and not metadata.get("finalizers"):
                return self._write(resource, key, before, None)
            return self._write(resource, key, before, new)

    def change(self, resource: Resource, key: Key, edit: Callable[[Manifest], object]) -> Manifest | None:
        """
        Change an object; None when it does not exist.

        Args:
            resource: Kind of the object.
            key: Its namespace and name.
            edit: Changes the copy that it gets.
        """
        with self.lock:
            found = self.find(resource, key)
            if found is None:
                return None
            new = copy.deepcopy(found)
            edit(new)
            return self.replace(resource, new)

    def remove(self, resource: Resource, key: Key) -> Manifest:
        """Remove an object at once."""
        with self.lock:
            return self._write(resource, key, self.get(resource, key), None)

    def read_changes(self, since: int) -> Iterator[Change]:
        """
        Return the changes after a version.

        Raises:
            ApiError: The store does not have them any more.
        """
        with self.lock:
            if self._changes and since + 1 < self._changes[0].version and len(self._changes) == _MOST_CHANGES:
                raise ApiError(410, "Expired", f"too old resource version: {since} ({self._changes[0].version})")
            return iter([change for change in self._changes if change.version > since])

    def record_event(self, about: Manifest, reason: str, message: str, *, source: str, is_warning: bool = True) -> None:
        """
        Record an event; one of the same words counts on.

        Args:
            about: Object that it is about.
            reason: Reason of one word.
            message: Words for people.
            source: Component that reports it.
            is_warning: Whether it is a warning.
        """
        metadata = about["metadata"]
        involved = {
            "kind": about["kind"],
            "apiVersion": about["apiVersion"],
            "name": metadata["name"],
            "uid": metadata["uid"],
            **({"namespace": metadata["namespace"]} if "namespace" in metadata else {}),
        }
        with self.lock:
            namespace = metadata.get("namespace", "default")
            for event in self.list(EVENTS, namespace):
                words = event.get("reason"), event.get("message")
                if event["involvedObject"] == involved and words == (reason, message):
                    self.change(EVENTS, get_key(event), self._count)
                    return
            now = self.clock.format()
            event = {
                "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": namespace},
                "involvedObject": involved,
                "reason": reason,
                "message": message,
                "source": {"component": source},
                "reportingComponent": source,
                "reportingInstance": "",
                "type": "Warning" if is_warning else "Normal",
                "count": 1,
                "firstTimestamp": now,
                "lastTimestamp": now,
                "eventTime": None,
            }
            self.create(EVENTS, event)

    def _count(self, event: Manifest) -> None:
        event["count"] = event.get("count", 1) + 1
        event["lastTimestamp"] = self.clock.format()

    def _write(self, resource: Resource, key: Key, before: Manifest | None, after: Manifest | None) -> Manifest:
        self._version += 1
        if after is None:
            assert before is not None
            last = copy.deepcopy(before)
            del self._objects[resource][key]
        else:
            last = self._objects[resource][key] = after
        last["metadata"]["resourceVersion"] = str(self._version)
        self._changes.append(Change(self._version, resource, last if after is None else before, after))
        self.changed.notify_all()
        return last


def _get_content(manifest: Manifest) -> Manifest:
    return {name: value for name, value in manifest.items() if name not in ("metadata", "status")}
