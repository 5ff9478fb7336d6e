"""
Consequences of the change of a resource for running nodes, jobs and data, by the rules of its service. Pure.

CloudFormation's own rules are in `templates.py`. The tests name the source of each rule.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from deeplearning_cli.changes.effects import GONE, Change, Effect, Outcome

_Resource = Mapping[str, Any]
_Resources = Mapping[str, Any]
_GROUP, _REQUEST = "AWS::AutoScaling::AutoScalingGroup", "Custom::RequestedCapacity"
_MEETING_POINTS = frozenset({"AWS::DynamoDB::Table", "AWS::SQS::Queue"})
_POLICIES = frozenset({"AWS::IAM::ManagedPolicy", "AWS::IAM::Policy"})
_LIMITS = ("DEEPLEARNING_BUDGET_TOPIC_ARN", "DEEPLEARNING_STOP_AFTER_SECONDS")
"""Variables of the capacity adjuster that end the nodes: when a budget is used up, and so long after their creation."""
_DATA = Outcome(
    "DATA: {names} would be replaced or deleted, with the data in it; back the data up before you deploy this, or "
    "revert the change",
    loses_data=True,
    ends_jobs=True,
)
_RIGHTS = Outcome(
    "jobs: running nodes lose the role or the rights of {names}; a job that uses them fails, so deploy between jobs",
    ends_jobs=True,
)
_NETWORK = Outcome(
    "jobs: {names} would end, and connections through it break; what runs there ends or cannot be restarted",
    ends_jobs=True,
)
_ENDED: Mapping[str, Outcome] = {
    **dict.fromkeys(
        (
            "AWS::Backup::BackupVault",
            "AWS::DynamoDB::Table",
            "AWS::EFS::FileSystem",
            "AWS::FSx::FileSystem",
            "AWS::KMS::Key",
            "AWS::Logs::LogGroup",
            "AWS::S3::Bucket",
        ),
        _DATA,
    ),
    _GROUP: Outcome(
        "nodes: {names} would be replaced or deleted, with any node in it; `deeplearning-cdk status` shows which "
        "candidate the cluster has",
        ends_nodes=True,
        ends_jobs=True,
    ),
    "AWS::EFS::AccessPoint": _NETWORK,
    "AWS::EFS::MountTarget": Outcome(
        "jobs: {names} would end; EFS breaks every mount through it, and jobs that use the shared file system fail",
        ends_jobs=True,
    ),
    "AWS::EC2::NatGateway": _NETWORK,
    "AWS::EC2::SecurityGroup": _NETWORK,
    "AWS::EC2::Subnet": _NETWORK,
    "AWS::EKS::Cluster": Outcome(
        "EKS: {names} would be replaced or deleted, with its nodes, its jobs and every object in it",
        loses_data=True,
        ends_nodes=True,
        ends_jobs=True,
    ),
    "AWS::EKS::Nodegroup": Outcome(
        "nodes: {names} would be replaced or deleted: a new group starts while the old one runs, which takes the quota "
        "of both, and then every node of the old one ends with the pods on it",
        ends_nodes=True,
        ends_jobs=True,
    ),
    "AWS::EKS::PodIdentityAssociation": _RIGHTS,
    "AWS::EMR::Cluster": Outcome(
        "EMR: {names} would be replaced: a new cluster starts while the old one runs, which takes the quota of both, "
        "and then the old one ends with its jobs and its HDFS; the shared file system stays, so a job that is "
        "submitted again resumes from its newest checkpoint",
        ends_nodes=True,
        ends_jobs=True,
    ),
    "AWS::IAM::InstanceProfile": _RIGHTS,
    "AWS::SageMaker::NotebookInstance": Outcome(
        "DATA: {names} would be replaced or deleted, with the files on its volume and what runs on it; copy the files "
        "first",
        loses_data=True,
        ends_jobs=True,
    ),
}
"""Outcome of the end of a resource, by its type."""
STATEFUL = frozenset(kind for kind, outcome in _ENDED.items() if outcome.loses_data)
"""Types of resources with users' data."""
_COORDINATION = Outcome(
    "nodes: {names} would be replaced or deleted; running nodes meet through it, and the cluster ends",
    ends_nodes=True,
    ends_jobs=True,
)
_LATER_NODES = Outcome(
    "nodes: running nodes stay as they are; nodes that launch later start from the new template. `deeplearning-cdk "
    "upgrade` replaces them, workers first",
    reaches_later=True,
)
_UPDATED: Mapping[str, Outcome] = {
    "Custom::PinnedImage": Outcome(
        "image: its parameter is read again, so new nodes may start from another image", reaches_later=True
    ),
    "AWS::SageMaker::NotebookInstance": Outcome(
        "notebook: SageMaker stops {names} to update it, which ends the kernels on it; the files on its volume stay",
        ends_jobs=True,
    ),
}
"""Outcome of any update in place, by type."""
_JOB_PRINCIPALS = frozenset({"ec2.amazonaws.com", "pods.eks.amazonaws.com", "sagemaker.amazonaws.com"})
"""Services whose roles nodes and containers use."""


