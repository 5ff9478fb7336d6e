"""Delivers what moto's topics publish to Lambda functions, in the form and with the permission that SNS needs."""

import json
import uuid
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any

from moto.sns.models import Subscription

from cdk_rehearsal.embedded_aws.messaging.message_faults import MessageDisturbance

FunctionDelivery = Callable[[str, dict[str, Any], str, str], None]
"""Takes function ARN, notification, subscription ARN, and the ARN of the dead-letter queue, empty without one."""

_moto_publish = Subscription.publish
_TEST = "autoscaling:TEST_NOTIFICATION"


def install_topic_delivery(deliver: FunctionDelivery, disturbance: MessageDisturbance | None) -> None:
    """Replace moto's delivery to functions, with messages disturbed on request; other protocols stay moto's."""

    def publish(
        self: Subscription,
        message: str,
        message_id: str,
        subject: str | None = None,
        message_attributes: dict[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        if self.protocol != "lambda":
            _moto_publish(self, message, message_id, subject, message_attributes, **rest)
            return
        notification = {
            "Type": "Notification",
            "MessageId": message_id or str(uuid.uuid4()),
            "TopicArn": self.topic.arn,
            "Subject": subject,
            "Message": message,
            "Timestamp": datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "SignatureVersion": "1",
            "Signature": "cmVoZWFyc2Fs",
            "SigningCertUrl": "https://sns.invalid/SimpleNotificationService.pem",
            "UnsubscribeUrl": f"https://sns.invalid/?Action=Unsubscribe&SubscriptionArn={self.arn}",
            "MessageAttributes": message_attributes or {},
        }
        redrive = json.loads(self.attributes.get("RedrivePolicy", "{}"))
        delivery = partial(deliver, self.endpoint, notification, self.arn, redrive.get("deadLetterTargetArn", ""))
        # A test notification says nothing: to lose it instead of a first message would try nothing.
        if disturbance is None or _TEST in message:
            delivery()
        else:
            disturbance.pass_on(self.topic.name, delivery)

    Subscription.publish = publish  # type: ignore[assignment,method-assign]
