"""Tells CloudFormation how the set-up ended, through the URL that only the master and the adjuster know."""

import http.client
import logging
import urllib.error
from typing import Literal

from deeplearning_contract.reason import Reason
from deeplearning_contract.stack_signal import send_signal, signal_body
from deeplearning_node.atomic_file import write_file
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
SIGNAL_SECONDS = 120
FORBIDDEN = 403
"""The presigned URL has expired: the stack was decided long ago."""


class StackSignal:
    """The one signal of this master; sending it again changes nothing at CloudFormation."""

    def __init__(self, node: Node) -> None:
        """Find out whether this instance has signalled success before."""
        self._node = node
        self._sent_file = node.instance_file("success-signalled")
        self._sent = {"SUCCESS"} if self._sent_file.exists() else set()

    @property
    def has_succeeded(self) -> bool:
        """Whether CloudFormation was told of a success."""
        return "SUCCESS" in self._sent

    def send(self, status: Literal["SUCCESS", "FAILURE"], reason: Reason) -> bool:
        """
        Send the signal unless it was sent, retrying for two minutes; return whether CloudFormation has it.

        Effects: one PUT; a file that records a success, since a reboot must not signal again.
        """
        if status in self._sent:
            return True
        settings = self._node.settings
        for _ in self._node.limit(SIGNAL_SECONDS).attempts():
            try:
                send_signal(settings.signal_url, signal_body(settings.cluster, status, str(reason)))
            except urllib.error.HTTPError as error:  # noqa: PERF203 - waiting dwarfs it
                LOG.warning("CloudFormation did not take %s: %s", status, error)
                if error.code == FORBIDDEN:
                    break
            except (OSError, ValueError, http.client.HTTPException) as error:
                LOG.warning("could not signal %s: %s", status, error)
            else:
                LOG.info("signalled %s: %s", status, reason)
                self._remember(status, str(reason))
                return True
        return False

    def _remember(self, status: str, reason: str) -> None:
        self._sent.add(status)
        if status != "SUCCESS":
            return
        try:
            write_file(self._sent_file, f"{reason}\n")
        except OSError as error:
            # CloudFormation knows; a full disk must not undo a formed cluster. A reboot signals again, to no effect.
            LOG.warning("%s", error)
