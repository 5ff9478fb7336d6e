"""Parts of a cluster among the resources of its stack, by their construct ids."""

from collections.abc import Iterable, Mapping
from typing import Any

from deeplearning_contract.names import NodeRole

GROUP = "AWS::AutoScaling::AutoScalingGroup"
TABLE = "AWS::DynamoDB::Table"
FUNCTION = "AWS::Lambda::Function"
LOG_GROUP = "AWS::Logs::LogGroup"
VPC = "AWS::EC2::VPC"
EMR_CLUSTER = "AWS::EMR::Cluster"
WAIT = "AWS::CloudFormation::WaitCondition"
_STATE_TABLE = "CoordinationStateTable"
_NODE_LOG = "NodeLog"
_ADJUSTER_LOG = "CapacityAdjusterLog"
_ADJUSTER = "CapacityAdjusterFunction"
_ROLE_WORDS = {"MasterGroup": NodeRole.MASTER, "WorkersGroup": NodeRole.WORKER}
"""Role of a group by its construct ids, for deleted groups, whose tags are gone."""


def find_groups(resources: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the roles of the node groups by name, also of groups that a rollback deleted."""
    return {
        str(entry["PhysicalResourceId"]): role.value
        for entry in resources
        if entry["ResourceType"] == GROUP and entry.get("PhysicalResourceId")
        for word, role in _ROLE_WORDS.items()
        if word in entry["LogicalResourceId"]
    }


def find_emr_cluster(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the id of the cluster on EMR; empty without one."""
    return _find(resources, EMR_CLUSTER, "")


def find_state_table(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the state table; empty without one."""
    return _find(resources, TABLE, _STATE_TABLE)


def find_node_log(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the nodes' log group; empty without one."""
    return _find(resources, LOG_GROUP, _NODE_LOG)


def find_adjuster_log(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the adjuster's log group; empty without one."""
    return _find(resources, LOG_GROUP, _ADJUSTER_LOG)


def find_adjuster(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the name of the adjuster's function; empty without one."""
    return _find(resources, FUNCTION, _ADJUSTER)


def find_vpc(resources: Iterable[Mapping[str, Any]]) -> str:
    """Return the id of the VPC that the stack created; empty without one."""
    return _find(resources, VPC, "")


def _find(resources: Iterable[Mapping[str, Any]], resource_type: str, word: str) -> str:
    names = (
        str(entry["PhysicalResourceId"])
        for entry in resources
        if entry["ResourceType"] == resource_type
        and word in entry["LogicalResourceId"]
        and entry.get("PhysicalResourceId")
    )
    return next(names, "")
