"""Nodes as namespaces of this machine: they boot real user data on a cached base root file system."""

from cdk_rehearsal.lab.images.stand_in_layer import Image, StandIn
from cdk_rehearsal.lab.lab import Lab, open_lab
from cdk_rehearsal.lab.node_faults import Gpus, MetadataFault, MountFault, NodeFaults

__all__ = [
    "Gpus",
    "Image",
    "Lab",
    "MetadataFault",
    "MountFault",
    "NodeFaults",
    "StandIn",
    "open_lab",
    "prepare_base_root",
]
