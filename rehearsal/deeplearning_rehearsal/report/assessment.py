"""Turns what a rehearsal saw into a verdict and a report."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone

from cdk_rehearsal.embedded_aws.base.stack_record import StackOutcome
from cdk_rehearsal.embedded_aws.server.call_log import CallCounts
from cdk_rehearsal.lab import StandIn
from cdk_rehearsal.run.timeline import Span, Timeline
from deeplearning_contract.cluster_state import ClusterState
from deeplearning_contract.names import MASTER_HOST, WORKER_GPU_COUNT_VARIABLE, NodeRole
from deeplearning_contract.version import VERSION
from deeplearning_rehearsal.checks.contract_check import Membership
from deeplearning_rehearsal.checks.node_log import LogReport
from deeplearning_rehearsal.checks.results import CaseReport, CountReport, LauncherReport, NodeReport, TrainingReport
from deeplearning_rehearsal.checks.training import judge_ranks, judge_training
from deeplearning_rehearsal.options import Expectation
from deeplearning_rehearsal.report.environment_report import EnvironmentReport
from deeplearning_rehearsal.report.report import Document

_IS_READY = re.compile(rf"{NodeRole.MASTER.value} \d+: environment is done.*")


@dataclass
class Evidence:
    """
    The observations of a rehearsal.

    Attributes:
        stack: Name of the stack.
        overrides: What was changed in its template before it was deployed, or assumed of the account.
        requested: Nodes asked for, master included.
        outcome: How the stack ended.
        calls: AWS calls of nodes and Lambda until the success signal.
        formation_seconds: From the first launch to the signal; None when one of them is missing.
        state: The state item; None when no cluster formed.
        membership: The master's membership; None when no cluster formed.
        nodes: The nodes with their checks.
        training: The result of the job that trains; None without one.
        count: The result of the job that counts its ranks; None without one.
        problems: What went wrong while looking.
        log: What the nodes shipped; None when it was not looked at.
        denials: Actions that the deployed policies denied, with what AWS said.
        case: What was found out about a fault case; None without one.
        launchers: What was found out about launchers, by name; empty where none was tried.
        environment: What jobs run in; None where the image's own is used.
        has_nodes: Whether there are nodes to check; a case of training jobs looks at the jobs alone.
        ships_logs: Whether the nodes ship their logs themselves; SageMaker ships those of training jobs.
        paid: Cause -> seconds of all nodes that somebody pays for.
        kubernetes: What the control plane of Kubernetes showed, a line each; empty without one.
    """

    stack: str
    overrides: Mapping[str, str]
    requested: int
    outcome: StackOutcome
    calls: CallCounts
    formation_seconds: float | None = None
    state: ClusterState | None = None
    membership: Membership | None = None
    nodes: tuple[NodeReport, ...] = ()
    training: TrainingReport | None = None
    count: CountReport | None = None
    problems: list[str] = field(default_factory=list)
    log: LogReport | None = None
    denials: Mapping[str, str] = field(default_factory=dict)
    case: CaseReport | None = None
    launchers: dict[str, LauncherReport] = field(default_factory=dict)
    environment: EnvironmentReport | None = None
    has_nodes: bool = True
    ships_logs: bool = True
    paid: Mapping[str, float] = field(default_factory=dict)
    kubernetes: list[str] = field(default_factory=list)

    @property
    def has_formed(self) -> bool:
        """True if the stack says that the cluster formed."""
        return self.outcome.status == "CREATE_COMPLETE"


def bound_calls(nodes: int, seconds: float) -> int:
    """
    Return the most AWS calls that the nodes of a cluster may make until it is formed.

    Args:
        nodes: Nodes, master included.
        seconds: How long they waited for one another.
    """
    return nodes * (5 + math.ceil(seconds / 20) + math.ceil(seconds / 60)) + math.ceil(nodes / 5) + 20


def count_node_calls(calls: CallCounts) -> int:
    """Return how many calls the nodes made to form."""
    return calls.total - calls.by_kind.get("lambda", 0) - count_log_calls(calls)


def bound_log_calls(nodes: int, seconds: float) -> int:
    """Return the most AWS calls by which nodes may ship what they say; arguments as of `bound_calls`."""
    return nodes * (2 + math.ceil(seconds / 10)) + 10


def count_log_calls(calls: CallCounts) -> int:
    """Return how many calls the nodes made to ship what they say; the few events of the Lambda are among them."""
    return sum(number for name, number in calls.by_operation.items() if name.startswith(("logs.", "events.")))


def judge(
    expect: Expectation,
    evidence: Evidence,
    timeline: Timeline,
    stand_ins: Sequence[StandIn],
    peak_memory_mib: int,
    *,
    seed: int,
) -> Document:
    """
    Return the report of a rehearsal.

    Args:
        expect: What was expected.
        evidence: What was seen.
        timeline: What happened when.
        stand_ins: What of the nodes was not the real thing.
        peak_memory_mib: Most memory that the lab took, in MiB.
        seed: Order in which resources were created.
    """
    problems = find_problems(expect, evidence)
    outcome = evidence.outcome
    return {
        "verdict": "fail" if problems else "pass",
        "expected": expect,
        "reasons": problems,
        "run": {"at": datetime.now(timezone.utc).isoformat(timespec="seconds"), "version": VERSION, "seed": seed},
        "stack": {
            "name": evidence.stack,
            "status": outcome.status,
            "reason": outcome.reason,
            "resources": dict(sorted(Counter(resource.resource_type for resource in outcome.resources).items())),
            "outputs": dict(outcome.outputs),
            "overrides": dict(evidence.overrides),
        },
        "cluster": _describe_cluster(evidence),
        "kubernetes": list(evidence.kubernetes),
        "nodes": [asdict(node) for node in evidence.nodes],
        "training": evidence.training and asdict(evidence.training),
        "count": evidence.count and asdict(evidence.count),
        "phases": [asdict(span) for span in _list_phases(timeline)],
        "stand_ins": [{"name": s.name, "replaces": s.replaces, "does": s.behaviour} for s in stand_ins],
        "paid_seconds": {cause: round(seconds, 1) for cause, seconds in evidence.paid.items()},
        "peak_memory_mib": peak_memory_mib,
        "timeline": [asdict(event) for event in timeline.events],
        "case": evidence.case and asdict(evidence.case),
        "launchers": {name: asdict(launcher) for name, launcher in evidence.launchers.items()},
        "environment": evidence.environment and asdict(evidence.environment),
    }


def _list_phases(timeline: Timeline) -> Iterator[Span]:
    """Yield the phases; training begins when the master's software is ready, for which `deeplearning run` waits."""
    ready = min((each.at for each in timeline.events if _IS_READY.fullmatch(f"{each.lane}: {each.text}")), default=0)
    for span in timeline.spans:
        if span.name == "train" and span.start < ready < span.start + span.seconds:
            yield Span("software", span.start, ready - span.start)
            yield Span(span.name, ready, span.start + span.seconds - ready)
        else:
            yield span


