"""
Deep-learning training clusters on AWS, as constructs.

`TrainingCluster` is the whole; the others are its parts and useful alone.
"""

from deeplearning_cdk.capacity.adjuster import CapacityAdjuster
from deeplearning_cdk.capacity.purchase import Purchase
from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.images.node_image import NodeImage
from deeplearning_cdk.network.cluster_network import ClusterNetwork
from deeplearning_cdk.nodes.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.nodes.node_group import NodeGroup
from deeplearning_cdk.nodes.user_scripts import SetupScripts
from deeplearning_cdk.operations.spending import Spending
from deeplearning_cdk.software.environment_cache import EnvironmentCache
from deeplearning_cdk.software.job_environment import JobEnvironment
from deeplearning_cdk.storage.data_source import DataSource
from deeplearning_cdk.storage.lustre_file_system import LustreFileSystem
from deeplearning_cdk.storage.shared_file_system import SharedFileSystem
from deeplearning_cdk.training_cluster import TrainingCluster

__all__ = [
    "CapacityAdjuster",
    "ClusterNetwork",
    "Coordination",
    "DataSource",
    "EnvironmentCache",
    "InstanceTypeFacts",
    "JobEnvironment",
    "LustreFileSystem",
    "NodeGroup",
    "NodeImage",
    "Purchase",
    "SetupScripts",
    "SharedFileSystem",
    "Spending",
    "TrainingCluster",
]
