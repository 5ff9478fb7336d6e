"""A fault case as data: what is injected, when, and what must be seen; the TOML of a file is read into these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.cases.format.account import AccountBucket, DataObject
from deeplearning_rehearsal.cases.format.expectations import Condition, Expectations
from deeplearning_rehearsal.cases.format.triggers import Target, Trigger
from deeplearning_rehearsal.options import Expectation

Job = Literal["digits", "elastic", "launchers"]
MESSAGE_FAULTS = ("duplicate", "reorder", "lose_first")


class CaseError(UnavailableError):
    """A case file cannot be carried out; the message names file and key."""


class LaunchFaultWords(TypedDict):
    """Arguments of the embedded AWS's `LaunchFault`, with the role of a group in place of its tags."""

    code: str
    role: NotRequired[str]
    message: NotRequired[str]
    ordinals: NotRequired[frozenset[int]]
    from_ordinal: NotRequired[int]
    at_creation: NotRequired[bool]


@dataclass(frozen=True)
class CloudFaults:
    """
    The table `[cloud]`: what goes wrong in AWS from the beginning.

    Attributes:
        lose_notifications: Whether every message of Auto Scaling is lost.
        notification_gap: Seconds between the creation of a group and its notifications. None: as always.
        messages: Any of `duplicate`, `reorder` and `lose_first`.
        object_seconds: Delay of S3's answer to a request for an object, in seconds.
        lose_answers: Whether each invocation of a function fails after its work; Lambda then retries after 1 and 2 s.
        training_quota: Quota of instances of training jobs. None: enough.
        training_capacity: Instances that AWS has for training jobs. None: enough.
        token_seconds: Seconds for which an API server on EKS takes a token. None: as always.
    """

    launch_faults: tuple[LaunchFaultWords, ...] = ()
    lose_notifications: bool = False
    notification_gap: float | None = None
    messages: frozenset[str] = frozenset()
    object_seconds: float = 0.0
    lose_answers: bool = False
    training_quota: int | None = None
    training_capacity: int | None = None
    token_seconds: float | None = None

    def __post_init__(self) -> None:
        if unknown := self.messages - set(MESSAGE_FAULTS):
            raise ValueError(f"messages must hold only {', '.join(MESSAGE_FAULTS)}, got {sorted(unknown)}")

    @property
    def is_any(self) -> bool:
        """True if anything goes wrong."""
        return self != CloudFaults()


@dataclass(frozen=True)
class Injection:
    """A fault at one moment; the moment of a later injection counts only after the one before was injected."""

    when: Trigger
    do: str
    target: Target | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.do if self.target is None else f"{self.do} {self.target}"


@dataclass(frozen=True)
class Case:
    """
    A fault case: the tables and keys of its file.

    Attributes:
        title: What it shows, in a sentence.
        faults: Rows of the fault catalogue.
        nodes: Nodes in all, master included. None: as the template says.
        gpus_per_node: GPUs that nodes show at first.
        job: `digits` starts a job when all is quiet; `elastic` is the cluster's own run script; `launchers` tries each.
        arguments: Arguments of the elastic job's program.
        job_keys: Keys of the job's file that differ from those of the example; on EKS.
        minutes: Time after which it gives up.
        objects: Content of S3 before the stack is created.
        buckets: Buckets of the account before that, beside those of the objects.
        launchers: Launchers that the job `launchers` tries. Empty: all that need no environment of their own.
        fresh_environment: Whether nodes find no environment of an earlier rehearsal.
        alone: Whether it takes the whole machine, or is slow beside another case.
        after: Case that must go first where both are rehearsed. Empty: none.
        proves_rights: Whether `make privileges` rehearses it; such cases together use every right.
    """

    title: str
    expect: Expectation
    faults: tuple[int, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    nodes: int | None = None
    gpus_per_node: int = 1
    job: Job = "digits"
    arguments: tuple[str, ...] = ()
    job_keys: Mapping[str, Any] = field(default_factory=dict)
    minutes: float = 8.0
    cloud: CloudFaults = field(default_factory=CloudFaults)
    injections: tuple[Injection, ...] = ()
    seen: Expectations = field(default_factory=Expectations)
    objects: tuple[DataObject, ...] = ()
    buckets: tuple[AccountBucket, ...] = ()
    launchers: tuple[str, ...] = ()
    lustre_client: bool = False
    fresh_environment: bool = False
    alone: bool = False
    after: str = ""
    proves_rights: bool = False
    name: str = ""

    @property
    def asked_nodes(self) -> int | None:
        """Nodes that it asks for, master included; None where only the app knows."""
        workers = self.context.get("workers.desired_capacity")
        return self.nodes if workers is None else int(workers) + 1

    @property
    def is_alone(self) -> bool:
        """True if nothing may run beside it: it says so, or measures how fast training goes on."""
        return self.alone or self.seen.recovery_seconds_at_most is not None

    @property
    def is_elastic(self) -> bool:
        """True if its training is the cluster's own run script."""
        return self.job == "elastic"

    @property
    def watches_needs(self) -> bool:
        """True if what jobs need is waited for and looked at."""
        return bool(self.seen.data_complete or self.seen.needs_failed)

    @property
    def needs_synthesis(self) -> bool:
        """True if it needs a stack of its own."""
        return bool(self.context) or self.is_elastic

    def meets(self, need: Condition) -> bool:
        """Return whether the case is what an expectation needs."""
        forms, is_injected = self.expect != "failed", bool(self.injections)
        return {
            Condition.NOTHING: True,
            Condition.FORMS: forms,
            Condition.TRAINS: self.expect == "trained",
            Condition.FAILS: not forms and (is_injected or bool(self.cloud.launch_faults)),
            Condition.ELASTIC: self.is_elastic and is_injected,
            Condition.REPAIRS: forms and is_injected,
        }[need]
