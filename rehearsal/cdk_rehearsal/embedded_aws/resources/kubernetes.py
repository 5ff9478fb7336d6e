"""Creates clusters of EKS, their node groups, add-ons, access entries and identities of pods."""

import secrets
import string
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from cdk_rehearsal.embedded_aws.base.signals import Outcome
from cdk_rehearsal.embedded_aws.resources.creation import Created, Creation, Creator, Properties
from cdk_rehearsal.embedded_aws.resources.simple import is_true

_NUMBERS = ("minSize", "desiredSize", "maxSize", "maxUnavailable", "maxUnavailablePercentage")
_SWITCHES = (
    *("bootstrapClusterCreatorAdminPermissions", "bootstrapSelfManagedAddons", "enabled", "endpointPrivateAccess"),
    "endpointPublicAccess",
)


_POLL_SECONDS = 0.05
_REPLACING = ("NodeRole", "Subnets", "AmiType", "CapacityType", "InstanceTypes")
"""Properties that are `createOnlyProperties` in the schema of AWS::EKS::Nodegroup, beside the names."""
_CHANGEABLE = ("NodeRepairConfig", "ScalingConfig", "Taints", "UpdateConfig")


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
    group = _NodeGroup(creation)
    return Created(group.physical_id, group.attributes, settle=group.settle, delete=group.delete, update=group.update)


class _NodeGroup:
    """A node group of a stack; the one that replaces it has its attributes."""

    def __init__(self, creation: Creation) -> None:
        self._creation, self._eks = creation, creation.client("eks")
        self.attributes: dict[str, str] = {}
        self._create(creation.properties)

    @property
    def physical_id(self) -> str:
        """Its cluster and its name."""
        return "/".join(self._path.values())

    def _create(self, properties: Properties) -> None:
        cluster = str(properties["ClusterName"])
        name = str(properties.get("NodegroupName") or _make_name(self._creation))
        path = {"clusterName": cluster, "nodegroupName": name}
        request = _convert(properties.select(*_REPLACING, *_CHANGEABLE, "LaunchTemplate"))
        if "Labels" in properties:
            request["labels"] = {key: str(value) for key, value in properties["Labels"].items()}
        tags = {**_map_own_tags(self._creation), **properties.get("Tags", {})}
        arn = self._eks.create_nodegroup(**path, tags=tags, **request)["nodegroup"]["nodegroupArn"]
        self._path = path
        self.attributes |= {"Arn": arn, "ClusterName": cluster, "Id": self.physical_id, "NodegroupName": name}

    def settle(self) -> Outcome | None:
        """Return the outcome of the creation; None while it lasts."""
        driver = self._creation.services.eks
        owner = driver.clusters[self._path["clusterName"]]
        return driver.settle_group(owner, owner.groups[self._path["nodegroupName"]])

    def delete(self) -> None:
        """Delete the group."""
        self._eks.delete_nodegroup(**self._path)

    def update(self, properties: Mapping[str, Any], former: Mapping[str, Any]) -> Outcome:
        """
        Update the group as the type's provider does, or replace it.

        Versions and all else are two calls of EKS, and the provider makes one (aws/containers-roadmap#1258).
        """
        changed = {name for name in properties.keys() | former.keys() if properties.get(name) != former.get(name)}
        try:
            if changed & {*_REPLACING, "ClusterName", "NodegroupName"}:
                return self._replace(properties)
            if "LaunchTemplate" in changed:
                if len(changed) > 1:
                    return _refuse("Version and ReleaseVersion updates cannot be combined with other updates")
                return self._change_version(_convert(properties["LaunchTemplate"]))
            self._change_configuration(properties, former)
        except ClientError as error:
            return _refuse(error.response["Error"]["Message"])
        return Outcome()

    def _replace(self, properties: Mapping[str, Any]) -> Outcome:
        former, attributes = self._path, dict(self.attributes)
        self._create(Properties(properties))
        while (outcome := self.settle()) is None:
            time.sleep(_POLL_SECONDS)
        gone = self._path if outcome.reason else former
        self._eks.delete_nodegroup(**gone)
        if outcome.reason:
            self._path = former
            self.attributes |= attributes
        return Outcome(outcome.reason, self.physical_id)

    def _change_version(self, template: Mapping[str, Any]) -> Outcome:
        made = self._eks.update_nodegroup_version(**self._path, launchTemplate=template)["update"]
        path = {"name": self._path["clusterName"], "nodegroupName": self._path["nodegroupName"]}
        while (update := self._eks.describe_update(**path, updateId=made["id"])["update"])["status"] == "InProgress":
            time.sleep(_POLL_SECONDS)
        # aws/containers-roadmap#1282
        said = ", ".join(
            f"{{ErrorCode: {each['errorCode']},ErrorMessage: {each['errorMessage']},"
            f"ResourceIds: [{', '.join(each['resourceIds'])}]}}"
            for each in update["errors"]
        )
        return Outcome(f"Update failed due to [{said}]" if said else "")

    def _change_configuration(self, properties: Mapping[str, Any], former: Mapping[str, Any]) -> None:
        request: dict[str, Any] = {
            name[0].lower() + name[1:]: _convert(properties[name])
            for name in ("ScalingConfig", "UpdateConfig", "NodeRepairConfig")
            if name in properties and properties[name] != former.get(name)
        }
        labels, before = properties.get("Labels", {}), former.get("Labels", {})
        if labels != before:
            added = {key: str(value) for key, value in labels.items()}
            request["labels"] = {"addOrUpdateLabels": added, "removeLabels": sorted(before.keys() - labels.keys())}
        taints, old = _convert(properties.get("Taints", [])), _convert(former.get("Taints", []))
        if taints != old:
            left = [each for each in old if each not in taints]
            request["taints"] = {"addOrUpdateTaints": taints, "removeTaints": left}
        if request:
            self._eks.update_nodegroup_config(**self._path, **request)


def _refuse(message: str) -> Outcome:
    return Outcome(f'Resource handler returned message: "{message}" (HandlerErrorCode: InvalidRequest)')


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
