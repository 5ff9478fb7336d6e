"""
Makes moto's queues behave like SQS where the cluster relies on it.

`SenderId` is the caller's, not a constant; a long poll sleeps until a message comes; receiving is atomic. On request,
messages are disturbed on their way into their queue.
The replaced methods are moto 5.2.5's, which is why moto is pinned exactly.
"""

import threading
import time
from copy import deepcopy
from functools import partial
from typing import Any

from moto.sqs.models import Message, Queue, SQSBackend

from cdk_rehearsal.embedded_aws.base.message_faults import MessageDisturbance
from cdk_rehearsal.embedded_aws.base.principals import caller

_HIDDEN_MESSAGE_SECONDS = 0.25
"""Interval of polls while a queue has messages that are not visible yet."""

_arrival = threading.Condition(threading.RLock())
_moto_send = SQSBackend.send_message
_moto_receive = SQSBackend.receive_message
_moto_delete = SQSBackend.delete_message
_moto_change_visibility = SQSBackend.change_message_visibility
_disturbances: list[MessageDisturbance] = []
"""None, or the one of the embedded AWS that runs."""


def _send_message(self: SQSBackend, *args: Any, **kwargs: Any) -> Message:
    with _arrival:
        message = _moto_send(self, *args, **kwargs)
        message.sender_id = caller.get().sender_id
        for disturbance in _disturbances:
            queue = self.get_queue(args[0] if args else kwargs["queue_name"])
            queue._messages.remove(message)  # noqa: SLF001 - moto has no way to build a message alone
            disturbance.pass_on(queue.name, partial(_put, queue, message))
        _arrival.notify_all()
    return message


def _put(queue: Queue, message: Message) -> None:
    """Put a copy into a queue, with the id and the sender of the message; a copy is received and deleted by itself."""
    with _arrival:
        queue.add_message(deepcopy(message))
        _arrival.notify_all()


def _receive_message(  # noqa: PLR0917 - moto's signature
    self: SQSBackend,
    queue_name: str,
    count: int,
    wait_seconds_timeout: int,
    visibility_timeout: int,
    message_attribute_names: list[str] | None = None,
) -> list[Message]:
    deadline = time.monotonic() + wait_seconds_timeout
    with _arrival:
        while True:
            messages = _moto_receive(self, queue_name, count, 0, visibility_timeout, message_attribute_names)
            left = deadline - time.monotonic()
            if messages or left <= 0:
                return messages
            hidden = bool(self.get_queue(queue_name)._messages)  # noqa: SLF001 - the public list hides them
            _arrival.wait(min(left, _HIDDEN_MESSAGE_SECONDS) if hidden else left)


def _delete_message(self: SQSBackend, *args: Any, **kwargs: Any) -> None:
    with _arrival:
        _moto_delete(self, *args, **kwargs)


def _change_message_visibility(self: SQSBackend, *args: Any, **kwargs: Any) -> None:
    with _arrival:
        _moto_change_visibility(self, *args, **kwargs)
        _arrival.notify_all()


def install_queue_delivery(disturbance: MessageDisturbance | None) -> None:
    """Replace moto's methods; doing so again changes no more than who disturbs the messages."""
    _disturbances[:] = [] if disturbance is None else [disturbance]
    SQSBackend.send_message = _send_message  # type: ignore[method-assign]
    SQSBackend.delete_message = _delete_message  # type: ignore[method-assign]
    SQSBackend.change_message_visibility = _change_message_visibility  # type: ignore[method-assign]
    SQSBackend.receive_message = _receive_message  # type: ignore[method-assign]