def find_problems(expect: Expectation, evidence: Evidence) -> tuple[str, ...]:
    """
    Say everything that is not as expected.

    Args:
        expect: What was expected.
        evidence: What was seen.
    """
    case_problems = () if evidence.case is None else tuple(evidence.case.problems)
    denied = (f"the cluster must be allowed what it does, a call was denied: {m}" for m in evidence.denials.values())
    return (*_find_promise_problems(expect, evidence), *denied, *case_problems)


def _find_promise_problems(expect: Expectation, evidence: Evidence) -> tuple[str, ...]:
    """Say what breaks the promises that hold for every rehearsal."""
    outcome = evidence.outcome
    if expect == "failed":
        has_reason = outcome.status == "ROLLBACK_COMPLETE" and outcome.reason
        return () if has_reason else (f"the stack must fail with a reason, it is {outcome.status}",)
    if not evidence.has_formed:
        return (f"the stack must complete, it is {outcome.status}: {outcome.reason or 'no reason given'}",)
    problems = list(evidence.problems)
    if not evidence.has_nodes:
        return tuple(problems)
    formed = 0 if evidence.membership is None else len(evidence.membership.hosts)
    if formed == 0 or formed != len(evidence.nodes):
        problems.append(f"every node of the membership must be checked, got {len(evidence.nodes)} of {formed}")
    if 0 < formed < evidence.requested and not (evidence.state and evidence.state.reason):
        problems.append(f"a smaller cluster must give its reason, got {formed} of {evidence.requested} without")
    if evidence.case is None:  # the bound is that of an undisturbed formation
        problems += _find_call_problems(evidence, formed)
    problems += _find_log_problems(evidence)
    for node in evidence.nodes:
        broken = [name for name, held in node.checks.items() if not held]
        problems += [f"{node.host} must keep the contract, it fails: {name}" for name in broken]
    for name, launcher in evidence.launchers.items():
        problems += [f"{name} ({way.kind}): {problem}" for way in launcher.ways for problem in way.problems]
    if expect in {"trained", "counted"}:
        problems += _find_job_problems(expect, evidence)
    return tuple(problems)


