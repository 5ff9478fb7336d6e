"""The API of EKS in front of the driver, with the refusals of AWS."""

from typing import ClassVar

import moto.eks.urls
from moto.core.common_types import TYPE_RESPONSE
from moto.core.exceptions import ServiceException
from moto.core.responses import ActionResult

from cdk_rehearsal.embedded_aws.base.scaling_group import now
from cdk_rehearsal.embedded_aws.base.stand_in_api import StandInApi
from cdk_rehearsal.embedded_aws.eks.access import find_association, find_entry
from cdk_rehearsal.embedded_aws.eks.cluster import Addon, Cluster
from cdk_rehearsal.embedded_aws.eks.driver import EksDriver
from cdk_rehearsal.embedded_aws.eks.errors import EksError, not_found

_POLICY_PREFIX = "arn:aws:eks::aws:cluster-access-policy/"


class _Refusal(ServiceException):
    """A refusal, which moto words by the service of its module."""

    __module__ = "moto.eks.exceptions"


class EksApi(StandInApi):
    """Operations on clusters and their parts."""

    service = "eks"
    error = _Refusal
    driver: ClassVar[EksDriver]

    def call_action(self) -> TYPE_RESPONSE:
        """Call the operation of the request, one at a time; a refusal has EKS's code."""
        with self.driver.lock:
            try:
                return super().call_action()
            except EksError as error:
                status, headers, body = self.serialized(ActionResult(_Refusal(error.code, str(error))))
                return status, {**headers, "status": status}, body

    def create_cluster(self) -> ActionResult:
        return ActionResult({"cluster": self.driver.create_cluster(self.params).to_api()})

    def describe_cluster(self) -> ActionResult:
        return ActionResult({"cluster": self._cluster.to_api()})

    def list_clusters(self) -> ActionResult:
        return ActionResult({"clusters": list(self.driver.clusters)})

    def delete_cluster(self) -> ActionResult:
        cluster = self._cluster
        self.driver.delete_cluster(cluster)
        return ActionResult({"cluster": cluster.to_api()})

    def create_nodegroup(self) -> ActionResult:
        cluster = self._active
        return ActionResult({"nodegroup": self.driver.create_group(cluster, self.params).to_api(cluster.version)})

    def describe_nodegroup(self) -> ActionResult:
        cluster = self._cluster
        group = self.driver.find_group(cluster, self.params["nodegroupName"])
        return ActionResult({"nodegroup": group.to_api(cluster.version)})

    def list_nodegroups(self) -> ActionResult:
        return ActionResult({"nodegroups": list(self._cluster.groups)})

    def update_nodegroup_config(self) -> ActionResult:
        cluster = self._active
        group = self.driver.find_group(cluster, self.params["nodegroupName"])
        return ActionResult({"update": self.driver.update_group(cluster, group, self.params).to_api()})

    def update_nodegroup_version(self) -> ActionResult:
        cluster = self._active
        group = self.driver.find_group(cluster, self.params["nodegroupName"])
        return ActionResult({"update": self.driver.update_group_version(cluster, group, self.params).to_api()})

    def describe_update(self) -> ActionResult:
        """Describe an update of a node group; nothing else is updated here."""
        group = self.driver.find_group(self._cluster, self.params["nodegroupName"])
        if (update := group.updates.get(self.params["updateId"])) is None:
            raise not_found(f"No update found for ID: {self.params['updateId']}")
        return ActionResult({"update": update.to_api()})

    def delete_nodegroup(self) -> ActionResult:
        cluster = self._cluster
        group = self.driver.find_group(cluster, self.params["nodegroupName"])
        self.driver.groups.delete(cluster, group)
        return ActionResult({"nodegroup": group.to_api(cluster.version)})

    def create_addon(self) -> ActionResult:
        cluster = self._active
        return self._show_addon(cluster, self.driver.create_addon(cluster, self.params))

    def describe_addon(self) -> ActionResult:
        cluster = self._cluster
        return self._show_addon(cluster, self.driver.find_addon(cluster, self.params["addonName"]))

    def list_addons(self) -> ActionResult:
        return ActionResult({"addons": list(self._cluster.addons)})

    def delete_addon(self) -> ActionResult:
        cluster = self._cluster
        addon = self.driver.find_addon(cluster, self.params["addonName"])
        shown = self._show_addon(cluster, addon)
        self.driver.delete_addon(cluster, addon)
        return shown

    def create_access_entry(self) -> ActionResult:
        return ActionResult({"accessEntry": self.driver.access.create_entry(self._active, self.params).to_api()})

    def describe_access_entry(self) -> ActionResult:
        return ActionResult({"accessEntry": find_entry(self._cluster, self.params["principalArn"]).to_api()})

    def list_access_entries(self) -> ActionResult:
        return ActionResult({"accessEntries": list(self._cluster.entries)})

    def delete_access_entry(self) -> ActionResult:
        del self._cluster.entries[find_entry(self._cluster, self.params["principalArn"]).principal]
        return ActionResult({})

    def associate_access_policy(self) -> ActionResult:
        entry = self.driver.access.associate_policy(self._active, self.params)
        shown = {"policyArn": self.params["policyArn"], "accessScope": self.params["accessScope"]}
        dates = {"associatedAt": now(), "modifiedAt": now()}
        answer = {"clusterName": entry.cluster, "principalArn": entry.principal}
        return ActionResult({**answer, "associatedAccessPolicy": {**shown, **dates}})

    def list_associated_access_policies(self) -> ActionResult:
        entry = find_entry(self._cluster, self.params["principalArn"])
        policies = [
            {
                "policyArn": _POLICY_PREFIX + each.name,
                "accessScope": {"type": "namespace" if each.namespaces else "cluster", "namespaces": each.namespaces},
            }
            for each in entry.policies
        ]
        answer = {"clusterName": entry.cluster, "principalArn": entry.principal}
        return ActionResult({**answer, "associatedAccessPolicies": policies})

    def create_pod_identity_association(self) -> ActionResult:
        association = self.driver.access.create_association(self._active, self.params)
        return ActionResult({"association": association.to_api()})

    def describe_pod_identity_association(self) -> ActionResult:
        return ActionResult({"association": find_association(self._cluster, self.params["associationId"]).to_api()})

    def list_pod_identity_associations(self) -> ActionResult:
        wanted = {name: self.params[name] for name in ("namespace", "serviceAccount") if name in self.params}
        rows = [each.summarize() for each in self._cluster.associations.values()]
        return ActionResult({"associations": [row for row in rows if wanted.items() <= row.items()]})

    def delete_pod_identity_association(self) -> ActionResult:
        association = find_association(self._cluster, self.params["associationId"])
        del self._cluster.associations[association.id]
        return ActionResult({"association": association.to_api()})

    @property
    def _cluster(self) -> Cluster:
        return self.driver.find(self._name)

    @property
    def _active(self) -> Cluster:
        return self.driver.find_active(self._name)

    @property
    def _name(self) -> str:
        return str(self.params.get("clusterName") or self.params["name"])

    def _show_addon(self, cluster: Cluster, addon: Addon) -> ActionResult:
        arns = [cluster.associations[name].arn for name in addon.associations if name in cluster.associations]
        return ActionResult({"addon": addon.to_api(arns)})


def install_eks_api(driver: EksDriver) -> None:
    """Replace moto's API with one for the clusters of a driver."""
    EksApi.driver = driver
    paths = moto.eks.urls.url_paths
    paths.clear()
    paths["{0}/clusters$"] = paths["{0}/clusters/(?P<rest>.+)$"] = EksApi.dispatch