def judge(change: Change, before: _Resources, after: _Resources) -> Iterator[Outcome]:
    """Yield what a change does to what runs; nothing for a new resource that only costs."""
    kind = change.resource_type
    if change.effect is Effect.REFUSE:
        yield _explain_refusal(kind)
    elif change.effect in GONE:
        yield from _judge_end(kind, before[change.logical_id], before)
    elif change.effect is Effect.UPDATE:
        one, other = before[change.logical_id], after[change.logical_id]
        if kind in _UPDATED:
            yield _UPDATED[kind]
        if kind in _JUDGES:
            yield from _JUDGES[kind](change, one.get("Properties", {}), other.get("Properties", {}))
        if kind in _POLICIES:
            yield from _judge_policy(one["Properties"], other["Properties"], before)
    elif kind == _REQUEST and change.effect is Effect.CREATE:
        yield Outcome("capacity: a cluster that has nodes stays as it is; another count is set by a later deployment")


def _judge_end(kind: str, resource: _Resource, before: _Resources) -> Iterator[Outcome]:
    if kind in _ENDED:
        yield _ENDED[kind]
    if kind in _MEETING_POINTS and _has(before, _GROUP):
        yield _COORDINATION
    if kind == "AWS::IAM::Role" and _JOB_PRINCIPALS & set(_list_principals(resource)):
        yield _RIGHTS


def _explain_refusal(kind: str) -> Outcome:
    if kind == "AWS::CloudFormation::WaitCondition":
        note = (
            "setup_timeout must keep the value of the creation: CloudFormation does not update a WaitCondition, and "
            "the deployment would fail; restore its former value"
        )
    elif kind == "AWS::EFS::MountTarget":
        note = (
            "refused: a file system has one mount target in a zone, and all of them in one VPC, and CloudFormation "
            "creates {names} before it deletes the former one; revert the change, or deploy a new stack. Only another "
            "zone of the same VPC is taken, and every mount through the former one breaks"
        )
    else:
        note = (
            "refused: CloudFormation creates {names} before it deletes the former one, and both would have the same "
            "name or address; revert the change, or deploy a new stack"
        )
    return Outcome(note, is_refused=True)


# --- EC2 ----------------------------------------------------------------------------------------------