def _find_call_problems(evidence: Evidence, formed: int) -> Sequence[str]:
    if formed == 0 or evidence.formation_seconds is None:
        return []
    seconds = evidence.formation_seconds
    made, bound = count_node_calls(evidence.calls), bound_calls(formed, seconds)
    shipped, most = count_log_calls(evidence.calls), bound_log_calls(formed, seconds)
    problems = []
    if made > bound:
        problems.append(f"{formed} nodes must form with at most {bound} AWS calls of theirs, got {made}")
    if evidence.ships_logs and shipped > most:
        problems.append(f"{formed} nodes must ship their logs with at most {most} AWS calls, got {shipped}")
    return problems


def _find_log_problems(evidence: Evidence) -> Sequence[str]:
    if evidence.log is None:
        return []
    silent = [node.host for node in evidence.nodes if not evidence.log.lines.get(node.instance_id)]
    problems = [f"{host} must ship its log, there is no line of it" for host in silent]
    if evidence.log.foreign:
        problems.append(f"the node log must hold lines of its nodes only, got {evidence.log.foreign} others")
    return problems


def _find_job_problems(expect: Expectation, evidence: Evidence) -> Iterable[str]:
    training = [node for node in evidence.nodes if node.host != MASTER_HOST]
    slots = sum(max(1, int(node.contract.get(WORKER_GPU_COUNT_VARIABLE, "0"))) for node in training)
    if expect == "counted":
        none = ["a job must count its ranks, none did"]
        return none if evidence.count is None else judge_ranks(evidence.count, len(training), slots)
    none = ["the cluster must train, it did not"]
    return none if evidence.training is None else judge_training(evidence.training, len(training), slots)


def _describe_cluster(evidence: Evidence) -> Document:
    """Nodes count the master; what an unformed cluster has not is 0 or None. `log_calls` are among `aws_calls`."""
    membership, log, calls = evidence.membership or Membership(0, ()), evidence.log or LogReport({}, {}), evidence.calls
    formed = len(membership.hosts)
    seconds = evidence.formation_seconds if formed else None
    return {
        "has_nodes": evidence.has_nodes,
        "requested": evidence.requested,
        "formed": formed,
        "generation": membership.generation,
        "formation_seconds": seconds,
        "aws_calls": calls.total,
        "aws_calls_by_name": dict(sorted(calls.by_operation.items())),
        "aws_calls_by_kind": dict(sorted(calls.by_kind.items())),
        "aws_call_bound": None if seconds is None else bound_calls(formed, seconds),
        "reason": "" if evidence.state is None else str(evidence.state.reason),
        "log_calls": count_log_calls(calls),
        "log_call_bound": None if seconds is None else bound_log_calls(formed, seconds),
        "log_lines": dict(log.lines),
        "metrics": dict(log.metrics),
    }
