"""Nodes and containers as namespaces of this machine, over a cached base root file system."""

from cdk_rehearsal.lab.container import Container, ContainerOrder, Mount
from cdk_rehearsal.lab.images.stand_in_layer import Image, StandIn
from cdk_rehearsal.lab.lab import Lab, open_lab
from cdk_rehearsal.lab.node_faults import Gpus, MetadataFault, MountFault, NodeFaults

__all__ = [
    "Container",
    "ContainerOrder",
    "Gpus",
    "Image",
    "Lab",
    "MetadataFault",
    "Mount",
    "MountFault",
    "NodeFaults",
    "StandIn",
    "open_lab",
]
