"""Creates IAM roles, policies and instance profiles."""

import json
from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.access.managed_policies import admit_managed_policy, require_boundary
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator, update_alone
from cdk_rehearsal.embedded_aws.resources.simple import Simple


def _create_role(creation: Creation) -> Created:
    iam = creation.client("iam")
    properties = creation.properties
    if boundary := properties.get("PermissionsBoundary"):
        require_boundary(creation.services.place, boundary)
    role = iam.create_role(
        RoleName=properties.get("RoleName") or creation.name(64),
        AssumeRolePolicyDocument=json.dumps(properties["AssumeRolePolicyDocument"]),
        **properties.select("Path", "Description", "MaxSessionDuration", "PermissionsBoundary"),
        # CloudFormation user guide, "Resource tag": tags of the stack reach the resources that take tags.
        Tags=[tag for tag in creation.tags() if not tag["Key"].startswith("aws:")],
    )["Role"]
    for arn in properties.get("ManagedPolicyArns", []):
        admit_managed_policy(creation.services.place, arn)
        iam.attach_role_policy(RoleName=role["RoleName"], PolicyArn=arn)
    for policy in properties.get("Policies", []):
        _put_policy(creation, role["RoleName"], policy)
    return Created(role["RoleName"], {"Arn": role["Arn"], "RoleId": role["RoleId"]})


def _create_policy(creation: Creation) -> Created:
    properties = creation.properties
    for role in properties.get("Roles", []):
        _put_policy(creation, role, properties)
    return Created(properties["PolicyName"])


def _put_policy(creation: Creation, role: str, policy: Any) -> None:
    document = json.dumps(policy["PolicyDocument"])
    creation.client("iam").put_role_policy(RoleName=role, PolicyName=policy["PolicyName"], PolicyDocument=document)


def _create_managed_policy(creation: Creation) -> Created:
    iam = creation.client("iam")
    properties = creation.properties
    arn = iam.create_policy(
        PolicyName=properties.get("ManagedPolicyName") or creation.name(128),
        PolicyDocument=json.dumps(properties["PolicyDocument"]),
        **properties.select("Path", "Description"),
    )["Policy"]["Arn"]
    for role in properties.get("Roles", []):
        iam.attach_role_policy(RoleName=role, PolicyArn=arn)

    def change(changed: Mapping[str, Any]) -> None:
        # An update keeps one version beside the new one; five are allowed (IAM User Guide, "Versioning IAM policies").
        for version in iam.list_policy_versions(PolicyArn=arn)["Versions"]:
            if not version["IsDefaultVersion"]:
                iam.delete_policy_version(PolicyArn=arn, VersionId=version["VersionId"])
        document = json.dumps(changed["PolicyDocument"])
        iam.create_policy_version(PolicyArn=arn, PolicyDocument=document, SetAsDefault=True)

    return Created(arn, {"PolicyArn": arn}, update=update_alone("PolicyDocument", change=change))


def _create_instance_profile(creation: Creation) -> Created:
    iam = creation.client("iam")
    properties = creation.properties
    name = properties.get("InstanceProfileName") or creation.name(128)
    profile = iam.create_instance_profile(InstanceProfileName=name, **properties.select("Path"))["InstanceProfile"]
    for role in properties["Roles"]:
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
    return Created(name, {"Arn": profile["Arn"]})


CREATORS: dict[str, Creator] = {
    "AWS::IAM::Role": _create_role,
    "AWS::IAM::Policy": _create_policy,
    "AWS::IAM::RolePolicy": Simple("iam", "put_role_policy", id="{PolicyName}", convert={"PolicyDocument": json.dumps}),
    "AWS::IAM::ManagedPolicy": _create_managed_policy,
    "AWS::IAM::InstanceProfile": _create_instance_profile,
}
