"""A fault case as data: what is injected, when, and what must be seen; the TOML of a file is read into these."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, TypedDict

from cdk_rehearsal.errors import UnavailableError
from deeplearning_rehearsal.cases.format.account import AccountBucket, DataObject
from deeplearning_rehearsal.cases.format.expectations import Need, Seen
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
    The table `[cloud]`: what goes wrong on the side of AWS from the beginning.

    Attributes:
        launch_faults: Launches that fail.
        lose_notifications: Whether every message of Auto Scaling is lost.
        notification_gap: From the creation of a group to the set-up of its notifications, in seconds. None: as always.
        messages: Names of the message faults: `duplicate`, `reorder`, `lose_first`.
        object_seconds: How much later S3 answers a request for an object, in seconds.
        lose_answers: Whether every invocation of a function fails after it has done its work; Lambda then waits a
            second, and two, before it tries again.
    """

    launch_faults: tuple[LaunchFaultWords, ...] = ()
    lose_notifications: bool = False
    notification_gap: float | None = None
    messages: frozenset[str] = frozenset()
    object_seconds: float = 0.0
    lose_answers: bool = False

    def __post_init__(self) -> None:
        if unknown := self.messages - set(MESSAGE_FAULTS):
            raise ValueError(f"messages must hold only {', '.join(MESSAGE_FAULTS)}, got {sorted(unknown)}")

    @property
    def is_any(self) -> bool:
        """Whether anything goes wrong."""
        return self != CloudFaults()


@dataclass(frozen=True)
class Injection:
    """
    A fault of one moment.

    Attributes:
        when: The moment; that of a later injection is waited for after the one before was injected.
        do: Name of the action.
        target: Which machine; None for an action on none.
        options: The action's own options.
    """

    when: Trigger
    do: str
    target: Target | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.do if self.target is None else f"{self.do} {self.target}"


@dataclass(frozen=True)
class Case:
    """
    A fault case: a file's tables and keys.

    Attributes:
        title: What it shows, in a sentence.
        faults: Rows of the fault catalogue.
        context: CDK context of its stack.
        nodes: Nodes in all, master included. None: as the template says.
        gpus_per_node: GPUs that nodes show at first.
        expect: What is waited for and judged.
        job: `digits` starts a job when all is quiet; `elastic` is the cluster's own run script; `launchers` tries each.
        arguments: Arguments of the elastic job's program.
        minutes: Time after which it gives up.
        injections: What is injected, in order.
        objects: What S3 holds before the stack is created.
        buckets: Buckets that the account has before, beside those of the objects.
        launchers: Which launchers the job of that name tries; none for all that need no environment of their own.
        lustre_client: Whether the nodes' image has a client of FSx for Lustre.
        fresh_environment: Whether the nodes find no environment that an earlier rehearsal made.
        alone: Whether it takes the whole machine, or is long beside another case.
        after: Case that leaves what this one needs; rehearsed together, it goes first. Empty for none.
        proves_rights: Whether `make privileges` rehearses it; such cases together use every right.
        name: Name of its file.
    """

    title: str
    expect: Expectation
    faults: tuple[int, ...] = ()
    context: Mapping[str, Any] = field(default_factory=dict)
    nodes: int | None = None
    gpus_per_node: int = 1
    job: Job = "digits"
    arguments: tuple[str, ...] = ()
    minutes: float = 8.0
    cloud: CloudFaults = field(default_factory=CloudFaults)
    injections: tuple[Injection, ...] = ()
    seen: Seen = field(default_factory=Seen)
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
        """Whether nothing may run beside it: it says so, or measures how fast training goes on."""
        return self.alone or self.seen.recovery_seconds_at_most is not None

    @property
    def is_elastic(self) -> bool:
        """Whether its training is the cluster's own run script."""
        return self.job == "elastic"

    @property
    def watches_needs(self) -> bool:
        """Whether what jobs need is waited for and looked at."""
        return bool(self.seen.data_complete or self.seen.needs_failed)

    @property
    def needs_synthesis(self) -> bool:
        """Whether it needs a stack of its own."""
        return bool(self.context) or self.is_elastic

    def meets(self, need: Need) -> bool:
        """Tell whether the case is what an expectation needs."""
        forms, is_injected = self.expect != "failed", bool(self.injections)
        return {
            Need.NOTHING: True,
            Need.FORMS: forms,
            Need.TRAINS: self.expect == "trained",
            Need.FAILS: not forms and (is_injected or bool(self.cloud.launch_faults)),
            Need.ELASTIC: self.is_elastic and is_injected,
            Need.REPAIRS: forms and is_injected,
        }[need]
