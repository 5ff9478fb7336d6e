"""Access entries of a cluster, which decide who a token's sender is, and identities of its pods."""

from collections.abc import Mapping
from typing import Any

from cdk_rehearsal.embedded_aws.access.endpoints import find_instance_subnet
from cdk_rehearsal.embedded_aws.base.principals import OPERATOR, Principal, PrincipalRegistry
from cdk_rehearsal.embedded_aws.eks.cluster import (
    NODES,
    STANDARD,
    AccessEntry,
    Association,
    Cluster,
    make_association_id,
    make_unique,
)
from cdk_rehearsal.embedded_aws.eks.errors import in_use, invalid_parameter, not_found
from cdk_rehearsal.embedded_aws.eks.host import ClusterUser
from cdk_rehearsal.embedded_aws.eks.request import check_principal, check_request, read_policy
from cdk_rehearsal.embedded_aws.eks.rights import POD, ClusterRights
from cdk_rehearsal.embedded_aws.eks.tokens import TokenReader
from cdk_rehearsal.place import Credentials, Place

_NODE_USER = "system:node:{{EC2PrivateDNSName}}"
_SESSION = "{{SessionName}}"
_ADMINISTER = "AmazonEKSClusterAdminPolicy"


class ClusterAccess:
    """Access entries and identities of all clusters."""

    def __init__(self, *, place: Place, rights: ClusterRights, principals: PrincipalRegistry) -> None:
        self._place, self._rights, self._principals = place, rights, principals
        self.tokens = TokenReader(place, principals)

    def create_entry(self, cluster: Cluster, request: Mapping[str, Any]) -> AccessEntry:
        """Create an access entry; EksError for one that EKS or the rehearsal refuses."""
        check_request("CreateAccessEntry", request)
        principal = str(request["principalArn"])
        check_principal(principal)
        if request.get("type", STANDARD) != STANDARD:
            raise invalid_parameter(f"the rehearsal creates entries of type {STANDARD}, got {request['type']}")
        entry = AccessEntry(
            cluster.name,
            principal,
            self._name_entry(cluster, principal),
            str(request.get("username") or _name_user(principal)),
            groups=tuple(request.get("kubernetesGroups", ())),
            tags=request.get("tags", {}),
        )
        return self._add_entry(cluster, entry)

    def admit_nodes(self, cluster: Cluster, role: str) -> None:
        """Let the nodes of a managed group in, as EKS does by itself (EKS user guide, "Create access entries")."""
        if role not in cluster.entries:
            arn = self._name_entry(cluster, role)
            self._add_entry(cluster, AccessEntry(cluster.name, role, arn, _NODE_USER, NODES, ("system:nodes",)))

    def associate_policy(self, cluster: Cluster, request: Mapping[str, Any]) -> AccessEntry:
        """Give an access entry a policy."""
        check_request("AssociateAccessPolicy", request)
        entry, policy = find_entry(cluster, str(request["principalArn"])), read_policy(request)
        if entry.kind != STANDARD:
            raise invalid_parameter(f"the entry of {entry.principal} must be of type {STANDARD}, it is {entry.kind}")
        entry.policies = (*(each for each in entry.policies if each.name != policy.name), policy)
        if cluster.running is not None:
            cluster.running.grant(entry.principal, policy.name, policy.namespaces)
        return entry

    def review(self, cluster: Cluster, token: str) -> ClusterUser | None:
        """Return the user that a token stands for; None where EKS answers 401."""
        sender = self.tokens.find_sender(token, cluster.name)
        entry = _find_entry_of(cluster, sender) if sender else None
        if sender is None or entry is None or entry.kind != STANDARD:
            return None
        # Names of sessions may contain `@`, which user names may not (aws-iam-authenticator, README).
        name = entry.username.replace(_SESSION, sender.name.replace("@", "-"))
        return ClusterUser(name, entry.groups, entry.principal, entry.policies)

    def create_association(self, cluster: Cluster, request: Mapping[str, Any], owner: str = "") -> Association:
        """Create an association; EksError for a second one of an account (eksctl-io/eksctl#7753)."""
        check_request("CreatePodIdentityAssociation", request)
        known = cluster.find_association(str(request["namespace"]), str(request["serviceAccount"]))
        if known is not None:
            raise in_use(f"Association already exists: {known.id}")
        role = str(request["roleArn"])
        if f":{self._place.account}:" not in role:
            # EKS API reference, CreatePodIdentityAssociation.
            raise invalid_parameter(f"roleArn must be of the account of the cluster, got {role}")
        arn = self._place.arn("eks", f"podidentityassociation/{cluster.name}/{make_association_id()}")
        association = Association(request, arn, owner)
        cluster.associations[association.id] = association
        return association

    def find_credentials(self, cluster: Cluster, namespace: str, account: str, node: str) -> Credentials | None:
        """Return credentials of the pods of a service account on a node; None where the agent has none for them."""
        association = cluster.find_association(namespace, account)
        roles = {name: group.role for group in cluster.groups.values() for name in group.nodes}
        node = node or next(iter(roles), "")
        if association is None or node not in roles:
            return None
        if not self._rights.admits_pod(cluster, association, roles[node], node):
            return None
        session = f"eks-{cluster.name[:20]}-{account[:20]}-{make_unique()[:8]}"
        subnet = find_instance_subnet(self._place, node)
        return self._principals.mint(self._place, role_arn=association.role, session=session, kind=POD, subnet=subnet)

    def _add_entry(self, cluster: Cluster, entry: AccessEntry) -> AccessEntry:
        if entry.principal in cluster.entries:  # terraform-aws-modules/terraform-aws-eks#2969
            raise in_use("The specified access entry resource is already in use on this cluster.")
        cluster.entries[entry.principal] = entry
        return entry

    def _name_entry(self, cluster: Cluster, principal: str) -> str:
        kind, _, name = principal.rpartition(":")[2].partition("/")
        owner = principal.split(":")[4]
        path = f"access-entry/{cluster.name}/{kind}/{owner}/{name.rpartition('/')[2]}/{make_unique()}"
        return self._place.arn("eks", path)


def find_entry(cluster: Cluster, principal: str) -> AccessEntry:
    """Return an access entry; EksError where there is none (terraform-aws-modules/terraform-aws-eks#3024)."""
    if principal not in cluster.entries:
        raise not_found(
            "The specified principalArn could not be found. You can view your available access entries "
            "with 'list-access-entries'."
        )
    return cluster.entries[principal]


def _find_entry_of(cluster: Cluster, sender: Principal) -> AccessEntry | None:
    """Return the access entry of a sender; the operator, who has no role, stands for the first administrator."""
    if sender is not OPERATOR:
        return cluster.entries.get(sender.role_arn)
    named = (entry.principal for entry in cluster.entries.values() if _ADMINISTER in {p.name for p in entry.policies})
    return cluster.entries.get(min(named, default=""))


def find_association(cluster: Cluster, association_id: str) -> Association:
    """Return an association; EksError where there is none."""
    if association_id not in cluster.associations:
        raise not_found(f"No association found for id: {association_id}")
    return cluster.associations[association_id]


def _name_user(principal: str) -> str:
    """Return the user name of an entry that has none of its own (EKS user guide, "Create access entries")."""
    start, _, name = principal.partition(":role/")
    if not name:
        return principal
    return f"{start.replace(':iam:', ':sts:')}:assumed-role/{name.rpartition('/')[2]}/{_SESSION}"
