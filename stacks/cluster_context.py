"""
Reads the props of the cluster from the context: one reader a key.

Most keys are props of `TrainingCluster` by the same name. What needs a construct, FSx for Lustre and the user's VPC, is
asked for by other keys, and the stack makes it.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args

from aws_cdk import Duration, RemovalPolicy, Size, Stack

from deeplearning_cdk import InstanceTypeFacts, LustreFileSystem, NodeImage, Purchase, SetupScripts
from deeplearning_cdk.capacity.purchase import PurchaseKind
from deeplearning_cdk.cluster_plan import plan_cluster
from deeplearning_cdk.cluster_props import AvailabilityZone
from deeplearning_cdk.network.subnet_sizes import is_ipv4_network
from deeplearning_cdk.props.check import Rule, check_fields, show_value
from deeplearning_cdk.props.rules import matching
from stacks.context_values import (
    ContextError,
    Reader,
    build,
    read_choice,
    read_flag,
    read_number,
    read_object,
    read_text,
)
from stacks.job_context import JOB_KEYS, read_throughput, take_lustre
from stacks.operation_context import OPERATION_KEYS, SHARED_KEYS, take_spending

_IMAGES: Mapping[str, Callable[..., NodeImage]] = {
    "deep-learning-ubuntu": NodeImage.deep_learning_ubuntu,
    "deep-learning-amazon-linux": NodeImage.deep_learning_amazon_linux,
    "ubuntu": NodeImage.ubuntu,
    "ssm-parameter": NodeImage.from_ssm_parameter,
    "ami-id": NodeImage.from_ami_id,
}


def _id_of(kind: str) -> Rule:
    return matching(rf"{kind}-[0-9a-f]{{1,17}}", f"be {kind}- and hex digits", "copy it from the VPC's page")


VpcId = Annotated[str, _id_of("vpc")]
SubnetId = Annotated[str, _id_of("subnet")]
RouteTableId = Annotated[str, _id_of("rtb")]
SubnetCidr = Annotated[str, Rule(must="be an IPv4 network", remedy="write e.g. 10.0.0.0/24", is_kept=is_ipv4_network)]


@dataclass(frozen=True, kw_only=True)
class VpcIds:
    """
    The ids of the user's VPC and of its subnets in the nodes' zone.

    Attributes:
        vpc_id: The VPC.
        availability_zone: The zone of the subnets.
        worker_subnet_id: Private subnet of the workers.
        worker_route_table_id: Its route table; only endpoints need it. Default: not given.
        worker_subnet_cidr: Its addresses, to check that the workers fit. Default: not checked.
        master_subnet_id: Public subnet of the master. Default: the workers' one.
    """

    vpc_id: VpcId
    availability_zone: AvailabilityZone
    worker_subnet_id: SubnetId
    worker_route_table_id: RouteTableId | None = None
    worker_subnet_cidr: SubnetCidr | None = None
    master_subnet_id: SubnetId | None = None

    def __post_init__(self) -> None:
        """Check each of them."""
        check_fields(self)


def read_instance_type(key: str, value: Any) -> str | InstanceTypeFacts:
    """
    Read an instance type: its name, or an object of `InstanceTypeFacts` for one that is newer than the catalogue.

    Raises:
        ContextError: It is something else.
    """
    if isinstance(value, str) and not value.startswith("{"):
        return read_text(key, value)
    facts = read_object(key, value)
    listed = {name: tuple(item) if isinstance(item, list) else item for name, item in facts.items()}
    return build(key, InstanceTypeFacts, listed)


def read_image(key: str, value: Any) -> NodeImage:
    """
    Read an image: a name, or an object with `kind` and the arguments of the class method of `NodeImage`.

    Raises:
        ContextError: It is something else.
    """
    named = {"kind": value} if isinstance(value, str) and not value.startswith("{") else read_object(key, value)
    arguments = dict(named)
    make = read_choice(_IMAGES)(key, arguments.pop("kind", None))
    if "like" in arguments:
        arguments["like"] = read_image(f"{key}.like", arguments["like"])
    if isinstance(arguments.get("packages"), dict):
        arguments["packages"] = {command: tuple(names) for command, names in arguments["packages"].items()}
    return build(key, make, arguments)


def read_purchase(key: str, value: Any) -> Purchase:
    """
    Read how nodes are paid for: `on-demand`, `spot`, `reservation:<id or ARN>` or `capacity-block:<id>`.

    An object has the attributes of `Purchase`, for a maximum price or a placement group.

    Raises:
        ContextError: It is something else.
    """
    if not isinstance(value, str) or value.startswith("{"):
        return build(key, Purchase, read_object(key, value))
    kind, colon, target = read_text(key, value).partition(":")
    if kind.startswith("cr-"):
        raise ContextError(
            f"{key} must name the kind of a reservation, got {show_value(value)}; "
            f"write reservation:{value} for an On-Demand "
            f"Capacity Reservation, or capacity-block:{value}"
        )
    if kind not in get_args(PurchaseKind) or bool(colon) != (kind in {"reservation", "capacity-block"}):
        raise ContextError(
            f"{key} must be on-demand, spot, reservation:<id or ARN of a resource group> or capacity-block:<id>, "
            f"got {show_value(value)}; write one of them"
        )
    name = "resource_group_arn" if target.startswith("arn:") else "reservation_id"
    return build(key, Purchase, {"kind": kind, **({name: target} if colon else {})})


def read_setup(key: str, value: Any) -> str | SetupScripts:
    """
    Read the set-up script: a path, or an object with that of `master` and that of `worker`.

    Raises:
        ContextError: It is something else.
    """
    if isinstance(value, str) and not value.startswith("{"):
        return read_text(key, value)
    return build(key, SetupScripts, read_object(key, value))


def read_vpc(key: str, value: Any) -> VpcIds:
    """
    Read the ids of the user's VPC.

    Raises:
        ContextError: One is missing or not known.
    """
    return build(key, VpcIds, read_object(key, value))


CLUSTER_KEYS: Mapping[str, Reader] = {
    "worker_instance_type": read_instance_type,
    "master_instance_type": read_instance_type,
    "worker_min_capacity": read_number,
    "worker_desired_capacity": read_number,
    "worker_max_capacity": read_number,
    "worker_purchase": read_purchase,
    "master_purchase": read_purchase,
    "image": read_image,
    "volume_size": lambda key, value: Size.gibibytes(read_number(key, value)),
    "ssh_peer": read_text,
    "key_pair": read_text,
    "mount_point": read_text,
    "setup_script": read_setup,
    "run_script": read_text,
    "setup_timeout": lambda key, value: Duration.minutes(read_number(key, value)),
    "vpc_cidr": read_text,
    "availability_zone": read_text,
    "isolated": read_flag,
    "efa": read_flag,
    "file_system_id": read_text,
    "file_system_throughput": read_throughput,
    "removal_policy": read_choice(
        {
            "retain-on-update-or-delete": RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
            "retain": RemovalPolicy.RETAIN,
            "destroy": RemovalPolicy.DESTROY,
        }
    ),
    **JOB_KEYS,
    **OPERATION_KEYS,
}
"""What a context value can say of a cluster: props by the same names, and what the other modules of context add."""

PLACE_KEYS: Mapping[str, Reader] = {"vpc": read_vpc, "mount_target_security_group": read_text, **SHARED_KEYS}
"""The props that the stack looks up by id or ARN."""


def check_cluster(props: Mapping[str, Any], vpc: VpcIds | None) -> None:
    """
    Check the props of a cluster together, before a stack is made.

    Args:
        props: What `CLUSTER_KEYS` read.
        vpc: The user's VPC; None for a new one.

    Raises:
        ValueError: They contradict each other.
    """
    chosen, lustre = take_lustre(take_spending(props))
    planned = set(inspect.signature(plan_cluster).parameters)
    choices = {name: value for name, value in chosen.items() if name in planned}
    if vpc is not None:
        if "vpc_cidr" in choices:
            raise ContextError(f"vpc_cidr must be left out with vpc, got {choices['vpc_cidr']!r}; leave one out")
        choices = {"availability_zone": vpc.availability_zone} | choices | {"vpc_cidr": None}
    if lustre:
        # In a stack of its own, which is thrown away.
        choices["lustre"] = LustreFileSystem(Stack(), "Lustre", **lustre)
    plan_cluster(**choices)
