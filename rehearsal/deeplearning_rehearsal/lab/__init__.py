"""Nodes as namespaces of this machine: they boot real user data on a cached base root file system."""

from deeplearning_rehearsal.lab.base_root import prepare_base_root
from deeplearning_rehearsal.lab.image_layer import StandIn
from deeplearning_rehearsal.lab.lab import Lab
from deeplearning_rehearsal.lab.node_faults import Gpus, MetadataFault, MountFault, NodeFaults

__all__ = ["Gpus", "Lab", "MetadataFault", "MountFault", "NodeFaults", "StandIn", "prepare_base_root"]
