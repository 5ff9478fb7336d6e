"""Creates launch templates, launch configurations and placement groups."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.scaling_group import LaunchConfiguration
from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.ec2.launch_check import find_missing, find_wrong_interfaces
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_NO_EFFECT_IN_EC2 = ("EbsOptimized", "Monitoring", "CreditSpecification")
MAX_USER_DATA = 16 * 1024
"""Bytes of user data before base64 (EC2 User Guide)."""


def _create_launch_template(creation: Creation) -> Created:
    properties = creation.properties
    ec2 = creation.client("ec2")
    data = _read_data(creation, properties)
    name = properties.get("LaunchTemplateName") or creation.name(128)
    template = ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=data)["LaunchTemplate"]
    names = ("LaunchTemplateId", "LatestVersionNumber", "DefaultVersionNumber")
    attributes = {name: str(template[name]) for name in names}
    key = {"LaunchTemplateId": attributes["LaunchTemplateId"]}

    def update(changed: Mapping[str, Any], _: Mapping[str, Any]) -> Outcome:
        try:
            made = ec2.create_launch_template_version(**key, LaunchTemplateData=_read_data(creation, changed))
        except (ClientError, ValueError) as error:
            return Outcome(str(error))
        attributes["LatestVersionNumber"] = str(made["LaunchTemplateVersion"]["VersionNumber"])
        return Outcome()

    return Created(attributes["LaunchTemplateId"], attributes, update=update)


def _read_data(creation: Creation, properties: Mapping[str, Any]) -> dict[str, Any]:
    data = {name: value for name, value in properties["LaunchTemplateData"].items() if name not in _NO_EFFECT_IN_EC2}
    admit_launch(creation, data)
    read: dict[str, Any] = typed(data)
    return read


def _create_launch_configuration(creation: Creation) -> Created:
    """
    Create a launch configuration, which an account of today may be too young for.

    Accounts of October 2024 and later cannot create one (Auto Scaling user guide, "Launch configurations").
    """
    properties, services = creation.properties, creation.services
    data = properties.select("ImageId", "InstanceType", "KeyName", "UserData", "BlockDeviceMappings", "MetadataOptions")
    if profile := str(properties.get("IamInstanceProfile", "")):
        data["IamInstanceProfile"] = {"Arn" if profile.startswith("arn:") else "Name": profile}
    groups = properties.get("SecurityGroups", [])
    if "AssociatePublicIpAddress" in properties:
        card = {"DeviceIndex": 0, "Groups": groups, **properties.select("AssociatePublicIpAddress")}
        data["NetworkInterfaces"] = [card]
    elif groups:
        data["SecurityGroupIds"] = groups
    data = typed(data)
    admit_launch(creation, data)
    for message in (*find_missing(data, services.place), *find_wrong_interfaces(data, services.place)):
        raise ValueError(message)
    name = properties.get("LaunchConfigurationName") or creation.name(255)
    services.scaling.launch_configurations[name] = LaunchConfiguration(name, data)
    return Created(name, delete=partial(services.scaling.launch_configurations.__delitem__, name))


def admit_launch(creation: Creation, data: Mapping[str, Any]) -> None:
    """Make the image of a launch launchable; raise ValueError for too much user data."""
    if len(data.get("UserData", "")) * 3 / 4 > MAX_USER_DATA:
        raise ValueError(f"User data is limited to {MAX_USER_DATA} bytes")
    image = str(data.get("ImageId", ""))
    if image.startswith("resolve:ssm:/aws/service/"):
        creation.services.images.seed_parameter(image.removeprefix("resolve:ssm:"))
    elif image.startswith("ami-"):
        creation.services.images.admit(image)


def find_template(creation: Creation, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the launch template that a resource refers to."""
    name = next(name for name in ("LaunchTemplateId", "LaunchTemplateName") if name in reference)
    answer = creation.client("ec2").describe_launch_templates(**{f"{name}s": [reference[name]]})
    template: dict[str, Any] = answer["LaunchTemplates"][0]
    return template


def typed(value: Any) -> Any:
    """Return numbers and truth values as the API's types; CloudFormation takes them as text too."""
    if isinstance(value, list):
        return [typed(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    values = {name: typed(entry) for name, entry in value.items()}
    for name in ("DeviceIndex", "NetworkCardIndex", "VolumeSize", "Iops", "Throughput", "HttpPutResponseHopLimit"):
        if name in values:
            values[name] = int(values[name])
    for name in ("AssociatePublicIpAddress", "DeleteOnTermination", "Encrypted"):
        if name in values:
            values[name] = is_true(values[name])
    return values


CREATORS: dict[str, Creator] = {
    "AWS::AutoScaling::LaunchConfiguration": _create_launch_configuration,
    "AWS::EC2::LaunchTemplate": _create_launch_template,
    # moto has no placement groups; the lab needs no more than that launch templates can name one.
    "AWS::EC2::PlacementGroup": lambda creation: Created(creation.name(255)),
}
