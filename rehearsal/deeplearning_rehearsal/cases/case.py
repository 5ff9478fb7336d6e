"""A fault case: what is known of it before its stack is made, and the function that injects and judges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from cdk_rehearsal.embedded_aws.base.capacity_pools import CapacityPool
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.base.reservations import Reservation
from cdk_rehearsal.errors import UnavailableError
from deeplearning_contract.jobs.job_definition import JobDefinition
from deeplearning_contract.names import ROLE_TAG, NodeRole
from deeplearning_rehearsal.cases.account import AccountBucket, DataObject
from deeplearning_rehearsal.cases.findings import record_asserts
from deeplearning_rehearsal.checks.training import RESUMING_JOB, read_job
from deeplearning_rehearsal.launchers.trials import TRIAL_NAMES
from deeplearning_rehearsal.options import Expectation

MASTERS, WORKERS = {ROLE_TAG: NodeRole.MASTER.value}, {ROLE_TAG: NodeRole.WORKER.value}
"""Tags of the groups of a cluster, for a `LaunchFault`."""
MESSAGE_FAULTS = ("duplicate", "reorder", "lose_first")
_WORKERS, _MINIMUM = "workers.desired_capacity", "workers.min_capacity"
_ENVIRONMENT = "software.environment"


class CaseError(UnavailableError):
    """A case cannot be carried out; the message names it and what it must have."""


@dataclass(frozen=True)
class CloudFaults:
    """
    Faults of AWS from the beginning.

    Attributes:
        launch_faults: Launches that fail.
        pools: Capacity of EC2 in zones; without a pool, it has enough.
        reservations: Capacity reservations and Capacity Blocks; without one, it has what the stack targets.
        quotas: Name of a quota of EC2 for vCPUs -> vCPUs; without one, it is large enough.
        missing_types: Availability Zone -> instance types that EC2 does not offer there.
        lose_notifications: Whether every message of Auto Scaling is lost.
        notification_gap: Seconds between the creation of a group and its notifications. None: as always.
        messages: Any of `duplicate`, `reorder` and `lose_first`.
        object_seconds: Delay of S3's answer to a request for an object, in seconds.
        lose_answers: Whether each invocation of a function fails after its work; Lambda then retries after 1 and 2 s.
        training_quota: Quota of instances of training jobs. None: enough.
        training_capacity: Instances that AWS has for training jobs. None: enough.
        token_seconds: Seconds for which an API server on EKS takes a token. None: as always.
    """

    launch_faults: Sequence[LaunchFault] = ()
    pools: Sequence[CapacityPool] = ()
    reservations: Sequence[Reservation] = ()
    quotas: Mapping[str, float] = field(default_factory=dict)
    missing_types: Mapping[str, Sequence[str]] = field(default_factory=dict)
    lose_notifications: bool = False
    notification_gap: float | None = None
    messages: Sequence[str] = ()
    object_seconds: float = 0.0
    lose_answers: bool = False
    training_quota: int | None = None
    training_capacity: int | None = None
    token_seconds: float | None = None

    def __post_init__(self) -> None:
        if unknown := set(self.messages) - set(MESSAGE_FAULTS):
            raise ValueError(f"cloud.messages must hold only {', '.join(MESSAGE_FAULTS)}, got {sorted(unknown)}")


@dataclass(frozen=True)
class Digits:
    """
    The example job, started when all is quiet, or on SageMaker and EKS while faults are injected.

    Attributes:
        keys: Keys of its file that differ from those of the example, on SageMaker and EKS.
    """

    keys: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Elastic:
    """The elastic example as the cluster's own run script: so many epochs, of batches that take `batch_seconds`."""

    epochs: int
    batch_seconds: float = 0.4

    @property
    def arguments(self) -> Sequence[str]:
        """Arguments of its program."""
        return ("--epochs", str(self.epochs), "--batch-seconds", str(self.batch_seconds))


@dataclass(frozen=True)
class Launchers:
    """Trials of launchers by name; without names, of all that need no environment of their own."""

    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        if unknown := set(self.names) - set(TRIAL_NAMES):
            raise ValueError(f"job.names must hold only {', '.join(TRIAL_NAMES)}, got {sorted(unknown)}")


@dataclass(frozen=True)
class Redeployment:
    """
    A second deployment of the stack, which the function of a case begins with `run.deploy_again()`.

    Attributes:
        context: Context on top of that of the first.
        is_release: Whether it comes from another release of the library: all its programs have other bytes.
    """

    context: Mapping[str, Any] = field(default_factory=dict)
    is_release: bool = False


