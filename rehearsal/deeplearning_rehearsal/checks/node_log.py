"""The logs of the nodes: lines and metrics in their log group, and on EMR what EMR itself writes to S3."""

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
EMR_LOG_FILES = ("controller", "stdout", "stderr")
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


def list_emr_logs(emr: Any, s3: Any, cluster: str) -> dict[str, bool]:
    """
    List the logs that EMR writes of a cluster's bootstrap actions and ended steps, URI -> whether it is in the bucket.

    Their names are those of the EMR management guide, "View log files". Nothing is listed of a cluster without a
    `LogUri`.
    """
    uri = str(emr.describe_cluster(ClusterId=cluster)["Cluster"].get("LogUri", "")).rstrip("/")
    if not uri:
        return {}
    instances = emr.list_instances(ClusterId=cluster, InstanceStates=["RUNNING"])["Instances"]
    actions = range(1, 1 + len(emr.list_bootstrap_actions(ClusterId=cluster)["BootstrapActions"]))
    steps = emr.list_steps(ClusterId=cluster, StepStates=["COMPLETED", "FAILED"])["Steps"]
    folders = [f"node/{each['Ec2InstanceId']}/bootstrap-actions/{number}" for each in instances for number in actions]
    folders += [f"steps/{step['Id']}" for step in steps]
    bucket, _, prefix = uri.partition("://")[2].partition("/")
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/{cluster}/")
    found = {entry["Key"] for page in pages for entry in page.get("Contents", [])}
    names = [f"{prefix}/{cluster}/{folder}/{name}.gz" for folder in folders for name in EMR_LOG_FILES]
    return {f"s3://{bucket}/{name}": name in found for name in names}
