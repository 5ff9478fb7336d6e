"""
Liveness over the network: probes thousands of nodes in one thread, within a few seconds, without a login.

A refused connection is as good a response as an accepted one: the node's kernel runs. So the first port is one on
which no program listens, and no daemon has work with it.
"""

import errno
import itertools
import logging
import os
import resource
import selectors
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from deeplearning_node.deadline import Clock

LOG = logging.getLogger(__name__)
STEPS = ((9, 1.0), (22, 1.5))
"""Port and seconds. A firewall may drop packets to the first; logins need the second."""
STRIKES = 2
"""Rounds in a row without a response after which a node counts as gone."""
KEPT_DESCRIPTORS = 128
"""File descriptors left for the rest of the agent."""
MOST_SOCKETS = 4000

_ANSWERS = frozenset({0, errno.ECONNREFUSED, errno.ECONNRESET})
_NO_ROOM = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EAGAIN})
"""Errors of this machine, from which nothing follows for another."""


def find_silent(
    addresses: Iterable[str], clock: Clock | None = None, steps: Sequence[tuple[int, float]] = STEPS
) -> set[str]:
    """
    Find the IPv4 addresses without any response, not even a refusal.

    `steps` are ports, each with its time-out in seconds; an address that is silent on one is tried on the next. An
    address for which this machine had no socket does not count as silent.
    """
    silent = set(addresses)
    for port, seconds in steps:
        silent -= find_answering(silent, port, seconds, clock or Clock())
    return silent


def find_answering(addresses: Iterable[str], port: int, seconds: float, clock: Clock) -> set[str]:
    """
    Try one port of each address, in parallel up to the limit of open files; return those that respond or had no socket.
    """
    sweep = _Sweep(addresses, port, seconds, clock)
    with selectors.DefaultSelector() as selector:
        try:
            while sweep.waiting or sweep.pending:
                sweep.start(selector)
                sweep.take(selector)
        finally:
            for connection in sweep.pending:
                connection.close()
    return sweep.answered


class _Sweep:
    """Sweep over one port of many addresses, with a limited number at a time."""

    def __init__(self, addresses: Iterable[str], port: int, seconds: float, clock: Clock) -> None:
        self.waiting = deque(addresses)
        self.pending: dict[socket.socket, tuple[str, float]] = {}
        """Address and deadline of each socket; all have one time-out, so the first entry expires first."""
        self.answered: set[str] = set()
        self._port = port
        self._seconds = seconds
        self._clock = clock
        self._room = count_room()

    def start(self, selector: selectors.BaseSelector) -> None:
        """Start connections up to the limit."""
        while self.waiting and len(self.pending) < self._room:
            address = self.waiting.popleft()
            status, connection = start_connecting(address, self._port)
            if connection is not None:
                selector.register(connection, selectors.EVENT_WRITE)
                self.pending[connection] = (address, self._clock.read() + self._seconds)
            elif status in _NO_ROOM and self.pending:
                self.waiting.appendleft(address)
                self._room = len(self.pending)
            elif status in _NO_ROOM:
                LOG.warning("cannot probe %s: %s", address, os.strerror(status))
                self.answered.add(address)
            elif status in _ANSWERS:
                self.answered.add(address)

    def take(self, selector: selectors.BaseSelector) -> None:
        """Wait for the next responses or the next time-out, and record them."""
        if not self.pending:
            return
        _, first = next(iter(self.pending.values()))
        ready = [key.fileobj for key, _ in selector.select(max(0.0, first - self._clock.read()))]
        now = self._clock.read()
        late = itertools.takewhile(lambda pending: pending[1][1] <= now, self.pending.items())
        done = dict.fromkeys([*(found for found in ready if isinstance(found, socket.socket)), *(c for c, _ in late)])
        for connection in done:
            address, _ = self.pending.pop(connection)
            status = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if connection in ready and status in _ANSWERS:
                self.answered.add(address)
            selector.unregister(connection)
            connection.close()


def start_connecting(address: str, port: int) -> tuple[int, socket.socket | None]:
    """Return a socket that is connecting, or the error number of one that failed at once."""
    try:
        connection = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    except OSError as error:
        return error.errno or errno.EMFILE, None
    status = connection.connect_ex((address, port))
    if status == errno.EINPROGRESS:
        return status, connection
    connection.close()
    return status, None


def count_room() -> int:
    """Return the number of sockets that may be open at once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = MOST_SOCKETS if limit == resource.RLIM_INFINITY else limit - KEPT_DESCRIPTORS
    return max(1, min(MOST_SOCKETS, most))


class Watch:
    """Watch over a set of nodes: counts the rounds in which each was silent."""

    def __init__(self, probe: Callable[[Iterable[str]], set[str]] = find_silent, strikes: int = STRIKES) -> None:
        """Bind a probe, which returns the silent addresses, and the number of silent rounds in a row that mean gone."""
        self._probe = probe
        self._needed = strikes
        self._strikes: Counter[str] = Counter()

    def find_silent(self, addresses: Iterable[str]) -> set[str]:
        """
        Do one round; return the addresses that were silent now and in the rounds just before.

        One response clears an address, and so does a round that does not probe it.
        """
        silent = self._probe(list(addresses))
        self._strikes = Counter({address: self._strikes[address] + 1 for address in silent})
        return {address for address, count in self._strikes.items() if count >= self._needed}

    @property
    def silent(self) -> set[str]:
        """Addresses that did not respond in the last round, gone or not."""
        return set(self._strikes)
