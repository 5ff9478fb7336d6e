"""
Requests to EKS, held against botocore's service model and the rules that AWS documents beside it.

A parameter that the rehearsal does not act upon is refused by its name, and never ignored.
"""

import ipaddress
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cdk_rehearsal.embedded_aws.eks.errors import EksError, invalid_parameter
from cdk_rehearsal.embedded_aws.eks.host import AccessPolicy
from cdk_rehearsal.referees.service_models import judge_request

VERSIONS = ("1.33", "1.34", "1.35", "1.36")
"""Versions of Kubernetes in standard support of EKS in November 2026 (EKS user guide, "kubernetes-versions")."""
DEFAULT_VERSION = VERSIONS[-1]
"""Version of a cluster whose request names none (EKS API reference, CreateCluster, `version`)."""
NETWORK, IDENTITY, FILES = "vpc-cni", "eks-pod-identity-agent", "aws-efs-csi-driver"
IMAGES: Mapping[str, str] = {
    NETWORK: "amazon-k8s-cni",
    IDENTITY: "eks/eks-pod-identity-agent",
    FILES: "eks/aws-efs-csi-driver",
    "aws-fsx-csi-driver": "eks/aws-fsx-csi-driver",
    "coredns": "eks/coredns",
    "eks-node-monitoring-agent": "eks/eks-node-monitoring-agent",
    "kube-proxy": "eks/kube-proxy",
}
"""Add-on -> repository of its image, in the registry of EKS."""
DAEMON_SETS = (NETWORK, IDENTITY, "kube-proxy", "eks-node-monitoring-agent")
"""Add-ons that are active without a node: they want a pod on each."""
DEPLOYMENTS = ("coredns", FILES, "aws-fsx-csi-driver")
"""Add-ons with pods that wait for a node."""
_POLICIES = ("AmazonEKSClusterAdminPolicy", "AmazonEKSEditPolicy")
_POLICY = re.compile(r"arn:[a-z-]+:eks::aws:cluster-access-policy/(\w+)")
_PRINCIPAL = re.compile(r"arn:[a-z-]+:iam::[0-9]{12}:(?:role|user)/.+")
_RESERVED = ("kubernetes.io", "k8s.io", "eks.amazonaws.com")
_READ: Mapping[str, Collection[str]] = {
    "CreateCluster": {
        *("name", "version", "roleArn", "resourcesVpcConfig.subnetIds", "resourcesVpcConfig.endpointPrivateAccess"),
        *("resourcesVpcConfig.endpointPublicAccess", "resourcesVpcConfig.publicAccessCidrs", "logging", "tags"),
        *("encryptionConfig", "accessConfig", "bootstrapSelfManagedAddons", "upgradePolicy", "clientRequestToken"),
    },
    "CreateNodegroup": {
        *("clusterName", "nodegroupName", "scalingConfig", "subnets", "instanceTypes", "amiType", "nodeRole"),
        *("labels", "taints", "tags", "launchTemplate", "updateConfig", "nodeRepairConfig", "capacityType"),
        "clientRequestToken",
    },
    "UpdateNodegroupConfig": {
        *("clusterName", "nodegroupName", "scalingConfig", "labels", "taints", "updateConfig", "nodeRepairConfig"),
        "clientRequestToken",
    },
    "UpdateNodegroupVersion": {"clusterName", "nodegroupName", "launchTemplate", "clientRequestToken"},
    "CreateAddon": {
        *("clusterName", "addonName", "podIdentityAssociations", "resolveConflicts", "tags", "clientRequestToken"),
    },
    "CreateAccessEntry": {
        *("clusterName", "principalArn", "kubernetesGroups", "username", "type", "tags", "clientRequestToken"),
    },
    "AssociateAccessPolicy": {"clusterName", "principalArn", "policyArn", "accessScope"},
    "CreatePodIdentityAssociation": {
        *("clusterName", "namespace", "serviceAccount", "roleArn", "tags", "clientRequestToken"),
    },
}
"""Operation -> its parameters that the rehearsal acts upon; a path covers what is below it."""


def check_request(operation: str, request: Mapping[str, Any]) -> None:
    """Raise EksError for what the service model or the rehearsal refuses."""
    for finding in judge_request("eks", operation, request, "", is_whole=True):
        raise invalid_parameter(f"{finding.path.lstrip('.')} {finding.value}: {finding.rule}")
    names = _READ[operation]
    paths = [name for name in request if not any(known.startswith(f"{name}.") for known in names)]
    paths += [f"{name}.{part}" for name in request if name not in paths for part in request[name]]
    for path in paths:
        if path not in names:
            raise invalid_parameter(f"the rehearsal does not act upon {path} of {operation}")


