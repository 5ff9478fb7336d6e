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
    # Both wait until `sigwait` takes them. A handler comes too late for a stop right before a wait, which then never
    # ends; and the kernel drops a stop for a first process that neither handles nor blocks it.
    awaited = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, awaited)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])
            status = work()
        finally:
            os._exit(status)
    while True:
        if signal.sigwait(awaited) == signal.SIGTERM:
            os.kill(child, signal.SIGTERM)
            continue
        ended = -1
        while ended:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _KILLED - code
