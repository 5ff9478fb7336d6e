"""
Shorthands in the context for values that are created by a class method or an import in Python.

    -c software.image=ubuntu, or {"kind": "ami-id", "ami_id": "ami-…", "login_user": "ubuntu", "like": "ubuntu"}
    -c workers.purchase=spot, reservation:<id or ARN of a resource group> or capacity-block:<id>
    -c workers.fallbacks=us-east-1b,us-east-1c, or [{"availability_zone": "us-east-1b", "purchase": "spot"}]
    -c software.environment=horovod, none, requirements.txt, environment.yml or container:<image>
    -c software.environment_cache=team-bucket or team-bucket/environments/
    -c network.vpc={"vpc_id": "vpc-…", "availability_zones": ["us-east-1a"], "private_subnet_ids": ["subnet-…"]}
    -c storage.file_system=fs-…, or {"file_system_id": "fs-…", "security_group": "sg-…"}
    -c encryption_key=arn:aws:kms:us-east-1:111122223333:key/…
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_efs as efs
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from deeplearning_cdk import Candidate, EnvironmentCache, JobEnvironment, NodeImage, Purchase
from deeplearning_cdk.props.check import show_value

Made = TypeVar("Made")

_IMAGES: Mapping[str, Callable[..., NodeImage]] = {
    "deep-learning-ubuntu": NodeImage.deep_learning_ubuntu,
    "deep-learning-amazon-linux": NodeImage.deep_learning_amazon_linux,
    "ubuntu": NodeImage.ubuntu,
    "ssm-parameter": NodeImage.from_ssm_parameter,
    "ami-id": NodeImage.from_ami_id,
}
_CONDA_ENDINGS = (".yml", ".yaml")
_CONTAINER = "container:"
_PLAIN_PURCHASES, _RESERVED_PURCHASES = ("on-demand", "spot"), ("reservation", "capacity-block")
_PLAIN = re.compile(r"[A-Za-z0-9:/_+=,.@-]*")
"""Characters of ids, ARNs, zones and networks."""


def place_error(key: str, error: ValueError, names: Mapping[str, str]) -> ValueError:
    """
    Return the error of a value with the key that the user wrote.

    `names` has the name of each argument -> the user's name below the key; empty if the key itself has its value.
    """
    subject, must, rest = str(error).partition(" must ")
    if subject.startswith(f"{key}."):
        return error
    name = subject.removeprefix(f"{key.rpartition('.')[2]}.")
    if not must or name not in names:
        return ValueError(f"{key}: {error}")
    return ValueError(".".join(filter(None, (key, names[name]))) + must + rest)


def _make(
    key: str, make: Callable[..., Made], arguments: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> Made:
    """Make a value; `names` has the arguments that the user wrote by another name."""
    try:
        return make(**arguments)
    except TypeError as error:
        _, known, rest = str(error).partition(" must have only known ")
        if known:
            raise ValueError(f"{key}{known}{rest}") from error
        raise ValueError(f"{key} must have the right names, got {sorted(arguments)} ({error}); see the docs") from error
    except ValueError as error:
        raise place_error(key, error, dict(zip(arguments, arguments, strict=True)) | dict(names or {})) from error


def _read_image(key: str, value: Any) -> NodeImage:
    arguments = dict(value) if isinstance(value, dict) else {"kind": value}
    kind = arguments.pop("kind", None)
    if not isinstance(kind, str) or kind not in _IMAGES:
        raise ValueError(f"{key} must be one of {', '.join(_IMAGES)}, got {show_value(kind)}; write one of them")
    if "like" in arguments:
        arguments["like"] = _read_image(f"{key}.like", arguments["like"])
    if isinstance(arguments.get("packages"), dict):
        arguments["packages"] = {command: tuple(names) for command, names in arguments["packages"].items()}
    return _make(key, _IMAGES[kind], arguments)


def _read_purchase(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _make(key, Purchase, value)
    if not isinstance(value, str):
        return value
    kind, colon, target = value.partition(":")
    if kind.startswith("cr-"):
        raise ValueError(
            f"{key} must name the kind of a reservation, got {show_value(value)}; write reservation:{value} for an "
            f"On-Demand Capacity Reservation, or capacity-block:{value}"
        )
    if kind not in (_RESERVED_PURCHASES if colon else _PLAIN_PURCHASES):
        raise ValueError(
            f"{key} must be on-demand, spot, reservation:<id or ARN of a resource group> or capacity-block:<id>, "
            f"got {show_value(value)}; write one of them"
        )
    name = "resource_group_arn" if target.startswith("arn:") else "reservation_id"
    return _make(key, Purchase, {"kind": kind, **({name: target} if colon else {})}, {name: ""})


def _read_environment(key: str, value: Any) -> Any:
    if value in ("horovod", "none"):
        return JobEnvironment.none() if value == "none" else JobEnvironment.with_horovod()
    if not isinstance(value, str | dict):
        return value
    if isinstance(value, str) and value.startswith(_CONTAINER):
        return _make(key, JobEnvironment.from_container, {"image": value.removeprefix(_CONTAINER)}, {"image": ""})
    arguments = dict(value) if isinstance(value, dict) else {"path": value}
    if "horovod" in arguments and "path" not in arguments:
        return _make(
            key, JobEnvironment.with_horovod, {"version": arguments.pop("horovod"), **arguments}, {"version": "horovod"}
        )
    path = arguments.get("path")
    is_conda = isinstance(path, str) and path.endswith(_CONDA_ENDINGS)
    make = JobEnvironment.from_conda if is_conda else JobEnvironment.from_requirements
    return _make(key, make, arguments, {"path": ""} if isinstance(value, str) else {})


def _read_cache(key: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _make(key, EnvironmentCache, value)
    if not isinstance(value, str):
        return value
    bucket, slash, prefix = value.partition("/")
    return _make(key, EnvironmentCache, {"bucket": bucket} | ({"prefix": f"{prefix.rstrip('/')}/"} if slash else {}))


SHORTHANDS: Mapping[Any, Callable[[str, Any], Any]] = {
    NodeImage: _read_image,
    Purchase: _read_purchase,
    JobEnvironment: _read_environment,
    EnvironmentCache: _read_cache,
}
"""Reader of the shorthands of each type; it leaves a value of another type to the prop's own check."""


