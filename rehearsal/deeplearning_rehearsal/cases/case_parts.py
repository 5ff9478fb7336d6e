"""The parts of a case that runs: moments that it waits for, and faults that are recorded."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.errors import RehearsalError
from cdk_rehearsal.run.run import Run
from cdk_rehearsal.run.timeline import Timeline
from deeplearning_contract.names import SETTINGS_FILE
from deeplearning_contract.settings import NodeSettings
from deeplearning_rehearsal.cases.case import Case
from deeplearning_rehearsal.cases.findings import Findings
from deeplearning_rehearsal.cases.node_files import NodeFiles
from deeplearning_rehearsal.cases.outcome import Outcome
from deeplearning_rehearsal.cluster_run import find_master

if TYPE_CHECKING:
    from cdk_rehearsal.assembly import AssemblyStack
    from deeplearning_rehearsal.cases.situation import LiveSituation
    from deeplearning_rehearsal.submitted_jobs import SubmittedJobs
    from deeplearning_rehearsal.training_jobs import TrainingJobs

_INTERVAL_SECONDS = 0.1
_LANE = "injected"


class NeverCameError(RehearsalError):
    """A moment that a case waits for did not come before the rehearsal ended."""


@dataclass
class Injected:
    """
    An injected fault.

    Attributes:
        when: The moment that the case had waited for.
        instance_id: The machine; empty without one.
        stops_ranks: Whether training feels it, so that recovery is measured from then on.
        at: Monotonic time, in seconds.
        epoch: The same moment in seconds of the wall clock, by which training reports progress.
    """

    what: str
    when: str
    instance_id: str
    stops_ranks: bool
    at: float
    epoch: float


@dataclass(frozen=True, kw_only=True)
class CaseParts(Run):
    """
    The parts of a case that runs: what waits, and what strikes.

    Attributes:
        case: The case.
        timeline: Timeline of all that happens.
        situation: The state of the cluster.
        files: The files of nodes that are to stay the same.
        training_jobs: The training jobs of a stack on SageMaker. None elsewhere.
        submitted: The jobs of a stack on EKS. None elsewhere.
        second: The stack of the second deployment. None without one.
        change_template: Changes the template of a deployment, as that of the first was changed.
        injected: What was injected, in order.
        findings: The asserts so far.
    """

    case: Case
    timeline: Timeline
    situation: "LiveSituation"
    files: NodeFiles
    training_jobs: "TrainingJobs | None" = None
    submitted: "SubmittedJobs | None" = None
    second: "AssemblyStack | None" = None
    change_template: Callable[[Mapping[str, Any]], tuple[Mapping[str, Any], Mapping[str, str]]] | None = None
    injected: list[Injected] = field(default_factory=list)
    findings: Findings = field(default_factory=Findings)
    _moments: list[str] = field(default_factory=lambda: ["at once"])
    _timers: list[threading.Timer] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _awaits_job: threading.Event = field(default_factory=threading.Event)
    _finishing: threading.Event = field(default_factory=threading.Event)
    _ended: threading.Event = field(default_factory=threading.Event)
    _outcomes: list[Outcome] = field(default_factory=list)

    def record(self, expectation: str, is_held: object, *found: object) -> None:
        """Record a finding, as each assert of the case does."""
        self.findings.record(expectation, is_held, *found)

    def read_settings(self) -> NodeSettings:
        """Return the settings of the master."""
        return NodeSettings.from_json(self.lab.read_file(find_master(self.fleet).instance_id, SETTINGS_FILE).decode())

    # --- Moments ----------------------------------------------------------------------------------------

    def wait_for(self, moment: str, has_come: Callable[[], bool]) -> None:
        """Wait until a moment has come; NeverCameError when the rehearsal ends before."""
        self._moments.append(moment)
        while not has_come():
            if self._ending.wait(_INTERVAL_SECONDS):
                if has_come():
                    return
                raise NeverCameError(f"the case waits for {moment}, which never came")

    def wait(self, seconds: float) -> None:
        """Wait a time."""
        give_up = time.monotonic() + seconds
        self.wait_for(f"+{seconds:g} s", lambda: time.monotonic() >= give_up)

    # --- Faults -----------------------------------------------------------------------------------------

    def inject(self, what: str, instance_id: str = "", *, stops_ranks: bool = False) -> None:
        """Record that a fault strikes now."""
        when, self._moments[:] = self._moments[-1], ["+0 s"]
        name = f"{self.fleet.lane(instance_id)} {instance_id}" if instance_id else ""
        self.injected.append(Injected(what, when, instance_id, stops_ranks, time.monotonic(), time.time()))
        self.timeline.report(_LANE, f"{what} ({when}) {name}".rstrip())

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Act in so many seconds, unless the case has ended."""
        timer = threading.Timer(seconds, action)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def declare_dead(self, instance_id: str) -> None:
        """Let EC2 declare a machine dead."""
        if self.aws.fail_instance(instance_id):
            self.timeline.report(_LANE, f"EC2 finds {self.fleet.lane(instance_id)} {instance_id} dead")
