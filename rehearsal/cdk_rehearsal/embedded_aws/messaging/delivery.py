"""Delivery of messages of topics and events of rules, with their dead-letter queues."""

import json
import threading
import time
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from functools import partial
from typing import Any

from moto.s3 import notifications
from moto.sns.models import Subscription

from cdk_rehearsal.embedded_aws.access.authorizer import Authorizer
from cdk_rehearsal.embedded_aws.base.message_faults import MessageDisturbance
from cdk_rehearsal.embedded_aws.functions.runner import FunctionRunner
from cdk_rehearsal.embedded_aws.messaging.event_bus import transform
from cdk_rehearsal.place import Place

_SNS, _EVENTS, _S3 = "sns.amazonaws.com", "events.amazonaws.com", "s3.amazonaws.com"


class Delivery:
    """
    Delivers for SNS and EventBridge to what admits them.

    A target that refuses is not tried again: the message goes to the dead-letter queue at once, or is dropped where
    there is none (SNS developer guide, "Amazon SNS dead-letter queues"; EventBridge user guide, "Using dead-letter
    queues to process undelivered events"). What a function fails on after it was invoked is Lambda's to keep.
    """

    def __init__(self, place: Place, functions: FunctionRunner, authorizer: Authorizer) -> None:
        self.place = place
        self._functions = functions
        self._authorizer = authorizer

    def deliver_message(
        self, function_arn: str, notification: Mapping[str, Any], subscription_arn: str, dead_letters: str
    ) -> None:
        """Deliver a message of a topic to a function; the ARN of the dead-letter queue is empty without one."""
        record = {
            "EventSource": "aws:sns",
            "EventVersion": "1.0",
            "EventSubscriptionArn": subscription_arn,
            "Sns": notification,
        }
        topic_arn = str(notification["TopicArn"])
        if not self._invoke(function_arn, {"Records": [record]}, "sns", topic_arn):
            self._bury(dead_letters, notification, _SNS, topic_arn, {})

    def admits_message(self, queue_arn: str, topic_arn: str) -> bool:
        """Return whether a queue's policy admits a topic (SNS developer guide, "Fanout to Amazon SQS queues")."""
        url = self.place.client("sqs").get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        return self._authorizer.admits_service(_SNS, "sqs.SendMessage", {"QueueUrl": url}, source_arn=topic_arn)

    def deliver_notification(self, destination: str, content: Mapping[str, Any]) -> None:
        """
        Deliver a notification of a bucket to a function, queue or topic that admits it.

        S3 refuses to save a destination that does not admit it (S3 user guide, "Granting permissions to publish event
        notification messages to a destination"); here the denial is reported when something is to be delivered.
        """
        name = content["Bucket"] if "Bucket" in content else content["Records"][0]["s3"]["bucket"]["name"]
        bucket = f"arn:{self.place.partition}:s3:::{name}"
        service, text = destination.split(":")[2], json.dumps(content)
        if service == "lambda":
            self._invoke(destination, content, "s3", bucket)
        elif service == "sqs":
            sqs = self.place.client("sqs")
            url = sqs.get_queue_url(QueueName=destination.rpartition(":")[2])["QueueUrl"]
            if self._authorizer.admits_service(_S3, "sqs.SendMessage", {"QueueUrl": url}, source_arn=bucket):
                sqs.send_message(QueueUrl=url, MessageBody=text)
        elif self._authorizer.admits_service(_S3, "sns.Publish", {"TopicArn": destination}, source_arn=bucket):
            self.place.client("sns").publish(TopicArn=destination, Message=text)

    def deliver_event(self, target: Mapping[str, Any], event: Mapping[str, Any], rule_arn: str) -> None:
        """
        Deliver an event, or the input that the target makes of it, to a function, topic, queue or log group.

        Of the attributes that EventBridge gives a dead letter, this one has the two that name rule and target.
        """
        content: Any = json.loads(target["Input"]) if "Input" in target else event
        if transformer := target.get("InputTransformer"):
            content = transform(event, transformer)
        if target["Arn"].split(":")[2] == "lambda":
            is_delivered = self._invoke(target["Arn"], content, "events", rule_arn)
        else:
            is_delivered = self._send(target["Arn"], content if transformer else json.dumps(content), rule_arn)
        if not is_delivered:
            attributes = {"RULE_ARN": rule_arn, "TARGET_ARN": target["Arn"]}
            self._bury(target.get("DeadLetterConfig", {}).get("Arn", ""), event, _EVENTS, rule_arn, attributes)

    def _invoke(self, function_arn: str, event: Any, source: str, source_arn: str) -> bool:
        principal = f"{source}.amazonaws.com"
        self._authorizer.note_invocation(principal, function_arn, source_arn)
        return self._functions.invoke_asynchronously(
            function_arn, event, source=source, principal=principal, source_arn=source_arn
        )

    def _send(self, arn: str, text: str, rule_arn: str) -> bool:
        """Send a text to a topic, queue or log group; return whether its policy admits EventBridge."""
        service, name = arn.split(":")[2], arn.rpartition(":")[2]
        client = self.place.client(service)
        if service == "logs":
            group, stream = arn.split(":")[6], str(uuid.uuid4())
            client.create_log_stream(logGroupName=group, logStreamName=stream)
            line = {"timestamp": int(time.time() * 1000), "message": text}
            client.put_log_events(logGroupName=group, logStreamName=stream, logEvents=[line])
            return True
        if service == "sqs":
            url = client.get_queue_url(QueueName=name)["QueueUrl"]
            if is_admitted := self._authorizer.admits_service(
                _EVENTS, "sqs.SendMessage", {"QueueUrl": url}, source_arn=rule_arn
            ):
                client.send_message(QueueUrl=url, MessageBody=text)
            return is_admitted
        # EventBridge tells SNS no source (EventBridge user guide: "You can't use Condition blocks in Amazon SNS topic
        # policies").
        if is_admitted := self._authorizer.admits_service(_EVENTS, "sns.Publish", {"TopicArn": arn}):
            client.publish(TopicArn=arn, Message=text)
        return is_admitted

    def _bury(
        self, queue_arn: str, content: Mapping[str, Any], service: str, source_arn: str, attributes: Mapping[str, str]
    ) -> None:
        if not queue_arn:
            return
        sqs = self.place.client("sqs")
        url = sqs.get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        if self._authorizer.admits_service(service, "sqs.SendMessage", {"QueueUrl": url}, source_arn=source_arn):
            texts = {name: {"StringValue": text, "DataType": "String"} for name, text in attributes.items()}
            sqs.send_message(QueueUrl=url, MessageBody=json.dumps(content), MessageAttributes=texts)


