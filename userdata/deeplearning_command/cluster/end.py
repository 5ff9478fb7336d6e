"""`deeplearning end`: ends the cluster, so that it costs nothing more; the shared file system stays."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deeplearning_command.cluster.idle_watch import IdleWatch
from deeplearning_command.remote.nodes import Remote
from deeplearning_command.terminal.errors import RefusedError
from deeplearning_contract.cluster_event import ClusterEvent, EventKind, put_events_request
from deeplearning_contract.names import CLUSTER_TAG, ROLE_TAG, NodeRole
from deeplearning_node.deadline import Clock
from deeplearning_node.programs import Programs

if TYPE_CHECKING:
    Subcommands = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - argparse has no other name

AWS_SECONDS = 120
EVENT_SECONDS = 30
ASKED = "somebody ended it on its master"
DESCRIPTION = """
Set the desired capacity of the cluster's node groups to 0, workers first, this master last. Every instance is
terminated; the shared file system and the stack stay, and raising the groups again brings the cluster back.
"""
EPILOG = "exit status: 0 the cluster ends, 2 it does not"


def add_end(subcommands: "Subcommands") -> None:
    """Add the subcommand and its options."""
    parser = subcommands.add_parser("end", help="end the cluster", description=DESCRIPTION, epilog=EPILOG)
    parser.add_argument(
        "--when-idle",
        type=read_minutes,
        metavar="MINUTES",
        help="wait until no host has run a job, and no GPU more than 5 %% of its time, for so long",
    )
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=run_end)


def read_minutes(text: str) -> float:
    """
    Read an option's minutes.

    Raises:
        ArgumentTypeError: They are no positive number.
    """
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < float("inf"):
        raise argparse.ArgumentTypeError(f"must be a number of minutes above 0, got {text!r}")
    return minutes


def run_end(options: argparse.Namespace, root: Path, programs: Programs, clock: Clock | None = None) -> int:
    """
    Run the subcommand.

    Returns:
        The exit status.

    Raises:
        RefusedError: AWS did not take it, or the user did not agree.
    """
    remote = Remote.open(root, programs)
    confirm_end(remote, is_agreed=options.yes)
    if options.when_idle is not None:
        IdleWatch(root, programs, clock or Clock(), _say).wait(options.when_idle)
    for line in end_cluster(remote):
        _say(line)
    return 0


def confirm_end(remote: Remote, *, is_agreed: bool) -> None:
    """
    Ask a person whether the cluster may end; a program is taken at its word.

    Raises:
        RefusedError: The answer is no.
    """
    if is_agreed or not sys.stdin.isatty():
        return
    sys.stderr.write(f"all {len(remote.hosts)} instances of {remote.facts.cluster} will be terminated; go on? [y/N] ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise RefusedError("ending the cluster must be agreed to, got no; answer y, or add --yes")


def end_cluster(remote: Remote, reason: str = ASKED) -> list[str]:
    """
    Set the desired capacity of the cluster's groups to 0, the master's last: this node ends with it.

    Effects: the instances of both groups are terminated; an event says that the cluster has finished.

    Args:
        remote: The way to the cluster.
        reason: Why it ends, for the event. Default: somebody asked for it.

    Returns:
        A line a group, and one when the event could not be sent.

    Raises:
        RefusedError: AWS refused, or shows no group of the cluster.
    """
    from deeplearning_node.aws_clients import AwsClients, AwsFailure, call_for  # noqa: PLC0415 - botocore is heavy

    facts, clock, clients = remote.facts, Clock(), AwsClients(remote.facts.region)
    client, trouble = clients.autoscaling, []
    try:
        groups = call_for(clock, AWS_SECONDS, lambda: find_groups(client, facts.cluster))
        if not groups:
            raise RefusedError(
                f"the cluster must have node groups, got none with the tag {CLUSTER_TAG}={facts.cluster}"
            )
        for name, _ in groups:
            if name == groups[-1][0]:  # While this node is still there to tell it.
                trouble = tell_end(clients.events, remote, reason)
            call_for(clock, AWS_SECONDS, lambda name=name: _set_to_none(client, name))  # type: ignore[misc] # of lambda
    except AwsFailure as error:
        said = "; ".join(filter(None, [str(error), error.remedy]))
        raise RefusedError(f"the cluster does not end: {said}") from error
    return [*(f"desired capacity of {name} ({role}) is 0" for name, role in groups), *trouble]


def tell_end(client: Any, remote: Remote, reason: str) -> list[str]:
    """Send the event that the cluster has finished; return a line when that fails, which keeps no cluster running."""
    from deeplearning_node.aws_clients import AwsFailure, call_for  # noqa: PLC0415 - botocore is heavy

    membership = remote.membership
    event = ClusterEvent(
        EventKind.FINISHED, remote.facts.cluster, membership.generation, len(membership.members), reason
    )
    try:
        call_for(Clock(), EVENT_SECONDS, lambda: client.put_events(**put_events_request(event)))
    except AwsFailure as error:
        return [f"the event that the cluster has finished was not sent: {error}"]
    return []


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


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
