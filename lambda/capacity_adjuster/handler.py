"""
Entry point of the Lambda function: every event leads to one reconciliation.

Exceptions: a test notification leads to none; the warning of the end of a Capacity Block is announced to the nodes; a
message of AWS Budgets stops the cluster; CloudFormation's requests set the requested capacity.
"""

import logging
import os
from functools import cache
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from capacity_adjuster.aws.auto_scaling_groups import AutoScalingGroups
from capacity_adjuster.aws.capacity_blocks import BlockReader
from capacity_adjuster.aws.log_lines import write_lines
from capacity_adjuster.aws.state_table import StateTable
from capacity_adjuster.events.capacity_block import announce_expiry, read_warning
from capacity_adjuster.events.notifications import describe_event, is_test, read_budget_message
from capacity_adjuster.events.stack_request import answer_stack, is_stack_request
from capacity_adjuster.reconcile.adapters import Adapters, InvocationClock
from capacity_adjuster.reconcile.capacity_change import CapacityChange
from capacity_adjuster.reconcile.capacity_metrics import log_capacity
from capacity_adjuster.reconcile.observer import Observer
from capacity_adjuster.reconcile.reconciliation import Reconciliation
from deeplearning_contract.cluster_event import ClusterEvent, put_events_request
from deeplearning_contract.messages import ClusterNotification
from deeplearning_contract.settings import AdjusterSettings
from deeplearning_contract.web import send_signal, signal_body

logger = logging.getLogger(__name__)
logging.getLogger("capacity_adjuster").setLevel(logging.INFO)
write_lines()

_CONFIG = Config(connect_timeout=3, read_timeout=10, retries={"mode": "standard", "total_max_attempts": 4})


def handle(event: Any, context: Any) -> dict[str, str]:
    """
    Reconcile the cluster's capacity, for any event, and return the outcome.

    Any error ends the invocation, so that Lambda retries it; the timer invokes the function again in any case.
    """
    logger.info("event: %s", describe_event(event))
    if is_test(event):
        return {"outcome": "notifications are set up"}
    try:
        settings = AdjusterSettings.from_environment(os.environ)
        adapters, warning = make_adapters(settings, InvocationClock(context)), read_warning(event)
        if is_stack_request(event):
            capacity_change = CapacityChange(adapters, Observer(settings, adapters))
            outcome = answer_stack(event, adapters=adapters, capacity_change=capacity_change, send=send_signal)
        elif warning is None:
            message_id = read_budget_message(event, settings.budget_topic_arn)
            reconciliation = Reconciliation(settings, adapters, message_id)
            outcome = reconciliation.run()
            log_capacity(reconciliation.observer, adapters.clock.now(), adapters.records.read_state)
        else:
            reservation_id, records = settings.capacity_reservation_id, adapters.records
            outcome = announce_expiry(
                warning, reservation_id=reservation_id, records=records, notify_master=adapters.notify_master
            )
    except Exception:
        logger.exception("invocation failed; the next event or the timer retries")
        raise
    logger.info("outcome: %s", outcome)
    return {"outcome": outcome}


def make_adapters(settings: AdjusterSettings, clock: InvocationClock) -> Adapters:
    """Return the adapters of one invocation to AWS."""
    sqs = _make_client("sqs")

    def notify_master(notification: ClusterNotification) -> None:
        sqs.send_message(QueueUrl=settings.master_queue_url, MessageBody=notification.to_body())

    def signal_failure(reason: str) -> None:
        send_signal(settings.signal_url, signal_body(settings.cluster, "FAILURE", reason))

    def send_event(event: ClusterEvent) -> None:
        try:
            answer = _make_client("events").put_events(**put_events_request(event))
        except (BotoCoreError, ClientError) as error:  # A lost event must not keep a cluster running.
            logger.warning("could not send the event %s: %s", event.kind.value, error)
            return
        if answer.get("FailedEntryCount"):
            logger.warning("EventBridge refused the event %s: %s", event.kind.value, answer["Entries"])

    return Adapters(
        groups=AutoScalingGroups(_make_client("autoscaling"), settings.cluster),
        records=StateTable(_make_client("dynamodb"), settings.state_table, settings.cluster),
        notify_master=notify_master,
        signal_failure=signal_failure,
        clock=clock,
        send_event=send_event,
        block=BlockReader(lambda: _make_client("ec2"), settings.worker_block_id) if settings.worker_block_id else None,
    )


@cache
def _make_client(service: str) -> Any:
    # Loading a service's model takes longer than the calls; a warm environment keeps only that.
    return boto3.client(service, config=_CONFIG)
