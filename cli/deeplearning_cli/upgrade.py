"""`deeplearning-cdk upgrade`: replaces running nodes by nodes of the deployed launch template, workers first."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from deeplearning_cli.arguments import Commands, add_place, whole_number
from deeplearning_cli.cloud_access import CloudAccess, open_cloud
from deeplearning_cli.errors import UnavailableError, report_error
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_view.aws_responses import ViewError, read_tags

_INTERVAL_SECONDS = 15.0
_ENDED = frozenset({"Successful", "Failed", "Cancelled", "RollbackFailed", "RollbackSuccessful"})
_JSON_KEYS = """\
--json prints one object; keys are added, never renamed:
  groups[]     role, group, version (of the deployed launch template), count (nodes of the group),
               outdated (version by instance id, as found at the start), is_replaced (by this command)
"""


@dataclass(frozen=True)
class OutdatedNodes:
    """
    The nodes of one group, compared with its launch template.

    Attributes:
        role: Role of the group.
        group: Name of the Auto Scaling group.
        version: Version of the launch template for new nodes.
        outdated: Versions of nodes that started from another one, by instance id.
        count: All nodes of the group.
    """

    role: NodeRole
    group: str
    version: str
    outdated: Mapping[str, str]
    count: int

    @property
    def is_master(self) -> bool:
        """True if this is the master's group."""
        return self.role is NodeRole.MASTER


