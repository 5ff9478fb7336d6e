"""Entry point of the service: `python -m deeplearning_agent`; `--check` only validates the settings."""

import logging
import os
import sys
from pathlib import Path

from deeplearning_agent.master import Master
from deeplearning_agent.role import Role
from deeplearning_agent.telemetry.log_records import start_log
from deeplearning_agent.telemetry.publisher import TelemetryPublisher
from deeplearning_agent.worker import Worker
from deeplearning_contract.document import ContractError
from deeplearning_contract.names import AGENT_LOG, SETTINGS_FILE, NodeRole
from deeplearning_contract.settings import NodeSettings
from deeplearning_contract.web import send_signal, signal_body
from deeplearning_node.aws_clients import AwsClients
from deeplearning_node.deadline import Clock
from deeplearning_node.failure import StageFailure
from deeplearning_node.instance_metadata import read_identity
from deeplearning_node.node import Node
from deeplearning_node.programs import Programs, system_path

LOG = logging.getLogger("deeplearning_agent")


def main(arguments: list[str], root: Path = Path("/")) -> int:
    """
    Run the agent in the role that the settings name, until a failure.

    Returns the exit status: 0 after `--check`, 1 when the instance has no identity (the service retries), 2 when the
    settings or the arguments are wrong.
    """
    settings_file = root / SETTINGS_FILE.lstrip("/")
    try:
        settings = NodeSettings.from_json(settings_file.read_text(encoding="utf-8"))
    except (OSError, ContractError) as error:
        print(f"{settings_file} cannot be read: {error}", file=sys.stderr)  # noqa: T201 - the log may not exist yet
        return 2
    if arguments:
        return 0 if arguments == ["--check"] else 2
    start_log(root / AGENT_LOG.lstrip("/"))
    telemetry = None
    try:
        role = make_role(settings, root)
        telemetry = start_telemetry(role)
        LOG.info("starting as %s of cluster %s", role.node, settings.cluster)
        role.run()
    except StageFailure as failure:
        reason = failure.reason(f"{settings.role.value} {os.uname().nodename}")
        LOG.error("%s", reason)  # noqa: TRY400 - the cause is in the line
        if settings.signal_url:
            send_signal(settings.signal_url, signal_body(settings.cluster, "FAILURE", str(reason)))
    finally:
        if telemetry:
            telemetry.close()
    return 1


def make_role(settings: NodeSettings, root: Path) -> Role:
    """Return the role of this node; StageFailure without a response from the instance metadata service."""
    clock = Clock()
    programs = Programs(system_path(os.environ.get("PATH", "")))
    node = Node(settings, read_identity(clock), root, programs, clock)
    clients = AwsClients(settings.region)
    return Master(node, clients) if settings.role is NodeRole.MASTER else Worker(node, clients)


def start_telemetry(role: Role) -> TelemetryPublisher | None:
    """Start shipping this node's log and metrics, if there is a log group."""
    if not role.node.settings.log_group:
        return None
    telemetry = TelemetryPublisher(role.node, role.clients, role.store.measure if isinstance(role, Master) else None)
    telemetry.start()
    return telemetry


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
