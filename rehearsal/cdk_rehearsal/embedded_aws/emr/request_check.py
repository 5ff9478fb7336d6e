"""Checks what EMR refuses of a request at once; other mistakes end the cluster after it was accepted."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.place import Place

_RELEASE = re.compile(r"emr-(\d+)\.(\d+)\.(\d+)")
_OLDEST = (5, 30)
"""Of earlier releases security groups, logs and the cancellation of steps are not as the rehearsal has them."""
_FIELDS = {
    *("Name", "LogUri", "LogEncryptionKmsKeyId", "ReleaseLabel", "Instances", "Steps", "BootstrapActions"),
    *("Applications", "Configurations", "VisibleToAllUsers", "JobFlowRole", "ServiceRole", "Tags"),
    *("SecurityConfiguration", "CustomAmiId", "EbsRootVolumeSize", "OSReleaseLabel", "StepConcurrencyLevel"),
    "AutoTerminationPolicy",
}
_INSTANCE_FIELDS = {
    *("InstanceGroups", "Ec2KeyName", "Ec2SubnetId", "KeepJobFlowAliveWhenNoSteps", "TerminationProtected"),
    *("UnhealthyNodeReplacement", "EmrManagedMasterSecurityGroup", "EmrManagedSlaveSecurityGroup"),
    *("ServiceAccessSecurityGroup", "AdditionalMasterSecurityGroups", "AdditionalSlaveSecurityGroups"),
}
_GROUP_FIELDS = {"Name", "Market", "InstanceRole", "InstanceType", "InstanceCount"}
_MOST_ACTIONS, _MOST_STEPS = 16, 256
_IDLE = (60, 604_800)
_ROOT_GIB = (15, 100)
_ACTIONS_ON_FAILURE = ("TERMINATE_CLUSTER", "TERMINATE_JOB_FLOW", "CANCEL_AND_WAIT", "CONTINUE")
COMMAND_RUNNER = "command-runner.jar"
_SCRIPT_RUNNER = re.compile(r"s3://[a-z0-9.-]*elasticmapreduce/libs/script-runner/script-runner\.jar")


def check_request(request: Mapping[str, Any], place: Place, security_configurations: Mapping[str, str]) -> None:
    """Raise ValueError, with EMR's message where one is public, for a request that EMR or the rehearsal refuses."""
    _require_fields("RunJobFlow", request, _FIELDS)
    match = _RELEASE.fullmatch(str(request.get("ReleaseLabel", "")))
    if match is None:
        raise ValueError(f"The supplied release label is invalid: {request.get('ReleaseLabel')}.")
    if (int(match[1]), int(match[2])) < _OLDEST:
        raise ValueError(f"the rehearsal knows releases from emr-5.30.0 on, got {request['ReleaseLabel']}")
    for name in ("JobFlowRole", "ServiceRole"):
        if not request.get(name):
            raise ValueError(f"{name} is required for creating cluster.")
    _check_instances(request["Instances"], place)
    _check_profile(str(request["JobFlowRole"]), place)
    _check_limits(request)
    configuration = request.get("SecurityConfiguration")
    if configuration and configuration not in security_configurations:
        raise ValueError(f"Security configuration with name '{configuration}' does not exist.")


def check_steps(steps: Sequence[Mapping[str, Any]], concurrency: int) -> None:
    """Raise ValueError for steps that EMR or the rehearsal refuses."""
    if len(steps) > _MOST_STEPS:
        raise ValueError(f"a request must have at most {_MOST_STEPS} steps, got {len(steps)}")
    for step in steps:
        config, action = step["HadoopJarStep"], step.get("ActionOnFailure")
        jar, arguments = str(config["Jar"]), config.get("Args", [])
        if set(config) - {"Jar", "Args"}:
            raise ValueError(f"the rehearsal runs the arguments of a step alone, got {sorted(config)}")
        if jar != COMMAND_RUNNER and not _SCRIPT_RUNNER.fullmatch(jar):
            raise ValueError(f"the rehearsal runs {COMMAND_RUNNER} and script-runner.jar, got Jar {jar}")
        if not arguments:
            raise ValueError(f"Args of {jar} must have a command, got none")
        if action is not None and action not in _ACTIONS_ON_FAILURE:
            raise ValueError(f"ActionOnFailure must be one of {_ACTIONS_ON_FAILURE}, got {action}")
        if concurrency > 1 and action != "CONTINUE":
            # EMR API Reference, StepConfig: it refuses other actions of steps that may run at the same time.
            raise ValueError(f"ActionOnFailure must be CONTINUE where StepConcurrencyLevel exceeds 1, got {action}")


