"""Search for the region that has the capacity: one is asked after the other, and none while another has a stack."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from deeplearning_cli.cloud_access import CloudAccess
from deeplearning_cli.deploy.cdk_program import CdkProgram, Target
from deeplearning_cli.deploy.journal import Entry, Journal, Key, Stage
from deeplearning_cli.errors import UnavailableError
from deeplearning_cli.status import read_view
from deeplearning_contract.launch_failures import LAUNCH_FAILURE_KINDS, UNKNOWN_FAILURE, Scope
from deeplearning_view.view import Problem

T = TypeVar("T")
_INTERVAL_SECONDS = 5.0
_READS_PER_LINE = 6
_FAILED_CREATIONS = frozenset({"CREATE_FAILED", "ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})
_STANDING = frozenset({"CREATE_COMPLETE", "UPDATE_COMPLETE"})
_GONE = "DELETE_COMPLETE"
_BEGINNING = "(?:WaitCondition received failed message: ')?"
_LAUNCH = re.compile(
    _BEGINNING + r"(?:master did not launch|launched workers must be at least [0-9]+, got [0-9]+ of [0-9]+): "
    r"(?P<kind>[A-Za-z]+)(?: in [a-z0-9-]+)?: "
)
_SEARCH = re.compile(_BEGINNING + r"no candidate gave at least [0-9]+ workers in [0-9]+ min: ")
"""Beginnings of the capacity adjuster's reasons; one of a search means that every candidate was refused for itself."""
_SCOPES = {kind.name: kind.scope for kind in (*LAUNCH_FAILURE_KINDS, UNKNOWN_FAILURE)}
_NO_STACK = Problem("stack", "nothing of it was created or updated", "see the output of cdk deploy")
_NO_REASON = Problem("stack", "no reason in its events", "see the output of cdk deploy")


class StopError(Exception):
    """No region launched the cluster; the message has the reasons."""

    exit_status = 1


def is_refusal(problem: Problem) -> bool:
    """Return whether a stack failed because EC2 refused instances for a cause that another region need not have."""
    if problem.what != "stack":
        return False
    launch = _LAUNCH.match(problem.cause)
    scope = _SCOPES.get(launch["kind"]) if launch else None
    return scope in (Scope.CANDIDATE, Scope.QUOTA) or _SEARCH.match(problem.cause) is not None


