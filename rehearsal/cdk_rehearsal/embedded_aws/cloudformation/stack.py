"""
Creates a stack from a bound template, as CloudFormation does: each resource when what it depends on is complete.

CloudFormation promises no other order, so the seed of the options draws one. A failure cancels what is in progress and
rolls back. What `DeletionPolicy: Retain` keeps stays. Groups are deleted and their machines powered off; resources that
nothing in the lab can notice are left to its end, and their events say so. What cannot be deleted stays with all that
it depends on, and a later deletion of the stack tries again. An update changes resources that can be updated here, and
what refers to them, in the order of their creation: custom resources, whose functions see `Update` for any property,
launch templates and groups, node groups of EKS, policies, parameters and the code of functions. A rollback updates them
again.
"""

import threading
import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.base.signals import Outcome, ResourceSignals
from cdk_rehearsal.embedded_aws.base.stack_record import StackEvent, StackOutcome, StackResource
from cdk_rehearsal.embedded_aws.cloudformation.reasons import word_creation_failure, word_defect, word_deletion_failure
from cdk_rehearsal.embedded_aws.cloudformation.stack_registry import StackRegistry
from cdk_rehearsal.embedded_aws.cloudformation.template import BoundTemplate, draw_order
from cdk_rehearsal.embedded_aws.resources import CREATORS
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Properties
from cdk_rehearsal.embedded_aws.services import Services
from cdk_rehearsal.referees.resource_support import find_row, load_support

STACK_TYPE = "AWS::CloudFormation::Stack"
_WAIT_CONDITION = "AWS::CloudFormation::WaitCondition"
GROUP_TYPE = "AWS::AutoScaling::AutoScalingGroup"
_SETTLE_SECONDS = 0.1
_KEPT_BY_ROLLBACK = ("Retain",)
"""The one deletion policy that outlives a failed creation: `RetainExceptOnCreate` does not, nor does `Snapshot`."""
_KEPT_BY_DELETION = (*_KEPT_BY_ROLLBACK, "RetainExceptOnCreate")


