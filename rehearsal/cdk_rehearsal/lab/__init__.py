"""Nodes as namespaces of this machine: they boot real user data on a cached base root file system."""

from cdk_rehearsal.lab.images.base_root import prepare_base_root
from cdk_rehearsal.lab.images.stand_in_layer import StandIn
from cdk_rehearsal.lab.lab import Lab
from cdk_rehearsal.lab.node_faults import Gpus, MetadataFault, MountFault, NodeFaults

__all__ = ["Gpus", "Lab", "MetadataFault", "MountFault", "NodeFaults", "StandIn", "prepare_base_root"]
