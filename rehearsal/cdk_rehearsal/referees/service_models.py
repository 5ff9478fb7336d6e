"""The limits in the service models of botocore, held against the properties that become a call's arguments."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from cdk_rehearsal.referees.finding import Violation
from cdk_rehearsal.referees.resolved_template import ResolvedTemplate, is_known, measure, show

if TYPE_CHECKING:
    from botocore.model import OperationModel, Shape

CALLS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "AWS::Backup::BackupSelection": (("backup", "CreateBackupSelection"),),
    "AWS::Budgets::Budget": (("budgets", "CreateBudget"),),
    "AWS::CloudWatch::Alarm": (("cloudwatch", "PutMetricAlarm"),),
    "AWS::DynamoDB::Table": (("dynamodb", "CreateTable"),),
    "AWS::EKS::Addon": (("eks", "CreateAddon"),),
    "AWS::EKS::Cluster": (("eks", "CreateCluster"),),
    "AWS::EMR::Cluster": (("emr", "RunJobFlow"),),
    "AWS::Events::Rule": (("events", "PutRule"), ("events", "PutTargets")),
    "AWS::FSx::FileSystem": (("fsx", "CreateFileSystem"),),
    "AWS::IAM::InstanceProfile": (("iam", "CreateInstanceProfile"),),
    "AWS::IAM::Policy": (("iam", "PutRolePolicy"),),
    "AWS::IAM::Role": (("iam", "CreateRole"),),
    "AWS::Lambda::EventSourceMapping": (("lambda", "CreateEventSourceMapping"),),
    "AWS::Lambda::Function": (("lambda", "CreateFunction"),),
}
"""Resource type -> the calls that its properties become, of which the schemas of resources lack limits."""
_SPACES = " \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CLASSES = {
    r"\p{L}": "A-Za-z\u00c0-\uffff",
    r"\p{Z}": rf"\s{_SPACES}",
    r"\p{N}": "0-9",
    r"\p{M}": "",
    r"\p{ASCII}": r"\x00-\x7f",
}


def judge_calls(template: ResolvedTemplate) -> Iterator[Violation]:
    """Yield what is outside of the limits of the calls."""
    for kind, calls in CALLS.items():
        for name, properties in template.list_type(kind):
            # `Tags` have another form in every call.
            arguments = {key: value for key, value in properties.items() if key != "Tags"}
            for service, operation in calls:
                yield from judge_request(service, operation, arguments, f"Resources.{name}.Properties")


def judge_request(
    service: str, operation: str, arguments: Mapping[str, Any], path: str, *, is_whole: bool = False
) -> Iterator[Violation]:
    """
    Yield what is outside of the limits of a call; `path` leads to its arguments.

    `is_whole` says that nothing of the request is missing and everything has its name in the call: then what the call
    requires must be there, and what it does not know must not.
    """
    shape = _load(service, operation).input_shape
    if shape is not None:
        yield from _judge(shape, arguments, path, f"botocore's model of {service}:{operation}", is_whole=is_whole)


@functools.cache
def _load(service: str, operation: str) -> "OperationModel":
    return _load_service(service).operation_model(operation)


@functools.cache
def _load_service(service: str) -> Any:
    import botocore.session  # noqa: PLC0415 - commands that judge nothing need not load it

    return botocore.session.get_session().get_service_model(service)


def _judge(shape: "Shape", value: Any, path: str, source: str, *, is_whole: bool = False) -> Iterator[Violation]:
    kind = shape.type_name
    if kind == "structure" and isinstance(value, Mapping):
        yield from _judge_structure(shape, value, path, source, is_whole=is_whole)
    elif kind == "map" and isinstance(value, Mapping):
        yield from _limit(shape, len(value), path, source, "entries")
        for key, entry in value.items():
            yield from _judge(shape.key, key, f"{path}.{key}", source)
            yield from _judge(shape.value, entry, f"{path}.{key}", source, is_whole=is_whole)
    elif kind == "list" and isinstance(value, list):
        yield from _limit(shape, len(value), path, source, "items")
        for index, entry in enumerate(value):
            yield from _judge(shape.member, entry, f"{path}.{index}", source, is_whole=is_whole)
    elif kind == "string":
        text = json.dumps(value, separators=(",", ":")) if isinstance(value, (Mapping, list)) else str(value)
        yield from _judge_text(shape, text, path, source)
    elif kind in ("integer", "long", "float", "double") and is_known(value) and not isinstance(value, (Mapping, list)):
        try:
            yield from _limit(shape, float(value), path, source, "")
        except ValueError:
            yield Violation(path, show(value), "must be a number", source)


def _judge_structure(
    shape: "Shape", value: Mapping[str, Any], path: str, source: str, *, is_whole: bool
) -> Iterator[Violation]:
    # A property of a template differs from the argument in its first letter at times.
    members = shape.members if is_whole else {name.lower(): member for name, member in shape.members.items()}
    for key, entry in value.items():
        if member := members.get(key if is_whole else key.lower()):
            yield from _judge(member, entry, f"{path}.{key}", source, is_whole=is_whole)
        elif is_whole:
            yield Violation(f"{path}.{key}", show(entry), "must be left out: the call does not know it", source)
    for name in shape.required_members if is_whole else ():
        if value.get(name) is None:
            yield Violation(f"{path}.{name}", "", "must be given", source)


def _judge_text(shape: "Shape", text: str, path: str, source: str) -> Iterator[Violation]:
    if not is_known(text):
        highest = shape.metadata.get("max")
        if highest is not None and measure(text) > highest:
            yield Violation(path, show(text), f"must have at most {highest} characters", source)
        return
    yield from _limit(shape, len(text), path, source, "characters")
    choices, pattern = getattr(shape, "enum", None), shape.metadata.get("pattern")
    if choices and text not in choices:
        yield Violation(path, show(text), f"must be one of {', '.join(sorted(choices)[:12])}", source)
    elif pattern and not choices and not _fits(pattern, text):
        yield Violation(path, show(text), f"must match {pattern}", source)


def _fits(pattern: str, text: str) -> bool:
    """
    Return whether a text matches; a pattern that Python cannot read is no rule.

    As in Java, `\\w`, `\\d` and `\\s` match ASCII characters alone.
    """
    for java, python in _CLASSES.items():
        pattern = pattern.replace(java, python)
    try:
        return re.fullmatch(pattern, text, re.DOTALL | re.ASCII) is not None
    except re.error:
        return True


def _limit(shape: "Shape", figure: float, path: str, source: str, unit: str) -> Iterator[Violation]:
    lowest, highest = shape.metadata.get("min"), shape.metadata.get("max")
    counted = f" {unit}" if unit else ""
    verb = "have" if unit else "be"
    if lowest is not None and figure < lowest:
        yield Violation(path, f"{figure:g}", f"must {verb} at least {lowest}{counted}", source)
    if highest is not None and figure > highest:
        yield Violation(path, f"{figure:g}", f"must {verb} at most {highest}{counted}", source)
