"""Change of one resource by a deployment, with what it does to nodes, jobs and data."""

from dataclasses import dataclass
from enum import Enum


class Effect(Enum):
    """Effect of a deployment on a resource."""

    CREATE = "create"
    UPDATE = "update"
    MAY_REPLACE = "may replace"
    REPLACE = "replace"
    DELETE = "delete"
    KEEP = "leave behind"
    REFUSE = "refuse"


GONE = frozenset({Effect.REPLACE, Effect.MAY_REPLACE, Effect.DELETE})
"""Effects with which a resource ends."""


@dataclass(frozen=True)
class Outcome:
    """
    Consequence of the change of a resource for nodes, jobs or data.

    Attributes:
        note: A sentence, with `{names}` for the paths of the resources.
        loses_data: Users' data is deleted, or replaced by a new and empty resource.
        ends_nodes: Nodes end, with the ranks on them.
        ends_jobs: Jobs that run end, or cannot be restarted.
        is_refused: AWS refuses the change, and the deployment fails.
        reaches_later: It reaches only nodes that launch later, or jobs that are submitted later.
    """

    note: str
    loses_data: bool = False
    ends_nodes: bool = False
    ends_jobs: bool = False
    is_refused: bool = False
    reaches_later: bool = False

    @property
    def is_harmful(self) -> bool:
        """True if something that runs or is stored ends, or the deployment fails."""
        return self.loses_data or self.ends_nodes or self.ends_jobs or self.is_refused


@dataclass(frozen=True)
class Change:
    """
    Change of one resource by a deployment.

    Attributes:
        path: Its path in the app, or else its logical id.
        properties: Paths of the properties that differ.
        outcomes: What it does to nodes, jobs and data.
    """

    logical_id: str
    path: str
    resource_type: str
    effect: Effect
    properties: tuple[str, ...] = ()
    outcomes: tuple[Outcome, ...] = ()

    @property
    def loses_data(self) -> bool:
        """True if users' data is deleted, or replaced by a new and empty resource."""
        return any(outcome.loses_data for outcome in self.outcomes)

    @property
    def ends_nodes(self) -> bool:
        """True if nodes end."""
        return any(outcome.ends_nodes for outcome in self.outcomes)

    @property
    def ends_jobs(self) -> bool:
        """True if jobs end."""
        return any(outcome.ends_jobs for outcome in self.outcomes)

    @property
    def is_refused(self) -> bool:
        """True if AWS refuses it, and the deployment fails."""
        return any(outcome.is_refused for outcome in self.outcomes)

    @property
    def is_harmful(self) -> bool:
        """True if something that runs or is stored ends, or the deployment fails."""
        return any(outcome.is_harmful for outcome in self.outcomes)
