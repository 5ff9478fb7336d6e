"""`deeplearning end`: end of the cluster and its cost; the shared file system is kept."""

import argparse
import re
import sys
from collections.abc import Callable
from typing import Any

from deeplearning_command.cluster.event import send_event
from deeplearning_command.context import Context
from deeplearning_command.remote.nodes import HostResult, Remote
from deeplearning_command.remote.survey import SURVEY_SECONDS, read_facts
from deeplearning_command.terminal import RefusedError, on_change, print_line
from deeplearning_contract.cluster_event import EventKind
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole
from deeplearning_contract.reason import Reason
from deeplearning_node.deadline import Clock
from deeplearning_node.health.findings import clean
from deeplearning_node.health.gpus import BUSY_PERCENT, GPU_SECONDS
from deeplearning_node.node_facts import COMMAND_FILE

AWS_SECONDS = 120
POLL_SECONDS = 60.0
ANSWER_SECONDS = GPU_SECONDS + SURVEY_SECONDS
REQUESTED = "ended by a user on its master"
DESCRIPTION = """
Set the desired capacity of the cluster's node groups to 0, workers first, this master last. Every instance is
terminated; the shared file system and the stack are kept, and raising the groups again restores the cluster.
"""
_GPU_LINE = re.compile(r"^gpu (\d+)$", re.MULTILINE)

# Only the load of the GPUs that the driver reports; a host without the driver has none.
QUESTION = f"""
if command -v nvidia-smi >/dev/null; then
    timeout --signal=KILL {GPU_SECONDS} nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits |
        sed 's/^ */gpu /'
fi
exec {COMMAND_FILE} node-facts
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the condition and the confirmation."""
    parser.add_argument(
        "--when-idle",
        type=read_minutes,
        metavar="MINUTES",
        help="wait until no host has run a job, and no GPU was busy for more than 5 %% of the time, for M minutes",
    )
    parser.add_argument("--yes", action="store_true", help="skip the confirmation")


def read_minutes(text: str) -> float:
    """Parse a positive number of minutes; argparse reports other texts."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, got {text!r}")
    return minutes


def run(options: argparse.Namespace, context: Context) -> int:
    """End the cluster, with --when-idle after a wait."""
    confirm_end(context.remote, is_agreed=options.yes)
    if options.when_idle is not None:
        wait_until_idle(context, options.when_idle)
    for line in end_cluster(context.remote):
        print_line(line)
    return 0


def wait_until_idle(context: Context, minutes: float, find_more: Callable[[], str] = str) -> None:
    """
    Return when no host has been busy for `minutes`; print a line when the cluster becomes busy or idle.

    `find_more` returns another activity of the cluster. The membership is read at each poll, since nodes are replaced.
    A host that does not respond may be busy. One where only the driver does not respond is judged by its jobs and its
    provisioning: busy GPUs are initialized, and only the driver of idle ones is late (Azure/aks-gpu#105).
    """
    idle_since: float | None = None
    report = on_change(print_line)
    while True:
        remote = context.open_remote()
        results = remote.run_all(remote.hosts, QUESTION, seconds=ANSWER_SECONDS)
        busy = next(filter(None, map(find_activity, results)), "") or find_more()
        now = context.clock.read()
        idle_since = None if busy else (now if idle_since is None else idle_since)
        report(f"busy: {busy}" if busy else f"idle; the cluster ends after {minutes:g} idle minutes")
        if idle_since is not None and now - idle_since >= minutes * 60:
            return
        context.clock.wait(POLL_SECONDS)


def find_activity(result: HostResult) -> str:
    """Return one activity of a host; empty for none."""
    facts = result.read(read_facts)
    if isinstance(facts, str):
        return f"{result.host} does not respond: {clean(facts)}"
    if facts.jobs:
        return f"{result.host} runs {', '.join(facts.jobs)}"
    open_steps = sorted(name for name, step in facts.steps.items() if step.state in {"waiting", "running"})
    if open_steps:
        return f"{result.host} is still provisioned with {', '.join(open_steps)}"
    percent = max(map(int, _GPU_LINE.findall(result.output)), default=0)
    return f"{result.host} has a GPU that is busy {percent} % of its time" if percent > BUSY_PERCENT else ""


def confirm_end(remote: Remote, *, is_agreed: bool) -> None:
    """Prompt on a terminal for a confirmation; RefusedError without it."""
    if is_agreed or not sys.stdin.isatty():
        return
    sys.stderr.write(f"all {len(remote.hosts)} instances of {remote.facts.cluster} will be terminated; go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise RefusedError("the end of the cluster must be confirmed, got no; answer y, or add --yes")


def end_cluster(remote: Remote, reason: str = REQUESTED) -> list[str]:
    """
    Set the desired capacity of the cluster's groups to 0, the master's last, which ends this node.

    AWS terminates the instances of both groups, and an event reports that the cluster has finished. Returns a line for
    each group, and one when the event could not be sent; RefusedError if AWS refuses, or returns no group.
    """
    from deeplearning_node.aws_clients import AwsClients, AwsFailure, call_for  # noqa: PLC0415 - botocore is heavy

    facts, clock = remote.facts, Clock()
    client, trouble = AwsClients(facts.region).autoscaling, []
    try:
        groups = call_for(clock, AWS_SECONDS, lambda: find_groups(client, facts.cluster))
        if not groups:
            raise RefusedError(
                f"the cluster must have node groups, got none with the tag {CLUSTER_TAG}={facts.cluster}"
            )
        for name, _ in groups:
            if name == groups[-1][0]:  # While this node can still send it.
                trouble = send_event(facts, remote.membership, EventKind.FINISHED, Reason(reason))
            call_for(clock, AWS_SECONDS, lambda name=name: _set_to_none(client, name))  # type: ignore[misc] # of lambda
    except AwsFailure as error:
        causes = filter(None, [str(error), error.remedy])
        raise RefusedError(f"could not end the cluster: {'; '.join(causes)}") from error
    return [*(f"desired capacity of {name} ({role}) is 0" for name, role in groups), *trouble]


def find_groups(client: Any, cluster: str) -> list[tuple[str, str]]:
    """Return name and role of a cluster's node groups, the master's last."""
    pages = client.get_paginator("describe_auto_scaling_groups").paginate(
        Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
    )
    found = []
    for group in (group for page in pages for group in page["AutoScalingGroups"]):
        tags = {tag["Key"]: tag["Value"] for tag in group["Tags"]}
        found.append((group["AutoScalingGroupName"], tags.get(ROLE_TAG, "")))
    return sorted(found, key=lambda group: (group[1] == NodeRole.MASTER.value, group[0]))


def _set_to_none(client: Any, group: str) -> None:
    client.set_desired_capacity(AutoScalingGroupName=group, DesiredCapacity=0, HonorCooldown=False)
