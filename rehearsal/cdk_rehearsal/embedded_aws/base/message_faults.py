"""Messages that come twice, in another order, or never, as SQS and SNS may deliver them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass

from cdk_rehearsal.embedded_aws.base.observation import Observations

Delivery = Callable[[], None]


@dataclass(frozen=True)
class MessageFaults:
    """
    Faults of every message of SQS queues and SNS topics: it comes twice, after the next one, or never (the first one).

    A message waits `hold_seconds` for the next one to overtake it.
    """

    duplicate: bool = False
    reorder: bool = False
    lose_first: bool = False
    hold_seconds: float = 1.0


class MessageDisturbance:
    """Passes messages on with their faults."""

    def __init__(self, faults: MessageFaults, observations: Observations) -> None:
        self._faults = faults
        self._observations = observations
        self._lock = threading.Lock()
        self._begun: set[str] = set()
        self._held: dict[str, Delivery] = {}
        self._closing = False

    def pass_on(self, channel: str, deliver: Delivery) -> None:
        """
        Deliver a message of a queue or topic: never, once or twice; now, or behind the next one.

        `deliver` is called in this thread or in another one.
        """
        with self._lock:
            is_lost = self._faults.lose_first and channel not in self._begun
            self._begun.add(channel)
            overtaken = None
            if self._faults.reorder and not is_lost:
                overtaken = self._held.pop(channel, None)
                if overtaken is None:
                    self._hold(channel, deliver)
                    return
        if is_lost:
            self._observations.report("message", channel, "the first message is lost")
            return
        self._deliver([deliver] if overtaken is None else [deliver, overtaken])

    def close(self) -> None:
        """Drop what is held."""
        with self._lock:
            self._closing = True
            self._held.clear()

    def _hold(self, channel: str, deliver: Delivery) -> None:
        self._held[channel] = deliver
        timer = threading.Timer(self._faults.hold_seconds, self._release, [channel, deliver])
        timer.daemon = True
        timer.start()

    def _release(self, channel: str, deliver: Delivery) -> None:
        with self._lock:
            if self._closing or self._held.get(channel) is not deliver:
                return  # the next one came, and took it along
            del self._held[channel]
        self._deliver([deliver])

    def _deliver(self, batch: list[Delivery]) -> None:
        for _ in range(2 if self._faults.duplicate else 1):
            for deliver in batch:
                deliver()
