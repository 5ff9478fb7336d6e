"""The first process of a container, which has no init: it adopts orphans, and passes a stop on."""

import os
import signal
from collections.abc import Callable

_KILLED = 128
"""Added to the number of the signal that ended a process, as shells do."""


def run_in_child(work: Callable[[], int]) -> int:
    """
    Run work in a child process and return its exit status, while this process reaps what has no parent any more.

    SIGTERM, by which SageMaker stops a job, is passed on to the child.
    """
    # Until the handlers are there, a stop waits: the kernel drops it for a first process without a handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = work()
        finally:
            os._exit(status)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
    while True:
        ended, status = os.wait()
        if ended == child:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else _KILLED - code
