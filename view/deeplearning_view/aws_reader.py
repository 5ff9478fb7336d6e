"""Reader of a cluster from AWS, with read-only calls; data that it may not read is omitted."""

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar

from botocore.exceptions import BotoCoreError, ClientError

from deeplearning_contract.cluster_state import get_request, part_requests
from deeplearning_contract.document import ContractError
from deeplearning_contract.names import CLUSTER_TAG
from deeplearning_view.aws_responses import (
    BLOCK_VARIABLE,
    LIMIT_VARIABLES,
    SEARCH_VARIABLES,
    AwsResponses,
    Record,
    ViewError,
    read_candidate,
    read_moment,
    read_tags,
)
from deeplearning_view.resources import (
    find_adjuster,
    find_adjuster_log,
    find_emr_cluster,
    find_groups,
    find_node_log,
    find_state_table,
)
from deeplearning_view.selection import find_stack

Clients = Callable[[str], Any]
"""Function that returns the client of a service."""

T = TypeVar("T")
_SEARCH_KEY = "#search"
"""End of the key of the adjuster's record of the search for capacity."""
_REQUEST_KEY = "#request"
"""End of the key of its record of the requested capacity."""
_MOST_EVENT_PAGES = 10
_MOST_LINES = 20_000
_RECENT_SECONDS = 15 * 60
"""Age of the oldest log lines that are read from a complete cluster."""


def read_responses(clients: Clients, region: str, stack_name: str | None, *, with_lines: bool = True) -> AwsResponses:
    """
    Read a cluster: the named one, or else the only one.

    Raises:
        ViewError: The stack cannot be read, or its cluster is on EMR.
    """
    try:
        responses = AwsResponses(region, find_stack(clients("cloudformation"), stack_name))
    except (BotoCoreError, ClientError) as error:
        raise ViewError(f"could not read the stack: {error}; check credentials, --profile and --region") from error
    _Reader(clients, responses).read(with_lines=with_lines)
    return responses


