"""The part of the CloudFormation API that looks at the stack that the rehearsal creates, updates or deletes it."""

import json
from typing import Any, ClassVar

import moto.cloudformation.urls
from moto.cloudformation.exceptions import CloudFormationError
from moto.core.common_types import TYPE_RESPONSE
from moto.core.responses import ActionResult, BaseResponse

from cdk_rehearsal.embedded_aws.cloudformation.stack import Stack
from cdk_rehearsal.embedded_aws.cloudformation.stack_record import StackResource


class StackApi(BaseResponse):
    """Answers the operations of CloudFormation that look at a stack, update or delete it."""

    OPERATIONS: ClassVar = frozenset(
        {
            "DeleteStack",
            "DescribeStacks",
            "DescribeStackEvents",
            "DescribeStackResources",
            "ListStackResources",
            "ListStacks",
            "SignalResource",
            "UpdateStack",
        }
    )
    stack: ClassVar[Stack]

    def __init__(self) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True

    def call_action(self) -> TYPE_RESPONSE:
        """Answer one call."""
        operation = self._get_action()
        if operation not in self.OPERATIONS:
            error = CloudFormationError("InvalidAction", f"the rehearsal does not implement cloudformation:{operation}")
            return self.serialized(ActionResult(error))
        return super().call_action()

    def delete_stack(self) -> ActionResult:
        """Answer `DeleteStack`, which takes a stack that is not there for deleted."""
        if self._get_param("StackName") in (self.stack.name, self.stack.arn):
            self.stack.delete()
        return ActionResult({})

    def update_stack(self) -> ActionResult:
        """Answer `UpdateStack` with a template; its parameters keep their values."""
        stack = self._find()
        try:
            stack.update(json.loads(self._get_param("TemplateBody"))["Resources"])
        except ValueError as error:
            raise CloudFormationError("ValidationError", str(error)) from error
        return ActionResult({"StackId": stack.arn})

    def signal_resource(self) -> ActionResult:
        """Answer `SignalResource`."""
        names = ("LogicalResourceId", "UniqueId", "Status")
        try:
            self._find().signal(*(str(self._get_param(name)) for name in names))
        except ValueError as error:
            raise CloudFormationError("ValidationError", str(error)) from error
        return ActionResult({})

    def describe_stacks(self) -> ActionResult:
        """Answer `DescribeStacks`."""
        stack = self._find() if self._get_param("StackName") else self.stack
        return ActionResult({"Stacks": [_describe(stack)]})

    def describe_stack_events(self) -> ActionResult:
        """Answer `DescribeStackEvents`, newest first, all on one page."""
        stack = self._find()
        events = [
            {
                "StackId": stack.arn,
                "EventId": event.event_id,
                "StackName": stack.name,
                "LogicalResourceId": event.logical_id,
                "PhysicalResourceId": event.physical_id,
                "ResourceType": event.resource_type,
                "Timestamp": event.timestamp,
                "ResourceStatus": event.status,
                **({"ResourceStatusReason": event.reason} if event.reason else {}),
            }
            for event in reversed(stack.events())
        ]
        return ActionResult({"StackEvents": events})

    def describe_stack_resources(self) -> ActionResult:
        """Answer `DescribeStackResources`."""
        stack = self._find()
        resources = [
            {
                "StackName": stack.name,
                "StackId": stack.arn,
                "Timestamp": stack.created_at,
                **_describe_resource(entry),
            }
            for entry in stack.resources()
        ]
        return ActionResult({"StackResources": resources})

    def list_stack_resources(self) -> ActionResult:
        """Answer `ListStackResources`, all on one page."""
        stack = self._find()
        summaries = [
            {"LastUpdatedTimestamp": stack.created_at, **_describe_resource(entry)} for entry in stack.resources()
        ]
        return ActionResult({"StackResourceSummaries": summaries})

    def list_stacks(self) -> ActionResult:
        """Answer `ListStacks`."""
        stack, wanted = self.stack, self._get_param("StackStatusFilter", [])
        summary = {
            "StackId": stack.arn,
            "StackName": stack.name,
            "CreationTime": stack.created_at,
            "StackStatus": stack.status,
        }
        return ActionResult({"StackSummaries": [summary] if not wanted or stack.status in wanted else []})

    def _find(self) -> Stack:
        name, stack = self._get_param("StackName"), self.stack
        # A deleted stack is found by its ARN alone.
        if name == stack.arn or (name == stack.name and stack.status != "DELETE_COMPLETE"):
            return stack
        raise CloudFormationError("ValidationError", f"Stack with id {name} does not exist")


def install_stack_api(stack: Stack) -> None:
    """
    Put the API in the place of moto's.

    Args:
        stack: The stack that it shows.
    """
    api: type[StackApi] = type("RehearsalStackApi", (StackApi,), {"stack": stack})
    moto.cloudformation.urls.url_paths["{0}/$"] = api.dispatch


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