Job = Digits | Elastic | Launchers
Function = Callable[[Any], None]
"""The function of a case, which takes a `ClusterCase`."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """
    A fault case.

    Attributes:
        name: Name of its function, with hyphens.
        title: What it shows, in a sentence.
        function: Its function, which injects, waits for the end with `run.finish()`, and asserts what must hold.
        reference: What `find_case` finds it by.
        faults: Rows of the fault catalogue.
        expect: End of the rehearsal. `case` chooses it by the job where it is left out.
        context: Context of its stack on top of the app's own.
        second: A second deployment. None: there is one alone.
        formed: Nodes that form, master included. Default: those that it asks for.
        gpus_per_node: GPUs that nodes show at first.
        job: The job that trains. None: none does; with `counted`, a job without a framework counts its ranks, and where
            jobs bring their nodes it writes checkpoints for ten seconds.
        retries: Further runs of the job that counts, on EKS.
        minutes: Time after which it gives up.
        cloud: Faults of AWS from the beginning.
        denied: Actions that the deployed policies must deny; any other denial is a failure, here as everywhere.
        objects: Content of S3 before the stack is created.
        buckets: Buckets of the account before that, beside those of the objects.
        lustre_client: Whether the nodes' image has a client of FSx for Lustre.
        environment: Where nodes find the environment of an earlier rehearsal: installed on their image, archived on the
            shared file system as in any rehearsal, or nowhere, so that the master makes it.
        alone: Whether it takes the whole machine, or measures how fast training goes on.
        after: Case that must go first where both are rehearsed. Empty: none.
        proves_rights: Whether `make privileges` rehearses it; such cases together use every right. Where ranks are
            counted, a job fails afterwards, whose event is one of them.
    """

    name: str
    title: str
    function: Function
    reference: str
    faults: Sequence[int] = ()
    expect: Expectation = "counted"
    context: Mapping[str, Any] = field(default_factory=dict)
    second: Redeployment | None = None
    formed: int | None = None
    gpus_per_node: int = 1
    job: Job | None = None
    retries: int = 0
    minutes: float = 8.0
    cloud: CloudFaults = field(default_factory=CloudFaults)
    denied: Sequence[str] = ()
    objects: Sequence[DataObject] = ()
    buckets: Sequence[AccountBucket] = ()
    lustre_client: bool = False
    environment: Literal["image", "shared", "absent"] = "image"
    alone: bool = False
    after: str = ""
    proves_rights: bool = False

    def __post_init__(self) -> None:
        if self.expect not in get_args(Expectation):
            raise ValueError(f"expect must be one of {', '.join(get_args(Expectation))}, got {self.expect!r}")
        if self.expect not in {"trained", "job"} and self.job is not None:
            raise ValueError(f"job must be left out with expect = {self.expect!r}, which trains nothing")
        if self.expect == "trained" and self.job is None:
            raise ValueError("job must be given with expect = 'trained', got none; write job=Digits()")
        if self.is_elastic and "master.run_script" in self.context:
            raise ValueError("context 'master.run_script' must be left out with Elastic, which is a run script")

    @property
    def asked_nodes(self) -> int | None:
        """Nodes that it asks for, master included; None where only the app knows."""
        workers = self.context.get(_WORKERS)
        return None if workers is None else int(workers) + 1

    @property
    def formed_nodes(self) -> int | None:
        """Nodes that must form; None where none must, or only the app knows."""
        return (self.formed or self.asked_nodes) if self.expect in {"trained", "counted", "formed"} else None

    @property
    def stack_context(self) -> Mapping[str, Any]:
        """Context of its stack; without software for jobs where none needs it, unless jobs bring images."""
        if self.expect in {"trained", "job"} or self.context.get("platform") in {"eks", "sagemaker"}:
            return self.context
        return {_ENVIRONMENT: "none"} | dict(self.context)

    @property
    def has_software(self) -> bool:
        """True if its nodes have software for jobs."""
        return bool(self.stack_context.get(_ENVIRONMENT) != "none")

    @property
    def definition(self) -> JobDefinition:
        """The job on platforms whose jobs bring their nodes, without its source."""
        if self.expect == "counted":
            return replace(RESUMING_JOB, retries=self.retries)
        return read_job(**self.job.keys) if isinstance(self.job, Digits) else read_job()

    @property
    def is_elastic(self) -> bool:
        """True if its training is the cluster's own run script."""
        return isinstance(self.job, Elastic)

    @property
    def needs_synthesis(self) -> bool:
        """True if it needs a stack of its own."""
        return bool(self.context) or self.is_elastic or self.second is not None


def case(
    title: str, *, workers: int | None = None, min_capacity: int | None = None, **keys: Any
) -> Callable[[Function], Case]:
    """
    Make a case of a function, which stands at the top level of a file; its asserts become findings of the report.

    Args:
        title: What it shows, in a sentence.
        workers: Desired capacity of the workers of a cluster on EC2. Default: as in the context.
        min_capacity: Their minimum. Default: as in the context.
        keys: Attributes of `Case`. Default of `expect`: `trained` with a job, `counted` without.

    Raises:
        CaseError: They contradict each other, or nothing would be judged; the message names the function.
    """
    keys.setdefault("expect", "trained" if keys.get("job") else "counted")
    capacity = {_WORKERS: workers, _MINIMUM: min_capacity}
    context = {name: count for name, count in capacity.items() if count is not None} | dict(keys.pop("context", {}))

    def make(function: Function) -> Case:
        name = function.__name__.replace("_", "-")
        try:
            recorded, count = record_asserts(function)
            made = Case(name=name, title=title, function=recorded, reference=name, context=context, **keys)
        except (TypeError, ValueError) as error:
            raise CaseError(f"case {name}: {str(error).removeprefix('Case.__init__() ')}") from error
        if not count and made.expect in {"stopped", "job"}:
            raise CaseError(
                f"case {name}: the function must assert something; expect = {made.expect!r} promises nothing"
            )
        return made

    return make