class RefreshError(Exception):
    """AWS did not replace all nodes; the message is its reason."""

    exit_status = 1


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "upgrade",
        help="replace running nodes by nodes of the deployed launch template",
        description="Replace nodes whose launch template, with its image, type and agent, is not the deployed one: by\n"
        "an instance refresh of Auto Scaling, workers first, then the master. Up-to-date nodes stay. Jobs that\n"
        "are not elastic end.",
        epilog=f"{_JSON_KEYS}\nexit status: 0 all nodes are of the deployed template, 1 AWS did not replace them, "
        "2 the upgrade could not\nstart, 130 interrupted (AWS continues a refresh that has begun); example:\n"
        "cdk deploy -c software.image_release=2026-11-22 && deeplearning-cdk upgrade",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_place(parser)
    add = parser.add_argument
    add("--dry-run", action="store_true", help="list the nodes without replacing any")
    add("--yes", action="store_true", help="skip the confirmation")
    add(
        "--keep-percent",
        type=whole_number(0, 100),
        default=50,
        metavar="N",
        help="share of the workers that stay in service meanwhile, in percent (default: %(default)s)",
    )
    add("--json", action="store_true", help="print one JSON object on standard output, progress on standard error")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Replace outdated nodes; return 0 if none is left, 1 if AWS failed to replace them, 2 if it could not start."""
    try:
        access = open_cloud(arguments)
        found = find_outdated(access)
        for nodes in found:
            print(_describe(nodes), file=sys.stderr if arguments.json else sys.stdout)
        replaced = [] if arguments.dry_run else [nodes for nodes in found if nodes.outdated]
        if replaced and not arguments.yes:
            _confirm()
        for nodes in replaced:
            replace_nodes(access.clients("autoscaling"), nodes, arguments.keep_percent, _report, time.sleep)
    except (ViewError, UnavailableError, RefreshError) as error:
        return report_error(error, as_json=arguments.json)
    if arguments.json:
        groups = [_to_document(nodes, is_replaced=nodes in replaced) for nodes in found]
        print(json.dumps({"groups": groups}, indent=2))
    return 0


def find_outdated(access: CloudAccess) -> list[OutdatedNodes]:
    """
    Compare the nodes of the groups with their launch template; workers first: the master forms the cluster.

    Empty groups of a role are left out beside one with nodes, that of the candidate that the cluster has.
    """
    responses = access.read()
    if not responses.groups:
        raise ViewError(f"the cluster has no groups that can be read; {'; '.join(responses.unread) or 'it is gone'}")
    found = [compare_group(group) for group in responses.groups]
    occupied = {nodes.role for nodes in found if nodes.count}
    shown = [nodes for nodes in found if nodes.count or nodes.role not in occupied]
    return sorted(shown, key=lambda nodes: nodes.is_master)


def compare_group(group: Mapping[str, Any]) -> OutdatedNodes:
    """Compare the nodes of a group, an entry of `DescribeAutoScalingGroups`, with its launch template."""
    version = str(group["LaunchTemplate"]["Version"])
    versions = {
        entry["InstanceId"]: str(entry.get("LaunchTemplate", {}).get("Version", "none")) for entry in group["Instances"]
    }
    outdated = {instance_id: found for instance_id, found in versions.items() if found != version}
    role = NodeRole(read_tags(group)[ROLE_TAG])
    return OutdatedNodes(role, group["AutoScalingGroupName"], version, outdated, len(versions))


def replace_nodes(
    autoscaling: Any,
    nodes: OutdatedNodes,
    keep_percent: int,
    report: Callable[[str], None],
    sleep: Callable[[float], None],
) -> None:
    """
    Replace the outdated nodes of a group by an instance refresh, and wait until it has ended.

    A master is alone in its group, so `keep_percent` applies to workers only. `report` is called with a line at each
    change, `sleep` with seconds.

    Raises:
        RefreshError: AWS refused the refresh, or ended it before all nodes were replaced.
        KeyboardInterrupt: The user interrupted it; AWS continues the refresh, which `report` says.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow, and only needed here

    keep = 0 if nodes.is_master else keep_percent
    reported = ""
    try:
        refresh_id = autoscaling.start_instance_refresh(
            AutoScalingGroupName=nodes.group,
            Strategy="Rolling",
            Preferences={"MinHealthyPercentage": keep, "SkipMatching": True},
        )["InstanceRefreshId"]
        while True:
            [refresh] = autoscaling.describe_instance_refreshes(
                AutoScalingGroupName=nodes.group, InstanceRefreshIds=[refresh_id]
            )["InstanceRefreshes"]
            line = f"{nodes.role.value}: {refresh['Status']}, {refresh.get('PercentageComplete', 0)} %"
            if line != reported:
                report(line)
                reported = line
            if refresh["Status"] in _ENDED:
                break
            sleep(_INTERVAL_SECONDS)
    except KeyboardInterrupt:
        report(
            f"{nodes.role.value}: AWS continues a refresh that has begun; to cancel it, run: "
            f"aws autoscaling cancel-instance-refresh --auto-scaling-group-name {nodes.group}"
        )
        raise
    except (BotoCoreError, ClientError) as error:
        raise RefreshError(f"the nodes of {nodes.group} were not replaced: {error}") from error
    if refresh["Status"] != "Successful":
        raise RefreshError(
            f"the nodes of {nodes.group} were not all replaced: {refresh['Status']}, "
            f"{refresh.get('StatusReason', 'AWS gave no reason')}; run `deeplearning-cdk status`, then this again"
        )


def _describe(nodes: OutdatedNodes) -> str:
    if not nodes.outdated:
        return (
            f"{nodes.role.value}: all {nodes.count} nodes started from version {nodes.version} of the launch template"
        )
    listed = ", ".join(f"{instance_id} (version {version})" for instance_id, version in nodes.outdated.items())
    return (
        f"{nodes.role.value}: {len(nodes.outdated)} of {nodes.count} nodes started from another version than "
        f"{nodes.version} of the launch template: {listed}"
    )


def _to_document(nodes: OutdatedNodes, *, is_replaced: bool) -> dict[str, Any]:
    return {
        "role": nodes.role.value,
        "group": nodes.group,
        "version": nodes.version,
        "count": nodes.count,
        "outdated": dict(nodes.outdated),
        "is_replaced": is_replaced,
    }


def _confirm() -> None:
    """
    Ask on the terminal, on standard error: standard output may be read by a program.

    Raises:
        UnavailableError: There is no terminal, or the user declined.
    """
    if not sys.stdin.isatty():
        raise UnavailableError("no terminal to confirm on, nothing was changed; give --yes to replace these nodes")
    question = "They are terminated and new ones launched; jobs that are not elastic end. Continue? [y/N] "
    print(question, end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UnavailableError("the replacement was not confirmed; nothing was changed")


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
