"""Creates keys, log groups, alarms, dashboards, budgets, SSM parameters and the resources of CloudFormation itself."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.base.signals import SignalHandle, WaitCondition
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator, update_alone

_SEARCH = re.compile(r"\{(?P<namespace>[^,}]+),(?P<dimensions>[\w,]+)\}[^']*?MetricName=\"(?P<name>[^\"]+)\"")


def _create_log_group(creation: Creation) -> Created:
    logs = creation.client("logs")
    properties = creation.properties
    name = properties.get("LogGroupName") or creation.name(512)
    key = {"kmsKeyId": properties["KmsKeyId"]} if "KmsKeyId" in properties else {}
    logs.create_log_group(logGroupName=name, tags={tag["Key"]: tag["Value"] for tag in creation.tags()}, **key)
    if "RetentionInDays" in properties:
        logs.put_retention_policy(logGroupName=name, retentionInDays=int(properties["RetentionInDays"]))
    arn = creation.services.place.arn("logs", f"log-group:{name}:*")
    return Created(name, {"Arn": arn}, delete=partial(logs.delete_log_group, logGroupName=name))


def _create_alarm(creation: Creation) -> Created:
    properties = creation.properties
    creation.services.options.check_metric(
        properties.get("Namespace", ""),
        properties.get("MetricName", ""),
        [dimension["Name"] for dimension in properties.get("Dimensions", [])],
    )
    name = properties.get("AlarmName") or creation.name(255)
    numbers = {"Period": int, "EvaluationPeriods": int, "DatapointsToAlarm": int, "Threshold": float}
    request = properties.select(*properties) | {
        key: convert(properties[key]) for key, convert in numbers.items() if key in properties
    }
    creation.client("cloudwatch").put_metric_alarm(**request | {"AlarmName": name, "Tags": creation.tags()})
    return Created(name, {"Arn": creation.services.place.arn("cloudwatch", f"alarm:{name}")})


def list_metrics(body: Mapping[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield namespace, name and dimensions of every metric of a dashboard, those of its searches too."""
    rows = (row for widget in body["widgets"] for row in widget["properties"].get("metrics", ()))
    for row in rows:
        if isinstance(row[0], str):
            names = [part for part in row if isinstance(part, str)]
            yield names[0], names[1], tuple(names[2::2])
            continue
        for found in _SEARCH.finditer(row[0].get("expression", "")):
            yield found["namespace"], found["name"], tuple(found["dimensions"].split(","))


def _create_dashboard(creation: Creation) -> Created:
    properties = creation.properties
    name, body = properties.get("DashboardName") or creation.name(255), properties["DashboardBody"]
    for metric in list_metrics(json.loads(body)):
        creation.services.options.check_metric(*metric)
    creation.client("cloudwatch").put_dashboard(DashboardName=name, DashboardBody=body)
    return Created(name)


def _create_handle(creation: Creation) -> Created:
    services = creation.services
    key, handle = f"{creation.stack_arn}/{creation.logical_id}", SignalHandle(services.observations)
    return Created(services.presigned.open(services.place, "waitcondition", key, handle))


def _create_wait_condition(creation: Creation) -> Created:
    properties = creation.properties
    handle = creation.services.presigned.find(properties["Handle"])
    if not isinstance(handle, SignalHandle):
        raise ValueError(  # noqa: TRY004 - the property is wrong, not a type of this program
            "Handle must be the URL of a WaitConditionHandle of this stack"
        )
    condition = WaitCondition(handle, count=int(properties.get("Count", 1)), timeout=float(properties["Timeout"]))
    settle = condition.settle if creation.services.options.waits_for_signals else None
    return Created(f"{creation.stack_arn}/{creation.logical_id}", {"Data": condition.attribute}, settle=settle)


def _create_key(creation: Creation) -> Created:
    properties = creation.properties
    key = creation.client("kms").create_key(
        Policy=json.dumps(properties["KeyPolicy"]),
        Tags=[{"TagKey": tag["Key"], "TagValue": tag["Value"]} for tag in creation.tags()],
        **properties.select("Description"),
    )["KeyMetadata"]
    return Created(key["KeyId"], key)


def _create_parameter(creation: Creation) -> Created:
    ssm, properties = creation.client("ssm"), creation.properties
    name = properties.get("Name") or creation.name(512)
    # An object in this type, not a list (CloudFormation template reference, "AWS::SSM::Parameter").
    own = {tag["Key"]: tag["Value"] for tag in creation.tags("none")} | properties.get("Tags", {})
    ssm.put_parameter(
        Name=name,
        Tags=[{"Key": key, "Value": value} for key, value in own.items()],
        **properties.select("Description", "Tier", "Type", "Value"),
    )
    attributes = {"Type": properties["Type"], "Value": properties["Value"]}

    def change(changed: Mapping[str, Any]) -> None:
        ssm.put_parameter(Name=name, Overwrite=True, Type=changed["Type"], Value=changed["Value"])
        attributes["Value"] = changed["Value"]

    return Created(name, attributes, update=update_alone("Value", change=change))


CREATORS: dict[str, Creator] = {
    "AWS::KMS::Key": _create_key,
    "AWS::Logs::LogGroup": _create_log_group,
    "AWS::CloudWatch::Alarm": _create_alarm,
    "AWS::CloudWatch::Dashboard": _create_dashboard,
    "AWS::Budgets::Budget": lambda creation: Created(creation.name(100)),
    "AWS::SSM::Parameter": _create_parameter,
    "AWS::CDK::Metadata": lambda creation: Created(creation.logical_id),
    "AWS::CloudFormation::WaitConditionHandle": _create_handle,
    "AWS::CloudFormation::WaitCondition": _create_wait_condition,
}