class Stack:
    """
    A stack that is created, updated and deleted in a thread of its own.

    Raises AssemblyError for parameters without values, and for resources that depend on each other in a circle.
    """

    def __init__(
        self,
        name: str,
        template: Mapping[str, Any],
        services: Services,
        stacks: StackRegistry[Any],
        *,
        parameters: Mapping[str, str],
        tags: Mapping[str, str],
    ) -> None:
        self.name = name
        self.arn = services.place.arn("cloudformation", f"stack/{name}/{uuid.uuid4()}")
        self.created_at = datetime.now(timezone.utc)
        self.status = self.reason = ""
        self.outputs: Mapping[str, str] = {}
        self.exports: Mapping[str, str] = {}
        self._template = BoundTemplate(
            template, services, stacks, stack_name=name, stack_arn=self.arn, parameters=parameters
        )
        self._template.require_order()
        self.description = self._template.description
        self._services = services
        self._stacks = stacks
        self._tags = tags
        self._lock = threading.Lock()
        self._events: list[StackEvent] = []
        self._resources: dict[str, StackResource] = {}
        self._begun: dict[str, Created] = {}
        self._signals: dict[str, ResourceSignals] = {}
        self._given_up = ""
        self._closing = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread()
        stacks.add(self)

    @property
    def imports(self) -> Collection[str]:
        """Names of the exports of other stacks that it uses."""
        return self._template.imports

    def start(self) -> None:
        """Begin to create the resources."""
        self._begin("CREATE_IN_PROGRESS", self._run)
        self._services.observations.report("stack", self.name, f"order of creation: seed {self._services.options.seed}")

    def join(self, seconds: float) -> bool:
        """Wait for the end of the creation or its rollback, up to a time in seconds; return whether it has ended."""
        return self._ended.wait(seconds)

    def close(self) -> None:
        """Stop creating; nothing is rolled back."""
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def delete(self) -> None:
        """Begin to delete the resources, once more those that could not be deleted before."""
        if self.status.startswith("DELETE_") and self.status != "DELETE_FAILED":
            return
        if importers := self._stacks.find_importers(self):
            name, importer = next(iter(importers.items()))
            reason = f"Delete canceled. Cannot delete export {name} as it is in use by {importer.name}."
            self._report_event(self.name, self.arn, STACK_TYPE, self.status, reason)
            return
        self.close()
        self._begin("DELETE_IN_PROGRESS", self._delete)

    def update(self, resources: Mapping[str, Mapping[str, Any]]) -> None:
        """
        Begin to update the resources that differ in a new template.

        Raise ValueError where the stack is not complete, or a resource differs that cannot be updated here.
        """
        if self.status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"):
            raise ValueError(f"Stack:{self.arn} is in {self.status} state and can not be updated.")
        values = {name: self._template.properties(name) for name in self._template.resources}
        before, self._template.resources = self._template.resources, dict(resources)
        changed = [name for name in self._template.resources if self._template.resources[name] != before.get(name)]
        fixed = {name for name in changed if name not in self._begun or self._begun[name].update is None}
        if foreign := sorted((before.keys() ^ resources.keys()) | fixed):
            self._template.resources = before
            raise ValueError(
                "the rehearsal updates some types of resources alone, and adds and removes none, got changes of "
                f"{', '.join(foreign)}"
            )
        self._begin("UPDATE_IN_PROGRESS", partial(self._update, before, values))

    def signal(self, logical_id: str, unique_id: str, status: str) -> None:
        """Take a signal for a resource; raise ValueError where it waits for none, or for a status that is not AWS's."""
        entry = self._resources.get(logical_id)
        if logical_id not in self._signals or entry is None or entry.status != "CREATE_IN_PROGRESS":
            raise ValueError(f"Resource {logical_id} of stack {self.name} does not wait for signals")
        if status not in ("SUCCESS", "FAILURE"):
            raise ValueError(f"Status must be SUCCESS or FAILURE, got {status!r}")
        self._signals[logical_id].take(unique_id, status)
        text = f"Received {status} signal with UniqueId {unique_id}"
        self._note(logical_id, entry.physical_id, "CREATE_IN_PROGRESS", text)

    def awaits_signals(self) -> bool:
        """Return whether a resource waits for signals."""
        return any(self._awaits_signal(entry) for entry in self.resources())

    def give_up_signals(self, reason: str) -> None:
        """Let resources that wait for signals fail, for a reason."""
        self._given_up = reason

    def _awaits_signal(self, entry: StackResource) -> bool:
        is_signalled = entry.logical_id in self._signals or entry.resource_type == _WAIT_CONDITION
        return is_signalled and entry.status == "CREATE_IN_PROGRESS"

    def _begin(self, status: str, work: Callable[[], None]) -> None:
        self.status, self.reason = status, ""
        self._ended.clear()
        self._report_event(self.name, self.arn, STACK_TYPE, status, "User Initiated")
        self._thread = threading.Thread(target=self._work, args=(status, work), name=f"stack-{self.name}", daemon=True)
        self._thread.start()

    def _work(self, status: str, work: Callable[[], None]) -> None:
        """Run the stack's thread; a defect ends the operation with its reason."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - a thread that dies leaves a stack that waits for ever
            self.reason = word_defect(f"end the operation of stack {self.name}", error)
            self._end(status.replace("_IN_PROGRESS", "_FAILED"), self.reason)

    def events(self) -> tuple[StackEvent, ...]:
        """Return the events, oldest first."""
        with self._lock:
            return tuple(self._events)

    def resources(self) -> tuple[StackResource, ...]:
        """Return the resources, in the order of their creation."""
        with self._lock:
            return tuple(self._resources.values())

    def outcome(self) -> StackOutcome:
        """Return how the stack stands now."""
        return StackOutcome(self.status, self.reason, self.resources(), self.outputs, self.events())

    def _run(self) -> None:
        needs = {name: self._template.dependencies(name) for name in self._template.resources}
        waiting = draw_order(needs, self._services.options.seed)
        settling: dict[str, Created] = {}
        while (waiting or settling) and not self._closing.is_set():
            failed = self._settle(settling)
            ready = next((name for name in waiting if needs[name] <= self._template.created.keys()), None)
            if ready is not None and failed is None:
                waiting.remove(ready)
                created = self._create(ready)
                if created is None:
                    failed = ready
                else:
                    settling[ready] = created
            if failed is not None:
                self._roll_back(failed, settling)
                return
            if settling and ready is None:
                self._closing.wait(_SETTLE_SECONDS)
        if not self._closing.is_set():
            self._complete()

    def _settle(self, settling: dict[str, Created]) -> str | None:
        """Complete the resources that have settled; return the name of one that failed."""
        for name in tuple(settling):
            settle = settling[name].settle
            outcome = settle() if settle else Outcome()
            if outcome is None and self._given_up and self._awaits_signal(self._resources[name]):
                outcome = Outcome(self._given_up)
            if outcome is None:
                continue
            created = _rename(settling.pop(name), outcome)
            if outcome.reason:
                self._note(name, created.physical_id, "CREATE_FAILED", outcome.reason)
                return name
            self._template.created[name] = created
            self._note(name, created.physical_id, "CREATE_COMPLETE")
        return None

    def _create(self, name: str) -> Created | None:
        """Begin to create a resource; None if that failed, which is noted."""
        resource_type = str(self._template.resources[name]["Type"])
        self._note(name, "", "CREATE_IN_PROGRESS")
        try:
            properties = Properties(self._template.properties(name))
            creation = Creation(name, properties, self.name, self.arn, self._services, resource_type, self._tags)
            created = CREATORS[find_row(resource_type)](creation)
            _require_all_read(resource_type, properties)
        except Exception as error:  # noqa: BLE001 - a defect of a creator must not pass for a stack that waits
            self._note(name, "", "CREATE_FAILED", word_creation_failure(error, name, resource_type))
            return None
        policy = self._template.resources[name].get("CreationPolicy")
        if policy and self._services.options.waits_for_signals:
            self._signals[name] = ResourceSignals(self._template.evaluate(policy), is_group=resource_type == GROUP_TYPE)
            created = replace(created, settle=_settle_both(created.settle, self._signals[name].settle))
        self._begun[name] = created
        if created.settle is not None:
            self._note(name, created.physical_id, "CREATE_IN_PROGRESS", "Resource creation Initiated")
        return created

    def _complete(self) -> None:
        try:
            self.outputs = self._template.outputs()
            exports = self._template.exports(self.outputs)
            self._require_new(exports)
            self.exports = exports
        except Exception as error:  # noqa: BLE001 - an output that cannot be computed fails the stack
            self.reason = f"outputs: {error}"
            self._end("CREATE_FAILED", self.reason)
            return
        self._end("CREATE_COMPLETE", "")

    def _require_new(self, exports: Collection[str]) -> None:
        for name, (stack, _) in self._stacks.find_exports().items():
            if name in exports:
                raise ValueError(f"Export with name {name} is already exported by stack {stack.name}")

    def _roll_back(self, failed: str, settling: Mapping[str, Created]) -> None:
        for name, created in settling.items():
            self._note(name, created.physical_id, "CREATE_FAILED", "Resource creation cancelled")
        failures = [entry for entry in self.resources() if entry.status == "CREATE_FAILED"]
        names = ", ".join(entry.logical_id for entry in failures)
        self.reason = next(entry.reason for entry in failures if entry.logical_id == failed)
        self.status = "ROLLBACK_IN_PROGRESS"
        text = f"The following resource(s) failed to create: [{names}]. Rollback requested by user."
        self._report_event(self.name, self.arn, STACK_TYPE, "ROLLBACK_IN_PROGRESS", text)
        failed = self._remove(_KEPT_BY_ROLLBACK)
        self._end("ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE", failed)

    def _delete(self) -> None:
        self.reason = self._remove(_KEPT_BY_DELETION)
        self._end("DELETE_FAILED" if self.reason else "DELETE_COMPLETE", self.reason)

    def _update(self, before: Mapping[str, Mapping[str, Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        status, done = "UPDATE_COMPLETE", dict[str, Mapping[str, Any]]()
        for name in self._list_updatable():
            properties = self._template.properties(name)
            if properties == values[name] and self._template.resources[name] == before[name]:
                continue
            done[name] = properties
            self.reason = self._change(name, properties, values[name])
            if self.reason:
                status = self._roll_update_back(before, done)
                break
        self.outputs = self._template.outputs()
        self._end(status, self.reason)

    def _list_updatable(self) -> list[str]:
        """Return the resources that can be updated, each after those that it refers to."""
        needs = {name: self._template.dependencies(name) for name in self._template.resources}
        return [name for name in draw_order(needs, 0) if self._begun[name].update is not None]

    def _roll_update_back(self, before: Mapping[str, Mapping[str, Any]], done: Mapping[str, Mapping[str, Any]]) -> str:
        """Update what was changed to what it was; a reference then has the newest value of its resource."""
        self._report_event(self.name, self.arn, STACK_TYPE, "UPDATE_ROLLBACK_IN_PROGRESS", self.reason)
        self._template.resources = dict(before)
        failed = [self._change(name, self._template.properties(name), done[name]) for name in done]
        return "UPDATE_ROLLBACK_FAILED" if any(failed) else "UPDATE_ROLLBACK_COMPLETE"

    def _change(self, name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> str:
        """Update a resource; return why that failed, empty when it did not."""
        created = self._template.created[name]
        self._note(name, created.physical_id, "UPDATE_IN_PROGRESS")
        assert created.update is not None
        verdict = created.update(new, old)
        if not verdict.reason:
            created = self._template.created[name] = _rename(created, verdict)
        self._note(name, created.physical_id, "UPDATE_FAILED" if verdict.reason else "UPDATE_COMPLETE", verdict.reason)
        return verdict.reason

    def _remove(self, kept: Collection[str]) -> str:
        """Delete what is there, each after what depends on it; return what could not be deleted, if anything."""
        gone = ("DELETE_COMPLETE", "DELETE_SKIPPED")
        left = {e.logical_id: e.physical_id for e in self.resources() if e.physical_id and e.status not in gone}
        needs = {name: self._template.dependencies(name) for name in left}
        users = {name: {other for other in left if name in needs[other]} for name in left}
        failed = []
        for name in draw_order(users, self._services.options.seed):
            if users[name] & left.keys():
                continue  # what could not be deleted still uses it
            if self._undo(name, left[name], kept):
                del left[name]
            else:
                failed.append(name)
        return f"The following resource(s) failed to delete: [{', '.join(failed)}]." if failed else ""

    def _undo(self, name: str, physical_id: str, kept: Collection[str]) -> bool:
        policy = self._template.resources[name].get("DeletionPolicy")
        begun = self._begun.get(name)
        if policy in kept:
            self._note(name, physical_id, "DELETE_SKIPPED", f"DeletionPolicy is {policy}")
        elif begun is not None and begun.delete is not None:
            self._note(name, physical_id, "DELETE_IN_PROGRESS")
            try:
                begun.delete()
            except Exception as error:  # noqa: BLE001 - a defect of a deletion must not pass for a stack that waits
                self._note(
                    name,
                    physical_id,
                    "DELETE_FAILED",
                    word_deletion_failure(error, str(self._template.resources[name]["Type"])),
                )
                return False
            self._note(name, physical_id, "DELETE_COMPLETE")
        else:
            self._note(name, physical_id, "DELETE_SKIPPED", "it ends with the lab")
        return True

    def _end(self, status: str, reason: str) -> None:
        self.status = status
        self._report_event(self.name, self.arn, STACK_TYPE, status, reason)
        self._ended.set()

    def _note(self, name: str, physical_id: str, status: str, reason: str = "") -> None:
        resource_type = str(self._template.resources[name]["Type"])
        with self._lock:
            self._resources[name] = StackResource(name, physical_id, resource_type, status, reason)
        self._report_event(name, physical_id, resource_type, status, reason)

    def _report_event(self, name: str, physical_id: str, resource_type: str, status: str, reason: str) -> None:
        event = StackEvent(name, physical_id, resource_type, status, reason)
        with self._lock:
            self._events.append(event)
        text = f"{name} {status}" + (f": {reason}" if reason else "")
        self._services.observations.report("stack", name, text, event=event)


def _settle_both(
    first: Callable[[], Outcome | None] | None, second: Callable[[], Outcome | None]
) -> Callable[[], Outcome | None]:
    def settle() -> Outcome | None:
        verdict = first() if first else Outcome()
        return verdict if verdict is None or verdict.reason else second()

    return settle


def _rename(created: Created, verdict: Outcome) -> Created:
    return replace(created, physical_id=verdict.physical_id or created.physical_id)


def _require_all_read(resource_type: str, properties: Properties) -> None:
    """Raise RuntimeError for a property that the support table lists as acted upon, and that the creator ignored."""
    excused = {path.partition(".")[0] for path in load_support()[find_row(resource_type)].without_effect}
    if forgotten := properties.unread - excused:
        raise RuntimeError(f"the rehearsal lists {sorted(forgotten)} of {resource_type} as acted upon, and ignored it")