@dataclass(frozen=True, kw_only=True)
class RegionSearch:
    """
    The regions, asked one after the other.

    Attributes:
        account: The account.
        targets: The stack in each region, in the user's order.
        journal: What was done before.
        cdk: The CDK CLI.
        open_region: Returns the access to a region, and to one of its stacks by id.
        sleep: Waits for some seconds.
        report: Tells the user what happens.
    """

    account: str
    targets: tuple[Target, ...]
    journal: Journal
    cdk: CdkProgram
    open_region: Callable[[str, str | None], CloudAccess]
    sleep: Callable[[float], None]
    report: Callable[[str], None]

    def run(self, *, is_again: bool) -> None:
        """
        Ask the regions until one has launched the cluster; `is_again` asks those too that refused it before.

        Effects: `cdk deploy`, the deletion of stacks that it created and EC2 refused, and the journal's file.

        Raises:
            StopError: No region launched it.
            UnavailableError: AWS does not answer, or a deployment was interrupted in a region that is no target.
        """
        targets = {self._find_key(target): target for target in self.targets}
        for entry in [entry for entry in self.journal.entries.values() if entry.account == self.account]:
            if entry.stage is Stage.LEAVING:
                self._leave(entry)
            elif (
                entry.stage is Stage.ASKING and entry.key not in targets and entry.stack in {key[2] for key in targets}
            ):
                raise UnavailableError(
                    f"--regions must have {entry.region}, where a deployment of {entry.stack} was interrupted, got "
                    f"{','.join(target.region for target in self.targets)}; add it"
                )
        if is_again:
            self.journal.forget_refusals(targets)
        having = {key for key, target in targets.items() if self._has_cluster(target)}
        begun = {key for key in targets if self.journal.find_stage(key) is Stage.ASKING}
        for key in sorted(targets, key=lambda key: (key not in begun, key not in having)):
            if self.journal.find_stage(key) is Stage.REFUSED and key not in having:
                self.report(f"{self.journal.entries[key]} (--again asks it again)")
            elif self._ask(targets[key]):
                return
        reasons = "\n".join(f"  {self.journal.entries[key]}" for key in targets)
        raise StopError(f"no region launched the cluster:\n{reasons}\n  ask them again with --again, or others")

    def _find_key(self, target: Target) -> Key:
        return self.account, target.region, target.stack

    def _has_cluster(self, target: Target) -> bool:
        """Return whether a region has a stack of the cluster that a deployment updates; no other is to get one then."""
        status = str(self._read(target.region, target.stack).get("StackStatus", _GONE))
        return status not in (*_FAILED_CREATIONS, "REVIEW_IN_PROGRESS") and not status.startswith("DELETE_")

    def _ask(self, target: Target) -> bool:
        """Deploy to a region, and return whether it launched; if it refused, its stack is deleted by then."""
        stack = self._wait(target.region, target.stack)
        before = self.journal.entries.get(self._find_key(target))
        if before is not None and before.stage is Stage.ASKING and self._take_refusal(before, stack):
            return False
        entry = Entry(account=self.account, region=target.region, stack=target.stack, stage=Stage.ASKING)
        entry = self.journal.put(replace(entry, existing=_find_id(stack)))
        self.report(f"{target.region}: deploying {target.stack}")
        status = self.cdk.deploy(target)
        stack = self._wait(target.region, target.stack)
        if status == 0 and stack.get("StackStatus") in _STANDING:
            self.journal.put(replace(entry, stage=Stage.LAUNCHED))
            self.report(f"{target.region}: launched {target.stack}")
            return True
        if self._take_refusal(entry, stack):
            return False
        problem = self._find_problem(entry, stack)
        self.journal.put(replace(entry, stage=Stage.FAILED, reason=problem.cause))
        raise StopError(
            f"`cdk deploy` of {target.stack} to {target.region} ended with {status}, for a cause that other "
            f"regions may share, so that none is asked: {problem.what}: {problem.cause}; {problem.remedy}"
        )

    def _take_refusal(self, entry: Entry, stack: Mapping[str, Any]) -> bool:
        """Return whether EC2 refused a stack that was created after the entry; if so, it is deleted by then."""
        if not _is_failed_creation(entry, stack):
            return False
        problem = self._find_problem(entry, stack)
        if not is_refusal(problem):
            return False
        leaving = replace(entry, stage=Stage.LEAVING, created=_find_id(stack), reason=problem.cause)
        self._leave(self.journal.put(leaving))
        return True

    def _leave(self, entry: Entry) -> None:
        """Delete the stack that was created after the entry, by its id."""
        self.report(f"{entry.region}: {entry.reason}; deleting {entry.stack}")
        status = self._find_status(entry)
        if status in (*_FAILED_CREATIONS, "DELETE_FAILED"):
            client = self.open_region(entry.region, None).clients("cloudformation")
            call_aws(lambda: client.delete_stack(StackName=entry.created))
        elif status not in (_GONE, "DELETE_IN_PROGRESS"):
            self.journal.put(replace(entry, stage=Stage.FAILED))
            raise StopError(
                f"stack {entry.stack} in {entry.region} must be a failed creation to be deleted, got {status}; "
                "it has changed since: see its events"
            )
        self._wait(entry.region, entry.created)
        if (status := self._find_status(entry)) != _GONE:
            problem = self._read_problem(entry.region, entry.created)
            raise StopError(
                f"stack {entry.stack} in {entry.region} must be gone before another region is asked, got {status}: "
                f"{problem.what}: {problem.cause}; {problem.remedy}; then run the same command again"
            )
        self.journal.put(replace(entry, stage=Stage.REFUSED))
        self.report(f"{entry.region}: deleted {entry.stack}")

    def _find_status(self, entry: Entry) -> str:
        return str(self._read(entry.region, entry.created).get("StackStatus", _GONE))

    def _find_problem(self, entry: Entry, stack: Mapping[str, Any]) -> Problem:
        """Return the first problem of a stack since the entry."""
        is_old = stack.get("StackStatus") in _FAILED_CREATIONS and not _is_failed_creation(entry, stack)
        return _NO_STACK if is_old or not stack else self._read_problem(entry.region, _find_id(stack))

    def _read_problem(self, region: str, stack_id: str) -> Problem:
        return next(iter(read_view(self.open_region(region, stack_id)).problems), _NO_REASON)

    def _wait(self, region: str, stack: str) -> Mapping[str, Any]:
        """Return a stack once nothing is in progress; empty without one, or for a change set without any resource."""
        reads = 0
        while (status := (found := self._read(region, stack)).get("StackStatus", "")).endswith("_IN_PROGRESS"):
            if status == "REVIEW_IN_PROGRESS":
                return {}
            if reads % _READS_PER_LINE == 0:
                self.report(f"{region}: {status} for {reads * _INTERVAL_SECONDS:.0f} s here")
            reads += 1
            self.sleep(_INTERVAL_SECONDS)
        return found

    def _read(self, region: str, stack: str) -> Mapping[str, Any]:
        """Return a stack by name or id; empty without one."""
        from botocore.exceptions import ClientError  # noqa: PLC0415 - slow, and only needed here

        client = self.open_region(region, None).clients("cloudformation")

        def describe() -> Mapping[str, Any]:
            try:
                found: Mapping[str, Any] = client.describe_stacks(StackName=stack)["Stacks"][0]
            except ClientError as error:
                if "does not exist" not in error.response["Error"]["Message"]:
                    raise
                return {}
            return found

        return call_aws(describe)


def _find_id(stack: Mapping[str, Any]) -> str:
    return str(stack.get("StackId", ""))


def _is_failed_creation(entry: Entry, stack: Mapping[str, Any]) -> bool:
    """Return whether the creation of a stack failed that was not there before the entry."""
    return stack.get("StackStatus") in _FAILED_CREATIONS and _find_id(stack) != entry.existing


def call_aws(call: Callable[[], T]) -> T:
    """
    Return AWS's answer.

    Raises:
        UnavailableError: AWS gives none.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and only needed here

    try:
        return call()
    except (BotoCoreError, ClientError) as error:
        raise UnavailableError(f"{error}; check credentials and --profile, then run the same command again") from error