_moto_publish = Subscription.publish
_TEST = "autoscaling:TEST_NOTIFICATION"


def install_topic_delivery(delivery: Delivery, disturbance: MessageDisturbance | None) -> None:
    """Replace moto's delivery to functions, with messages disturbed on request; other protocols stay moto's."""

    def publish(
        self: Subscription,
        message: str,
        message_id: str,
        subject: str | None = None,
        message_attributes: dict[str, Any] | None = None,
        **rest: Any,
    ) -> None:
        if self.protocol == "email":
            return  # nobody of the lab confirms the subscription
        if self.protocol != "lambda":
            if self.protocol != "sqs" or delivery.admits_message(self.endpoint, self.topic.arn):
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
        dead_letters = json.loads(self.attributes.get("RedrivePolicy", "{}")).get("deadLetterTargetArn", "")
        deliver = partial(delivery.deliver_message, self.endpoint, notification, self.arn, dead_letters)
        # A test notification says nothing: to lose it instead of a first message would try nothing.
        if disturbance is None or _TEST in message:
            deliver()
        else:
            disturbance.pass_on(self.topic.name, deliver)

    Subscription.publish = publish  # type: ignore[assignment,method-assign]


def install_object_delivery(delivery: Delivery) -> None:
    """Replace moto's delivery of the notifications of buckets, which asks no policy and knows no functions."""

    def send(content: Any, destination: str) -> None:
        threading.Thread(
            target=delivery.deliver_notification, args=(destination, content), name="notify of an object", daemon=True
        ).start()

    # Account, content, destination and region, as moto gives them.
    def send_to_queue(_account: str, content: Any, queue: str, _region: str) -> None:
        send(content, delivery.place.arn("sqs", queue))

    def send_by_arn(_account: str, content: Any, arn: str, _region: str) -> None:
        send(content, arn)

    notifications._send_sqs_message = send_to_queue  # type: ignore[assignment]  # noqa: SLF001 - moto has no other place
    notifications._send_sns_message = send_by_arn  # type: ignore[assignment]  # noqa: SLF001
    notifications._invoke_awslambda = send_by_arn  # type: ignore[assignment]  # noqa: SLF001
