"""Notices that the node's capacity ends soon: read from EC2, and written to a file for training scripts."""

import json
import logging
import os
import re
import urllib.error
from collections.abc import Mapping
from datetime import datetime, timezone

from deeplearning_contract.document import ContractError, field, parse_object
from deeplearning_contract.names import NOTICE_FILE
from deeplearning_node.atomic_file import write_file
from deeplearning_node.instance_metadata import open_metadata
from deeplearning_node.node import Node

LOG = logging.getLogger(__name__)
DISABLED_VARIABLE = "AWS_EC2_METADATA_DISABLED"
"""AWS's own variable; where it is true, the metadata service is not polled."""
SPOT_PATH = "spot/instance-action"
NO_NOTICE_STATUS = 404
_ACTION = re.compile(r"[a-z-]{1,20}")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z")


class SpotNotices:
    """Interruption notices of this spot instance, as instance metadata has them."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        """Bind the environment, which may name another metadata service or disable it."""
        self._environment = environment
        self.is_failing = False
        """True after a poll without a response, which is logged once."""

    def read(self) -> str:
        """
        Return EC2's interruption notice; empty for none, or without a response that EC2 documents.

        EC2 publishes it two minutes before; until then the path does not exist
        (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html).
        """
        if self._environment.get(DISABLED_VARIABLE, "").lower() == "true":
            return ""
        try:
            notice = describe_action(open_metadata(self._environment)(SPOT_PATH))
        except (OSError, ValueError) as error:
            has_failed = not isinstance(error, urllib.error.HTTPError) or error.code != NO_NOTICE_STATUS
            if has_failed and not self.is_failing:
                LOG.warning("could not poll for interruption notices; retrying: %s", error)
            self.is_failing = has_failed
            return ""
        self.is_failing = False
        return notice


def describe_action(text: str) -> str:
    """Return EC2's action in one line; ContractError for a text that EC2 does not document."""
    document = parse_object(text, "spot notice")
    action, time = field(document, "action", str, "spot notice"), field(document, "time", str, "spot notice")
    if not _ACTION.fullmatch(action) or not _TIME.fullmatch(time):
        raise ContractError(f"spot notice must contain an action and a time, got {text[:200]!r}")
    return f"EC2 will {action} this spot instance at {time}"


def write_notice(node: Node, reason: str) -> None:
    """
    Write /opt/deeplearning/notice, `{"reason": …, "at": …}`, with the UTC time at which the node received it.

    A repeated reason keeps its first time. A full disk is only logged: the node must leave in time.
    """
    path = node.path(NOTICE_FILE)
    try:
        if parse_object(path.read_text(encoding="utf-8"), "notice").get("reason") == reason:
            return
    except (OSError, ValueError):
        pass  # It is absent or unreadable, and is replaced.
    at = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    try:
        write_file(path, json.dumps({"reason": reason, "at": at}) + "\n")
    except OSError as error:
        LOG.warning("%s", error)


def clear_notice(node: Node) -> None:
    """Remove /opt/deeplearning/notice: the capacity stays."""
    node.path(NOTICE_FILE).unlink(missing_ok=True)
