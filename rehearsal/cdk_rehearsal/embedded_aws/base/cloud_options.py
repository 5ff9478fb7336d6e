"""Options of the embedded AWS, where AWS leaves a choice or a test wants another pace."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cdk_rehearsal.embedded_aws.base.capacity_pools import CapacityPool
from cdk_rehearsal.embedded_aws.base.launch_faults import LaunchFault
from cdk_rehearsal.embedded_aws.base.message_faults import MessageFaults
from cdk_rehearsal.embedded_aws.base.reservations import Reservation
from cdk_rehearsal.embedded_aws.base.training_limits import TrainingLimits
from cdk_rehearsal.iam.given_policies import GivenPolicies
from cdk_rehearsal.place import Place

ASYNCHRONOUS_RETRY_SECONDS = (60.0, 120.0)
"""Lambda retries a failed asynchronous invocation twice: after one minute, then after two (Lambda Developer Guide)."""
MetricCheck = Callable[[str, str, Collection[str]], None]
"""Raises AssemblyError for a metric that nothing writes, by its namespace, name and names of dimensions."""


FindOrder = Callable[[Mapping[str, Any], str], Mapping[str, Collection[str]]]
"""Returns which resources come before others, beside what the template says, by the template and its region."""


def no_usual_order(_template: Mapping[str, Any], _region: str) -> Mapping[str, Collection[str]]:
    """Let every order pass that the template allows."""
    return {}


@dataclass(frozen=True)
class ScalingPace:
    """Pace of Auto Scaling groups, in seconds."""

    reaction: float = 0.3  # from a change of capacity to the activities that follow
    launch: float = 1.0  # from an activity's start to an instance in service, at least
    failure: float = 0.1  # from an activity's start to its failure
    termination: float = 0.3  # from the request to terminate to the end of the activity
    retries: Sequence[float] = (20.0, 40.0, 80.0, 160.0, 300.0)  # after failed launches; the last one repeats
    notification_gap: float = 0.6  # from the creation of a group to the set-up of its notifications


@dataclass(frozen=True)
class CloudOptions:
    """
    Options of the embedded AWS.

    Attributes:
        seed: Draws the order in which the resources of the stack are created and deleted, as far as their
            dependencies leave it open. Default: 0.
        find_usual_order: Returns which resources come before others though the template does not say so. Default: the
            order is what the template says.
        waits_for_signals: Whether wait conditions and creation policies wait. Default: they do; where no instance
            boots, nobody sends a signal.
        lose_notifications: Lose every message of Auto Scaling, as its best effort may. Default: none is lost.
        minute_seconds: Length of EventBridge's minute, of an idle EMR cluster's, of the stop and the warm pool of a
            training job, and of the intervals of load balancers' health checks, in seconds. Default: 60.
        retry_seconds: Pauses before Lambda's retries, in seconds. Default: one and two minutes.
        login_users: Image id -> login user, for the user's own images. Default: `ec2-user`.
        key_pairs: Name -> OpenSSH public key of the account's key pairs. Default: none.
        lose_answers: Let each invocation of a function fail after its work. Default: none does.
        object_seconds: Delay of S3's answer to a request for an object, in seconds. Default: none.
        waits_for_desired: Whether a new group is complete when its desired capacity is in service, as CloudFormation
            documents, or already with its minimum. Default: with its desired capacity.
        node_modules: Packages beside those of functions of Node.js. Default: none.
        prepare: Fills the account before the stack is created. Default: it is empty.
        label_instance: Returns the kind of an instance in counts of calls, by its tags and the name of its group.
            Default: the name of the group.
        pools: Capacity of EC2 in zones. Default: enough.
        reservations: Capacity reservations of the account. Default: those that the launch templates of groups target,
            active and with enough instances.
        quotas: Name of a quota of EC2 for vCPUs -> vCPUs. Default: enough for every instance.
        missing_types: Availability Zone -> instance types that EC2 does not offer there. Default: it offers what
            moto's table has.
        training_limits: Quotas and capacity of training jobs. Default: enough for every job.
        policies: Policies of the account and of its organization. Default: none.
        check_metric: Raises AssemblyError for a metric of an alarm or a dashboard that nothing writes, by its
            namespace, name and names of dimensions. Default: takes every metric.
        find_target: Returns where the machine with a private address is reached from here. Default: at that address.
    """

    seed: int = 0
    find_usual_order: FindOrder = no_usual_order
    waits_for_signals: bool = True
    pace: ScalingPace = field(default_factory=ScalingPace)
    faults: Sequence[LaunchFault] = ()
    message_faults: MessageFaults | None = None
    lose_notifications: bool = False
    minute_seconds: float = 60.0
    retry_seconds: tuple[float, ...] = ASYNCHRONOUS_RETRY_SECONDS
    login_users: Mapping[str, str] = field(default_factory=dict)
    key_pairs: Mapping[str, str] = field(default_factory=dict)
    lose_answers: bool = False
    object_seconds: float = 0.0
    waits_for_desired: bool = True
    node_modules: Path | None = None
    prepare: Callable[[Place], None] = lambda _: None
    label_instance: Callable[[Mapping[str, str], str], str] = lambda _tags, group: group
    pools: Sequence[CapacityPool] = ()
    reservations: Sequence[Reservation] = ()
    quotas: Mapping[str, float] = field(default_factory=dict)
    missing_types: Mapping[str, Collection[str]] = field(default_factory=dict)
    training_limits: TrainingLimits = field(default_factory=TrainingLimits)
    policies: GivenPolicies = field(default_factory=GivenPolicies)
    check_metric: MetricCheck = lambda _namespace, _name, _dimensions: None
    find_target: Callable[[str], str] = lambda address: address