def check_cluster(request: Mapping[str, Any]) -> None:
    """Raise EksError for a request for a cluster that EKS or the rehearsal refuses, whatever is in the account."""
    check_request("CreateCluster", request)
    network, access = request["resourcesVpcConfig"], request.get("accessConfig", {})
    # The defaults of the API are the other way round (EKS API reference, CreateCluster).
    if access.get("authenticationMode") != "API":
        raise invalid_parameter("the rehearsal knows access entries alone; set accessConfig.authenticationMode to API")
    if access.get("bootstrapClusterCreatorAdminPermissions") is not False:
        raise invalid_parameter(
            "the rehearsal knows no creator of a cluster; set accessConfig.bootstrapClusterCreatorAdminPermissions to "
            "false, and name administrators in access entries"
        )
    if request.get("bootstrapSelfManagedAddons") is not False:
        raise invalid_parameter(
            "the rehearsal has no self-managed add-ons; set bootstrapSelfManagedAddons to false, and create each add-on"
        )
    if not network.get("endpointPrivateAccess", False) and not network.get("endpointPublicAccess", True):
        raise invalid_parameter("Private and public endpoint access cannot be false")
    _check_peers(network.get("publicAccessCidrs", ()))
    if "version" in request and request["version"] not in VERSIONS:  # terraform-aws-modules/terraform-aws-eks#3164
        raise invalid_parameter(f"unsupported Kubernetes version {request['version']}")


def _check_peers(networks: Sequence[str]) -> None:
    """
    Raise EksError for what is no IPv4 network (aws/aws-cdk#33176), or not on the Internet.

    "The block cannot include reserved addresses" (EKS user guide, "Configure network access to cluster API server
    endpoint"): private ones and those of documentation are reserved too.
    """
    for kind, refused in (
        ("invalid", [each for each in networks if not _is_network(each)]),
        ("not allowed", [each for each in networks if _is_network(each) and not _is_public(each)]),
    ):
        if refused:
            raise invalid_parameter(f"The following CIDRs are {kind} in publicAccessCidrs: [{', '.join(refused)}]")


def _is_network(text: str) -> bool:
    try:
        ipaddress.IPv4Network(text, strict=False)
    except ValueError:
        return False
    return True


def _is_public(text: str) -> bool:
    network = ipaddress.IPv4Network(text, strict=False)
    return network.is_global and not network.is_multicast


def check_pairs(request: Mapping[str, Any]) -> None:
    """Raise EksError for labels that EKS reserves."""
    for name in request.get("labels", {}):
        prefix = name.partition("/")[0] if "/" in name else ""
        if any(prefix == reserved or prefix.endswith(f".{reserved}") for reserved in _RESERVED):
            listed = ", ".join(f"{each}/" for each in _RESERVED)
            raise invalid_parameter(f"Label cannot contain reserved prefixes [{listed}]")  # eksctl-io/eksctl#4007


def check_addon(request: Mapping[str, Any], version: str) -> None:
    """Raise EksError for an add-on that the version has not (aws/containers-roadmap#2625)."""
    check_request("CreateAddon", request)
    name = request["addonName"]
    if name not in (*DAEMON_SETS, *DEPLOYMENTS):
        raise invalid_parameter(f"Addon {name} specified is not supported in {version} kubernetes version")


def check_principal(principal: str) -> None:
    """Raise EksError for a principal that gets no access entry (EKS user guide, "Create access entries")."""
    if ":role/aws-service-role/" in principal:  # hashicorp/terraform-provider-aws#36447
        raise invalid_parameter(
            "The caller is not allowed to modify access entries with a principalArn value of a Service Linked Role"
        )
    if not _PRINCIPAL.fullmatch(principal):
        raise invalid_parameter(f"The specified principalArn is invalid: {principal} is neither a role nor a user")


def read_policy(request: Mapping[str, Any]) -> AccessPolicy:
    """Return the policy of an association with an access entry."""
    found = _POLICY.fullmatch(str(request["policyArn"]))
    name, scope = found[1] if found else str(request["policyArn"]), request["accessScope"]
    if name not in _POLICIES:
        raise invalid_parameter(f"the rehearsal knows the access policies {' and '.join(_POLICIES)}, got {name}")
    namespaces = tuple(scope.get("namespaces", ()))
    if (scope.get("type") == "namespace") != bool(namespaces):
        raise EksError(
            "InvalidParameterException",
            f"accessScope must have namespaces with type namespace, and none with type cluster, got {scope}",
        )
    return AccessPolicy(name, namespaces)
