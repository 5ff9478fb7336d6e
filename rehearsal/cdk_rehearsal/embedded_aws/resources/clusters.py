"""Creates EMR clusters and their security configurations."""

import json
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_SAME = (
    *("Name", "ReleaseLabel", "Applications", "JobFlowRole", "ServiceRole", "LogUri", "LogEncryptionKmsKeyId"),
    *("CustomAmiId", "SecurityConfiguration", "OSReleaseLabel", "BootstrapActions", "Steps"),
)
_NUMBERS = ("EbsRootVolumeSize", "StepConcurrencyLevel")
_GROUPS = {"MasterInstanceGroup": ("MASTER", "Master"), "CoreInstanceGroup": ("CORE", "Core")}
_SWITCHES = ("KeepJobFlowAliveWhenNoSteps", "TerminationProtected", "UnhealthyNodeReplacement")


def _create_cluster(creation: Creation) -> Created:
    properties, driver = creation.properties, creation.services.emr
    request = properties.select(*_SAME)
    request |= {name: int(properties[name]) for name in _NUMBERS if name in properties}
    request["Instances"] = _describe_instances(properties["Instances"])
    request["Tags"] = creation.tags()
    if "VisibleToAllUsers" in properties:
        request["VisibleToAllUsers"] = is_true(properties["VisibleToAllUsers"])
    if "AutoTerminationPolicy" in properties:
        request["AutoTerminationPolicy"] = {"IdleTimeout": int(properties["AutoTerminationPolicy"]["IdleTimeout"])}
    if "Configurations" in properties:
        request["Configurations"] = [_rename(entry) for entry in properties["Configurations"]]
    emr = creation.client("emr")
    identity = emr.run_job_flow(**request)["JobFlowId"]
    cluster = driver.clusters[identity]

    def delete() -> None:
        emr.terminate_job_flows(JobFlowIds=[identity])
        driver.delete(cluster)

    def name_master() -> str:
        return str(emr.describe_cluster(ClusterId=identity)["Cluster"]["MasterPublicDnsName"])

    return Created(
        identity,
        {"MasterPublicDNS": name_master, "Id": identity},
        settle=partial(driver.settle, cluster),
        delete=delete,
    )


def _describe_instances(instances: dict[str, Any]) -> dict[str, Any]:
    """Return the `Instances` of RunJobFlow; CloudFormation has a property for each group."""
    settings = {name: value for name, value in instances.items() if name not in _GROUPS}
    settings |= {name: is_true(settings[name]) for name in _SWITCHES if name in settings}
    settings["InstanceGroups"] = [
        {"Name": label, **instances[name], "InstanceRole": role, "InstanceCount": int(instances[name]["InstanceCount"])}
        for name, (role, label) in _GROUPS.items()
        if name in instances
    ]
    return settings


def _rename(configuration: dict[str, Any]) -> dict[str, Any]:
    renamed = {"ConfigurationProperties": "Properties"}
    named = {renamed.get(name, name): value for name, value in configuration.items()}
    if "Configurations" in named:
        named["Configurations"] = [_rename(entry) for entry in named["Configurations"]]
    return named


def _create_security_configuration(creation: Creation) -> Created:
    emr, properties = creation.client("emr"), creation.properties
    name = properties.get("Name") or creation.name(128)
    emr.create_security_configuration(Name=name, SecurityConfiguration=json.dumps(properties["SecurityConfiguration"]))
    return Created(name, delete=partial(emr.delete_security_configuration, Name=name))


CREATORS: dict[str, Creator] = {
    "AWS::EMR::Cluster": _create_cluster,
    "AWS::EMR::SecurityConfiguration": _create_security_configuration,
}
