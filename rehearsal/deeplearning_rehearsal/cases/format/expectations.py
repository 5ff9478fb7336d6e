"""The expectations of a case: a row each, from which the reader of `[seen]`, its checks and the verdict follow."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from deeplearning_rehearsal.cases.recovery import Recovery
from deeplearning_rehearsal.report.environment_report import EnvironmentReport

Status = Literal["CREATE_COMPLETE", "ROLLBACK_COMPLETE"]
EnvironmentState = Literal["built", "kept", "failed"]
Flag = Literal[True]
"""True or left out: that something does not hold is never promised."""
_Number = TypeVar("_Number", int, float)
ABSENT = "absent"
"""In place of a digest, where nothing is in place."""


def join_lines(page: str) -> str:
    """Return a page as one line, in which words stand beside each other wherever the page was broken."""
    return " ".join(page.split())


@dataclass(frozen=True)
class NodeObservations:
    """
    The data and the environment that jobs need, as nodes have them.

    Attributes:
        steps: Node -> step -> its entry in the node's file of provisioning.
        trees: Source of data -> node -> digest of the files in place; `absent` where there are none.
        expected: Source of data -> digest of the content of S3.
    """

    steps: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    trees: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    expected: Mapping[str, str] = field(default_factory=dict)

    def find_incomplete(self, name: str) -> dict[str, str]:
        """Return node -> what is there of a source, of the nodes that have it not as S3 has."""
        found = self.trees.get(name, {})
        wrong = {node: digest for node, digest in found.items() if digest != self.expected.get(name)}
        return wrong or ({} if found else {"any node": ABSENT})

    def find_failure(self, step: str) -> str:
        """Return what a node says of a step that failed for good; empty where none did."""
        failed = (steps.get(step, {}) for steps in self.steps.values())
        return next((str(s.get("detail")) for s in failed if s.get("state") == "failed" and s.get("final")), "")


@dataclass(frozen=True)
class CaseObservations:
    """
    Observations of a rehearsed case.

    Attributes:
        reason: The reasons of the stack and of the state item.
        formed: Nodes of the last membership, master included.
        launches: Machines launched in all.
        failure_seconds: From the cause to the failure of the stack.
        recoveries: Effect of each injection that the elastic job felt.
        replacements: Members that were launched after the first injection.
        changed_files: Instance id -> files that changed, of nodes that were to stay the same.
        calls: AWS calls of the nodes until they formed; `call_bound` is the limit, None if none formed.
        object_reads: Objects read from S3 in all.
        status: Page of `deeplearning-cdk status`.
        commands: Shell lines that the master ran -> why one failed.
        job_status: Status of the newest training job; `job_secondary`, `job_transitions`, `job_output` and `job_model`
            (names in it) are of the same.
        job_reason: What SageMaker said of all training jobs, also of those that it refused.
        job_runs: Training jobs in all.
        job_failures: Pods of a job on EKS that have failed at the cost of a retry.
        submit_status: Exit status of `deeplearning-cdk submit`.
        lost_lines: Lines of the log of a job on EKS that `deeplearning-cdk submit` has not shown.
    """

    stack: str = ""
    reason: str = ""
    requested: int = 0
    formed: int = 0
    generation: int = 0
    launches: int = 0
    timeline: tuple[str, ...] = ()
    accuracy: float | None = None
    failure_seconds: float | None = None
    recoveries: tuple[Recovery, ...] = ()
    replacements: tuple[str, ...] = ()
    is_elastic: bool = False
    changed_files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    calls: int = 0
    call_bound: int | None = None
    needs: NodeObservations = field(default_factory=NodeObservations)
    object_reads: int = 0
    denials: Mapping[str, str] = field(default_factory=dict)
    environment: EnvironmentReport | None = None
    status: str = ""
    commands: Mapping[str, str] = field(default_factory=dict)
    job_status: str = ""
    job_secondary: str = ""
    job_reason: str = ""
    job_runs: int = 0
    job_transitions: tuple[str, ...] = ()
    job_output: str = ""
    job_model: tuple[str, ...] = ()
    job_failures: int | None = None
    submit_status: int | None = None
    lost_lines: int | None = None

    @property
    def environment_state(self) -> str:
        """State of the environment; empty where nobody could say."""
        return "" if self.environment is None else self.environment.state

    @property
    def environment_detail(self) -> str:
        """The master's detail of the environment; empty if unknown."""
        return "" if self.environment is None else self.environment.detail

    @property
    def status_words(self) -> str:
        """The status in one line."""
        return join_lines(self.status)

    @property
    def recovery_seconds(self) -> float | None:
        """The longest recovery; None when nothing was felt, or one recovery never came."""
        return _worst([recovery.seconds for recovery in self.recoveries])

    @property
    def lost_commits(self) -> int | None:
        """The most commits that one fault cost; None when nothing was felt, or training never went on."""
        return _worst([recovery.lost_commits for recovery in self.recoveries])


