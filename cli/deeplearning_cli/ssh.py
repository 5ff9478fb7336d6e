"""`deeplearning-cdk ssh`: opens a shell on a node through Session Manager, or in a node of a kept rehearsal."""

import argparse
import json
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from deeplearning_cli.arguments import Commands, add_place
from deeplearning_cli.cloud_access import CloudAccess, map_rehearsal_errors, open_cloud
from deeplearning_cli.errors import UNAVAILABLE, UnavailableError
from deeplearning_view import node_rows
from deeplearning_view.aws_responses import ViewError
from deeplearning_view.selection import find_running_node
from deeplearning_view.view import NodeView
from deeplearning_view.view_builder import make_view

if TYPE_CHECKING:  # only commands about a rehearsal import it
    from cdk_rehearsal.run.lab_record import LabRecord

_PROGRAMS = {
    "aws": "install the AWS CLI: https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html",
    "session-manager-plugin": "install it: https://docs.aws.amazon.com/systems-manager/latest/userguide/"
    "session-manager-working-with-install-plugin.html",
    "ssh": "install OpenSSH's client",
}
_COMMAND_DOCUMENT = "AWS-StartInteractiveCommand"
_SSH_DOCUMENT = "AWS-StartSSHSession"


def add_parser(commands: Commands) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "ssh",
        help="log in to a node through Session Manager",
        description="Open a shell on a node, or run a command there as the login user, through Session Manager, "
        "without an open port. Needs the AWS CLI with its Session Manager plugin. With --ssh, OpenSSH uses the same "
        "channel, so that it can forward ports and agents; this needs your public key on the node.",
        epilog="exit status: that of the session, 2 if it could not start; "
        "example: deeplearning-cdk ssh --node deeplearning-worker2 -- nvidia-smi",
    )
    add_place(parser)
    parser.add_argument(
        "--node",
        default="master",
        metavar="NAME",
        help="a host name, master, an instance id or an address (default: %(default)s)",
    )
    parser.add_argument("--ssh", action="store_true", help="use OpenSSH through Session Manager")
    parser.add_argument("--user", metavar="NAME", help="user to log in as (default: the image's login user)")
    parser.add_argument("--dry-run", action="store_true", help="print the command without running it")
    parser.set_defaults(run=run, command=[])


def run(arguments: argparse.Namespace) -> int:
    """Replace this process by the session's program; return 2 if the session cannot start."""
    try:
        access = open_cloud(arguments)
        responses = access.read()
        nodes = make_view(responses, datetime.now(timezone.utc)).nodes
        node = find_running_node(nodes, arguments.node)
        user = arguments.user or node_rows.read_login_user(responses.templates)
        command = _make_command(access, arguments, node, user)
    except (ViewError, UnavailableError) as error:
        print(f"deeplearning-cdk: {error}", file=sys.stderr)
        return UNAVAILABLE
    if arguments.dry_run:
        print(shlex.join(command))
        return 0
    sys.stdout.flush()
    os.execvp(command[0], command)  # noqa: S606 - this process becomes the session, without a shell
    return UNAVAILABLE


def _make_command(access: CloudAccess, arguments: argparse.Namespace, node: NodeView, user: str) -> list[str]:
    if access.lab is not None:
        if not arguments.dry_run:
            start_session(access, node.instance_id)
        return enter_node(access.lab, node.instance_id, arguments.command)
    if not arguments.dry_run:
        require_programs("aws", "session-manager-plugin", *(["ssh"] if arguments.ssh else []))
    place = ["--region", access.region, *(["--profile", access.profile] if access.profile else [])]
    return make_session_command(node.instance_id, place, user, arguments.command, is_ssh=arguments.ssh)


def require_programs(*names: str) -> None:
    """Raise UnavailableError for a program that is missing on this machine."""
    for name in names:
        if shutil.which(name) is None:
            raise UnavailableError(f"missing: {name}; {_PROGRAMS[name]}")


def make_session_command(
    instance_id: str, place: Sequence[str], user: str, command: Sequence[str], *, is_ssh: bool
) -> list[str]:
    """
    Return the command that opens a session; `place` is the AWS CLI's arguments for region and profile.

    Raises:
        UnavailableError: The login user is not known.
    """
    start = ["aws", "ssm", "start-session", *place, "--target"]
    if not is_ssh and not command:
        return [*start, instance_id]
    if not user:
        raise UnavailableError("the login user must be known, got none from the launch template; give --user")
    if is_ssh:
        through = shlex.join([*start, "TARGET", "--document-name", _SSH_DOCUMENT, "--parameters", "portNumber=PORT"])
        proxy = through.replace("TARGET", "%h").replace("PORT", "%p")
        # Addresses are reused by other instances; instance ids are not.
        options = ["-o", f"ProxyCommand={proxy}", "-o", f"HostKeyAlias={instance_id}"]
        return ["ssh", *options, f"{user}@{instance_id}", *([shlex.join(command)] if command else [])]
    run = shlex.join(["sudo", "--login", f"--user={user}", "--", *command])
    parameters = json.dumps({"command": [run]})
    return [*start, instance_id, "--document-name", _COMMAND_DOCUMENT, "--parameters", parameters]


def enter_node(lab: "LabRecord", instance_id: str, command: Sequence[str]) -> list[str]:
    """Return the command that enters a node of a rehearsal as its login user."""
    from cdk_rehearsal.run.lab_record import read_login_user  # noqa: PLC0415 - only commands about a rehearsal import it

    with map_rehearsal_errors():
        pid = lab.find_node(instance_id)
    entry = ["nsenter", "--target", str(pid), "--mount", "--uts", "--ipc", "--net", "--pid", "--"]
    return [*entry, "su", "--login", read_login_user(pid), *(["--command", shlex.join(command)] if command else [])]


def start_session(access: CloudAccess, instance_id: str) -> None:
    """
    Open the data channel of the node's session agent, like a session on AWS.

    Raises:
        ViewError: The agent has not registered, or does not respond.
    """
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - slow

    try:
        access.clients("ssm").start_session(Target=instance_id)
    except (BotoCoreError, ClientError) as error:
        raise ViewError(f"Session Manager cannot reach {instance_id}: {error}; wait until it has booted") from error
