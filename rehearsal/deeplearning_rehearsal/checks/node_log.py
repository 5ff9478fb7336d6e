"""The log of the nodes: its lines and metrics in their log group."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_contract.document import ContractError
from deeplearning_contract.log_record import LogLine
from deeplearning_contract.metrics import read_metrics

SHIPPING_SECONDS = 20.0
"""Nodes ship their lines every ten seconds: a replacement that has just joined may have none in the log yet."""
_PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class LogReport:
    """
    The nodes' log group: lines and values of metrics by node and name, and lines that are malformed or of another node.
    """

    lines: Mapping[str, int]
    metrics: Mapping[str, int]
    foreign: int = 0


def read_node_log(client: Any, group: str) -> LogReport:
    """Count what a log group holds."""
    lines: Counter[str] = Counter()
    metrics: Counter[str] = Counter()
    foreign = 0
    for page in client.get_paginator("filter_log_events").paginate(logGroupName=group):
        for event in page["events"]:
            try:
                line = LogLine.from_text(event["message"])
            except ContractError:
                foreign += 1
                continue
            if line.speaker.stream == event["logStreamName"]:
                lines[line.speaker.node] += 1
                metrics.update(read_metrics(line.details).keys())
            else:
                foreign += 1
    return LogReport(dict(sorted(lines.items())), dict(sorted(metrics.items())), foreign)


def await_node_log(client: Any, group: str, nodes: Iterable[str], seconds: float = SHIPPING_SECONDS) -> LogReport:
    """Wait until each node has shipped a line, for so many seconds at most, and count what the log group holds then."""
    give_up = time.monotonic() + seconds
    while not (report := read_node_log(client, group)).lines.keys() >= set(nodes) and time.monotonic() < give_up:
        time.sleep(_PAUSE_SECONDS)
    return report