def _name(key: str) -> str:
    """Return the construct id of an imported resource."""
    return "Imported" + "".join(part.title() for part in key.replace(".", "_").replace("[", "_").rstrip("]").split("_"))


def _import_vpc(scope: Construct, key: str, value: Any) -> ec2.IVpc | None:
    if not isinstance(value, dict):
        return None
    _check_plain(key, value, "aws ec2 describe-vpcs")
    return _make(key, lambda **attributes: ec2.Vpc.from_vpc_attributes(scope, _name(key), **attributes), value)


def _check_plain(key: str, attributes: Mapping[str, Any], source: str) -> None:
    """Check the characters of ids, zones and networks, which the CDK writes into the template unchanged."""
    for name, given in attributes.items():
        for text in given if isinstance(given, list) else [given]:
            if isinstance(text, str) and not _PLAIN.fullmatch(text):
                raise ValueError(f"{key}.{name} must be plain, got {show_value(text)}; copy it from `{source}`")


def _import_file_system(scope: Construct, key: str, value: Any) -> efs.IFileSystem | None:
    if not isinstance(value, dict):
        return None
    _check_plain(key, value, "aws efs describe-mount-targets")

    def take(*, file_system_id: str, security_group: str) -> efs.IFileSystem:
        group = ec2.SecurityGroup.from_security_group_id(scope, f"{_name(key)}SecurityGroup", security_group)
        return efs.FileSystem.from_file_system_attributes(
            scope, _name(key), file_system_id=file_system_id, security_group=group
        )

    return _make(key, take, value)


def _read_zone(scope: Construct, key: str, value: Any) -> Candidate | None:  # noqa: ARG001 - an importer
    """Return the candidate of a zone; an object of its fields is left to the reader of objects."""
    if not isinstance(value, str):
        return None
    return _make(key, Candidate, {"availability_zone": value}, {"availability_zone": ""})


def _by_id(take: Callable[[Construct, str, str], Any], prefix: str = "") -> Callable[[Construct, str, Any], Any]:
    """Return an importer by id or ARN; any other value is left to the prop's own check."""

    def import_resource(scope: Construct, key: str, value: Any) -> Any:
        is_one = isinstance(value, str) and value.startswith(prefix) and _PLAIN.fullmatch(value)
        return take(scope, _name(key), value) if is_one else None

    return import_resource


IMPORTS: Mapping[Any, Callable[[Construct, str, Any], Any]] = {
    Candidate: _read_zone,
    ec2.IVpc: _import_vpc,
    ec2.ISubnet: _by_id(ec2.Subnet.from_subnet_id, "subnet-"),
    ec2.ISecurityGroup: _by_id(ec2.SecurityGroup.from_security_group_id, "sg-"),
    efs.IFileSystem: _import_file_system,
    iam.IRole: _by_id(iam.Role.from_role_arn, "arn:"),
    kms.IKey: _by_id(kms.Key.from_key_arn, "arn:"),
    sns.ITopic: _by_id(sns.Topic.from_topic_arn, "arn:"),
}
"""
Importer of each interface of the CDK, and of a candidate by its zone; it returns None for a value that is not an id,
ARN or object of that kind.
"""