@dataclass(frozen=True)
class Result:
    """An expectation, whether it held, and what was found."""

    expectation: str
    is_held: bool
    found: str


class Condition(str, Enum):
    """A property that a case must have for an expectation to make sense."""

    NOTHING = "nothing"
    FORMS = "a cluster that forms"
    TRAINS = "expect = 'trained'"
    FAILS = "expect = 'failed', and an injection or a launch fault"
    ELASTIC = "job = 'elastic' and an injection"
    REPAIRS = "a cluster that forms, and an injection"


@dataclass(frozen=True)
class Expectation:
    """A row of `EXPECTATIONS`: the judge of a value, of a list or table each entry, and the need of the case."""

    judge: Callable[[Any, CaseObservations], Result]
    need: Condition = Condition.NOTHING


def _figure(
    says: str, holds: Callable[[Any, Any], bool], subject: str, name: str, need: Condition = Condition.NOTHING
) -> Expectation:
    def judge(value: Any, observations: CaseObservations) -> Result:
        found = getattr(observations, name)
        return Result(says.format(subject, value), found is not None and holds(found, value), _show(found))

    return Expectation(judge, need)


_equals = partial(_figure, "{} is {}", operator.eq)
_at_least = partial(_figure, "{} is at least {:g}", operator.ge)
_at_most = partial(_figure, "{} is at most {:g}", operator.le)


def _texts(says: str, name: str, need: Condition = Condition.NOTHING) -> Expectation:
    def judge(text: str, observations: CaseObservations) -> Result:
        found = getattr(observations, name)
        return Result(says.format(text), text in found, repr(found))

    return Expectation(judge, need)


def _judge_timeline(text: str, observations: CaseObservations) -> Result:
    closest = next((line for line in observations.timeline if text in line), None)
    found = f"none of {len(observations.timeline)} lines" if closest is None else closest
    return Result(f"the timeline says {text!r}", closest is not None, found)


def _judge_print(text: str, observations: CaseObservations) -> Result:
    lines = observations.job_output.splitlines()
    closest = next((line for line in lines if text in line), None)
    found = f"none of {len(lines)} lines, the last is {lines[-1:]}" if closest is None else closest
    return Result(f"deeplearning-cdk prints {text!r}", closest is not None, found)


def _judge_replacement(_: Flag, observations: CaseObservations) -> Result:
    if not observations.replacements:
        return Result("a replacement joins", is_held=False, found="no member was launched after the first injection")
    found = ", ".join(observations.replacements)
    if not observations.is_elastic:
        return Result("a replacement joins", is_held=True, found=found)
    sizes = [recovery.sizes_after for recovery in observations.recoveries]
    has_trained = any(recovery.has_regained_size for recovery in observations.recoveries)
    return Result("a replacement joins and trains", has_trained, f"{found}; sizes of later worlds {sizes}")


def _judge_files(_: Flag, observations: CaseObservations) -> Result:
    changed = {name: paths for name, paths in observations.changed_files.items() if paths}
    is_held = bool(observations.changed_files) and not changed
    found = "; ".join(f"{name}: {', '.join(paths[:9])}" for name, paths in changed.items())
    return Result("files are identical", is_held, found or f"{len(observations.changed_files)} nodes compared")


