"""Creates Lambda functions, their permissions, and the rules that invoke them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cdk_rehearsal.embedded_aws.base.principals import Principal
from cdk_rehearsal.embedded_aws.functions.environment import Function
from cdk_rehearsal.embedded_aws.functions.inline_code import pack_inline_code
from cdk_rehearsal.embedded_aws.functions.runner import LOG_STREAM, FunctionLog, Permission
from cdk_rehearsal.embedded_aws.messaging.event_bus import require_placeholders
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator, update_alone
from cdk_rehearsal.embedded_aws.resources.event_sources import create_mapping
from cdk_rehearsal.place import Credentials, Place

_DEFAULT_TIMEOUT = 3
_DEFAULT_MEMORY = 128
_MOST_ERROR_CHARACTERS = 1024
"""Lambda writes the first KiB of the error into a dead letter (Lambda Developer Guide)."""


def _create_function(creation: Creation) -> Created:
    properties = creation.properties
    services = creation.services
    name = properties.get("FunctionName") or creation.name(64)
    timeout = int(properties.get("Timeout", _DEFAULT_TIMEOUT))
    memory = int(properties.get("MemorySize", _DEFAULT_MEMORY))
    variables = properties.get("Environment", {}).get("Variables", {})
    code, zipped = _read_code(creation, properties)
    arn = creation.client("lambda").create_function(
        FunctionName=name,
        Code=code,
        Timeout=timeout,
        MemorySize=memory,
        Environment={"Variables": variables},
        Tags={tag["Key"]: tag["Value"] for tag in creation.tags()},
        **properties.select("Handler", "Runtime", "Role", "Description", "DeadLetterConfig", KMSKeyArn="KmsKeyArn"),
        **properties.select("Layers"),
    )["FunctionArn"]
    credentials = services.principals.mint(services.place, role_arn=properties["Role"], session=name, kind="lambda")
    function = Function(
        name,
        arn,
        timeout,
        {key: str(value) for key, value in variables.items()} | _runtime_variables(creation, name, memory, credentials),
        Path(),
        properties["Runtime"],
        layers=properties.get("Layers", ()),
    )
    if "DeadLetterConfig" in properties:
        queue = properties["DeadLetterConfig"]["TargetArn"]
        function = replace(function, dead_letters=_bury(services.place, credentials, queue))
    if group := properties.get("LoggingConfig", {}).get("LogGroup"):
        function = replace(function, log=FunctionLog(services.place, credentials, group).write)
    if variables:
        function = replace(function, decrypt=partial(_decrypt_environment, creation, name))
    services.functions.add_function(function, zipped)
    update = update_alone("Code", change=partial(_replace_code, creation, name))
    return Created(name, {"Arn": arn}, delete=partial(services.functions.remove_function, name), update=update)


def _replace_code(creation: Creation, name: str, properties: Mapping[str, Any]) -> None:
    code, zipped = _read_code(creation, properties)
    creation.client("lambda").update_function_code(FunctionName=name, **code)
    creation.services.functions.replace_code(name, zipped)


def _read_code(creation: Creation, properties: Mapping[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return a function's code as Lambda's API takes it, and its deployment package."""
    code = properties["Code"]
    if "ZipFile" in code:
        zipped = pack_inline_code(code["ZipFile"], properties["Runtime"])
        return {"ZipFile": zipped}, zipped
    place = {"Bucket": code["S3Bucket"], "Key": code["S3Key"]}
    zipped = creation.client("s3").get_object(**place)["Body"].read()
    return {f"S3{name}": value for name, value in place.items()}, zipped


def _decrypt_environment(creation: Creation, name: str) -> str:
    """
    Decrypt a function's environment as its role, with the customer's key if there is one; return the refusal.

    Lambda also makes a grant on the key for the role when whoever creates the function may `kms:CreateGrant`. Deploy
    roles differ, and a grant is lost when its role is made anew (serverless/examples issue 279), so that none counts
    here. Where there was none, functions did not start (cattle-ops/terraform-aws-gitlab-runner issue 1253).
    """
    caller = Principal("lambda", "", name, creation.properties["Role"])
    denial = creation.services.authorizer.check_call(caller, "lambda.DecryptEnvironment", {"FunctionName": name})
    if denial is None:
        return ""
    said = "Lambda was unable to decrypt the environment variables because KMS access was denied."
    return f"KMSAccessDeniedException: {said} KMS Message: {denial.message}"


