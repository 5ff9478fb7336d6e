"""Publishes what happens in Auto Scaling groups to SNS, in the messages of the Auto Scaling User Guide."""

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.base.observation import Observations
from cdk_rehearsal.embedded_aws.base.scaling_group import Activity, ScalingGroup, now, stamp
from cdk_rehearsal.place import Place

_SUBJECTS = {
    "autoscaling:EC2_INSTANCE_LAUNCH": "launch",
    "autoscaling:EC2_INSTANCE_LAUNCH_ERROR": "failed launch",
    "autoscaling:EC2_INSTANCE_TERMINATE": "termination",
    "autoscaling:EC2_INSTANCE_TERMINATE_ERROR": "failed termination",
    "autoscaling:TEST_NOTIFICATION": "test notification",
}
NOTIFICATION_TYPES = tuple(_SUBJECTS)


class GroupNotifications:
    """
    Publishes to the topics that a group has at that moment; `lost` loses every message, as best effort may.

    `admits` decides whether a topic and its key let Auto Scaling publish, which does not learn of a refusal.
    """

    def __init__(self, place: Place, observations: Observations, *, lost: bool = False) -> None:
        self._place = place
        self._observations = observations
        self._lost = lost
        self.admits: Callable[[str], bool] = lambda _: True

    def publish(self, group: ScalingGroup, event: str, activity: Activity) -> None:
        """Publish the end of an activity."""
        subnet, zone = (list(group.subnet_ids) or [""])[0], (list(group.zones) or [""])[0]
        message = {
            "Progress": activity.progress,
            "AccountId": self._place.account,
            "Description": activity.description,
            "RequestId": activity.activity_id,
            "EndTime": stamp(activity.end_time or now()),
            "AutoScalingGroupARN": group.arn,
            "ActivityId": activity.activity_id,
            "StartTime": stamp(activity.start_time),
            "Service": "AWS Auto Scaling",
            "Time": stamp(now()),
            "EC2InstanceId": activity.instance_id,
            "StatusCode": "Failed" if activity.status_code == "Failed" else "InProgress",
            "StatusMessage": activity.status_message,
            "Details": {"Subnet ID": subnet, "Availability Zone": zone},
            "AutoScalingGroupName": group.name,
            "Cause": activity.cause,
            "Event": event,
            "Origin": "AutoScalingGroup" if "TERMINATE" in event else "EC2",
            "Destination": "EC2" if "TERMINATE" in event else "AutoScalingGroup",
        }
        for topic, types in list(group.notifications.items()):
            if event in types:
                self._send(topic, group, event, message)

    def set_topics(self, group: ScalingGroup, topics: Mapping[str, tuple[str, ...]]) -> None:
        """Set a group's notifications, and publish a test message to each of its topics."""
        group.notifications = dict(topics)
        message = {
            "AccountId": self._place.account,
            "AutoScalingGroupARN": group.arn,
            "AutoScalingGroupName": group.name,
            "Service": "AWS Auto Scaling",
            "Event": "autoscaling:TEST_NOTIFICATION",
            "Time": stamp(now()),
        }
        for topic in topics:
            self._send(topic, group, message["Event"], message | {"RequestId": str(uuid.uuid4())})

    def _send(self, topic: str, group: ScalingGroup, event: str, message: dict[str, Any]) -> None:
        self._observations.report("message", group.name, event + (" (lost)" if self._lost else ""), message=message)
        if not self._lost and self.admits(topic):
            subject = f'Auto Scaling: {_SUBJECTS[event]} for group "{group.name}"'[:100]
            self._place.client("sns").publish(TopicArn=topic, Subject=subject, Message=json.dumps(message))