class _Reader:
    """Reader that fills the responses; a failed call becomes a line in `unread`."""

    def __init__(self, clients: Clients, responses: AwsResponses) -> None:
        self._clients = clients
        self._responses = responses
        self._has_block = False

    def read(self, *, with_lines: bool) -> None:
        responses = self._responses
        stack_id = str(responses.stack["StackId"])
        responses.resources = self._try("the stack's resources", lambda: self._read_resources(stack_id), [])
        if on_emr := find_emr_cluster(responses.resources):
            raise ViewError(
                f"{responses.stack['StackName']} has a cluster on EMR, {on_emr}, which this command does not read; "
                "run: deeplearning-cdk jobs, or aws emr describe-cluster "
                f"--region {responses.region} --cluster-id {on_emr}"
            )
        responses.events = self._try("the stack's events", lambda: self._read_events(stack_id), [])
        names = list(find_groups(responses.resources))
        if names:
            responses.groups = self._try("the node groups", lambda: self._read_groups(names), [])
            for name in names:
                responses.activities[name] = self._try("scaling activities", partial(self._read_activities, name), [])
            responses.instances = self._try("the instances", lambda: self._read_instances(names), [])
        for group in responses.groups:
            name = str(group["AutoScalingGroupName"])
            responses.templates[name] = self._try("launch templates", partial(self._read_template, group), {})
        if responses.groups:
            responses.limits = self._try("the adjuster's settings", self._read_limits, None)
        self._try("the state item", self._read_state, None)
        if with_lines:
            responses.node_lines = self._read_lines(find_node_log(responses.resources), "the nodes' log")
            responses.adjuster_lines = self._read_lines(find_adjuster_log(responses.resources), "the adjuster's log")
        responses.unread = list(dict.fromkeys(responses.unread))

    def _try(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        try:
            return read()
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code != "ResourceNotFoundException":  # a rollback has deleted it
                self._responses.unread.append(f"{what}: {error.operation_name} returned {code}")
        except (BotoCoreError, ContractError) as error:
            self._responses.unread.append(f"{what}: {error}")
        return otherwise

    def _read_resources(self, stack_id: str) -> list[Record]:
        pages = self._clients("cloudformation").get_paginator("list_stack_resources").paginate(StackName=stack_id)
        return [entry for page in pages for entry in page["StackResourceSummaries"]]

    def _read_events(self, stack_id: str) -> list[Record]:
        """Return the events since the latest creation or update of the stack began."""
        pages = self._clients("cloudformation").get_paginator("describe_stack_events").paginate(StackName=stack_id)
        found: list[Record] = []
        for number, page in enumerate(pages):
            for event in page["StackEvents"]:
                found.append(event)
                is_beginning = str(event["ResourceStatus"]) in ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS")
                if event["PhysicalResourceId"] == stack_id and is_beginning:
                    return found
            if number + 1 == _MOST_EVENT_PAGES:
                break
        return found

    def _read_groups(self, names: Iterable[str]) -> list[Record]:
        answer = self._clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=list(names))
        groups: list[Record] = answer["AutoScalingGroups"]
        return groups

    def _read_activities(self, name: str) -> list[Record]:
        answer = self._clients("autoscaling").describe_scaling_activities(
            AutoScalingGroupName=name, IncludeDeletedGroups=True
        )
        activities: list[Record] = answer["Activities"]
        return activities

    def _read_instances(self, groups: list[str]) -> list[Record]:
        # Auto Scaling's own tag, which instances keep after their group is deleted.
        chosen = [{"Name": "tag:aws:autoscaling:groupName", "Values": groups}]
        pages = self._clients("ec2").get_paginator("describe_instances").paginate(Filters=chosen)
        return [entry for page in pages for reservation in page["Reservations"] for entry in reservation["Instances"]]

    def _read_template(self, group: Record) -> Record:
        chosen = (
            group.get("LaunchTemplate")
            or group["MixedInstancesPolicy"]["LaunchTemplate"]["LaunchTemplateSpecification"]
        )
        answer = self._clients("ec2").describe_launch_template_versions(
            LaunchTemplateId=chosen["LaunchTemplateId"], Versions=[chosen.get("Version", "$Default")]
        )
        data: Record = answer["LaunchTemplateVersions"][0]["LaunchTemplateData"]
        return data

    def _read_limits(self) -> dict[str, str] | None:
        name = find_adjuster(self._responses.resources)
        if not name:
            return None
        environment = self._clients("lambda").get_function_configuration(FunctionName=name).get("Environment", {})
        if "Error" in environment:
            code = environment["Error"].get("ErrorCode", "")
            self._responses.unread.append(f"the adjuster's settings: GetFunctionConfiguration returned {code}")
            return None
        # The other variables stay out of the view: one is the secret URL that completes the wait condition.
        variables = environment.get("Variables", {})
        self._has_block = bool(variables.get(BLOCK_VARIABLE))
        self._responses.search_settings = {key: variables[key] for key in SEARCH_VARIABLES if key in variables}
        return {key: value for key, value in variables.items() if key in LIMIT_VARIABLES}

    def _read_state(self) -> None:
        table = find_state_table(self._responses.resources)
        clusters = [read_tags(group).get(CLUSTER_TAG, "") for group in self._responses.groups]
        if not table or not any(clusters):
            return
        database = self._clients("dynamodb")
        cluster = next(filter(None, clusters))
        if self._has_block:
            self._responses.request = database.get_item(**get_request(table, f"{cluster}{_REQUEST_KEY}")).get("Item")
        item = database.get_item(**get_request(table, cluster)).get("Item")
        if item is not None:
            requests = part_requests(table, item)
            self._responses.parts = [database.get_item(**request)["Item"] for request in requests]
            self._responses.item = item
        elif len({read_candidate(group) for group in self._responses.groups}) > 1:
            self._responses.search = database.get_item(**get_request(table, f"{cluster}{_SEARCH_KEY}")).get("Item")

    def _read_lines(self, log_group: str, what: str) -> list[Record]:
        if not log_group:
            return []
        lines: list[Record] = []

        def read() -> None:
            pages = (
                self._clients("logs")
                .get_paginator("filter_log_events")
                .paginate(logGroupName=log_group, startTime=int(self._begin() * 1000))
            )
            for page in pages:
                lines.extend(page["events"])
                if len(lines) >= _MOST_LINES:
                    break

        self._try(what, read, None)
        return lines

    def _begin(self) -> float:
        """Return the time of the first line to read: the stack's latest change, or a recent time if it is complete."""
        recent = time.time() - _RECENT_SECONDS
        begun = read_moment(self._responses.stack.get("LastUpdatedTime") or self._responses.stack.get("CreationTime"))
        if begun is None or self._responses.stack["StackStatus"] in ("CREATE_COMPLETE", "UPDATE_COMPLETE"):
            return recent
        return begun.timestamp()
