"""What the master knows of its workers; kept on disk, so that a restart forgets no report that was deleted."""

import logging

from deeplearning_agent.atomic_file import write_file
from deeplearning_agent.failure import ReportedFailure
from deeplearning_agent.node import Node
from deeplearning_contract.errors import ContractError
from deeplearning_contract.membership import Member
from deeplearning_contract.messages import NodeReport, ReportStage

LOG = logging.getLogger(__name__)


class Roster:
    """The newest report of each stage, by worker."""

    def __init__(self, node: Node) -> None:
        """Read the reports that an earlier run of the agent kept on this instance."""
        self._directory = node.instance_file("reports")
        self._joined: dict[str, Member] = {}
        self._ready: dict[str, int] = {}
        for path in sorted(self._directory.glob("*.json")):
            try:
                self._remember(NodeReport.from_body(path.read_text(encoding="utf-8")))
            except (ContractError, ValueError) as error:  # noqa: PERF203 - a file each
                LOG.warning("ignored %s: %s", path, error)

    def accept(self, report: NodeReport, expected: tuple[str, ...]) -> None:
        """
        Take a report in; one that was seen before changes nothing.

        Args:
            report: A report whose sender was checked.
            expected: The instances that count; empty while nobody knows.

        Raises:
            ReportedFailure: An instance that counts has failed.
        """
        if report.stage is ReportStage.FAILED:
            if expected and report.instance_id not in expected:
                LOG.warning("%s, which does not count, failed: %s", report.instance_id, report.reason)
                return
            raise ReportedFailure(report.instance_id, report.reason)
        self._remember(report)
        write_file(self._directory / f"{report.instance_id}.{report.stage.value}.json", report.to_body(), 0o600)

    def member(self, instance_id: str) -> Member | None:
        """Return how a worker described itself; None before it joined."""
        return self._joined.get(instance_id)

    def is_ready(self, instance_id: str, generation: int) -> bool:
        """Tell whether a worker has acknowledged a generation."""
        return self._ready.get(instance_id, 0) >= generation

    def describe(self, instance_id: str) -> str:
        """Say the last that was heard of a worker."""
        member = self.member(instance_id)
        if member is None:
            return f"{instance_id} never reported"
        acknowledged = self._ready.get(instance_id)
        state = f"acknowledged generation {acknowledged}" if acknowledged else "joined and acknowledged no generation"
        return f"{instance_id} ({member.address}) {state}"

    def _remember(self, report: NodeReport) -> None:
        if report.member is not None:
            self._joined[report.instance_id] = report.member
        elif report.stage is ReportStage.READY:
            self._ready[report.instance_id] = max(report.generation, self._ready.get(report.instance_id, 0))