def _bury(place: Place, credentials: Credentials, queue_arn: str) -> Callable[[Any, str], None]:
    """Return what sends a failed event to a queue, as Lambda does: with the function's role."""
    sqs = place.client_as("sqs", credentials)
    url = place.client("sqs").get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]

    def send(event: Any, error: str) -> None:
        message = {"StringValue": error[:_MOST_ERROR_CHARACTERS] or "unknown", "DataType": "String"}
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(event), MessageAttributes={"ErrorMessage": message})

    return send


def _runtime_variables(creation: Creation, name: str, memory: int, credentials: Credentials) -> dict[str, str]:
    place = creation.services.place
    return {
        "_HANDLER": creation.properties["Handler"],
        "AWS_ACCESS_KEY_ID": credentials.access_key_id,
        "AWS_SECRET_ACCESS_KEY": credentials.secret_access_key,
        "AWS_SESSION_TOKEN": credentials.session_token,
        "AWS_REGION": place.region,
        "AWS_DEFAULT_REGION": place.region,
        "AWS_ENDPOINT_URL": place.endpoint,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_EXECUTION_ENV": f"AWS_Lambda_{creation.properties['Runtime']}",
        "AWS_LAMBDA_FUNCTION_NAME": name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(memory),
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": LOG_STREAM,
        "LANG": "en_US.UTF-8",
        "TZ": ":UTC",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
    }


def _create_layer(creation: Creation) -> Created:
    services, properties = creation.services, creation.properties
    place = {"Bucket": properties["Content"]["S3Bucket"], "Key": properties["Content"]["S3Key"]}
    answer = creation.client("lambda").publish_layer_version(
        LayerName=properties.get("LayerName") or creation.name(64),
        Content={f"S3{name}": value for name, value in place.items()},
        **properties.select("Description", "CompatibleRuntimes", "LicenseInfo"),
    )
    arn = answer["LayerVersionArn"]
    services.functions.add_layer(arn, creation.client("s3").get_object(**place)["Body"].read())
    return Created(arn, {"LayerVersionArn": arn})


def _create_permission(creation: Creation) -> Created:
    properties = creation.properties
    name = str(properties["FunctionName"]).rpartition(":")[2]
    creation.client("lambda").add_permission(
        FunctionName=name,
        StatementId=creation.logical_id,
        **properties.select("Action", "Principal", "SourceArn", "SourceAccount"),
    )
    permission = Permission(properties["Principal"], properties.get("SourceArn"), properties.get("SourceAccount"))
    creation.services.functions.add_permission(name, permission)
    return Created(creation.logical_id)


def _create_rule(creation: Creation) -> Created:
    events = creation.client("events")
    properties = creation.properties
    name = properties.get("Name") or creation.name(64)
    pattern = properties.get("EventPattern")
    for target in properties.get("Targets", []):
        require_placeholders(target)
    arn = events.put_rule(
        Name=name,
        **properties.select("Description", "ScheduleExpression", "State", "Tags"),
        **({"EventPattern": json.dumps(pattern)} if pattern else {}),
    )["RuleArn"]
    if pattern:
        creation.services.bus.add_rule(name, arn, pattern)
    names = ("Id", "Arn", "Input", "InputTransformer", "DeadLetterConfig")
    targets = [{name: target[name] for name in names if name in target} for target in properties.get("Targets", [])]
    if targets:
        events.put_targets(Rule=name, Targets=targets)
    if "ScheduleExpression" in properties:
        creation.services.schedule.add_rule(name, arn, properties["ScheduleExpression"])

    def delete() -> None:
        if targets:  # RemoveTargets takes no empty list
            events.remove_targets(Rule=name, Ids=[target["Id"] for target in targets])
        events.delete_rule(Name=name)

    return Created(name, {"Arn": arn}, delete=delete)


CREATORS: dict[str, Creator] = {
    "AWS::Lambda::Function": _create_function,
    "AWS::Lambda::LayerVersion": _create_layer,
    "AWS::Lambda::Permission": _create_permission,
    "AWS::Lambda::EventSourceMapping": create_mapping,
    "AWS::Events::Rule": _create_rule,
}