def _judge_group(change: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    paths = change.properties
    if any(path.startswith("LaunchTemplate.") for path in paths):
        yield _LATER_NODES
    if any(path.startswith(("MixedInstancesPolicy", "VPCZoneIdentifier")) for path in paths):
        yield Outcome(
            "nodes: {names} gets other subnets or purchase options; Auto Scaling may replace the nodes that do not "
            "match, with the ranks on them",
            ends_nodes=True,
            ends_jobs=True,
        )
    if "MaxSize" in paths and _count(other, "MaxSize") < _count(one, "MaxSize"):
        yield Outcome(
            "nodes: {names} may have fewer nodes, and those beyond its new limit end, with the ranks on them",
            ends_nodes=True,
            ends_jobs=True,
        )
    if not {"MaxSize", "MinSize"}.isdisjoint(paths):
        yield Outcome(
            "capacity: the group's limits were changed in the props and are set; its desired capacity stays as it was "
            "adjusted, unless it lies outside of them"
        )


def _judge_capacity(change: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    counts = {"Master", "Workers"} & set(change.properties)
    if counts:
        yield Outcome(
            "capacity: the count in the props is set once, even if another size was set by hand; a cluster that has "
            "failed, or was stopped and not scaled up since, is left alone"
        )
    if any(_count(other, name) < _count(one, name) for name in counts):
        yield Outcome(
            "nodes: fewer nodes are asked for, and the others end, with the ranks on them",
            ends_nodes=True,
            ends_jobs=True,
        )


def _judge_limits(_: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    former, wanted = (side.get("Environment", {}).get("Variables", {}) for side in (one, other))
    if any(wanted.get(name) and wanted[name] != former.get(name) for name in _LIMITS):
        yield Outcome(
            "spending: the new limit counts what was before it: if the nodes' time or the budget is used up already, "
            "every node ends within minutes",
            ends_nodes=True,
            ends_jobs=True,
        )


def _count(properties: _Resource, name: str) -> int:
    return int(properties.get(name, 0))


# --- EKS ----------------------------------------------------------------------------------------------

_VERSIONED = ("LaunchTemplate", "ReleaseVersion", "Version")
"""Properties of a node group that UpdateNodegroupVersion changes; UpdateNodegroupConfig changes the others."""


def _judge_node_group(change: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    versioned = [path for path in change.properties if path.partition(".")[0] in _VERSIONED]
    if len(versioned) not in (0, len(change.properties)):
        yield Outcome(
            "refused: EKS does not update the sizes, labels, taints or tags of {names} together with its launch "
            "template, and the deployment would fail; deploy twice, one change at a time",
            is_refused=True,
        )
    if {"LaunchTemplate", "LaunchTemplate.Id", "LaunchTemplate.Name"} & set(versioned):
        yield Outcome(
            "refused: EKS gives the node group {names} no other launch template than that of its creation, only "
            "another version of it; revert the change",
            is_refused=True,
        )
    elif versioned:
        yield Outcome(
            "nodes: EKS replaces every node of {names} by a node of the new launch template, and evicts the pods on "
            "it; each job there is interrupted, so deploy when none runs",
            ends_nodes=True,
            ends_jobs=True,
        )
    sizes, former = other.get("ScalingConfig", {}), one.get("ScalingConfig", {})
    if any(_count(sizes, name) < _count(former, name) for name in ("DesiredSize", "MaxSize")):
        yield Outcome(
            "nodes: {names} gets fewer nodes, and the others end with the pods on them", ends_nodes=True, ends_jobs=True
        )
    elif not any(path.startswith("ScalingConfig") for path in change.properties):
        return
    elif "DesiredSize" in sizes and _count(sizes, "DesiredSize") < _count(sizes, "MaxSize"):
        yield Outcome(
            "nodes: {names} is set to initial_members, and what was started beyond that ends with the pods on it; set "
            "initial_members to the nodes that run",
            ends_nodes=True,
            ends_jobs=True,
        )
    else:
        yield Outcome("capacity: {names} is set to the size in the props, even if it was scaled by hand")


def _judge_control_plane(change: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    if "Version" not in change.properties:
        return
    if _minor(other) != _minor(one) + 1:
        yield Outcome(
            f"refused: EKS updates Kubernetes by one minor version, and never back, from {one.get('Version')} to "
            f"{other.get('Version')}; write version 1.{_minor(one) + 1}, or restore the former one",
            is_refused=True,
        )
    else:
        yield Outcome(
            "EKS: the control plane gets the next version of Kubernetes, which cannot be undone; nodes and pods stay, "
            "and nodes keep their version until EKS replaces them"
        )


def _minor(properties: _Resource) -> int:
    return int(str(properties.get("Version", "1.0")).partition(".")[2])


# --- EMR, file systems and rights ---------------------------------------------------------------------


def _judge_emr(change: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    if any(path.endswith("InstanceGroup.InstanceCount") for path in change.properties):
        former, wanted = (
            {group: _count(side.get("Instances", {}).get(group, {}), "InstanceCount") for group in _EMR_GROUPS}
            for side in (one, other)
        )
        is_smaller = any(wanted[group] < former[group] for group in _EMR_GROUPS)
        yield Outcome(
            "EMR: the group is resized in place; a new instance joins by itself, and a running job keeps its ranks; a "
            "smaller group ends instances with the ranks on them",
            ends_nodes=is_smaller,
            ends_jobs=is_smaller,
        )


_EMR_GROUPS = ("CoreInstanceGroup", "MasterInstanceGroup")


def _judge_lustre(change: Change, one: _Resource, other: _Resource) -> Iterator[Outcome]:
    if _count(other, "StorageCapacity") < _count(one, "StorageCapacity"):
        yield Outcome(
            "refused: FSx for Lustre only grows, and the deployment would fail; restore the former size of {names}",
            is_refused=True,
        )
    elif {"StorageCapacity", "LustreConfiguration.PerUnitStorageThroughput"} & set(change.properties):
        yield Outcome("data: {names} does not answer for some minutes; its data stays, and jobs wait for it")


def _judge_parameter(change: Change, _: _Resource, __: _Resource) -> Iterator[Outcome]:
    if "ProgramsRelease" in change.logical_id:
        yield Outcome(
            "EMR: running members stay as they are; an instance that EMR launches later starts from the new release",
            reaches_later=True,
        )
    elif "Submission" in change.logical_id:
        yield Outcome(
            "jobs: running jobs keep their settings; jobs that are submitted later have the new ones",
            reaches_later=True,
        )


def _judge_policy(one: _Resource, other: _Resource, before: _Resources) -> Iterator[Outcome]:
    roles = [role.get("Ref", "") for role in one.get("Roles", ()) if isinstance(role, dict)]
    services = {service for role in roles for service in _list_principals(before.get(role, {}))}
    if not services & _JOB_PRINCIPALS:
        return
    lost = _list_rights(one) - _list_rights(other)
    if _has(before, _GROUP) or _has(before, "AWS::EMR::Cluster"):
        # Running nodes have fetched their programs; a container fetches its own again when it is started again.
        lost = {right for right in lost if "-assets-" not in right[1]}
    if lost:
        yield _RIGHTS


def _list_rights(policy: _Resource) -> set[tuple[str, str]]:
    """Return the actions of a policy with their resources."""
    statements = policy["PolicyDocument"]["Statement"]
    return {
        (action, json.dumps(resource, sort_keys=True))
        for statement in statements
        if statement["Effect"] == "Allow"
        for action in _list(statement.get("Action", ()))
        for resource in _list(statement.get("Resource", ()))
    }


def _list_principals(role: _Resource) -> Iterator[str]:
    statements = role.get("Properties", {}).get("AssumeRolePolicyDocument", {}).get("Statement", ())
    for statement in statements:
        yield from _list(statement.get("Principal", {}).get("Service", ()))


def _list(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _has(resources: _Resources, kind: str) -> bool:
    return any(resource["Type"] == kind for resource in resources.values())


_JUDGES: Mapping[str, Callable[[Change, _Resource, _Resource], Iterator[Outcome]]] = {
    _GROUP: _judge_group,
    _REQUEST: _judge_capacity,
    "AWS::EKS::Nodegroup": _judge_node_group,
    "AWS::EKS::Cluster": _judge_control_plane,
    "AWS::EMR::Cluster": _judge_emr,
    "AWS::FSx::FileSystem": _judge_lustre,
    "AWS::Lambda::Function": _judge_limits,
    "AWS::SSM::Parameter": _judge_parameter,
}
"""Judges of updates in place, by type."""
