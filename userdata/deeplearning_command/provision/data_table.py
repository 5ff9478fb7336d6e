"""What `deeplearning data` prints: a table for people, objects for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from deeplearning_command.terminal.text_table import align
from deeplearning_contract.document import read_record
from deeplearning_contract.names import DATA_DIRECTORY
from deeplearning_node.node_facts import NodeFacts
from deeplearning_node.provision_status import RUNNING, Step, data_step
from deeplearning_provision.disk import render_bytes

COLUMNS = ("SOURCE", "TARGET", "STATE", "PROGRESS", "DETAIL")
MINUTE, HOUR = 60, 3600


def describe_sources(facts: NodeFacts, steps: Mapping[str, Step]) -> list[dict[str, Any]]:
    """Return an object a source: what it is, where jobs find it, and its step."""
    found = []
    for source in facts.needs.data:
        step = steps[data_step(source.name)]
        path = f"{DATA_DIRECTORY}/{source.name}" + (".s3" if source.target == "stream" else "")
        found.append(
            {
                "name": source.name,
                "target": source.target,
                "uri": f"s3://{source.bucket}/{source.key}",
                "path": path,
                **step.to_document(),
                "seconds_left": estimate_seconds(step),
            }
        )
    return found


def draw_sources(nodes: "Sequence[tuple[str, list[dict[str, Any]] | str]]") -> str:
    """
    Return a line a source and node.

    Args:
        nodes: Host name, empty for this node alone, and its sources or why it has not answered.
    """
    has_hosts = any(host for host, _ in nodes)
    rows: list[tuple[str, ...]] = [("HOST", *COLUMNS) if has_hosts else COLUMNS]
    for host, sources in nodes:
        head = (host,) if has_hosts else ()
        if isinstance(sources, str):
            rows.append((*head, "", "", "no answer", "", sources))
            continue
        rows += [(*head, *_draw_source(source)) for source in sources]
    if len(rows) == 1:
        return "the cluster's props name no data\n"
    return "\n".join([*align(rows), ""])


def _draw_source(source: Mapping[str, Any]) -> tuple[str, ...]:
    step = read_record(Step, source, "source")
    where = f"; at {source['path']}" if step.state == "done" else ""
    return str(source["name"]), str(source["target"]), step.state, describe_progress(step), step.detail + where


def describe_progress(step: Step) -> str:
    """Return how much of a step is done, how fast, and how long the rest takes."""
    if step.unit != "bytes" or not step.total:
        return ""
    share = f"{100 * step.done // step.total}% of {render_bytes(step.total)}"
    left = estimate_seconds(step)
    if step.state != RUNNING or left is None:
        return share
    return f"{share}, {render_bytes(step.rate)}/s, {render_seconds(left)} left"


def estimate_seconds(step: Step) -> int | None:
    """Return how long the rest takes at the rate so far, in seconds; None when that is not known."""
    if step.state != RUNNING or step.rate <= 0 or not step.total:
        return None
    return round(max(0, step.total - step.done) / step.rate)


def render_seconds(seconds: int) -> str:
    """Write a time for people."""
    if seconds < MINUTE:
        return f"{seconds} s"
    if seconds < HOUR:
        return f"{seconds // MINUTE} min {seconds % MINUTE} s"
    return f"{seconds // HOUR} h {seconds % HOUR // MINUTE} min"