def _judge_calls(_: Flag, observations: CaseObservations) -> Result:
    bound = observations.call_bound
    is_held = bound is not None and observations.calls <= bound
    return Result(f"the nodes make at most {bound} AWS calls", is_held, str(observations.calls))


def _judge_data(name: str, observations: CaseObservations) -> Result:
    wrong = observations.needs.find_incomplete(name)
    found = "; ".join(f"{node}: {digest}" for node, digest in wrong.items())
    return Result(
        f"data {name} is on every node as in S3",
        not wrong,
        found or f"{len(observations.needs.trees[name])} nodes have it",
    )


def _judge_failure(entry: tuple[str, str], observations: CaseObservations) -> Result:
    (step, text), needs = entry, observations.needs
    said = needs.find_failure(step)
    name = step.partition("data:")[2]
    half = [node for node, digest in needs.trees.get(name, {}).items() if digest not in (ABSENT, needs.expected[name])]
    found = f"{said!r}{f', and half of it in place on {half}' if half else ''}"
    return Result(f"{step} fails with {text!r} and leaves nothing half-done", text in said and not half, found)


def _judge_denial(action: str, observations: CaseObservations) -> Result:
    return Result(f"{action} is denied", action in observations.denials, observations.denials.get(action, "it was not"))


def _judge_command(line: str, observations: CaseObservations) -> Result:
    found = observations.commands.get(line, "it was not run")
    return Result(f"`{line}` succeeds on the master", not found, found or "status 0")


def _judge_model(_: Flag, observations: CaseObservations) -> Result:
    return Result(
        "the job leaves a model", bool(observations.job_model), ", ".join(observations.job_model) or "it is empty"
    )


def _judge_order(wanted: tuple[str, ...], found: tuple[str, ...]) -> bool:
    rest = iter(found)
    return all(name in rest for name in wanted)


def _judge_transitions(text: str, observations: CaseObservations) -> Result:
    wanted = tuple(name.strip() for name in text.split(","))
    is_held = _judge_order(wanted, observations.job_transitions)
    return Result(f"the training job goes through {text}", is_held, ", ".join(observations.job_transitions))


