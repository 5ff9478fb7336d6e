"""Auto Scaling groups of the cluster: found by their tags, read and changed."""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from botocore.exceptions import ClientError

from capacity_adjuster.policy.activity import Activity
from capacity_adjuster.policy.observation import GroupObservation, Instance
from deeplearning_contract.names import CANDIDATE_TAG, CLUSTER_TAG, FIRST_CANDIDATE, ROLE_TAG, NodeRole

_KINDS = (("launching", "launch"), ("terminating", "terminate"))
_INSTANCE = re.compile(r"EC2 instance: (i-[0-9a-f]+)")
_ROLES = {role.value: role for role in NodeRole}


class AutoScalingGroups:
    """Auto Scaling groups of one cluster, found by their cluster tag; `client` is boto3's."""

    def __init__(self, client: Any, cluster: str) -> None:
        self._client = client
        self._cluster = cluster

    def find(self) -> tuple[GroupObservation, ...]:
        """Read the cluster's groups, without their activities."""
        pages = self._client.get_paginator("describe_auto_scaling_groups").paginate(
            Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [self._cluster]}]
        )
        found = [_read_group(document, self._cluster) for page in pages for document in page["AutoScalingGroups"]]
        return tuple(group for group in found if group is not None)

    def read_activities(self, group: str, since: float = 0.0) -> tuple[Activity, ...] | None:
        """
        Read the scaling activities of a group, newest first; None when the group no longer exists.

        Auto Scaling keeps activities for six weeks: pages that begin before `since`, in seconds since the epoch, are
        not read.
        """
        pages = self._client.get_paginator("describe_scaling_activities").paginate(AutoScalingGroupName=group)
        found: list[Activity] = []
        try:
            for page in pages:
                found += [_read_activity(document) for document in page["Activities"]]
                if found and found[-1].start < since:
                    break
        except ClientError as error:
            if _is_missing(error):
                return None
            raise
        return tuple(found)

    def suspend(self, group: str, processes: tuple[str, ...]) -> None:
        """Suspend the named processes of a group; none for an empty tuple."""
        if processes:  # Without names, Auto Scaling suspends all of them.
            self._client.suspend_processes(AutoScalingGroupName=group, ScalingProcesses=list(processes))

    def resume(self, group: str, processes: tuple[str, ...]) -> None:
        """Resume the named processes of a group; none for an empty tuple, or a group that no longer exists."""
        if not processes:
            return
        try:
            self._client.resume_processes(AutoScalingGroupName=group, ScalingProcesses=list(processes))
        except ClientError as error:
            if not _is_missing(error):
                raise

    def set_desired(self, group: str, desired: int) -> None:
        """Set the desired capacity of a group."""
        self._client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=desired, HonorCooldown=False)


def _is_missing(error: ClientError) -> bool:
    # Auto Scaling has one code for every invalid request; the message differs between its operations.
    details = error.response["Error"]
    return details["Code"] == "ValidationError" and "not found" in details.get("Message", "")


def _read_group(document: Mapping[str, Any], cluster: str) -> GroupObservation | None:
    tags = {tag["Key"]: tag.get("Value") for tag in document.get("Tags", ())}
    role = _ROLES.get(tags.get(ROLE_TAG) or "")
    # The server applied the filter; check it again before any change.
    if role is None or tags.get(CLUSTER_TAG) != cluster:
        return None
    return GroupObservation(
        name=document["AutoScalingGroupName"],
        role=role,
        min_size=document["MinSize"],
        desired=document["DesiredCapacity"],
        max_size=document["MaxSize"],
        instances=tuple(_read_instance(entry) for entry in document.get("Instances", ())),
        activities=None,
        suspended=frozenset(entry["ProcessName"] for entry in document.get("SuspendedProcesses", ())),
        created=_read_time(document.get("CreatedTime")) or 0.0,
        is_deleting=bool(document.get("Status")),
        candidate=tags.get(CANDIDATE_TAG) or FIRST_CANDIDATE,
    )


def _read_instance(entry: Mapping[str, Any]) -> Instance:
    return Instance(
        instance_id=entry["InstanceId"],
        lifecycle=entry.get("LifecycleState", ""),
        health=entry.get("HealthStatus", ""),
        instance_type=entry.get("InstanceType", ""),
        is_protected=bool(entry.get("ProtectedFromScaleIn")),
    )


def _read_activity(document: Mapping[str, Any]) -> Activity:
    description = str(document.get("Description", ""))
    named = _INSTANCE.search(description)
    return Activity(
        activity_id=document["ActivityId"],
        kind=next((kind for start, kind in _KINDS if description.lower().startswith(start)), "other"),
        status=document["StatusCode"],
        start=_read_time(document.get("StartTime")) or 0.0,
        end=_read_time(document.get("EndTime")),
        message=document.get("StatusMessage", ""),
        zone=_read_zone(document.get("Details", "")),
        instance_id=named.group(1) if named else "",
        cause=" ".join(str(document.get("Cause", "")).split()),
    )


def _read_time(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()


def _read_zone(details: str) -> str:
    # Not every activity has details, and not all details name the zone.
    try:
        document = json.loads(details)
    except ValueError:
        return ""
    zone = document.get("Availability Zone") if isinstance(document, dict) else None
    return zone if isinstance(zone, str) else ""
