"""The CloudFormation API, as far as it describes, updates, signals and deletes the stacks of the rehearsal."""

import json
from typing import Any, ClassVar

import moto.cloudformation.urls
from moto.cloudformation.exceptions import CloudFormationError
from moto.core.responses import ActionResult

from cdk_rehearsal.embedded_aws.base.stack_record import StackResource
from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi
from cdk_rehearsal.embedded_aws.cloudformation.stack import Stack
from cdk_rehearsal.embedded_aws.cloudformation.stack_registry import StackRegistry


class StackApi(StandInApi):
    """Operations of CloudFormation on the stacks."""

    service = "cloudformation"
    error = CloudFormationError
    stacks: ClassVar[StackRegistry[Stack]]

    def delete_stack(self) -> ActionResult:
        """Begin to delete the stack; one that is not there counts as deleted."""
        if stack := self.stacks.find(self._get_param("StackName")):
            stack.delete()
        return ActionResult({})

    def update_stack(self) -> ActionResult:
        """Begin to update the stack to a template; its parameters keep their values."""
        stack = self._find()
        try:
            stack.update(json.loads(self._get_param("TemplateBody"))["Resources"])
        except ValueError as error:
            raise CloudFormationError("ValidationError", str(error)) from error
        return ActionResult({"StackId": stack.arn})

    def signal_resource(self) -> ActionResult:
        names = ("LogicalResourceId", "UniqueId", "Status")
        try:
            self._find().signal(*(str(self._get_param(name)) for name in names))
        except ValueError as error:
            raise CloudFormationError("ValidationError", str(error)) from error
        return ActionResult({})

    def describe_stacks(self) -> ActionResult:
        stacks = [self._find()] if self._get_param("StackName") else self._list()
        return ActionResult({"Stacks": [_describe(stack) for stack in stacks]})

    def describe_stack_events(self) -> ActionResult:
        """Return the events, newest first, all on one page."""
        stack = self._find()
        own = {"StackId": stack.arn, "StackName": stack.name}
        events = [
            own | {"EventId": event.event_id, "Timestamp": event.timestamp} | _describe_resource(event)
            for event in reversed(stack.events())
        ]
        return ActionResult({"StackEvents": events})

    def describe_stack_resources(self) -> ActionResult:
        stack = self._find()
        own = {"StackName": stack.name, "StackId": stack.arn, "Timestamp": stack.created_at}
        return ActionResult({"StackResources": [own | _describe_resource(entry) for entry in stack.resources()]})

    def list_stack_resources(self) -> ActionResult:
        """Return the resources, all on one page."""
        stack = self._find()
        own = {"LastUpdatedTimestamp": stack.created_at}
        summaries = [own | _describe_resource(entry) for entry in stack.resources()]
        return ActionResult({"StackResourceSummaries": summaries})

    def list_stacks(self) -> ActionResult:
        wanted = self._get_param("StackStatusFilter", [])
        summaries = [
            {
                "StackId": stack.arn,
                "StackName": stack.name,
                "CreationTime": stack.created_at,
                "StackStatus": stack.status,
            }
            for stack in reversed(self.stacks.list())
            if not wanted or stack.status in wanted
        ]
        return ActionResult({"StackSummaries": summaries})

    def list_exports(self) -> ActionResult:
        """Return the exports of all stacks, all on one page."""
        exports = self.stacks.find_exports().items()
        listed = [{"ExportingStackId": stack.arn, "Name": name, "Value": value} for name, (stack, value) in exports]
        return ActionResult({"Exports": listed})

    def _list(self) -> list[Stack]:
        return [stack for stack in reversed(self.stacks.list()) if stack.status != "DELETE_COMPLETE"]

    def _find(self) -> Stack:
        name = self._get_param("StackName")
        if stack := self.stacks.find(name):
            return stack
        raise CloudFormationError("ValidationError", f"Stack with id {name} does not exist")


def install_stack_api(stacks: StackRegistry[Stack]) -> None:
    """Replace moto's API with one that shows the stacks."""
    StackApi.stacks = stacks
    StackApi.install(moto.cloudformation.urls.url_paths)


def _describe_resource(entry: StackResource) -> dict[str, Any]:
    return {
        "LogicalResourceId": entry.logical_id,
        "PhysicalResourceId": entry.physical_id,
        "ResourceType": entry.resource_type,
        "ResourceStatus": entry.status,
        **({"ResourceStatusReason": entry.reason} if entry.reason else {}),
    }


def _describe(stack: Stack) -> dict[str, Any]:
    return {
        "StackId": stack.arn,
        "StackName": stack.name,
        "Description": stack.description or None,
        "CreationTime": stack.created_at,
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason or None,
        "DisableRollback": False,
        "Outputs": [{"OutputKey": key, "OutputValue": value} for key, value in stack.outputs.items()],
    }
