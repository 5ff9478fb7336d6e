"""Creates nested stacks from the templates that the assets hold."""

import json
from typing import Any

from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator

_SECONDS = 3600.0
"""Limit of the deletion of a nested stack."""


def _create_stack(creation: Creation) -> Created:
    properties = creation.properties
    url = str(properties["TemplateURL"])
    if not url.startswith("https://"):
        raise ValueError(f"TemplateURL must be a supported URL, got {url}")
    _, _, path = url.removeprefix("https://").partition("/")
    bucket, _, key = path.partition("/")
    body = creation.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    parameters = {name: _as_text(value) for name, value in properties.get("Parameters", {}).items()}
    tags = {tag["Key"]: str(tag["Value"]) for tag in properties.get("Tags", [])}
    stack = creation.services.open_stack(
        creation.name(128), json.loads(body), parameters, {**creation.stack_tags, **tags}
    )
    outputs: dict[str, str] = {}

    def settle() -> Outcome | None:
        if not stack.join(0):
            return None
        outputs.update({f"Outputs.{name}": value for name, value in stack.outputs.items()})
        if stack.status == "CREATE_COMPLETE":
            return Outcome()
        return Outcome(f"Embedded stack {stack.arn} was not successfully created: {stack.reason}")

    def delete() -> None:
        stack.delete()
        stack.join(_SECONDS)
        if stack.status != "DELETE_COMPLETE":
            raise RuntimeError(f"Embedded stack {stack.arn} was not successfully deleted: {stack.reason}")

    stack.start()
    return Created(stack.arn, outputs, settle=settle, delete=delete)


def _as_text(value: Any) -> str:
    """Return the value of a parameter as text; CloudFormation joins lists with commas."""
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


CREATORS: dict[str, Creator] = {"AWS::CloudFormation::Stack": _create_stack}
