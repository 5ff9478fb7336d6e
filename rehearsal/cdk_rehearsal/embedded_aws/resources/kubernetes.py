"""Creates clusters of EKS, their node groups, add-ons, access entries and identities of pods."""

import secrets
import string
from functools import partial
from typing import Any

from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_NUMBERS = ("minSize", "desiredSize", "maxSize", "maxUnavailable")
_SWITCHES = (
    *("bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons", "enabled", "endpointPrivateAccess"),
    "endpointPublicAccess",
)


def _create_cluster(creation: Creation) -> Created:
    properties, driver, eks = creation.properties, creation.services.eks, creation.client("eks")
    request = _convert(
        properties.select(
            *("Version", "RoleArn", "ResourcesVpcConfig", "EncryptionConfig", "AccessConfig", "UpgradePolicy"),
            "BootstrapSelfManagedAddons",
        )
    )
    if "Logging" in properties:
        types = [entry["Type"] for entry in properties["Logging"]["ClusterLogging"].get("EnabledTypes", [])]
        request["logging"] = {"clusterLogging": [{"types": types, "enabled": True}] if types else []}
    name = str(properties.get("Name") or _make_name(creation))
    arn = eks.create_cluster(name=name, tags=_map_tags(creation), **request)["cluster"]["arn"]
    cluster = driver.clusters[name]

    def describe(*path: str) -> str:
        value = eks.describe_cluster(name=name)["cluster"]
        for part in path:
            value = value[part]
        return str(value)

    attributes = {
        "Arn": arn,
        "Endpoint": partial(describe, "endpoint"),
        "CertificateAuthorityData": partial(describe, "certificateAuthority", "data"),
        "ClusterSecurityGroupId": partial(describe, "resourcesVpcConfig", "clusterSecurityGroupId"),
    }
    delete = partial(eks.delete_cluster, name=name)
    return Created(name, attributes, settle=partial(driver.settle_cluster, cluster), delete=delete)


def _create_node_group(creation: Creation) -> Created:
    properties, driver, eks = creation.properties, creation.services.eks, creation.client("eks")
    cluster, name = str(properties["ClusterName"]), str(properties.get("NodegroupName") or _make_name(creation))
    request = _convert(
        properties.select(
            *("NodeRole", "Subnets", "AmiType", "CapacityType", "InstanceTypes", "LaunchTemplate", "NodeRepairConfig"),
            *("ScalingConfig", "Taints", "UpdateConfig"),
        )
    )
    if "Labels" in properties:
        request["labels"] = {key: str(value) for key, value in properties["Labels"].items()}
    tags = {**_map_own_tags(creation), **properties.get("Tags", {})}
    path = {"clusterName": cluster, "nodegroupName": name}
    arn = eks.create_nodegroup(**path, tags=tags, **request)["nodegroup"]["nodegroupArn"]
    owner = driver.clusters[cluster]
    attributes = {"Arn": arn, "ClusterName": cluster, "Id": f"{cluster}/{name}", "NodegroupName": name}
    settle = partial(driver.settle_group, owner, owner.groups[name])
    return Created(f"{cluster}/{name}", attributes, settle=settle, delete=partial(eks.delete_nodegroup, **path))


def _create_addon(creation: Creation) -> Created:
    properties, driver, eks = creation.properties, creation.services.eks, creation.client("eks")
    path = {"clusterName": str(properties["ClusterName"]), "addonName": str(properties["AddonName"])}
    request = _convert(properties.select("PodIdentityAssociations", "ResolveConflicts"))
    arn = eks.create_addon(**path, tags=_map_tags(creation), **request)["addon"]["addonArn"]
    owner = driver.clusters[path["clusterName"]]
    settle = partial(driver.settle_addon, owner, owner.addons[path["addonName"]])
    return Created("|".join(path.values()), {"Arn": arn}, settle=settle, delete=partial(eks.delete_addon, **path))


def _create_entry(creation: Creation) -> Created:
    properties, eks = creation.properties, creation.client("eks")
    path = {"clusterName": str(properties["ClusterName"]), "principalArn": str(properties["PrincipalArn"])}
    request = _convert(properties.select("KubernetesGroups", "Type", "Username"))
    arn = eks.create_access_entry(**path, tags=_map_tags(creation), **request)["accessEntry"]["accessEntryArn"]
    for policy in properties.get("AccessPolicies", []):
        eks.associate_access_policy(**path, **_convert(policy))
    delete = partial(eks.delete_access_entry, **path)
    return Created("|".join(reversed(path.values())), {"AccessEntryArn": arn}, delete=delete)


def _create_association(creation: Creation) -> Created:
    eks = creation.client("eks")
    request = _convert(creation.properties.select("ClusterName", "Namespace", "RoleArn", "ServiceAccount"))
    made = eks.create_pod_identity_association(**request, tags=_map_tags(creation))["association"]
    names = {"AssociationArn": made["associationArn"], "AssociationId": made["associationId"]}
    path = {"clusterName": request["clusterName"], "associationId": made["associationId"]}
    return Created(names["AssociationArn"], names, delete=partial(eks.delete_pod_identity_association, **path))


def _make_name(creation: Creation) -> str:
    """Make up a name as CloudFormation does for EKS: logical id and a random ending."""
    ending = "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(12))
    return f"{creation.logical_id[:50]}-{ending}"


def _map_tags(creation: Creation) -> dict[str, str]:
    return {str(tag["Key"]): str(tag["Value"]) for tag in creation.tags()}


def _map_own_tags(creation: Creation) -> dict[str, str]:
    """Return the tags of a resource that has its own as a map: those of the stack, and those that name it."""
    return {str(tag["Key"]): str(tag["Value"]) for tag in creation.tags("NoTags")}


def _convert(value: Any) -> Any:
    """Return properties under the API's names, with numbers and truth values as its types."""
    if isinstance(value, list):
        return [_convert(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    named = {name[0].lower() + name[1:]: _convert(entry) for name, entry in value.items()}
    return {name: _type(name, entry) for name, entry in named.items()}


def _type(name: str, value: Any) -> Any:
    if name in _SWITCHES:
        return is_true(value)
    return int(value) if name in _NUMBERS else value


CREATORS: dict[str, Creator] = {
    "AWS::EKS::Cluster": _create_cluster,
    "AWS::EKS::Nodegroup": _create_node_group,
    "AWS::EKS::Addon": _create_addon,
    "AWS::EKS::AccessEntry": _create_entry,
    "AWS::EKS::PodIdentityAssociation": _create_association,
}
