"""
Deep-learning training clusters on AWS, as constructs.

`TrainingCluster` is the whole; the others are its parts and useful alone.
"""

from deeplearning_cdk.capacity_adjuster import CapacityAdjuster
from deeplearning_cdk.cluster_network import ClusterNetwork
from deeplearning_cdk.coordination import Coordination
from deeplearning_cdk.data_source import DataSource
from deeplearning_cdk.environment_cache import EnvironmentCache
from deeplearning_cdk.instance_catalog import InstanceTypeFacts
from deeplearning_cdk.job_environment import JobEnvironment
from deeplearning_cdk.lustre_file_system import LustreFileSystem
from deeplearning_cdk.node_group import NodeGroup
from deeplearning_cdk.node_image import NodeImage
from deeplearning_cdk.purchase import Purchase
from deeplearning_cdk.shared_file_system import SharedFileSystem
from deeplearning_cdk.spending import Spending
from deeplearning_cdk.training_cluster import TrainingCluster
from deeplearning_cdk.user_scripts import SetupScripts

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