@dataclass(frozen=True)
class Expectations:
    """
    The table `[seen]`: what must hold at the end, a row of `EXPECTATIONS` each.

    None and empty ask for nothing. Nodes are counted with the master, times are in seconds.
    """

    stack: Annotated[Status | None, _equals("the stack", "stack")] = None
    requested: Annotated[int | None, _equals("the number of nodes requested", "requested")] = None
    # The end is waited for until the membership has them.
    formed: Annotated[int | None, _equals("the number of nodes formed", "formed", Condition.FORMS)] = None
    generation_at_least: Annotated[int | None, _at_least("the generation", "generation", Condition.FORMS)] = None
    accuracy_at_least: Annotated[float | None, _at_least("the held-out accuracy", "accuracy", Condition.TRAINS)] = None
    # From the cause, a failed launch or the first injection, to the stack's failure.
    within_seconds: Annotated[
        float | None, _at_most("the time in seconds from cause to failure", "failure_seconds", Condition.FAILS)
    ] = None
    # From the last injection that a world of ranks felt to new progress.
    recovery_seconds_at_most: Annotated[
        float | None, _at_most("the time in seconds until training goes on", "recovery_seconds", Condition.ELASTIC)
    ] = None
    # Commits whose progress had to be made again.
    lost_commits_at_most: Annotated[
        int | None, _at_most("the number of commits lost", "lost_commits", Condition.ELASTIC)
    ] = None
    # Finds out that staging begins anew.
    object_reads_at_most: Annotated[
        int | None, _at_most("the number of objects read from S3", "object_reads", Condition.FORMS)
    ] = None
    # Finds an endless replacement.
    launches_at_most: Annotated[int | None, _at_most("the number of machines launched", "launches")] = None
    environment: Annotated[
        EnvironmentState | None, _equals("the environment", "environment_state", Condition.FORMS)
    ] = None
    reason_contains: Annotated[tuple[str, ...], _texts("the reason says {!r}", "reason")] = ()
    timeline_contains: Annotated[tuple[str, ...], Expectation(_judge_timeline)] = ()
    environment_says: Annotated[
        tuple[str, ...], _texts("the master says {!r} of the environment", "environment_detail", Condition.FORMS)
    ] = ()
    status_says: Annotated[tuple[str, ...], _texts("the status says {!r}", "status_words", Condition.FORMS)] = ()
    # A machine launched after the first injection is a member, and trains.
    replacement_joins: Annotated[Flag | None, Expectation(_judge_replacement, Condition.REPAIRS)] = None
    # The files of the targets are the same, byte for byte, as before the injection.
    identical_files: Annotated[Flag | None, Expectation(_judge_files, Condition.REPAIRS)] = None
    # The nodes' AWS calls keep to the bound of an undisturbed formation.
    calls_within_bound: Annotated[Flag | None, Expectation(_judge_calls, Condition.FORMS)] = None
    # Sources of data that every node has, byte for byte as S3 holds them.
    data_complete: Annotated[tuple[str, ...], Expectation(_judge_data, Condition.FORMS)] = ()
    # `data:<name>` or `environment` -> text with which it fails for good; such data is there whole or not at all.
    needs_failed: Annotated[Mapping[str, str], Expectation(_judge_failure, Condition.FORMS)] = field(
        default_factory=dict
    )
    # Actions that the deployed policies must deny; any other denial is a failure, here as everywhere.
    denied: Annotated[tuple[str, ...], Expectation(_judge_denial)] = ()
    job_status: Annotated[str | None, _equals("the status of the training job", "job_status")] = None
    job_secondary: Annotated[str | None, _equals("the secondary status of the training job", "job_secondary")] = None
    job_runs: Annotated[int | None, _equals("the number of training jobs", "job_runs")] = None
    # Of all training jobs, also of those that SageMaker refused.
    job_reason_contains: Annotated[tuple[str, ...], _texts("SageMaker says {!r}", "job_reason")] = ()
    job_output_contains: Annotated[tuple[str, ...], _texts("the training job prints {!r}", "job_output")] = ()
    # Secondary statuses in this order, with commas between them; others may be between them.
    job_goes_through: Annotated[str | None, Expectation(_judge_transitions)] = None
    job_leaves_model: Annotated[Flag | None, Expectation(_judge_model)] = None
    # Pods of a job on EKS that cost a retry.
    job_failures: Annotated[int | None, _equals("the number of pods that cost a retry", "job_failures")] = None
    # Of `deeplearning-cdk submit` and the other commands for jobs on EKS, which show the log of the first pod.
    submit_prints: Annotated[tuple[str, ...], Expectation(_judge_print)] = ()
    submit_status: Annotated[int | None, _equals("the exit status of submit", "submit_status")] = None
    lost_lines: Annotated[int | None, _equals("the number of lines of the log that are not shown", "lost_lines")] = None
    # Shell lines that succeed on the master at the end, in the login user's shell.
    commands: Annotated[tuple[str, ...], Expectation(_judge_command, Condition.FORMS)] = ()


EXPECTATIONS: Mapping[str, Expectation] = {
    key: hint.__metadata__[0] for key, hint in get_type_hints(Expectations, include_extras=True).items()
}


def list_asked(seen: Expectations) -> Mapping[str, tuple[Any, ...]]:
    """Return the expectations that a case has, each with its values: one, or the entries of its list or table."""
    asked = {key: _list_entries(getattr(seen, key)) for key in EXPECTATIONS}
    return {key: entries for key, entries in asked.items() if entries}


def check_expectations(seen: Expectations, observations: CaseObservations) -> tuple[Result, ...]:
    """Compare what was seen with what must be."""
    return tuple(
        EXPECTATIONS[key].judge(entry, observations) for key, entries in list_asked(seen).items() for entry in entries
    )


def _list_entries(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return tuple(value.items())
    return value if isinstance(value, tuple) else () if value is None else (value,)


def _worst(figures: list[_Number | None]) -> _Number | None:
    known = [figure for figure in figures if figure is not None]
    return max(known) if known and len(known) == len(figures) else None


def _show(value: object) -> str:
    if isinstance(value, float) and value != int(value):
        return f"{value:.3f}"
    return "none" if value is None else f"{value:g}" if isinstance(value, (int, float)) else str(value)