def _require_fields(what: str, values: Mapping[str, Any], known: set[str]) -> None:
    if unknown := sorted(set(values) - known):
        raise ValueError(f"the rehearsal does not implement {unknown} of {what}")


def _check_instances(settings: Mapping[str, Any], place: Place) -> None:
    _require_fields("Instances", settings, _INSTANCE_FIELDS)
    groups = settings.get("InstanceGroups", [])
    roles = [group["InstanceRole"] for group in groups]
    if sorted(roles) not in (["MASTER"], ["CORE", "MASTER"]):
        raise ValueError(f"the rehearsal has one group for the primary and one for core nodes, got {roles}")
    for group in groups:
        _require_fields("InstanceGroups", group, _GROUP_FIELDS)
        if group.get("Market", "ON_DEMAND") != "ON_DEMAND":
            raise ValueError(f"the rehearsal has instances on demand alone, got Market {group['Market']}")
        if group["InstanceRole"] == "MASTER" and int(group["InstanceCount"]) != 1:
            raise ValueError(f"the rehearsal has one primary, got InstanceCount {group['InstanceCount']}")
        if int(group["InstanceCount"]) < 1:
            raise ValueError(f"InstanceCount of an instance group must be at least 1, got {group['InstanceCount']}")
    ec2 = place.client("ec2")
    try:
        vpc = ec2.describe_subnets(SubnetIds=[settings["Ec2SubnetId"]])["Subnets"][0]["VpcId"]
    except (ClientError, KeyError) as error:  # dimajix/terraform-emr-training#1
        raise ValueError("The supplied ecSubnetId is not valid.") from error
    _check_security_groups(settings, ec2, vpc)
    key = settings.get("Ec2KeyName")
    if key and key not in {pair["KeyName"] for pair in ec2.describe_key_pairs()["KeyPairs"]}:
        raise ValueError(f"The key pair '{key}' does not exist")


def _check_security_groups(settings: Mapping[str, Any], ec2: Any, vpc: str) -> None:
    managed = [settings.get(f"EmrManaged{kind}SecurityGroup") for kind in ("Master", "Slave")]
    if not all(managed):
        raise ValueError(
            "the rehearsal requires EmrManagedMasterSecurityGroup and EmrManagedSlaveSecurityGroup: groups that EMR "
            "makes outlive the cluster, and their VPC cannot be deleted"
        )
    more = [name for kind in ("Master", "Slave") for name in settings.get(f"Additional{kind}SecurityGroups", [])]
    for name in filter(None, [*managed, *more, settings.get("ServiceAccessSecurityGroup")]):
        try:
            owner = ec2.describe_security_groups(GroupIds=[name])["SecurityGroups"][0]["VpcId"]
        except ClientError as error:
            raise ValueError(f"The security group '{name}' does not exist") from error
        if owner != vpc:
            raise ValueError(f"security group {name} must be in the VPC of the subnet, {vpc}, got {owner}")


def _check_profile(name: str, place: Place) -> None:
    """Check the instance profile, as hashicorp/terraform-provider-aws retries on EMR's messages about it."""
    try:
        profile = place.client("iam").get_instance_profile(InstanceProfileName=name.rpartition("/")[2])
    except ClientError as error:
        raise ValueError(f"Invalid InstanceProfile: {name}.") from error
    if not profile["InstanceProfile"]["Roles"]:
        raise ValueError(f"Failed to authorize instance profile {profile['InstanceProfile']['Arn']}.")


def _check_limits(request: Mapping[str, Any]) -> None:
    actions = request.get("BootstrapActions", [])
    if len(actions) > _MOST_ACTIONS:  # AWS re:Post, "bootstrap action or a step": up to 16
        raise ValueError(f"a cluster must have at most {_MOST_ACTIONS} bootstrap actions, got {len(actions)}")
    for action in actions:
        path = str(action["ScriptBootstrapAction"]["Path"])
        if not path.startswith(("s3://", "file:/")):
            raise ValueError(f"Path of a bootstrap action must be in S3 or begin with file:, got {path}")
    idle = request.get("AutoTerminationPolicy", {}).get("IdleTimeout")
    limits = {
        "IdleTimeout": (idle, _IDLE),  # Management Guide, "Using an auto-termination policy"
        "StepConcurrencyLevel": (request.get("StepConcurrencyLevel"), (1, _MOST_STEPS)),
        "EbsRootVolumeSize": (request.get("EbsRootVolumeSize"), _ROOT_GIB),
    }
    for name, (value, (low, high)) in limits.items():
        if value is not None and not low <= int(value) <= high:
            raise ValueError(f"{name} must be from {low} to {high}, got {value}")
